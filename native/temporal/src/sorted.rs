//! A sorted multiset in chunks: one insertion moves at most one chunk, and a small set is one piece of memory.

/// The most entries of a chunk: twice what a split leaves.
const CHUNK: usize = 256;

/// Entries in ascending order; equal ones can be in it several times.
#[derive(Clone, Debug)]
pub struct Sorted<T> {
    /// Without empty chunks.
    chunks: Vec<Vec<T>>,
    len: usize,
    /// Kept, so that a set that is filled again needs no memory.
    spare: Vec<T>,
}

impl<T> Default for Sorted<T> {
    fn default() -> Sorted<T> {
        Sorted {
            chunks: Vec::new(),
            len: 0,
            spare: Vec::new(),
        }
    }
}

impl<T: Ord + Copy> Sorted<T> {
    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub fn first(&self) -> Option<T> {
        self.chunks.first().map(|chunk| chunk[0])
    }

    pub fn last(&self) -> Option<T> {
        self.chunks.last().map(|chunk| chunk[chunk.len() - 1])
    }

    pub fn add(&mut self, entry: T) {
        self.len += 1;
        let at = self.chunk_of(&entry).min(self.chunks.len().saturating_sub(1));
        let Some(chunk) = self.chunks.get_mut(at) else {
            let mut chunk = std::mem::take(&mut self.spare);
            chunk.push(entry);
            self.chunks.push(chunk);
            return;
        };
        let place = chunk.partition_point(|other| *other < entry);
        chunk.insert(place, entry);
        if chunk.len() > CHUNK {
            let rest = chunk.split_off(CHUNK / 2);
            self.chunks.insert(at + 1, rest);
        }
    }

    /// Remove one copy of an entry. Returns whether there was one.
    pub fn remove(&mut self, entry: &T) -> bool {
        let at = self.chunk_of(entry);
        let Some(chunk) = self.chunks.get_mut(at) else {
            return false;
        };
        let place = chunk.partition_point(|other| other < entry);
        if chunk.get(place) != Some(entry) {
            return false;
        }
        chunk.remove(place);
        self.len -= 1;
        if chunk.is_empty() {
            self.spare = self.chunks.remove(at);
        }
        true
    }

    /// The entries from `start` on.
    pub fn from(&self, start: T) -> impl Iterator<Item = T> {
        let at = self.chunk_of(&start);
        let place = self
            .chunks
            .get(at)
            .map_or(0, |chunk| chunk.partition_point(|other| *other < start));
        self.chunks[at.min(self.chunks.len())..]
            .iter()
            .flatten()
            .copied()
            .skip(place)
    }

    pub fn iter(&self) -> impl Iterator<Item = T> {
        self.chunks.iter().flatten().copied()
    }

    /// Remove the entries before `end` and append them to `dropped`.
    pub fn drop_before(&mut self, end: &T, dropped: &mut Vec<T>) {
        let before = dropped.len();
        let whole = self.chunk_of(end);
        for chunk in self.chunks.drain(..whole) {
            dropped.extend_from_slice(&chunk);
            self.spare = chunk;
        }
        if let Some(chunk) = self.chunks.first_mut() {
            let place = chunk.partition_point(|other| other < end);
            dropped.extend(chunk.drain(..place));
        }
        self.spare.clear();
        self.len -= dropped.len() - before;
    }

    /// Panic unless the entries are in order and counted.
    pub fn check(&self) {
        assert!(self.chunks.iter().all(|chunk| !chunk.is_empty()));
        assert!(self.iter().is_sorted());
        assert_eq!(self.iter().count(), self.len);
    }

    /// The first chunk that has an entry at or behind `entry`, or the number of chunks.
    fn chunk_of(&self, entry: &T) -> usize {
        match self.chunks.as_slice() {
            [] => 0,
            [only] => usize::from(only[only.len() - 1] < *entry),
            chunks => chunks.partition_point(|chunk| chunk[chunk.len() - 1] < *entry),
        }
    }
}
