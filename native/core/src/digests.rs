//! Digests of one input's stream, for comparison with other inputs: `lmerge/core/divergence/digests.py` is the
//! definition.
//!
//! For every interval of a grid of ends, a digest holds the number of events and the sum mod 2^128 of their hashes. A
//! sum does not depend on order, counts repeated events, and allows an event to be removed again. A second grid, of
//! starts, does the same for (Vs, payload) alone.

use ahash::RandomState;
use hashbrown::HashMap;
use xxhash_rust::xxh3::xxh3_128;

use crate::columns::View;
use crate::element::{ADJUST, INF, INSERT, NEG_INF};

/// The name of the hash. Digests of different hashes cannot be compared.
pub const HASH: &str = "xxh3-times";

/// The bits of a number, each of them changed by each other one: the last steps of SplitMix64, a bijection.
#[inline]
fn scramble(mut bits: u64) -> u64 {
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

/// The hash of an event, from that of its payload: so a payload is read once, where it lies, for both its ends.
///
/// Nothing of it is a sum of what the payload gives and what the times give. Otherwise two events that exchange their
/// ends would leave the sum of a digest as it was.
#[inline]
fn event_hash(payload: u128, vs: i64, end: i64) -> u128 {
    let times = scramble(scramble(vs as u64).wrapping_add(end as u64));
    let low = scramble(payload as u64 ^ times);
    let high = scramble((payload >> 64) as u64 ^ times.rotate_left(32) ^ low);
    u128::from(low ^ high.rotate_left(17)) | u128::from(high) << 64
}

/// Events of one interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sum {
    pub count: i64,
    pub sum: u128,
}

impl Sum {
    fn add(&mut self, hash: u128) {
        self.count += 1;
        self.sum = self.sum.wrapping_add(hash);
    }

    fn subtract(&mut self, hash: u128) {
        self.count -= 1;
        self.sum = self.sum.wrapping_sub(hash);
    }
}

/// The open intervals of one grid. Most neighbours in a stream belong to one interval, the current one.
#[derive(Debug)]
struct Grid {
    interval: i64,
    sums: HashMap<i64, Sum, RandomState>,
    /// The current interval: its index, its times, and what has been added to it since it became current.
    index: i64,
    from: i64,
    to: i64,
    at_hand: Sum,
}

impl Grid {
    fn new(interval: i64) -> Grid {
        Grid {
            interval,
            sums: HashMap::default(),
            index: 0,
            from: 0,
            to: -1,
            at_hand: Sum::default(),
        }
    }

    #[inline]
    fn of(&mut self, t: i64) -> &mut Sum {
        if t < self.from || t > self.to {
            self.turn_to(t);
        }
        &mut self.at_hand
    }

    fn turn_to(&mut self, t: i64) {
        self.put_back();
        self.index = index_of(t, self.interval);
        if t == INF {
            (self.from, self.to) = (INF, INF);
        } else {
            let from = i128::from(self.index) * i128::from(self.interval);
            let to = (from + i128::from(self.interval) - 1).min(i128::from(INF - 1));
            self.from = from.max(i128::from(NEG_INF)) as i64;
            self.to = to as i64;
        }
    }

    fn put_back(&mut self) {
        let added = std::mem::take(&mut self.at_hand);
        if added == Sum::default() {
            return;
        }
        let sum = self.sums.entry(self.index).or_default();
        sum.count += added.count;
        sum.sum = sum.sum.wrapping_add(added.sum);
        if *sum == Sum::default() {
            self.sums.remove(&self.index);
        }
    }

    fn take_below(&mut self, bound: Option<i64>) -> Vec<(i64, Sum)> {
        self.put_back();
        self.sums
            .extract_if(|&index, _| bound.is_none_or(|bound| index < bound))
            .collect()
    }
}

/// The result of `add`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddOutcome {
    /// The first element that the stream's own stable point forbids; no element from it on was added.
    pub offender: Option<usize>,
    /// The first and the last interval that the elements change, apart from that of +inf; None if there is none.
    pub touched: Option<(i64, i64)>,
}

/// The digests of one input.
#[derive(Debug)]
pub struct Digests {
    ends: Grid,
    starts: Option<Grid>,
    open_max: usize,
    overflowed: bool,
    stable_point: i64,
}

