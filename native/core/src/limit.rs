//! The limit for a merge by key: one hash-table probe per element over the same data, for `bench/core_throughput.py`.
//!
//! For each insert or adjust it hashes (Vs, payload) with the keyed hash of the index, finds the key in a table, and
//! compares it in its place. If the key is absent and not older than the stable point, it copies the key into a queue
//! and enters it. For each stable it drops keys from the front of the queue while their events have ended, and frees
//! whole chunks of payloads. Keys leave in the order in which they came, which is the cheapest way.
//!
//! It has no output, no entries per input, no checks of promises, no due times and no compatibility, and frees memory
//! only in order. So it is no merge. It is the minimal work of any merge of these streams by key.

use std::collections::VecDeque;
use std::hash::{BuildHasher, Hasher};

use ahash::RandomState;
use hashbrown::HashTable;

use crate::columns::View;
use crate::element::{NEG_INF, STABLE};

const CHUNK_BYTES: usize = 64 * 1024;

/// A key of the live window.
#[derive(Clone, Copy, Debug)]
struct Key {
    vs: i64,
    ve: i64,
    hash: u64,
    chunk: usize,
    start: u32,
    len: u32,
}

/// See the head of this module. Keys and chunks are numbered from the beginning; the number of the first one is kept.
#[derive(Debug)]
pub struct Limit {
    table: HashTable<(u64, usize)>,
    state: RandomState,
    keys: VecDeque<Key>,
    first_key: usize,
    chunks: VecDeque<Vec<u8>>,
    first_chunk: usize,
    stable: i64,
}

impl Default for Limit {
    fn default() -> Limit {
        Limit {
            table: HashTable::new(),
            state: RandomState::new(),
            keys: VecDeque::new(),
            first_key: 0,
            chunks: VecDeque::new(),
            first_chunk: 0,
            stable: NEG_INF,
        }
    }
}

impl Limit {
    /// Number of keys in the window.
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Probe once for each element. Returns how many keys were new.
    pub fn apply(&mut self, batch: &View<'_>) -> usize {
        let mut news = 0;
        for index in 0..batch.len() {
            let vs = batch.vs(index);
            if batch.kind(index) == STABLE {
                self.drop_until(vs);
                continue;
            }
            let payload = batch.payload(index);
            let mut hasher = self.state.build_hasher();
            hasher.write_i64(vs);
            hasher.write(payload);
            let hash = hasher.finish();
            let is_key = |&(other, at): &(u64, usize)| other == hash && self.is_at(at, vs, payload);
            if self.table.find(hash, is_key).is_none() && vs >= self.stable {
                self.add(hash, vs, batch.ve(index), payload);
                news += 1;
            }
        }
        news
    }

    #[inline]
    fn is_at(&self, at: usize, vs: i64, payload: &[u8]) -> bool {
        let key = &self.keys[at - self.first_key];
        let start = key.start as usize;
        key.vs == vs && &self.chunks[key.chunk - self.first_chunk][start..start + key.len as usize] == payload
    }

    fn add(&mut self, hash: u64, vs: i64, ve: i64, payload: &[u8]) {
        if self
            .chunks
            .back()
            .is_none_or(|chunk| chunk.capacity() - chunk.len() < payload.len())
        {
            self.chunks
                .push_back(Vec::with_capacity(CHUNK_BYTES.max(payload.len())));
        }
        let number = self.first_chunk + self.chunks.len() - 1;
        let chunk = self.chunks.back_mut().expect("a chunk with room");
        let (start, len) = (chunk.len() as u32, payload.len() as u32);
        chunk.extend_from_slice(payload);
        let at = self.first_key + self.keys.len();
        self.keys.push_back(Key {
            vs,
            ve,
            hash,
            chunk: number,
            start,
            len,
        });
        self.table.insert_unique(hash, (hash, at), |&(hash, _)| hash);
    }

    fn drop_until(&mut self, t: i64) {
        self.stable = self.stable.max(t);
        while let Some(key) = self.keys.front().filter(|key| key.ve < t) {
            if let Ok(entry) = self.table.find_entry(key.hash, |&(_, at)| at == self.first_key) {
                entry.remove();
            }
            while self.first_chunk < key.chunk {
                self.chunks.pop_front();
                self.first_chunk += 1;
            }
            self.keys.pop_front();
            self.first_key += 1;
        }
    }
}
