//! The interface of the crate: one merge, or several shards that share its work by a hash of (Vs, payload).
//!
//! Every shard gets the same stables and attaches, so all have the same MaxStable. An element goes to the shard of its
//! key, (Vs, payload). Events of one key are in one shard, so the output of all shards reconstitutes to the same TDB as that of
//! one merge. One shard behaves like a plain [`Merge`]. Several shards merge a batch in two steps: first its inserts
//! and adjusts, in all shards at once; then its last stable, in all shards at once. The last stable implies the earlier
//! ones, and for a legal stream the result is the same: elements between two stables of an input lie above the first.
//! The output has its stable point, the smallest of the shards', once, at the end of a call.
//!
//! Rules that need no look at the index (the input's own stable point, order) are checked in one pass over the batch
//! before it is divided, so the input ends at the same element as with one shard. A shard finds violations that need
//! the index (a second event of a key, an unknown event). No shard gets a stable behind the first such offender.
//! Inserts and adjusts behind it that belong to other shards have been merged: they can add to the output, never remove
//! from it.
//!
//! The hash that divides elements is not keyed: equal calls must give equal output everywhere. Chosen payloads can make
//! shards unequal, but the merge is then no slower than with one shard. Of a long payload it takes both ends. The keyed
//! hash of the tables, which takes all of it, is computed in the same pass over the batch: shards that hashed for
//! themselves would each read every second or third payload.

use rayon::prelude::*;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::algorithm::{Shell, copy_inserts};
use crate::columns::{Columns, View};
use crate::element::{ADJUST, INSERT, NEG_INF, STABLE};
use crate::hash::KeyHash;
use crate::indices::Indices;
use crate::input::{Demands, Input};
use crate::merge::{Kind, Merge, Taken};
use crate::node_block::block;
use crate::nodes::BITS;
use crate::policy::{Closing, Policy, Show};
use crate::state::{InputState, State, Times, fields, live_field};
use crate::store::Live;
use crate::violation::{Code, Violation};

/// A batch of fewer elements is merged by the calling thread: to wake other threads costs some microseconds.
const PARALLEL_ELEMENTS_MIN: usize = 1024;
/// In place of a shard, for a stable.
const NO_SHARD: u8 = u8::MAX;
/// In place of the shard of an insert that is shown.
const SHOWN: u8 = u8::MAX - 1;
/// The bytes at each end of a long payload that decide its shard.
const END: usize = 32;
/// The list that assigns elements to shards has one byte for each element.
pub const SHARDS_MAX: usize = 64;

/// See the head of this module.
#[derive(Debug)]
pub struct Sharded {
    shards: Vec<Merge>,
    /// The last stable in the output.
    announced: i64,
    /// Live output events, for a policy under which the shards cannot determine them together.
    live: Option<Live>,
    out: Columns,
    assigned: Vec<u8>,
    hashes: Vec<u32>,
    key_hash: KeyHash,
}

impl Sharded {
    /// # Panics
    /// If `shards` is not in `1..=SHARDS_MAX`, or several share an algorithm without an index.
    pub fn new(kind: Kind, policy: Policy, closing: Closing, track_live: bool, shards: usize) -> Sharded {
        assert!((1..=SHARDS_MAX).contains(&shards), "{shards} shards");
        let is_shared = shards > 1;
        assert!(
            !is_shared || matches!(kind, Kind::R3 | Kind::R4),
            "only an index can be divided into shards"
        );
        let live_together = is_shared && track_live && policy.show == Show::Final;
        let new = |_| {
            let mut shard = Merge::new(kind, policy, closing, track_live && !live_together);
            if is_shared {
                shard.note_shown();
            }
            shard
        };
        Sharded {
            shards: (0..shards).map(new).collect(),
            announced: NEG_INF,
            live: live_together.then(|| Live::new(NEG_INF)),
            out: Columns::default(),
            assigned: Vec::new(),
            hashes: Vec::new(),
            key_hash: KeyHash::new(),
        }
    }

    /// See [`Merge::keep_delivered`].
    pub fn keep_delivered(&mut self) {
        self.each(Merge::keep_delivered);
    }