impl Digests {
    /// `interval`: at least 1. `starts`: keep the second grid too. `open_max`: open intervals of a grid.
    pub fn new(interval: i64, starts: bool, open_max: usize) -> Digests {
        Digests {
            ends: Grid::new(interval),
            starts: starts.then(|| Grid::new(interval)),
            open_max,
            overflowed: false,
            stable_point: NEG_INF,
        }
    }

    /// The last stable point of the stream.
    pub fn stable_point(&self) -> i64 {
        self.stable_point
    }

    /// Whether there were too many open intervals. No element is counted from then on.
    pub fn overflowed(&self) -> bool {
        self.overflowed
    }

    /// Number of open intervals that are not empty.
    pub fn open(&mut self) -> usize {
        self.ends.put_back();
        let starts = self.starts.as_mut().map_or(0, |grid| {
            grid.put_back();
            grid.sums.len()
        });
        self.ends.sums.len().max(starts)
    }

    /// Add the first `stop` elements of a batch.
    pub fn add(&mut self, batch: &View<'_>, stop: usize) -> AddOutcome {
        let (mut first, mut last) = (INF, NEG_INF);
        let mut offender = None;
        for at in 0..stop.min(batch.len()) {
            let (kind, vs) = (batch.kind(at), batch.vs(at));
            if kind != INSERT && kind != ADJUST {
                if vs < self.stable_point {
                    offender = Some(at);
                    break;
                }
                self.stable_point = vs;
                continue;
            }
            let (ve, vold) = (batch.ve(at), batch.vold(at));
            let below = if kind == INSERT { vs } else { ve.min(vold) };
            if ve < vs || below < self.stable_point {
                offender = Some(at);
                break;
            }
            if self.overflowed {
                continue;
            }
            for t in [
                Some(ve),
                (kind == ADJUST).then_some(vold),
                self.starts.is_some().then_some(vs),
            ]
            .into_iter()
            .flatten()
            {
                if t < INF {
                    (first, last) = (first.min(t), last.max(t));
                }
            }
            self.count(kind, vs, ve, vold, batch.payload(at));
        }
        if !self.overflowed && self.open() > self.open_max {
            self.overflowed = true;
            self.ends.sums.clear();
            if let Some(grid) = &mut self.starts {
                grid.sums.clear();
            }
        }
        let interval = self.ends.interval;
        AddOutcome {
            offender,
            touched: (first <= last).then(|| (index_of(first, interval), index_of(last, interval))),
        }
    }

    #[inline]
    fn count(&mut self, kind: u8, vs: i64, ve: i64, vold: i64, payload: &[u8]) {
        let (was, is) = (kind == ADJUST && vold > vs, ve > vs);
        if was && is && vold == ve {
            return;
        }
        let payload = xxh3_128(payload);
        if let Some(grid) = &mut self.starts
            && was != is
            && (kind == INSERT || was)
        {
            let hash = event_hash(payload, vs, vs);
            let sum = grid.of(vs);
            if is { sum.add(hash) } else { sum.subtract(hash) }
        }
        if is {
            self.ends.of(ve).add(event_hash(payload, vs, ve));
        }
        if was {
            self.ends.of(vold).subtract(event_hash(payload, vs, vold));
        }
    }

    /// Remove and return the intervals below `bound` (all if it is None) in order of index, each with its sums of ends
    /// and of starts.
    pub fn take_below(&mut self, bound: Option<i64>) -> Vec<(i64, Sum, Sum)> {
        let mut taken: HashMap<i64, (Sum, Sum), RandomState> = HashMap::default();
        for (index, sum) in self.ends.take_below(bound) {
            taken.entry(index).or_default().0 = sum;
        }
        if let Some(grid) = &mut self.starts {
            for (index, sum) in grid.take_below(bound) {
                taken.entry(index).or_default().1 = sum;
            }
        }
        let mut taken: Vec<_> = taken
            .into_iter()
            .map(|(index, (ends, starts))| (index, ends, starts))
            .collect();
        taken.sort_unstable_by_key(|&(index, ..)| index);
        taken
    }
}

/// The interval of an end: floor(t / interval); +inf has its own.
pub fn index_of(t: i64, interval: i64) -> i64 {
    if t == INF { INF } else { t.div_euclid(interval) }
}
