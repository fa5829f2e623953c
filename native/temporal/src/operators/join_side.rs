//! One input of a join: its live events by key, and which parts of them nothing has matched.
//! `lmerge/temporal/operators/join_side.py` has the rules.

use std::collections::BTreeMap;

use arrow_array::ArrayRef;
use hashbrown::HashMap;

use super::row_keys::KeyOf;
use crate::calendar::Calendar;
use crate::failure::Failure;
use crate::plain::Plain;
use crate::plain_rows::{columns_of_plain, plain_rows};
use crate::rows::{RowArena, SharedForm};
use crate::sorted::Sorted;
use crate::{INF, NEG_INF};

/// An event by its end, start and row.
pub type ByEnd = (i64, i64, u32);

/// Starts and ends.
type Lifetimes = Vec<(i64, i64)>;

/// Keys of both inputs, and the events of each by side.
#[derive(Debug, Default)]
pub struct JoinKeys {
    pub keys: RowArena,
    pub events: Vec<[Sorted<ByEnd>; 2]>,
}

impl JoinKeys {
    /// The number of a key, with one hold more.
    pub fn hold(&mut self, key: &[u8]) -> u32 {
        let id = self.keys.hold(key);
        if id as usize == self.events.len() {
            self.events.push(Default::default());
        }
        id
    }

    /// The events of a key and side that overlap `[start, end)`, by their end.
    #[inline]
    pub fn overlapping(&self, key: u32, side: usize, start: i64, end: i64) -> impl Iterator<Item = ByEnd> {
        let first = (start.saturating_add(1), i64::MIN, 0);
        let is_any = start < INF;
        let events = &self.events[key as usize][side];
        events.from(first).filter(move |&(_, vs, _)| is_any && vs < end)
    }
}

/// Events of one row and start, for which parts without a match are reported.
#[derive(Clone, Debug)]
pub struct UnmatchedParts {
    /// Where the search for them begins; before it nothing changes any more.
    pub covered: i64,
    /// The ends of all of the events.
    pub ends: Vec<i64>,
    pub key: u32,
}

/// What a join has of an input: the form of its rows, and their keys.
#[derive(Debug)]
pub struct JoinInput {
    pub form: SharedForm,
    pub key: KeyOf,
}

/// The live events of one input. `reports`: parts of its events without a match are in the output.
#[derive(Debug)]
pub struct JoinSide {
    pub given: JoinInput,
    pub reports: bool,
    pub stable: i64,
    pub rows: RowArena,
    pub unmatched: HashMap<(u32, i64), UnmatchedParts, ahash::RandomState>,
    /// Of `unmatched`, and how many have it.
    starts: BTreeMap<i64, u32>,
    /// Keys by the earliest end of their events.
    due: Calendar<u32>,
    /// The number of events.
    pub live: usize,
    /// Rows and keys whose holds end with the step.
    pub dropped: Vec<(u32, u32)>,
}

impl JoinSide {
    pub fn new(given: JoinInput, reports: bool) -> JoinSide {
        JoinSide {
            given,
            reports,
            stable: NEG_INF,
            rows: RowArena::default(),
            unmatched: HashMap::default(),
            starts: BTreeMap::new(),
            due: Calendar::default(),
            live: 0,
            dropped: Vec::new(),
        }
    }

    /// Take a change of an event. `row` and `key` are held by the caller for the step.
    pub fn apply(&mut self, at: usize, keys: &mut JoinKeys, key: u32, row: u32, [vs, old, new]: [i64; 3]) {
        let events = &mut keys.events[key as usize][at];
        if old > vs {
            let is_there = events.remove(&(old, vs, row));
            debug_assert!(is_there, "the inputs of a join are legal");
            self.live -= 1;
            self.dropped.push((row, key));
        }
        if new > vs {
            events.add((new, vs, row));
            self.live += 1;
            self.rows.hold_again(row);
            keys.keys.hold_again(key);
            if new < INF {
                self.due.add(new, key);
            }
        }
        if self.reports {
            if new > vs {
                self.note_end(row, vs, new, key);
            }
            if old > vs {
                // second: what is covered outlives the end
                self.forget_end(row, vs, old);
            }
        }
    }

    /// Drop the events that end at or before `until`. Returns them with their keys.
    pub fn drop_until(&mut self, at: usize, keys: &mut JoinKeys, until: i64) -> Vec<(u32, ByEnd)> {
        let mut due = Vec::new();
        if until == INF {
            due.extend(0..keys.events.len() as u32);
            self.due.clear();
        } else {
            self.due.pop_below(until.saturating_add(1), &mut due);
        }
        let (mut dropped, mut of_key) = (Vec::new(), Vec::new());
        for key in due {
            let events = &mut keys.events[key as usize][at];
            if until == INF {
                of_key.extend(events.iter());
                *events = Sorted::default();
            } else {
                events.drop_before(&(until + 1, i64::MIN, 0), &mut of_key);
            }
            for &(ve, vs, row) in &of_key {
                if self.reports {
                    self.forget_end(row, vs, ve);
                }
                self.dropped.push((row, key));
            }
            self.live -= of_key.len();
            dropped.extend(of_key.drain(..).map(|event| (key, event)));
        }
        dropped
    }

    /// Release what the step has dropped.
    pub fn release(&mut self, keys: &mut JoinKeys) {
        for (row, key) in self.dropped.drain(..) {
            self.rows.release(row);
            keys.keys.release(key);
        }
    }

    /// The least start of the events whose unmatched parts are reported, or +inf without any.
    pub fn first_start(&self) -> i64 {
        self.starts.keys().next().copied().unwrap_or(INF)
    }

