//! The hash of a key (Vs, payload), keyed at random for each process: nobody can make keys that collide on purpose.
//!
//! One hash for all stores, so that a merge in shards computes it once, in order, and the shards look up with it.

use std::hash::{BuildHasher, Hasher};
use std::sync::LazyLock;

use ahash::RandomState;

static STATE: LazyLock<RandomState> = LazyLock::new(RandomState::new);

/// Hashes keys. A copy of the process's state, so that a hash needs no look at a global.
#[derive(Clone, Debug)]
pub(crate) struct KeyHash(RandomState);

impl KeyHash {
    pub fn new() -> KeyHash {
        KeyHash(STATE.clone())
    }

    #[inline(always)]
    pub fn of(&self, vs: i64, payload: &[u8]) -> u32 {
        let mut hasher = self.0.build_hasher();
        hasher.write_i64(vs);
        hasher.write(payload);
        let hash = hasher.finish();
        (hash ^ hash >> 32) as u32
    }
}
