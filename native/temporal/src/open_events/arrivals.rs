//! Inserts that no change has named: kept as the columns in which they came, without an entry for each.
//!
//! Most events of most streams are never revised. An event that only comes and is frozen again costs no more here than
//! the copy of its values. All are entered one by one as soon as a change could name one of them.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use arrow_array::ArrayRef;

use crate::INF;

/// Fewer inserts than this are entered one by one: each batch here has its own arrays.
pub const ARRIVED_MIN: usize = 64;

/// Inserts of one batch.
#[derive(Debug)]
pub struct Arrived {
    pub columns: Vec<ArrayRef>,
    /// Start and end of each.
    pub spans: Vec<(i64, i64)>,
}

impl Arrived {
    /// The time at which half of the events have ended.
    fn half(&self) -> i64 {
        let mut ends: Vec<i64> = self.spans.iter().map(|&(_, end)| end).collect();
        let middle = ends.len() / 2;
        *ends.select_nth_unstable(middle).1
    }

    fn is_over(&self, stable: i64) -> bool {
        self.spans.iter().all(|&(_, end)| end < stable)
    }
}

/// Batches of inserts, of each of which at least half are live.
#[derive(Debug, Default)]
pub struct Arrivals {
    batches: Vec<Option<Arrived>>,
    unused: Vec<usize>,
    /// By the time at which half of them have ended.
    halves: BinaryHeap<Reverse<(i64, usize)>>,
}

impl Arrivals {
    pub fn is_empty(&self) -> bool {
        self.halves.is_empty()
    }

    pub fn push(&mut self, arrived: Arrived) {
        let half = arrived.half();
        let at = self.unused.pop().unwrap_or(self.batches.len());
        if at == self.batches.len() {
            self.batches.push(None);
        }
        self.batches[at] = Some(arrived);
        self.halves.push(Reverse((half, at)));
    }

    /// Remove the batches of which half have ended before `stable`. Returns those with live events among them.
    pub fn pop_below(&mut self, stable: i64) -> Vec<Arrived> {
        let mut popped = Vec::new();
        while let Some(&Reverse((half, at))) = self.halves.peek()
            && half < stable
        {
            self.halves.pop();
            self.unused.push(at);
            popped.extend(self.batches[at].take().filter(|arrived| !arrived.is_over(stable)));
        }
        popped
    }

    /// Remove all.
    pub fn drain(&mut self) -> Vec<Arrived> {
        self.halves.clear();
        self.unused.clear();
        self.batches.drain(..).flatten().collect()
    }

    /// The number of events that are live at `stable`.
    pub fn live(&self, stable: i64) -> usize {
        self.ends().filter(|&end| end >= stable).count()
    }

    /// The latest finite end.
    pub fn last_finite_end(&self) -> Option<i64> {
        self.ends().filter(|&end| end < INF).max()
    }

    fn ends(&self) -> impl Iterator<Item = i64> + '_ {
        let spans = self.batches.iter().flatten().flat_map(|arrived| &arrived.spans);
        spans.map(|&(_, end)| end)
    }

    /// Panic unless at least half of each batch is live at `stable`.
    pub fn check(&self, stable: i64) {
        assert_eq!(self.halves.len(), self.batches.iter().flatten().count());
        for arrived in self.batches.iter().flatten() {
            let live = arrived.spans.iter().filter(|&&(_, end)| end >= stable).count();
            assert!(2 * live >= arrived.spans.len());
        }
    }
}