    /// See [`Merge::repeats_a_key`]: with several shards R0-R2 never run.
    pub fn repeats_a_key(&self) -> bool {
        self.shards[0].repeats_a_key()
    }

    pub fn kind(&self) -> Kind {
        self.shards[0].kind()
    }

    /// The paper's MaxStable.
    pub fn max_stable(&self) -> i64 {
        self.shards[0].max_stable()
    }

    /// The last stable in the output.
    pub fn announced(&self) -> i64 {
        self.shards
            .iter()
            .map(Merge::announced)
            .min()
            .expect("a merge has a shard")
    }

    /// Inserts and adjusts in the output since the last [`Sharded::take`].
    pub fn changes(&self) -> usize {
        self.shards.iter().map(Merge::changes).sum()
    }

    /// See [`Merge::attach`].
    pub fn attach(
        &mut self,
        slot: usize,
        place: usize,
        demands: Demands,
        join_at: Option<i64>,
        observes: bool,
        joined: bool,
    ) {
        self.each(|shard| shard.attach(slot, place, demands, join_at, observes, joined));
    }

    /// The slot for the next input: the first that is free in every shard. If none with a bit in a node is free, the
    /// remaining entries of inputs that have left are removed first.
    pub fn free_slot(&mut self) -> usize {
        let first = |shards: &[Merge]| {
            let mut slots = 0..;
            slots.find(|&slot| shards.iter().all(|shard| shard.is_free(slot)))
        };
        let slot = first(&self.shards).expect("slots do not end");
        if slot < BITS {
            return slot;
        }
        self.each(Merge::forget_retired);
        first(&self.shards).expect("slots do not end")
    }

    /// See [`Merge::swept`].
    pub fn swept(&self) -> u64 {
        self.shards.iter().map(Merge::swept).sum()
    }

    /// Change the properties that the input must keep.
    pub fn demand(&mut self, slot: usize, demands: Demands) {
        self.each(|shard| shard.demand(slot, demands));
    }

    /// Remove the input and its entries.
    pub fn remove(&mut self, slot: usize) {
        self.each(|shard| shard.remove(slot));
    }

    /// Let the inputs that remain decide again, on closing for example.
    pub fn after_detach(&mut self) {
        self.each(Merge::after_detach);
    }

    /// See [`Merge::excuse`].
    pub fn excuse(&mut self, slot: usize) {
        self.each(|shard| shard.excuse(slot));
    }

    /// Let a joining input count from now on.
    pub fn admit(&mut self, slot: usize) {
        self.each(|shard| shard.admit(slot));
    }

    /// Run another algorithm: any before the first element; once `started`, a more general one.
    pub fn switch(&mut self, kind: Kind, started: bool) {
        self.each(|shard| shard.switch(kind, started));
    }

    /// Merge the elements of `batch` from `start` on. On a violation those before the offender have been merged.
    pub fn apply(&mut self, slot: usize, batch: &View<'_>, start: usize) -> Result<(), Box<Violation>> {
        if let [only] = &mut self.shards[..] {
            return only.apply(slot, batch, start);
        }
        let refused = precheck(&self.shards[0].shell, slot, batch, start);
        let stop = refused.as_ref().map_or(batch.len(), |violation| violation.index);
        let is_large = stop - start >= PARALLEL_ELEMENTS_MIN;
        self.share_out(batch, start, stop, is_large);
        let assigned = &self.assigned;
        let hashed = &batch.with_hashes(&self.hashes);
        let apply = |(number, shard): (usize, &mut Merge)| {
            let mine = Indices::of_shard(start, stop, assigned, number as u8);
            shard.apply_at(slot, hashed, mine).err()
        };
        let found: Vec<Option<Box<Violation>>> = if is_large {
            self.shards.par_iter_mut().enumerate().map(apply).collect()
        } else {
            self.shards.iter_mut().enumerate().map(apply).collect()
        };
        self.show_noted(batch, start, stop);
        self.collect();
        let first = found
            .into_iter()
            .flatten()
            .min_by_key(|violation| violation.index)
            .or(refused);
        let checked = first.as_ref().map_or(batch.len(), |violation| violation.index);
        if let Some(at) = (start..checked).rev().find(|&at| batch.kind(at) == STABLE) {
            let stable = |shard: &mut Merge| {
                let result = shard.apply_at(slot, batch, Indices::all(at, at + 1));
                assert!(result.is_ok(), "a stable that was checked before");
            };
            if is_large {
                self.shards.par_iter_mut().for_each(stable);
            } else {
                self.shards.iter_mut().for_each(stable);
            }
            self.collect();
        }
        first.map_or(Ok(()), Err)
    }

