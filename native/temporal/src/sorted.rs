//! A sorted multiset in chunks: one insertion moves at most one chunk, and a small set is one piece of memory.

/// The most entries of a chunk: twice what a split leaves.
const CHUNK: usize = 256;

/// Entries in ascending order; equal ones can be in it several times.
///
/// The first chunk stands apart: a small set is reached through one pointer, and keeps its memory when it is empty.
#[derive(Clone, Debug)]
pub struct Sorted<T> {
    first: Vec<T>,
    /// Without empty chunks; none while the first chunk is empty.
    rest: Vec<Vec<T>>,
}

impl<T> Default for Sorted<T> {
    fn default() -> Sorted<T> {
        Sorted {
            first: Vec::new(),
            rest: Vec::new(),
        }
    }
}

impl<T: Ord + Copy> Sorted<T> {
    /// The number of entries.
    pub fn len(&self) -> usize {
        self.first.len() + self.rest.iter().map(Vec::len).sum::<usize>()
    }

    pub fn is_empty(&self) -> bool {
        self.first.is_empty()
    }

    pub fn first(&self) -> Option<T> {
        self.first.first().copied()
    }

    pub fn last(&self) -> Option<T> {
        self.rest.last().unwrap_or(&self.first).last().copied()
    }

    pub fn add(&mut self, entry: T) {
        let at = self.chunk_of(&entry).min(self.rest.len());
        let chunk = self.chunk_mut(at);
        let place = chunk.partition_point(|other| *other < entry);
        chunk.insert(place, entry);
        if chunk.len() > CHUNK {
            let second = chunk.split_off(CHUNK / 2);
            self.rest.insert(at, second);
        }
    }

    /// Remove one copy of an entry. Returns whether there was one.
    pub fn remove(&mut self, entry: &T) -> bool {
        let at = self.chunk_of(entry);
        if at > self.rest.len() {
            return false;
        }
        let chunk = self.chunk_mut(at);
        let place = chunk.partition_point(|other| other < entry);
        if chunk.get(place) != Some(entry) {
            return false;
        }
        chunk.remove(place);
        if chunk.is_empty() {
            self.drop_empty(at);
        }
        true
    }

    /// The entries from `start` on.
    pub fn from(&self, start: T) -> impl Iterator<Item = T> {
        let at = self.chunk_of(&start);
        let chunk = if at == 0 {
            self.first.as_slice()
        } else {
            self.rest.get(at - 1).map_or(&[][..], Vec::as_slice)
        };
        let place = chunk.partition_point(|other| *other < start);
        let behind = &self.rest[at.min(self.rest.len())..];
        chunk[place..].iter().chain(behind.iter().flatten()).copied()
    }

    pub fn iter(&self) -> impl Iterator<Item = T> {
        self.first.iter().chain(self.rest.iter().flatten()).copied()
    }

    /// Remove the entries before `end` and append them to `dropped`.
    pub fn drop_before(&mut self, end: &T, dropped: &mut Vec<T>) {
        let whole = self.chunk_of(end);
        if whole > 0 {
            dropped.append(&mut self.first);
            self.rest.drain(..whole - 1).for_each(|chunk| dropped.extend(chunk));
            self.drop_empty(0);
        }
        let place = self.first.partition_point(|other| other < end);
        dropped.extend(self.first.drain(..place));
    }

    /// Panic unless the entries are in order, and no chunk is empty but that of an empty set.
    pub fn check(&self) {
        assert!(self.rest.iter().all(|chunk| !chunk.is_empty()));
        assert!(self.rest.is_empty() || !self.first.is_empty());
        assert!(self.iter().is_sorted());
    }

    fn chunk_mut(&mut self, at: usize) -> &mut Vec<T> {
        if at == 0 {
            &mut self.first
        } else {
            &mut self.rest[at - 1]
        }
    }

    /// Remove a chunk that has become empty.
    fn drop_empty(&mut self, at: usize) {
        if at > 0 {
            self.rest.remove(at - 1);
        } else if !self.rest.is_empty() {
            self.first = self.rest.remove(0);
        }
    }

    /// The first chunk that has an entry at or behind `entry`, or the number of chunks.
    fn chunk_of(&self, entry: &T) -> usize {
        match self.first.last() {
            Some(last) if last < entry => 1 + self.rest.partition_point(|chunk| chunk[chunk.len() - 1] < *entry),
            _ => 0,
        }
    }
}
