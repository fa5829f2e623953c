//! The limit for a count by key: one hash-table probe and one addition for each event, for
//! `bench/temporal_operators.py`. It has no windows, no time and no output, so it is no operator.

use ahash::RandomState;
use hashbrown::HashMap;

/// Counts of keys.
#[derive(Debug, Default)]
pub struct CountLimit(HashMap<i64, i64, RandomState>);

impl CountLimit {
    /// Count keys, and return how many there are so far.
    pub fn apply(&mut self, keys: impl Iterator<Item = i64>) -> usize {
        for key in keys {
            *self.0.entry(key).or_insert(0) += 1;
        }
        self.0.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_counted() {
        let mut limit = CountLimit::default();
        assert_eq!(limit.apply([1, 2, 1].into_iter()), 2);
        assert_eq!(limit.apply([3].into_iter()), 3);
    }
}