    /// Return and clear the results since the last call.
    pub fn take(&mut self) -> Taken {
        if let [only] = &mut self.shards[..] {
            return only.take();
        }
        self.collect();
        self.out.trim();
        let mut together = Taken {
            batch: std::mem::take(&mut self.out),
            ..Taken::default()
        };
        for shard in &mut self.shards {
            let taken = shard.take();
            together.joined = taken.joined; // the same in every shard
            debug_assert!(taken.broken.is_empty(), "nothing waits to join where there is an index");
        }
        if let Some(live) = &mut self.live {
            let view = together.batch.view();
            (0..view.len()).for_each(|at| live.insert(view.vs(at), view.ve(at), view.payload(at)));
        }
        let announced = self.announced();
        if announced > self.announced {
            self.announced = announced;
            together.batch.stable(announced);
            if let Some(live) = &mut self.live {
                live.stable(announced);
            }
        }
        together
    }

    /// The counters of an input over all shards: joined, stable, last_vs, tie_count, late.
    pub fn input(&self, slot: usize) -> (bool, i64, Option<i64>, usize, u64) {
        let inputs = || self.shards.iter().map(|shard| shard.input(slot));
        let first: &Input = self.shards[0].input(slot);
        let last_vs = inputs().map(|input| input.last_vs).max().expect("a merge has a shard");
        (
            first.joined,
            first.stable,
            last_vs,
            first.tie_count,
            inputs().map(|input| input.late).sum(),
        )
    }

    /// How many inputs have the event now, for each insert of a batch.
    pub fn supporters(&self, batch: &View<'_>) -> Vec<u32> {
        let inserts = (0..batch.len()).filter(|&at| batch.kind(at) == INSERT);
        inserts
            .map(|at| {
                let (vs, ve, payload) = (batch.vs(at), batch.ve(at), batch.payload(at));
                let shard = match self.shards.len() {
                    1 => 0,
                    shards => usize::from(shard_of(vs, payload, shards)),
                };
                self.shards[shard].supporters(vs, ve, payload)
            })
            .collect()
    }

    /// Inserts of all live output events, ordered by (vs, payload, ve), then the output's stable point if there is one.
    /// None if they are not tracked.
    pub fn live_events(&self) -> Option<Columns> {
        let mut events = Vec::new();
        match &self.live {
            Some(live) => events = live.events(),
            None => {
                for shard in &self.shards {
                    events.extend(shard.shown()?);
                }
            }
        }
        events.sort_unstable();
        let mut columns = Columns::inserts(events);
        if self.announced() > NEG_INF {
            columns.stable(self.announced());
        }
        Some(columns)
    }

    /// Number of live output events where they are tracked separately from the index.
    pub fn live_count(&self) -> Option<usize> {
        match &self.live {
            Some(live) => Some(live.len()),
            None => self.shards.iter().map(Merge::live_count).sum(),
        }
    }

    /// Size of the index: (Vs, payload) pairs; 0 under R0-R2.
    pub fn node_count(&self) -> usize {
        self.shards.iter().map(Merge::node_count).sum()
    }

    /// Number of nodes that stables have visited so far.
    pub fn visits(&self) -> u64 {
        self.shards.iter().map(Merge::visits).sum()
    }

    /// Bytes that the indexes and the live output hold, and bytes of the payloads in them.
    pub fn memory(&self) -> (usize, usize) {
        let of_live = self.live.as_ref().map(|live| (live.held_bytes(), live.payload_bytes()));
        let sum = |a: (usize, usize), b: (usize, usize)| (a.0 + b.0, a.1 + b.1);
        self.shards.iter().map(Merge::memory).chain(of_live).fold((0, 0), sum)
    }

