//! The elements of a batch that are merged: a range of them, or those of one shard.

/// Indices of elements: of all from a start on, or of those that belong to one shard.
#[derive(Clone, Debug)]
pub struct Indices<'a> {
    next: usize,
    stop: usize,
    shard: Option<(&'a [u8], u8)>,
}

impl<'a> Indices<'a> {
    pub fn all(start: usize, stop: usize) -> Indices<'a> {
        Indices {
            next: start,
            stop,
            shard: None,
        }
    }

    /// The indices in `start..stop` whose entry in `shards` is `shard`.
    pub fn of_shard(start: usize, stop: usize, shards: &'a [u8], shard: u8) -> Indices<'a> {
        Indices {
            next: start,
            stop,
            shard: Some((shards, shard)),
        }
    }

    /// One more than the last index, if none is left out.
    pub fn whole(&self) -> Option<usize> {
        self.shard.is_none().then_some(self.stop)
    }

    /// Put the next indices into `room` and return how many they are, if they are those of a shard. Without a branch for
    /// each element: which ones a shard gets cannot be predicted.
    pub fn fill(&mut self, room: &mut [usize]) -> Option<usize> {
        let (shards, shard) = self.shard?;
        let mut count = 0;
        while count < room.len() && self.next < self.stop {
            room[count] = self.next;
            count += usize::from(shards[self.next] == shard);
            self.next += 1;
        }
        Some(count)
    }

    /// Leave out the indices below `next`.
    pub fn skip_to(&mut self, next: usize) {
        self.next = self.next.max(next);
    }
}

impl Iterator for Indices<'_> {
    type Item = usize;

    #[inline]
    fn next(&mut self) -> Option<usize> {
        while self.next < self.stop {
            let at = self.next;
            self.next += 1;
            match self.shard {
                Some((shards, shard)) if shards[at] != shard => {}
                _ => return Some(at),
            }
        }
        None
    }
}
