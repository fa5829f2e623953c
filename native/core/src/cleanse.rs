//! Cleanse (VI.D, IV.G.2): turns any stream into an ordered, insert-only stream by buffering. See
//! `lmerge/core/comparison/cleanse.py`.
//!
//! One tree by (Vs, payload) holds all buffered events. A stable looks only at its front: fully frozen events there are
//! released; the first event that is not delays every event behind it. So an event costs one look-up when it comes, and
//! nothing until it is released.

use std::collections::BTreeMap;

use crate::columns::{Columns, View};
use crate::element::{ADJUST, INF, INSERT, NEG_INF};
use crate::violation::{Code, Violation};

/// Ends of the events with one (Vs, payload), ascending; usually one.
#[derive(Debug)]
#[expect(
    clippy::box_collection,
    reason = "a map of single ends must not pay for the lists: 16 bytes instead of 32"
)]
enum Ends {
    One(i64),
    Many(Box<Vec<i64>>),
}

impl Ends {
    fn all(&self) -> &[i64] {
        match self {
            Ends::One(ve) => std::slice::from_ref(ve),
            Ends::Many(ends) => ends,
        }
    }

    /// The ends that can still change after stable(t).
    fn live(&self, t: i64) -> &[i64] {
        let ends = self.all();
        &ends[ends.partition_point(|&ve| ve < t)..]
    }

    fn add(&mut self, ve: i64) {
        let mut ends = self.all().to_vec();
        ends.insert(ends.partition_point(|&end| end <= ve), ve);
        *self = Ends::Many(Box::new(ends));
    }

    /// Remove `vold`, which must exist, and add `ve`.
    fn replace(&mut self, vold: i64, ve: Option<i64>) {
        match (&mut *self, ve) {
            (Ends::One(end), Some(ve)) => *end = ve,
            (Ends::One(_), None) => *self = Ends::Many(Box::default()),
            (Ends::Many(ends), ve) => {
                let at = ends.binary_search(&vold).expect("an end that is there");
                ends.remove(at);
                if let Some(ve) = ve {
                    self.add(ve);
                }
            }
        }
    }
}

/// Cleanses one stream.
#[derive(Debug)]
pub struct Cleanse {
    waiting: BTreeMap<(i64, Vec<u8>), Ends>,
    /// A buffer for the key of a look-up; kept to reuse its memory.
    sought: (i64, Vec<u8>),
    buffered: usize,
    /// The input's stable point and the output's.
    stable: i64,
    announced: i64,
    applied: usize,
}

impl Default for Cleanse {
    fn default() -> Cleanse {
        let (waiting, sought) = (BTreeMap::new(), (0, Vec::new()));
        Cleanse {
            waiting,
            sought,
            buffered: 0,
            stable: NEG_INF,
            announced: NEG_INF,
            applied: 0,
        }
    }
}

impl Cleanse {
    /// Number of buffered events.
    pub fn buffered(&self) -> usize {
        self.buffered
    }

    /// An estimate of the bytes held, as of `R3Minus::memory`, and the bytes of the buffered payloads.
    pub fn memory(&self) -> (usize, usize) {
        let payload = self.waiting.keys().map(|(_, payload)| payload.len()).sum();
        let held = self
            .waiting
            .keys()
            .map(|(_, payload)| payload.capacity())
            .sum::<usize>();
        (
            held + self.waiting.len() * size_of::<((i64, Vec<u8>), Ends)>() * 3 / 2,
            payload,
        )
    }

    /// Take a batch and return the events that can be released. On a violation the elements before the offender have
    /// been taken; its index counts from the start of the stream, or, as in the definition, from stable(+inf).
    pub fn apply(&mut self, batch: &View<'_>) -> Result<Columns, Box<Violation>> {
        let mut out = Columns::default();
        for index in 0..batch.len() {
            let took = match batch.kind(index) {
                INSERT => self.insert(batch, index),
                ADJUST => self.adjust(batch, index),
                _ => self.take_stable(batch, index, &mut out),
            };
            took.map_err(|mut violation| {
                violation.index = self.applied;
                violation
            })?;
            self.applied = if self.stable == INF { 0 } else { self.applied + 1 };
        }
        Ok(out)
    }

    fn insert(&mut self, batch: &View<'_>, index: usize) -> Result<(), Box<Violation>> {
        let (vs, ve) = (batch.vs(index), batch.ve(index));
        if ve < vs {
            return Err(Violation::of(Code::EndBeforeStart, 0, batch, index));
        }
        if vs < self.stable {
            return Err(Violation::of(Code::InsertBelowStable, 0, batch, index).detail(self.stable));
        }
        if ve > vs {
            let key = (vs, batch.payload(index).to_vec());
            self.waiting
                .entry(key)
                .and_modify(|ends| ends.add(ve))
                .or_insert(Ends::One(ve));
            self.buffered += 1;
        }
        Ok(())
    }

    fn adjust(&mut self, batch: &View<'_>, index: usize) -> Result<(), Box<Violation>> {
        let (vs, ve, vold) = (batch.vs(index), batch.ve(index), batch.vold(index));
        if ve < vs {
            return Err(Violation::of(Code::EndBeforeStart, 0, batch, index));
        }
        if ve < self.stable || vold < self.stable {
            return Err(Violation::of(Code::AdjustBelowStable, 0, batch, index).detail(self.stable));
        }
        self.sought.0 = vs;
        self.sought.1.clear();
        self.sought.1.extend_from_slice(batch.payload(index));
        let ends = self.waiting.get_mut(&self.sought);
        let known = ends.as_ref().map_or(&[][..], |ends| ends.live(self.stable));
        if known.binary_search(&vold).is_err() {
            return Err(Violation::of(Code::UnknownEvent, 0, batch, index).ends(known));
        }
        let ends = ends.expect("it has the end");
        ends.replace(vold, (ve > vs).then_some(ve));
        if ve == vs {
            self.buffered -= 1;
            if ends.all().is_empty() {
                self.waiting.remove(&self.sought);
            }
        }
        Ok(())
    }

    fn take_stable(&mut self, batch: &View<'_>, index: usize, out: &mut Columns) -> Result<(), Box<Violation>> {
        let t = batch.vs(index);
        if t < self.stable {
            return Err(Violation::of(Code::StableBackwards, 0, batch, index).detail(self.stable));
        }
        self.stable = t;
        self.release(t, out);
        Ok(())
    }

    fn release(&mut self, t: i64, out: &mut Columns) {
        let mut bound = t;
        if t < INF {
            // After stable(+inf) no event changes any more: an event without an end is final too.
            let live = self
                .waiting
                .iter()
                .find(|((vs, _), ends)| *vs >= t || !ends.live(t).is_empty());
            bound = live.map_or(t, |((vs, _), _)| t.min(*vs));
        }
        while let Some(first) = self.waiting.first_entry() {
            if first.key().0 >= bound && t < INF {
                break;
            }
            let ((vs, payload), ends) = first.remove_entry();
            for &ve in ends.all() {
                out.insert(vs, ve, &payload);
            }
            self.buffered -= ends.all().len();
        }
        if bound > self.announced {
            self.announced = bound;
            out.stable(bound);
        }
    }
}