    /// Assert every invariant (law 9). O(everything).
    ///
    /// # Panics
    /// If one does not hold.
    pub fn check(&self) {
        for shard in &self.shards {
            shard.check();
            assert_eq!(
                shard.max_stable(),
                self.max_stable(),
                "shards with different stable points"
            );
        }
        if let Some(live) = &self.live {
            live.check(self.announced);
        }
    }

    /// The algorithm's fields of a snapshot, each as JSON text. They do not depend on the number of shards.
    pub fn state(&self, with_nodes: bool) -> Vec<(&'static str, String)> {
        fields(&self.shards, with_nodes)
    }

    /// See [`block`].
    pub fn node_block(&self) -> Option<Vec<u8>> {
        block(&self.shards)
    }

    /// The live output's field; None if it is not tracked separately from the index.
    pub fn live_state(&self) -> Option<String> {
        self.live
            .as_ref()
            .or(self.shards[0].shell.live.as_ref())
            .map(live_field)
    }

    /// The state of an input beside its plain fields, each field as JSON text.
    pub fn input_state(&self, slot: usize) -> Vec<(&'static str, String)> {
        self.shards[0].input_state(slot)
    }

    /// Load what `state` and `live_state` returned. The inputs are attached already. After an error, drop the merge.
    pub fn load(&mut self, times: Times, state: State, live: Option<Vec<(i64, Vec<u8>, i64)>>) -> Result<(), String> {
        self.announced = times.announced;
        if let [only] = &mut self.shards[..] {
            return only.load(times, state, live);
        }
        let count = self.shards.len();
        for (shard, state) in self.shards.iter_mut().zip(shared_state(state, count)?) {
            shard.load(times, state, None)?;
        }
        self.live = live.map(|events| {
            let mut live = Live::new(times.announced);
            events
                .iter()
                .for_each(|(vs, payload, ve)| live.insert(*vs, *ve, payload));
            live
        });
        Ok(())
    }

    /// Load what `input_state` returned, and the plain fields.
    pub fn load_input(&mut self, slot: usize, state: &InputState, excused: bool) {
        self.each(|shard| shard.shell.inputs.get_mut(slot).excused = excused);
        for (at, shard) in self.shards.iter_mut().enumerate() {
            let late = if at == 0 { state.late } else { 0 };
            shard.load_input(slot, InputState { late, ..state.clone() });
        }
    }

    fn each(&mut self, work: impl Fn(&mut Merge)) {
        self.shards.iter_mut().for_each(work);
    }

    /// Copy the inserts that the shards have noted, in the order of the batch: those that follow each other at once. In
    /// a batch an insert that is noted is the first element of its key, so what the shards have emitted comes behind it.
    fn show_noted(&mut self, batch: &View<'_>, start: usize, stop: usize) {
        for shard in &mut self.shards {
            let noted = shard.shell.noted.iter_mut().flat_map(|noted| noted.drain(..));
            noted.for_each(|at| self.assigned[at as usize] = SHOWN);
        }
        let mut at = start;
        for part in self.assigned[start..stop].chunk_by(|&a, &b| (a == SHOWN) == (b == SHOWN)) {
            if part[0] == SHOWN {
                copy_inserts(&mut self.out, batch, at..at + part.len());
            }
            at += part.len();
        }
    }

    /// Append what the shards have emitted.
    fn collect(&mut self) {
        for shard in &mut self.shards {
            let emitted = std::mem::take(&mut shard.shell.out);
            append_changes(&mut self.out, &emitted.view());
        }
    }

