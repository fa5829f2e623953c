//! One batch, merged by several shards in lockstep.
//!
//! The batch is cut into parts, each of which begins with a stable (but for the first). Threads share the shards out; each
//! merges a part in its shards, then all meet. Where a part has broken a promise in any shard, nobody goes on. What comes
//! out does not depend on who is faster.

use std::hint::spin_loop;
use std::sync::Mutex;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize};
use std::thread::{panicking, scope, yield_now};

use crate::columns::{EVERY_SHARD, Indices, View};
use crate::element::STABLE;
use crate::merge::Merge;
use crate::sharded::shard_of;
use crate::violation::Violation;

/// What is to be merged.
pub(crate) struct Work<'a> {
    pub slot: usize,
    pub batch: &'a View<'a>,
    pub start: usize,
    pub stop: usize,
    pub shards: usize,
    /// For each element the shard that it falls to; filled here.
    pub assigned: &'a [AtomicU8],
}

impl Work<'_> {
    /// Merge it with so many threads. What was found broken, at most once a shard.
    pub fn run(&self, shards: &mut [Merge], threads: usize) -> Vec<Violation> {
        let found = Mutex::new(Vec::new());
        let per_thread = shards.len().div_ceil(threads);
        let meeting = Meeting::of(shards.len().div_ceil(per_thread));
        let broken_part = AtomicUsize::new(usize::MAX);
        let parts = self.parts();
        let work = |thread: usize, mine: &mut [Merge]| {
            let _guard = Absence(&meeting);
            self.assign(thread, meeting.threads);
            meeting.meet();
            for (number, part) in parts.windows(2).enumerate() {
                for (at, shard) in mine.iter_mut().enumerate() {
                    let shard_number = (thread * per_thread + at) as u8;
                    let indices = Indices::of_shard(part[0], part[1], self.assigned, shard_number);
                    if let Err(violation) = shard.apply_at(self.slot, self.batch, indices) {
                        found.lock().expect("no thread panics with it").push(*violation);
                        broken_part.fetch_min(number, Relaxed);
                    }
                }
                meeting.meet();
                if broken_part.load(Relaxed) <= number {
                    return;
                }
            }
        };
        scope(|scope| {
            let work = &work;
            let mut chunks = shards.chunks_mut(per_thread).enumerate();
            let first = chunks.next();
            for (thread, mine) in chunks {
                scope.spawn(move || work(thread, mine));
            }
            if let Some((thread, mine)) = first {
                work(thread, mine);
            }
        });
        found.into_inner().expect("no thread panics with it")
    }

    /// Where parts begin, and the end.
    fn parts(&self) -> Vec<usize> {
        let kinds = self.batch.kinds();
        let stables = (self.start + 1..self.stop).filter(|&at| kinds[at] == STABLE);
        std::iter::once(self.start).chain(stables).chain([self.stop]).collect()
    }

    /// Note where the elements of one thread's share of the batch fall to.
    fn assign(&self, thread: usize, threads: usize) {
        let count = (self.stop - self.start).div_ceil(threads);
        let from = self.start + thread * count;
        for at in from..(from + count).min(self.stop) {
            let is_stable = self.batch.kind(at) == STABLE;
            let shard = if is_stable {
                EVERY_SHARD
            } else {
                shard_of(self.batch.payload(at), self.shards)
            };
            self.assigned[at].store(shard, Relaxed);
        }
    }
}

/// Where threads wait for each other. They come at short intervals, so they spin before they give way.
struct Meeting {
    threads: usize,
    arrived: AtomicUsize,
    turn: AtomicUsize,
    /// Somebody will not come any more.
    is_off: AtomicBool,
}

const SPINS: usize = 200;

impl Meeting {
    fn of(threads: usize) -> Meeting {
        let (arrived, turn) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Meeting {
            threads,
            arrived,
            turn,
            is_off: AtomicBool::new(false),
        }
    }

    /// Wait until all have come.
    ///
    /// # Panics
    /// If a thread has panicked: it would be waited for for ever.
    fn meet(&self) {
        let turn = self.turn.load(Acquire);
        if self.arrived.fetch_add(1, AcqRel) + 1 == self.threads {
            self.arrived.store(0, Relaxed);
            self.turn.store(turn + 1, Release);
            return;
        }
        let mut spins = 0;
        while self.turn.load(Acquire) == turn {
            assert!(!self.is_off.load(Relaxed), "another shard has failed");
            spins += 1;
            if spins < SPINS { spin_loop() } else { yield_now() }
        }
    }
}

/// Tells the others when a thread panics.
struct Absence<'a>(&'a Meeting);

impl Drop for Absence<'_> {
    fn drop(&mut self) {
        if panicking() {
            self.0.is_off.store(true, Relaxed);
        }
    }
}
