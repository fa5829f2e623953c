//! Samples of a signal by key and time: `lmerge/temporal/operators/samples.py`. Rows are numbers of an arena.

use std::collections::BTreeMap;

use crate::INF;
use crate::failure::Failure;
use crate::plain::Plain;
use crate::plain_rows::{columns_of_plain, plain_rows};
use crate::rows::{RowArena, RowForm};

/// The samples of one key, by time, in the order in which they came.
#[derive(Clone, Debug, Default)]
pub struct Samples(BTreeMap<i64, Vec<u32>>);

impl Samples {
    /// The number of samples.
    pub fn len(&self) -> usize {
        self.0.values().map(Vec::len).sum()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn add(&mut self, t: i64, row: u32) {
        self.0.entry(t).or_default().push(row);
    }

    /// Remove a sample that is there.
    pub fn remove(&mut self, t: i64, row: u32) {
        let rows = self.0.get_mut(&t).expect("the input is legal");
        let at = rows.iter().position(|&other| other == row).expect("the input is legal");
        rows.remove(at);
        if rows.is_empty() {
            self.0.remove(&t);
        }
    }

    /// The rows at `t`, in the order in which they came.
    pub fn at(&self, t: i64) -> &[u32] {
        self.0.get(&t).map_or(&[], Vec::as_slice)
    }

    /// The row that holds from `t` on: the last in the order of rows.
    pub fn holder(&self, t: i64, arena: &RowArena) -> Option<u32> {
        self.at(t).iter().copied().max_by_key(|&row| arena.get(row))
    }

    /// The time of the first sample behind `t`, or +inf without any.
    pub fn next_after(&self, t: i64) -> i64 {
        if t == INF {
            return INF;
        }
        self.0.range(t + 1..).next().map_or(INF, |(&t, _)| t)
    }

    /// The time of the last sample before `t`.
    pub fn last_before(&self, t: i64) -> Option<i64> {
        self.0.range(..t).next_back().map(|(&t, _)| t)
    }

    /// Drop the samples before `t`, but for the last one if it still holds at `t`: it does so for `lasts`. Their rows
    /// are appended to `dropped`.
    pub fn drop_before(&mut self, t: i64, lasts: Option<i64>, dropped: &mut Vec<u32>) {
        let Some(last) = self.last_before(t) else { return };
        let is_over = lasts.is_some_and(|lasts| last.saturating_add(lasts) <= t);
        while let Some(entry) = self.0.first_entry() {
            let first = *entry.key();
            if first > last || (first == last && !is_over) {
                break;
            }
            dropped.extend(entry.remove());
        }
    }

    /// The time of the first sample.
    pub fn first(&self) -> Option<i64> {
        self.0.keys().next().copied()
    }

    /// The place of the first sample in the order of time and row. No two keys have the same.
    pub fn order<'a>(&self, arena: &'a RowArena) -> (i64, &'a [u8]) {
        let (&t, rows) = self.0.first_key_value().expect("a key that is kept has samples");
        (
            t,
            rows.iter().map(|&row| arena.get(row)).min().expect("a time has rows"),
        )
    }

    /// The rows of all samples.
    pub fn rows(&self) -> impl Iterator<Item = u32> {
        self.0.values().flatten().copied()
    }

    /// The times and rows as plain values, in the order of time and row.
    pub fn state(&self, form: &RowForm, arena: &RowArena) -> Plain {
        let mut all: Vec<(i64, &[u8])> = Vec::new();
        for (&t, rows) in &self.0 {
            all.extend(rows.iter().map(|&row| (t, arena.get(row))));
        }
        all.sort_unstable();
        let columns = form.decode(all.iter().map(|(_, row)| *row));
        let mut rows = plain_rows(form.columns(), &columns, all.len()).into_iter();
        let times = all.chunk_by(|one, other| one.0 == other.0);
        let entry = |entry: &[(i64, &[u8])]| {
            Plain::List(vec![
                Plain::Int(entry[0].0),
                Plain::List(rows.by_ref().take(entry.len()).collect()),
            ])
        };
        Plain::List(times.map(entry).collect())
    }

    /// The samples of `state`, each with a hold on its row.
    pub fn of_state(state: &Plain, form: &RowForm, arena: &mut RowArena) -> Result<Samples, Failure> {
        let mut samples = Samples::default();
        let (mut times, mut rows) = (Vec::new(), Vec::new());
        for entry in state.list()? {
            let [t, of_time] = entry.tuple()?;
            for row in of_time.list()? {
                times.push(t.int()?);
                rows.push(row);
            }
        }
        let encoded = form.encode(&columns_of_plain(form.columns(), &rows)?);
        for (t, row) in times.into_iter().zip(encoded.iter()) {
            samples.add(t, arena.hold(row.data()));
        }
        Ok(samples)
    }

    /// The times of samples.
    pub fn times(&self) -> impl Iterator<Item = i64> {
        self.0.keys().copied()
    }

    /// Panic unless at most one time before the stable point is kept, and no time is without a row.
    pub fn check(&self, stable: i64) {
        assert!(self.0.values().all(|rows| !rows.is_empty()));
        assert!(
            self.0.range(..stable).count() <= 1,
            "samples are kept that nothing can change"
        );
    }
}