    /// Note the hash of each key from `start` up to `stop`, and with it the shard of each insert and adjust. The
    /// payloads are read in their order: shards that hashed would each read every second or third of them.
    fn share_out(&mut self, batch: &View<'_>, start: usize, stop: usize, is_large: bool) {
        let (shards, key_hash) = (self.shards.len(), &self.key_hash);
        self.assigned.clear();
        self.assigned.resize(stop, NO_SHARD);
        self.hashes.clear();
        self.hashes.resize(stop, 0);
        let assign = |from: usize, (assigned, hashes): (&mut [u8], &mut [u32])| {
            for (number, (shard, hash)) in assigned.iter_mut().zip(hashes).enumerate() {
                let at = from + number;
                if batch.kind(at) != STABLE {
                    let (vs, payload) = (batch.vs(at), batch.payload(at));
                    *hash = key_hash.of(vs, payload);
                    *shard = shard_of(vs, payload, shards);
                }
            }
        };
        let parts = (&mut self.assigned[start..], &mut self.hashes[start..]);
        if is_large {
            let size = PARALLEL_ELEMENTS_MIN / 2;
            let parts = parts.0.par_chunks_mut(size).zip(parts.1.par_chunks_mut(size));
            parts
                .enumerate()
                .for_each(|(number, part)| assign(start + number * size, part));
        } else {
            assign(start, parts);
        }
    }
}

/// Append all elements but the stables, in parts between them.
fn append_changes(together: &mut Columns, view: &View<'_>) {
    let mut start = 0;
    for part in view.kinds().split(|&kind| kind == STABLE) {
        together.extend(&view.slice(start, start + part.len()));
        start += part.len() + 1;
    }
}

fn shard_of(vs: i64, payload: &[u8], shards: usize) -> u8 {
    let seed = (vs as u64) ^ (payload.len() as u64).rotate_left(32);
    let hash = if payload.len() <= 2 * END {
        xxh3_64_with_seed(payload, seed)
    } else {
        let (first, last) = (&payload[..END], &payload[payload.len() - END..]);
        xxh3_64_with_seed(last, xxh3_64_with_seed(first, seed))
    };
    // The upper half of a product: as even as the hash, without a division.
    ((u128::from(hash) * shards as u128) >> 64) as u8
}

/// Rows of a snapshot by shard.
fn share<T: Clone>(rows: Vec<T>, shard: impl Fn(&T) -> usize, shards: usize) -> impl Iterator<Item = Vec<T>> {
    let mut shared: Vec<Vec<T>> = vec![Vec::new(); shards];
    for row in rows {
        shared[shard(&row)].push(row);
    }
    shared.into_iter()
}

/// Divide the nodes of a snapshot among the shards.
fn shared_state(state: State, shards: usize) -> Result<Vec<State>, String> {
    let shard = |vs: i64, payload: &[u8]| usize::from(shard_of(vs, payload, shards));
    match state {
        State::R3 { slots, nodes, dues } => {
            let shared = share(nodes, |node| shard(node.0, &node.1), shards).zip(share(
                dues,
                |due| shard(due.0, &due.1),
                shards,
            ));
            Ok(shared.map(|(nodes, dues)| State::R3 { slots, nodes, dues }).collect())
        }
        State::R4 { slots, nodes, dues } => {
            let shared = share(nodes, |node| shard(node.0, &node.1), shards).zip(share(
                dues,
                |due| shard(due.0, &due.1),
                shards,
            ));
            Ok(shared.map(|(nodes, dues)| State::R4 { slots, nodes, dues }).collect())
        }
        _ => Err("only an index can be divided into shards".to_string()),
    }
}

/// The first element from `start` on that breaks a rule that needs no look at the index.
fn precheck(shell: &Shell, slot: usize, batch: &View<'_>, start: usize) -> Option<Box<Violation>> {
    let mut input = shell.inputs.get(slot).clone();
    for index in start..batch.len() {
        let (kind, vs) = (batch.kind(index), batch.vs(index));
        match kind {
            INSERT => {
                if input.is_below_floor(vs) || batch.ve(index) < vs {
                    return Some(input.refuse_insert(slot, batch, index));
                }
                if input.observes || input.demands.is_ordered() {
                    input.last_vs = Some(vs);
                }
            }
            ADJUST => {
                if let Err(violation) = input.check_adjust(slot, batch, index) {
                    return Some(violation);
                }
            }
            _ => {
                if vs < input.stable {
                    return Some(Violation::of(Code::StableBackwards, slot, batch, index).detail(input.stable));
                }
                input.stable = vs;
            }
        }
    }
    None
}
