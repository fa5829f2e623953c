//! As-of join: each left event with the sample of its key that holds at its start. `lmerge/temporal/operators/as_of.py`.

mod state;

use std::collections::BTreeMap;
use std::sync::Arc;

use hashbrown::HashMap;

use crate::batch::Batch;
use crate::calendar::Calendar;
use crate::changes::Change;
use crate::failure::Failure;
use crate::operator::{Operator, Progress};
use crate::operators::lifetimes::Alterations;
use crate::operators::pairs::{MISSING, Pair, PairSide, pair_batch};
use crate::operators::row_keys::KeyOf;
use crate::operators::samples::Samples;
use crate::operators::skipping::SkippedEvents;
use crate::plain::Plain;
use crate::rows::{RowArena, SharedForm};
use crate::{INF, NEG_INF, RowSchema};

/// The left events of one key and start: how many of each row and end, and the sample that they have.
#[derive(Clone, Debug, Default)]
struct LeftEvents {
    events: BTreeMap<(u32, i64), u32>,
    sample: Option<u32>,
}

/// The samples of one key, and its left events by start.
#[derive(Clone, Debug, Default)]
struct OfKey {
    samples: Samples,
    lefts: BTreeMap<i64, LeftEvents>,
}

impl OfKey {
    /// The sample that holds at `vs`.
    fn sample(&self, vs: i64, within: Option<i64>, rows: &RowArena) -> Option<u32> {
        let is_at = !self.samples.at(vs).is_empty();
        let t = if is_at { vs } else { self.samples.last_before(vs)? };
        if within.is_some_and(|within| t.saturating_add(within) < vs) {
            return None;
        }
        self.samples.holder(t, rows)
    }
}

/// Rows of one input, their form and keys. `dropped`: holds that end with the step.
#[derive(Debug)]
struct Side {
    form: SharedForm,
    key: KeyOf,
    rows: RowArena,
    dropped: Vec<u32>,
}

/// An as-of join.
#[derive(Debug)]
pub struct AsOf {
    progress: Progress,
    schema: Arc<RowSchema>,
    is_outer: bool,
    within: Option<i64>,
    skip: SkippedEvents,
    left: Side,
    right: Side,
    missing: Vec<u8>,
    stables: [i64; 2],
    keys: RowArena,
    of_keys: HashMap<u32, OfKey, ahash::RandomState>,
    /// Keys and starts, by when left events can be dropped by the left stable; then by the right, if their sample is
    /// not final yet.
    by_left: Calendar<(u32, i64)>,
    by_right: Calendar<(u32, i64)>,
    /// Keys, by when samples can be dropped by the lesser stable.
    by_both: Calendar<u32>,
    changes: Vec<Change<Pair>>,
}

impl AsOf {
    /// `is_outer`: a left event without a sample is in the output. `within`: how long a sample holds at most.
    pub fn new(
        name: &str,
        schema: Arc<RowSchema>,
        [left, right]: [(SharedForm, KeyOf); 2],
        is_outer: bool,
        within: Option<i64>,
    ) -> AsOf {
        let missing = right.0.missing().expect("a column can be missing");
        let side = |(form, key)| Side {
            form,
            key,
            rows: RowArena::default(),
            dropped: Vec::new(),
        };
        AsOf {
            progress: Progress::new(name),
            schema,
            is_outer,
            within,
            skip: SkippedEvents::new(left.0.clone(), Alterations::default()),
            left: side(left),
            right: side(right),
            missing,
            stables: [NEG_INF; 2],
            keys: RowArena::default(),
            of_keys: HashMap::default(),
            by_left: Calendar::default(),
            by_right: Calendar::default(),
            by_both: Calendar::default(),
            changes: Vec::new(),
        }
    }

    // Changes.

    fn take_left(&mut self, row: &[u8], key: Option<&[u8]>, [vs, old, new]: [i64; 3]) {
        let row = self.left.rows.hold(row);
        self.left.dropped.push(row); // the hold of this step
        let Some(key) = key else {
            return self.push_result(row, None, vs, old, new);
        };
        let key = self.hold_key(key);
        let of_key = self.of_keys.get_mut(&key).expect("a key that is held");
        if !of_key.lefts.contains_key(&vs) {
            let sample = of_key.sample(vs, self.within, &self.right.rows);
            if let Some(sample) = sample {
                self.right.rows.hold_again(sample);
            }
            of_key.lefts.insert(
                vs,
                LeftEvents {
                    sample,
                    ..LeftEvents::default()
                },
            );
        }
        let entry = of_key.lefts.get_mut(&vs).expect("it is there now");
        if old > vs {
            let count = entry.events.get_mut(&(row, old)).expect("the input is legal");
            *count -= 1;
            if *count == 0 {
                entry.events.remove(&(row, old));
                self.left.dropped.push(row);
            }
        }
        if new > vs {
            *entry.events.entry((row, new)).or_insert_with(|| {
                self.left.rows.hold_again(row);
                0
            }) += 1;
            self.by_left.add(new, (key, vs));
        }
        let sample = entry.sample;
        self.push_result(row, sample, vs, old, new);
        self.tidy(key, Some(vs));
    }

