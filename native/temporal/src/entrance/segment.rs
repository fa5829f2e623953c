//! A batch of changes while an entrance cuts it out of its input.

use crate::batch::{Batch, taken};

use super::{Times, times_of};

/// The changes of a batch that is not whole yet: those of the input from `first`, as they are or as they became.
pub(super) struct Segment {
    first: usize,
    count: usize,
    /// How many the live events have taken.
    pub applied: usize,
    /// None while all are as they came: otherwise the place in the input, and the times, of each.
    changed: Option<Vec<(u32, Times)>>,
}

impl Segment {
    pub fn new(first: usize) -> Segment {
        Segment {
            first,
            count: 0,
            applied: 0,
            changed: None,
        }
    }

    pub fn push(&mut self, input: &Batch, at: usize, times: Option<Times>) {
        if self.changed.is_none() && times == Some(times_of(input, at)) {
            self.count += 1;
            return;
        }
        let (first, count) = (self.first, self.count);
        let changed = self.changed.get_or_insert_with(|| {
            (first..first + count)
                .map(|at| (at as u32, times_of(input, at)))
                .collect()
        });
        changed.extend(times.map(|times| (at as u32, times)));
    }

    /// Add changes of the input from `at` as they are.
    pub fn push_all(&mut self, input: &Batch, at: usize, count: usize) {
        match &mut self.changed {
            None => self.count += count,
            Some(changed) => changed.extend((at..at + count).map(|at| (at as u32, times_of(input, at)))),
        }
    }

    pub fn len(&self) -> usize {
        self.changed.as_ref().map_or(self.count, Vec::len)
    }

    /// The place in the input and the times of a change.
    #[inline]
    pub fn get(&self, input: &Batch, at: usize) -> (u32, Times) {
        match &self.changed {
            Some(changed) => changed[at],
            None => ((self.first + at) as u32, times_of(input, self.first + at)),
        }
    }

    pub fn batch(self, input: &Batch) -> Batch {
        match self.changed {
            None => input.slice(self.first, self.count),
            Some(changed) => {
                let indices: Vec<u32> = changed.iter().map(|&(at, _)| at).collect();
                Batch {
                    schema: input.schema.clone(),
                    columns: taken(&input.columns, &indices),
                    vs: changed.iter().map(|&(_, (vs, _, _))| vs).collect(),
                    old: changed.iter().map(|&(_, (_, old, _))| old).collect(),
                    new: changed.iter().map(|&(_, (_, _, new))| new).collect(),
                    stable: None,
                    mark: None,
                }
            }
        }
    }
}
