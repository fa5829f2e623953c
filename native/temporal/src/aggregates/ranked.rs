//! A sorted multiset whose entries have places: as `SortedList` in Python.

/// The most entries of a chunk: twice what a split leaves.
const CHUNK: usize = 512;

/// Entries in ascending order; equal ones can be in it several times.
#[derive(Clone, Debug)]
pub struct Ranked<T> {
    /// Without empty chunks.
    chunks: Vec<Vec<T>>,
    len: usize,
}

impl<T> Default for Ranked<T> {
    fn default() -> Ranked<T> {
        Ranked {
            chunks: Vec::new(),
            len: 0,
        }
    }
}

impl<T: Ord + Clone> Ranked<T> {
    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub fn add(&mut self, entry: T) {
        self.len += 1;
        if self.chunks.is_empty() {
            self.chunks.push(vec![entry]);
            return;
        }
        let at = self.chunk_of(&entry).min(self.chunks.len() - 1);
        let chunk = &mut self.chunks[at];
        let place = chunk.partition_point(|other| *other < entry);
        chunk.insert(place, entry);
        if chunk.len() > CHUNK {
            let rest = chunk.split_off(CHUNK / 2);
            self.chunks.insert(at + 1, rest);
        }
    }

    /// Remove one copy of an entry, which is there.
    pub fn remove(&mut self, entry: &T) {
        let at = self.chunk_of(entry);
        let chunk = &mut self.chunks[at];
        let place = chunk.partition_point(|other| other < entry);
        debug_assert!(chunk[place] == *entry);
        chunk.remove(place);
        self.len -= 1;
        if chunk.is_empty() {
            self.chunks.remove(at);
        }
    }

    /// The entry at a place from 0.
    pub fn at(&self, mut place: usize) -> &T {
        for chunk in &self.chunks {
            if place < chunk.len() {
                return &chunk[place];
            }
            place -= chunk.len();
        }
        unreachable!("a place is below the length")
    }

    pub fn last(&self) -> Option<&T> {
        self.chunks.last().and_then(|chunk| chunk.last())
    }

    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.chunks.iter().flatten()
    }

    /// The first chunk that has an entry at or behind `entry`, or the number of chunks.
    fn chunk_of(&self, entry: &T) -> usize {
        self.chunks.partition_point(|chunk| chunk[chunk.len() - 1] < *entry)
    }
}