    pub fn state(&self, at: usize, keys: &JoinKeys) -> Plain {
        let mut events: Vec<_> = keys.events.iter().flat_map(|sides| sides[at].iter()).collect();
        let order = |&(ve, vs, row): &ByEnd, other: &ByEnd| {
            let rows = || self.rows.get(row).cmp(self.rows.get(other.2));
            vs.cmp(&other.1).then_with(rows).then(ve.cmp(&other.0))
        };
        events.sort_unstable_by(order);
        let parts = self
            .unmatched
            .iter()
            .map(|(&(row, vs), parts)| (parts.covered, vs, row));
        let mut covered: Vec<ByEnd> = parts.filter(|&(covered, vs, _)| covered > vs).collect();
        covered.sort_unstable_by(order);
        Plain::map([
            ("stable", Plain::Int(self.stable)),
            ("events", self.plain(&events)),
            ("covered", self.plain(&covered)),
        ])
    }

    pub fn restore(&mut self, at: usize, keys: &mut JoinKeys, state: &Plain) -> Result<(), Failure> {
        self.stable = state.get("stable")?.int()?;
        let (columns, times) = self.columns_of(state.get("events")?)?;
        let rows = self.given.form.encode(&columns);
        let row_keys = self.given.key.keys(&columns, times.len());
        if let Some(failure) = row_keys.failure {
            return Err(failure);
        }
        self.rows.reserve(times.len());
        for (index, (vs, ve)) in times.into_iter().enumerate() {
            let row = self.rows.hold(rows.row(index).data());
            let key = row_keys
                .present(index)
                .ok_or_else(|| Failure::Usage("a row that matches none was kept".into()))?;
            let key = keys.hold(key);
            self.apply(at, keys, key, row, [vs, vs, ve]);
            self.dropped.push((row, key));
        }
        self.release(keys);
        let (columns, times) = self.columns_of(state.get("covered")?)?;
        let rows = self.given.form.encode(&columns);
        for (row, (vs, covered)) in rows.iter().zip(times) {
            let parts = self
                .rows
                .find(row.data())
                .and_then(|row| self.unmatched.get_mut(&(row, vs)));
            parts
                .ok_or_else(|| Failure::Usage("a state has a covered event that is not live".into()))?
                .covered = covered;
        }
        Ok(())
    }

    /// Panic unless events stand under their keys, and unmatched parts are those of live events.
    pub fn check(&self, at: usize, keys: &JoinKeys) {
        self.due.check();
        self.rows.check();
        assert!(self.dropped.is_empty());
        let mut ends: HashMap<(u32, i64), Vec<i64>, ahash::RandomState> = HashMap::default();
        let mut count = 0;
        for (key, sides) in keys.events.iter().enumerate() {
            sides[at].check();
            for (ve, vs, row) in sides[at].iter() {
                count += 1;
                ends.entry((row, vs)).or_default().push(ve);
                if self.reports {
                    assert_eq!(self.unmatched[&(row, vs)].key as usize, key);
                }
            }
        }
        assert_eq!(count, self.live);
        if !self.reports {
            assert!(self.unmatched.is_empty());
            return;
        }
        let mut starts = BTreeMap::new();
        assert_eq!(ends.len(), self.unmatched.len());
        for (&(row, vs), parts) in &self.unmatched {
            let mut sorted = parts.ends.clone();
            sorted.sort_unstable();
            ends.get_mut(&(row, vs)).expect("a live event").sort_unstable();
            assert_eq!(sorted, ends[&(row, vs)]);
            assert!(vs <= parts.covered);
            *starts.entry(vs).or_insert(0) += 1;
        }
        assert_eq!(starts, self.starts);
    }

    fn note_end(&mut self, row: u32, vs: i64, end: i64, key: u32) {
        let parts = self.unmatched.entry((row, vs)).or_insert_with(|| {
            *self.starts.entry(vs).or_insert(0) += 1;
            UnmatchedParts {
                covered: vs,
                ends: Vec::new(),
                key,
            }
        });
        parts.ends.push(end);
    }

    fn forget_end(&mut self, row: u32, vs: i64, end: i64) {
        let parts = self
            .unmatched
            .get_mut(&(row, vs))
            .expect("an event that is kept has parts");
        let at = parts
            .ends
            .iter()
            .position(|&other| other == end)
            .expect("an end that is kept");
        parts.ends.remove(at);
        if parts.ends.is_empty() {
            self.unmatched.remove(&(row, vs));
            let count = self.starts.get_mut(&vs).expect("a start is counted");
            *count -= 1;
            if *count == 0 {
                self.starts.remove(&vs);
            }
        }
    }

    /// Events as lists of row, start, end.
    fn plain(&self, events: &[ByEnd]) -> Plain {
        let columns = self
            .given
            .form
            .decode(events.iter().map(|event| self.rows.get(event.2)));
        let rows = plain_rows(self.given.form.columns(), &columns, events.len());
        let of = |(row, &(ve, vs, _))| Plain::List(vec![row, Plain::Int(vs), Plain::Int(ve)]);
        Plain::List(rows.into_iter().zip(events).map(of).collect())
    }

    /// The columns and the times of lists of row, start, end.
    fn columns_of(&self, events: &Plain) -> Result<(Vec<ArrayRef>, Lifetimes), Failure> {
        let events: Vec<&[Plain; 3]> = events.list()?.iter().map(Plain::tuple).collect::<Result<_, _>>()?;
        let rows: Vec<&Plain> = events.iter().map(|event| &event[0]).collect();
        let times = events.iter().map(|[_, vs, ve]| Ok((vs.int()?, ve.int()?)));
        Ok((
            columns_of_plain(self.given.form.columns(), &rows)?,
            times.collect::<Result<_, Failure>>()?,
        ))
    }
}
