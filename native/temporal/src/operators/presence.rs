//! Where a row is present: how many copies of it are valid at each time, and the longest runs with at least one.
//! `lmerge/temporal/operators/presence.py`.

use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Unbounded};

use crate::failure::Failure;
use crate::plain::Plain;

/// The lifetimes of all copies of one row, added up.
#[derive(Clone, Debug, Default)]
pub struct RowPresence {
    /// From each time to the next one: how many copies are valid. Before the first are none. Neighbours differ.
    copies: BTreeMap<i64, i64>,
    /// Start to end of the runs that are not final.
    runs: BTreeMap<i64, i64>,
}

impl RowPresence {
    /// The number of runs.
    pub fn len(&self) -> usize {
        self.runs.len()
    }

    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Add 1 or -1 copies from `low` to `high`; give `each` change (start, old end, new end) of the runs.
    pub fn change(&mut self, low: i64, high: i64, copies: i64, mut each: impl FnMut(i64, i64, i64)) {
        self.split(low);
        self.split(high);
        let times: Vec<i64> = self.copies.range(low..=high).map(|(&t, _)| t).collect();
        for pair in times.windows(2) {
            let count = self.copies.get_mut(&pair[0]).expect("a time of a change");
            let before = *count;
            *count += copies;
            let after = *count;
            if before == 0 {
                self.fill(pair[0], pair[1], &mut each);
            } else if after == 0 {
                self.clear(pair[0], pair[1], &mut each);
            }
        }
        times.into_iter().for_each(|t| self.join(t));
    }

    /// Drop what nothing can change at a stable point. Returns whether nothing is left.
    pub fn forget_before(&mut self, stable: i64) -> bool {
        while self.runs.first_key_value().is_some_and(|(_, &end)| end < stable) {
            self.runs.pop_first();
        }
        while self.copies.keys().nth(1).is_some_and(|&second| second < stable) {
            self.copies.pop_first();
        }
        if self.copies.first_key_value().is_some_and(|(_, &count)| count == 0) {
            self.copies.pop_first();
        }
        self.runs.is_empty()
    }

    /// The times at which the number of copies changes.
    pub fn times(&self) -> impl Iterator<Item = i64> {
        self.copies.keys().copied()
    }

    pub fn state(&self) -> Plain {
        let pairs =
            |map: &BTreeMap<i64, i64>| Plain::List(map.iter().map(|(&t, &value)| Plain::ints([t, value])).collect());
        Plain::List(vec![pairs(&self.copies), pairs(&self.runs)])
    }

    pub fn of_state(state: &Plain) -> Result<RowPresence, Failure> {
        let pairs = |pairs: &Plain| {
            let pair = |pair: &Plain| {
                let [t, value] = pair.tuple()?;
                Ok((t.int()?, value.int()?))
            };
            pairs
                .list()?
                .iter()
                .map(pair)
                .collect::<Result<BTreeMap<i64, i64>, Failure>>()
        };
        let [copies, runs] = state.tuple()?;
        Ok(RowPresence {
            copies: pairs(copies)?,
            runs: pairs(runs)?,
        })
    }

    /// Panic unless the runs are the stretches with copies, from where these are still counted.
    pub fn check(&self) {
        let counts: Vec<(i64, i64)> = self.copies.iter().map(|(&t, &count)| (t, count)).collect();
        assert!(counts.first().is_some_and(|first| first.1 != 0) && counts.last().is_some_and(|last| last.1 == 0));
        assert!(
            counts.windows(2).all(|pair| pair[0].1 != pair[1].1 && pair[0].1 >= 0),
            "neighbours are equal"
        );
        let mut runs: Vec<(i64, i64)> = Vec::new();
        for pair in counts.windows(2).filter(|pair| pair[0].1 > 0) {
            match runs.last_mut() {
                Some(last) if last.1 == pair[0].0 => last.1 = pair[1].0,
                _ => runs.push((pair[0].0, pair[1].0)),
            }
        }
        let first = counts[0].0;
        let kept = self.runs.iter().filter(|&(_, &end)| end > first);
        let kept: Vec<(i64, i64)> = kept.map(|(&start, &end)| (start.max(first), end)).collect();
        assert_eq!(kept, runs, "the runs are not where the copies are");
    }

    fn split(&mut self, t: i64) {
        if !self.copies.contains_key(&t) {
            let before = self.copies.range(..t).next_back().map_or(0, |(_, &count)| count);
            self.copies.insert(t, before);
        }
    }

    fn join(&mut self, t: i64) {
        let before = self.copies.range(..t).next_back().map_or(0, |(_, &count)| count);
        if self.copies[&t] == before {
            self.copies.remove(&t);
        }
    }

    /// Make a stretch without copies part of a run: it joins the runs on both sides.
    fn fill(&mut self, start: i64, end: i64, each: &mut impl FnMut(i64, i64, i64)) {
        let mut last = end;
        if let Some(found) = self.runs.remove(&end) {
            last = found;
            each(end, last, end);
        }
        let before = self.runs.range(..=start).next_back().map(|(&first, &end)| (first, end));
        let first = match before {
            Some((first, end)) if end == start => {
                each(first, start, last);
                first
            }
            _ => {
                each(start, start, last);
                start
            }
        };
        self.runs.insert(first, last);
    }

    /// Cut a stretch out of the run that has it.
    fn clear(&mut self, start: i64, end: i64, each: &mut impl FnMut(i64, i64, i64)) {
        let before = self.runs.range((Unbounded, Excluded(start + 1))).next_back();
        let (first, last) = before
            .map(|(&first, &last)| (first, last))
            .expect("a stretch with copies is in a run");
        each(first, last, start);
        if first == start {
            self.runs.remove(&first);
        } else {
            self.runs.insert(first, start);
        }
        if end < last {
            self.runs.insert(end, last);
            each(end, end, last);
        }
    }
}