    /// Take a new or removed sample, and match the left events anew from its time up to the next one.
    fn take_sample(&mut self, row: &[u8], key: Option<&[u8]>, [t, old, new]: [i64; 3]) {
        let Some(key) = key else { return };
        if old > t && new > t {
            return;
        }
        if self.stables[0] == INF && self.keys.find(key).is_none() {
            return; // no left event comes any more
        }
        let key = self.hold_key(key);
        let row = self.right.rows.hold(row);
        let of_key = self.of_keys.get_mut(&key).expect("a key that is held");
        if old == t {
            of_key.samples.add(t, row);
            self.by_both.add(t, key);
        } else {
            of_key.samples.remove(t, row);
            self.right.dropped.extend([row, row]);
        }
        let next = of_key.samples.next_after(t);
        let starts: Vec<i64> = of_key.lefts.range(t..next.max(t)).map(|(&vs, _)| vs).collect();
        for vs in starts {
            self.match_anew(key, vs);
        }
        self.tidy(key, None);
    }

    /// Give the left events of a start the sample that holds there now.
    fn match_anew(&mut self, key: u32, vs: i64) {
        let of_key = self.of_keys.get_mut(&key).expect("a key that is held");
        let after = of_key.sample(vs, self.within, &self.right.rows);
        let entry = of_key.lefts.get_mut(&vs).expect("a start that is kept");
        let before = std::mem::replace(&mut entry.sample, after);
        if before == after {
            return;
        }
        if let Some(after) = after {
            self.right.rows.hold_again(after);
        }
        self.right.dropped.extend(before);
        let events: Vec<_> = entry
            .events
            .iter()
            .map(|(&(row, end), &count)| (row, end, count))
            .collect();
        for (row, end, count) in events {
            for _ in 0..count {
                self.push_result(row, before, vs, end, vs);
                self.push_result(row, after, vs, vs, end);
            }
        }
    }

    fn push_result(&mut self, row: u32, sample: Option<u32>, vs: i64, old: i64, new: i64) {
        if sample.is_some() || self.is_outer {
            self.changes.push(Change {
                row: (row, sample.unwrap_or(MISSING)),
                vs,
                old,
                new,
            });
        }
    }

    /// The number of a key. What is kept of the key is its hold.
    fn hold_key(&mut self, key: &[u8]) -> u32 {
        let key = self.keys.hold(key);
        if self.of_keys.contains_key(&key) {
            self.keys.release(key);
        } else {
            self.of_keys.insert(key, OfKey::default());
        }
        key
    }

    /// Drop a start without left events, and a key without anything, or with samples that no left event can get.
    fn tidy(&mut self, key: u32, vs: Option<i64>) {
        let Some(of_key) = self.of_keys.get_mut(&key) else {
            return;
        };
        if let Some(vs) = vs.filter(|vs| of_key.lefts[vs].events.is_empty()) {
            let entry = of_key.lefts.remove(&vs).expect("it was there");
            self.right.dropped.extend(entry.sample);
        }
        if of_key.lefts.is_empty() && (of_key.samples.is_empty() || self.stables[0] == INF) {
            self.right.dropped.extend(of_key.samples.rows());
            self.of_keys.remove(&key);
            self.keys.release(key);
        }
    }

    // Time.

    fn drop_final(&mut self) {
        let [left, right] = self.stables;
        let both = left.min(right);
        let mut due = Vec::new();
        if left == INF {
            let starts = self
                .of_keys
                .iter()
                .flat_map(|(&key, of_key)| of_key.lefts.keys().map(move |&vs| (key, vs)));
            due.extend(starts);
            self.by_left.clear();
        } else {
            self.by_left.pop_below(left, &mut due);
        }
        self.by_right.pop_below(right, &mut due);
        for (key, vs) in due {
            self.drop_left(key, vs);
        }
        let mut keys = Vec::new();
        if left == INF {
            keys.extend(self.of_keys.keys().copied());
        } else {
            self.by_both.pop_below(both, &mut keys);
        }
        for key in keys {
            let Some(of_key) = self.of_keys.get_mut(&key) else {
                continue;
            };
            // A sample of the last unit of time before both stables can still be within reach of the first left event.
            let lasts = self.within.map(|within| within.saturating_add(1));
            of_key.samples.drop_before(both, lasts, &mut self.right.dropped);
            if let (Some(within), Some(first)) = (self.within, of_key.samples.first().filter(|&first| first < both)) {
                self.by_both.add(first.saturating_add(within), key);
            }
            self.tidy(key, None);
        }
    }

    /// Drop the left events of a start that are fully frozen, or come back when their sample is final.
    fn drop_left(&mut self, key: u32, vs: i64) {
        let Some(entry) = self.of_keys.get_mut(&key).and_then(|of_key| of_key.lefts.get_mut(&vs)) else {
            return;
        };
        let [left, right] = self.stables;
        if vs >= right && right < INF {
            self.by_right.add(vs, (key, vs));
            return;
        }
        let dropped = &mut self.left.dropped;
        entry.events.retain(|&(row, end), _| {
            let is_final = end < left || left == INF;
            if is_final {
                dropped.push(row);
            }
            !is_final
        });
        self.tidy(key, Some(vs));
    }

    fn output(&mut self) -> Batch {
        let side = |side| {
            let Side { form, rows, .. }: &Side = side;
            PairSide {
                form,
                rows,
                missing: &self.missing,
            }
        };
        let changes = std::mem::take(&mut self.changes);
        let out = pair_batch(self.schema.clone(), &[side(&self.left), side(&self.right)], changes);
        for Side { rows, dropped, .. } in [&mut self.left, &mut self.right] {
            dropped.drain(..).for_each(|row| rows.release(row));
        }
        out
    }
}

impl Operator for AsOf {
    fn inputs(&self) -> usize {
        2
    }

    fn step(&mut self, inputs: &[Batch]) -> Result<Batch, Failure> {
        let left = self.skip.take(&inputs[0]);
        let right = &inputs[1];
        if !left.is_empty() {
            let rows = self.left.form.encode(&left.columns);
            let keys = self.left.key.keys(&left.columns, left.len());
            for at in 0..keys.count {
                let times = [left.vs[at], left.old[at], left.new[at]];
                self.take_left(rows.row(at).data(), keys.present(at), times);
            }
            keys.failure.map_or(Ok(()), Err)?;
        }
        if !right.is_empty() {
            let rows = self.right.form.encode(&right.columns);
            let keys = self.right.key.keys(&right.columns, right.len());
            for at in 0..keys.count {
                let times = [right.vs[at], right.old[at], right.new[at]];
                self.take_sample(rows.row(at).data(), keys.present(at), times);
            }
            keys.failure.map_or(Ok(()), Err)?;
        }
        let mut moved = false;
        for (stable, found) in self.stables.iter_mut().zip([left.stable, right.stable]) {
            if let Some(found) = found {
                *stable = (*stable).max(found);
                moved = true;
            }
        }
        if moved {
            self.drop_final();
        }
        let least = self.stables[0].min(self.stables[1]);
        Ok(Batch {
            stable: self.progress.advance(moved.then_some(least)),
            ..self.output()
        })
    }

    /// Any sample can be the last one of its key, unless left events start only when it does not hold any more.
    fn fast_forward(&mut self, t: i64) -> Vec<i64> {
        let until = self.progress.fast_forward(t);
        self.skip.fast_forward(until);
        let Some(within) = self.within else {
            return vec![until, NEG_INF];
        };
        let starts = self
            .of_keys
            .values()
            .filter_map(|of_key| of_key.lefts.keys().next().copied());
        let first = starts.min().unwrap_or(INF).min(self.stables[0]);
        let needed = match first {
            INF | NEG_INF => first,
            first => (i128::from(first) - i128::from(within) + 1).max(NEG_INF.into()) as i64,
        };
        vec![until, needed]
    }

    fn state(&self) -> Plain {
        self.kept()
    }

    fn restore(&mut self, state: &Plain) -> Result<(), Failure> {
        self.take_kept(state)
    }

    fn live(&self) -> usize {
        let of = |of_key: &OfKey| {
            let events = of_key.lefts.values().flat_map(|entry| entry.events.values());
            of_key.samples.len() + events.map(|&count| count as usize).sum::<usize>()
        };
        self.skip.live() + self.of_keys.values().map(of).sum::<usize>()
    }

    fn skipped(&self) -> u64 {
        self.skip.skipped()
    }

    fn check(&self) {
        self.skip.check();
        [&self.by_left, &self.by_right].into_iter().for_each(Calendar::check);
        self.by_both.check();
        [&self.left.rows, &self.right.rows, &self.keys]
            .into_iter()
            .for_each(RowArena::check);
        assert_eq!(self.keys.len(), self.of_keys.len());
        let [left, right] = self.stables;
        for of_key in self.of_keys.values() {
            assert!(!of_key.lefts.is_empty() || !of_key.samples.is_empty());
            of_key.samples.check(left.min(right));
            for (&vs, entry) in &of_key.lefts {
                assert!(vs < right || entry.sample == of_key.sample(vs, self.within, &self.right.rows));
                assert!(!entry.events.is_empty());
                assert!(entry.events.keys().all(|&(_, end)| end >= left || vs >= right));
            }
        }
    }
}
