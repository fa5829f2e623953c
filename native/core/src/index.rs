//! What in2t (R3) and in3t (R4) share: nodes by (Vs, payload), and who must be looked at when. `lmerge/core/index.py`
//! has the law and the departures from the listings; see there.
//!
//! The top tier is a hash by key: an entry holds the hash and the node's number, so a look-up compares the key where it
//! is stored and copies nothing, and growing touches no node. The hash is keyed at random: chosen payloads cannot make
//! it slow, and nothing that it orders reaches the output.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::hash::{BuildHasher, Hasher};
use std::hint::black_box;

use ahash::RandomState;
use hashbrown::HashTable;

use crate::algorithm::{Algorithm, Checked, Shell, observe, stable};
use crate::columns::{Indices, View};
use crate::element::{ADJUST, INF, INSERT};
use crate::nodes::{NIL, NONE};
use crate::policy::{Leader, Show};
use crate::retired::{Retired, clean, sweep};
use crate::store::Store;

/// Tables and lists up to so many entries keep their memory.
const KEPT: usize = 4096;
/// A table of more entries does not stay in the caches of a core.
const CACHED: usize = 1 << 16;

/// The entries of a node whose inputs do not agree. Cleared ones are used again.
pub trait Spill: Default {
    fn clear(&mut self);
    fn held_bytes(&self) -> usize;
}

/// Something that a stable makes the output say about a node.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    kind: u8,
    vs: i64,
    ve: i64,
    vold: i64,
    id: u32,
}

/// Elements between two stables, each with the node of its key: looked up together, so that the misses of the caches
/// overlap. Only stables remove nodes, so those that were found stay.
#[derive(Debug)]
pub struct Run {
    len: usize,
    at: [usize; RUN],
    hash: [u32; RUN],
    id: [u32; RUN],
    /// A bit for some of the hash of each node that was made since.
    made: u64,
}

/// As many misses as a core can have under way, and some.
const RUN: usize = 32;

impl Run {
    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The index and the hash of an element.
    #[inline]
    pub fn element(&self, number: usize) -> (usize, u32) {
        (self.at[number], self.hash[number])
    }

    /// A node was made for a key with this hash.
    #[inline]
    pub fn note_made(&mut self, hash: u32) {
        self.made |= 1 << (hash % 64);
    }
}

impl Default for Run {
    fn default() -> Run {
        Run {
            len: 0,
            at: [0; RUN],
            hash: [0; RUN],
            id: [NIL; RUN],
            made: 0,
        }
    }
}

/// The part of R3 and R4 above the entries of a node.
#[derive(Debug)]
pub struct Index<S> {
    pub store: Store,
    pub(crate) table: HashTable<(u32, u32)>,
    state: RandomState,
    pub spills: Vec<S>,
    /// The node of each, so that those that remain can be moved together; NIL of one that is not in use.
    pub(crate) spill_owners: Vec<u32>,
    pub(crate) unused_spills: Vec<u32>,
    /// Columns for inputs, as a snapshot lists them.
    pub slots: usize,
    /// Nodes looked at by stables: the measure of law 2.
    pub visits: u64,
    pub final_only: bool,
    /// Final-only: half-frozen events that are not shown yet, by Vs; the output's stable may not pass them. A number can
    /// have been used again since, but then for an event above every one that was held.
    pub(crate) held: BinaryHeap<Reverse<(i64, u32)>>,
    pub rows: Vec<Row>,
    popped: Vec<u32>,
    /// Nodes that a stable is done with, with their hashes.
    done: Vec<(u32, u32)>,
    pub retired: Retired,
}

impl<S: Spill> Index<S> {
    pub fn new(final_only: bool) -> Index<S> {
        Index {
            store: Store::default(),
            table: HashTable::new(),
            state: RandomState::new(),
            spills: Vec::new(),
            spill_owners: Vec::new(),
            unused_spills: Vec::new(),
            slots: 0,
            visits: 0,
            final_only,
            held: BinaryHeap::new(),
            rows: Vec::new(),
            popped: Vec::new(),
            done: Vec::new(),
            retired: Retired::default(),
        }
    }

    #[inline]
    pub fn hash(&self, vs: i64, payload: &[u8]) -> u32 {
        let mut hasher = self.state.build_hasher();
        hasher.write_i64(vs);
        hasher.write(payload);
        let hash = hasher.finish();
        (hash ^ hash >> 32) as u32
    }

    /// The node of a key, or NIL.
    #[inline]
    pub fn find(&self, hash: u32, vs: i64, payload: &[u8]) -> u32 {
        let store = &self.store;
        let is_key = |&(other, id): &(u32, u32)| other == hash && store.key(id) == (vs, payload);
        self.table.find(wide(hash), is_key).map_or(NIL, |&(_, id)| id)
    }

    /// Look the next elements up, up to a stable, whose index is given back, or as many as a run takes.
    #[inline]
    pub fn look_up(&self, batch: &View<'_>, indices: &mut Indices<'_>, run: &mut Run) -> Option<usize> {
        (run.len, run.made) = (0, 0);
        let mut stable = None;
        while run.len < RUN {
            let Some(at) = indices.next() else { break };
            if batch.kind(at) > ADJUST {
                stable = Some(at);
                break;
            }
            run.at[run.len] = at;
            run.hash[run.len] = self.hash(batch.vs(at), batch.payload(at));
            run.len += 1;
        }
        for number in 0..run.len {
            let at = run.at[number];
            run.id[number] = self.find(run.hash[number], batch.vs(at), batch.payload(at));
        }
        stable
    }

    /// The node of an element of a run, or NIL.
    #[inline]
    pub fn found(&self, run: &Run, number: usize, vs: i64, payload: &[u8]) -> u32 {
        let (id, hash) = (run.id[number], run.hash[number]);
        if id == NIL && run.made >> (hash % 64) & 1 == 1 {
            self.find(hash, vs, payload)
        } else {
            id
        }
    }

    /// A new node, unfrozen: due at its Vs.
    #[inline]
    pub fn enter(&mut self, hash: u32, vs: i64, payload: &[u8]) -> u32 {
        self.enter_at(hash, vs, payload, vs)
    }

    /// A new node that is due at `due`.
    #[inline]
    pub fn enter_at(&mut self, hash: u32, vs: i64, payload: &[u8], due: i64) -> u32 {
        let id = self.store.add(vs, payload, due);
        self.table
            .insert_unique(wide(hash), (hash, id), |&(hash, _)| wide(hash));
        id
    }

    /// The node of a key, made if need be: for switches and snapshots, after which the index is rebuilt.
    pub fn adopt(&mut self, vs: i64, payload: &[u8]) -> u32 {
        let hash = self.hash(vs, payload);
        match self.find(hash, vs, payload) {
            NIL => self.enter_at(hash, vs, payload, INF),
            id => id,
        }
    }

    /// An element gave the node the end `ve`: enter it again if that is earlier than it stands.
    #[inline]
    pub fn fall_due(&mut self, id: u32, ve: i64, max_stable: i64) {
        if max_stable <= ve && ve < self.store.nodes.get(id).due {
            self.store.enter(id, ve);
        }
    }

    /// Final-only: the node has become half frozen and cannot be shown yet.
    pub fn hold(&mut self, id: u32) {
        self.held.push(Reverse((self.store.nodes.get(id).vs, id)));
    }

    /// Final-only: an event that is not shown yet keeps the output's stable point at or below its Vs.
    pub fn stable_to_emit(&mut self, t: i64) -> i64 {
        while let Some(&Reverse((vs, id))) = self.held.peek() {
            if self.store.nodes.is_used(id) && self.store.nodes.get(id).vs == vs {
                return t.min(vs);
            }
            self.held.pop();
        }
        t
    }

    pub fn push_insert(&mut self, id: u32, ve: i64) {
        let vs = self.store.nodes.get(id).vs;
        self.rows.push(Row {
            kind: INSERT,
            vs,
            ve,
            vold: 0,
            id,
        });
    }

    pub fn push_adjust(&mut self, id: u32, vold: i64, ve: i64) {
        let vs = self.store.nodes.get(id).vs;
        self.rows.push(Row {
            kind: ADJUST,
            vs,
            ve,
            vold,
            id,
        });
    }

    /// Spilled entries for a node that has none yet.
    pub fn spill(&mut self, id: u32) -> &mut S {
        let at = self.unused_spills.pop().unwrap_or_else(|| {
            self.spills.push(S::default());
            self.spill_owners.push(NIL);
            (self.spills.len() - 1) as u32
        });
        self.spill_owners[at as usize] = id;
        self.store.nodes.get_mut(id).set_spill(at);
        &mut self.spills[at as usize]
    }

    /// The node's inputs agree again.
    pub fn unspill(&mut self, id: u32) {
        let node = self.store.nodes.get_mut(id);
        let at = node.spill();
        (node.common, node.has) = (NONE, 0);
        self.spills[at as usize].clear();
        self.spill_owners[at as usize] = NIL;
        self.unused_spills.push(at);
    }

    pub fn drop_node(&mut self, id: u32) {
        let (vs, payload) = self.store.key(id);
        self.drop_hashed(id, self.hash(vs, payload));
    }

    fn drop_hashed(&mut self, id: u32, hash: u32) {
        if self.store.nodes.get(id).spill() != NIL {
            self.unspill(id);
        }
        if let Ok(entry) = self.table.find_entry(wide(hash), |&(_, other)| other == id) {
            entry.remove();
        }
        self.store.remove(id);
    }

    pub fn held_bytes(&self) -> usize {
        let spills: usize = self.spills.iter().map(Spill::held_bytes).sum();
        let entries = spills
            + self.spills.capacity() * size_of::<S>()
            + (self.unused_spills.capacity() + self.spill_owners.capacity()) * size_of::<u32>();
        let scratch = self.popped.capacity() * size_of::<u32>()
            + self.done.capacity() * size_of::<(u32, u32)>()
            + self.rows.capacity() * size_of::<Row>()
            + self.held.capacity() * size_of::<Reverse<(i64, u32)>>();
        self.store.held_bytes() + self.table.allocation_size() + entries + scratch
    }

    /// The nodes that no stable has reached, in no useful order.
    pub fn unfrozen(&self, max_stable: i64) -> Vec<u32> {
        let nodes = &self.store.nodes;
        let mut ids = nodes.ids();
        ids.retain(|&id| nodes.get(id).vs >= max_stable);
        ids
    }

    /// Put what a stable caused into order of (Vs, payload), so that no hash or wheel order reaches the output (law 7),
    /// say it, and forget the nodes that are done.
    fn emit_rows(&mut self, shell: &mut Shell) {
        let store = &self.store;
        let mut rows = std::mem::take(&mut self.rows);
        if rows.len() > 1 {
            rows.sort_by(|a, b| {
                let by_payload = || {
                    if a.id == b.id {
                        std::cmp::Ordering::Equal
                    } else {
                        store.payload(a.id).cmp(store.payload(b.id))
                    }
                };
                a.vs.cmp(&b.vs).then_with(by_payload)
            });
        }
        for row in rows.drain(..) {
            let payload = store.payload(row.id);
            if row.kind == INSERT {
                shell.emit_insert(row.vs, row.ve, payload);
            } else {
                shell.emit_adjust(row.vs, row.vold, row.ve, payload);
            }
        }
        self.rows = rows;
        let mut done = std::mem::take(&mut self.done);
        for (id, hash) in &mut done {
            let (vs, payload) = self.store.key(*id);
            *hash = self.hash(vs, payload);
        }
        if self.table.len() > CACHED {
            // Look-ups that wait for nothing, so that their cache misses overlap; those of `drop_hashed` then hit.
            for &(id, hash) in &done {
                black_box(self.table.find(wide(hash), |&(_, other)| other == id));
            }
        }
        for (id, hash) in done.drain(..) {
            self.drop_hashed(id, hash);
        }
        self.done = done;
    }

    /// Give memory back where much of it is unused.
    pub fn tidy(&mut self) {
        self.store.tidy();
        let (len, capacity) = (self.table.len(), self.table.capacity());
        // Places of removed keys fill up, and the table doubles to be rid of them: half of it does then. The quarter that is
        // left free is what keeps it from doubling again at once.
        if capacity > KEPT && 8 * len < 3 * capacity {
            self.table.shrink_to(len + len / 3, |&(hash, _)| wide(hash));
        }
        let used = self.spills.len() - self.unused_spills.len();
        if self.spills.len() > KEPT && 8 * used < self.spills.len() {
            self.gather_spills();
        }
        let nodes = &self.store.nodes;
        if self.held.len() > KEPT && self.held.len() > 2 * nodes.len() {
            self.held
                .retain(|&Reverse((vs, id))| nodes.is_used(id) && nodes.get(id).vs == vs);
            self.held.shrink_to(2 * nodes.len());
        }
        give_back(&mut self.rows);
        give_back(&mut self.popped);
        give_back(&mut self.done);
    }

    /// Move the spilled entries that are in use together.
    fn gather_spills(&mut self) {
        self.unused_spills = Vec::new();
        let owners = std::mem::take(&mut self.spill_owners);
        for (spill, owner) in std::mem::take(&mut self.spills).into_iter().zip(owners) {
            if owner != NIL {
                self.store.nodes.get_mut(owner).set_spill(self.spills.len() as u32);
                self.spills.push(spill);
                self.spill_owners.push(owner);
            }
        }
    }
}

/// Forget the memory of a list that is empty between two calls, if it is much.
pub fn give_back<T>(list: &mut Vec<T>) {
    debug_assert!(list.is_empty());
    if list.capacity() > KEPT {
        *list = Vec::new();
    }
}

/// What R3 and R4 know: the entries of a node.
pub trait Indexed {
    type Entries: Spill;

    fn index(&mut self) -> &mut Index<Self::Entries>;

    /// Merge an insert or adjust that has been looked up.
    fn merge(&mut self, shell: &mut Shell, slot: usize, batch: &View<'_>, run: &mut Run, number: usize) -> Checked;

    /// Note what the output must say about the node before stable(t) of the input in `slot`. True: it is done.
    fn settle(&mut self, shell: &Shell, id: u32, slot: usize, t: i64) -> bool;

    /// The input in `slot` has no event here.
    fn forget_entry(&mut self, id: u32, slot: usize);

    /// The smallest end in the node, but of inputs that have left, that is not below `t`; INF if there is none.
    fn next_due(index: &Index<Self::Entries>, id: u32, t: i64) -> i64;

    /// Whether the input in `slot` has an event here that is not fully frozen at MaxStable, and ends by `latest`.
    fn has_live_entry(&self, id: u32, slot: usize, max_stable: i64, latest: i64) -> bool;

    /// How many events the input in `slot` has here.
    fn copies(&self, id: u32, slot: usize) -> usize;

    /// Quorum: show what enough inputs have of an unfrozen node and the output lacks.
    fn show_agreed(&mut self, shell: &mut Shell, id: u32);

    /// How many joined inputs have more than `shown` events here.
    fn support(&self, shell: &Shell, id: u32, shown: usize) -> usize {
        let having = |&(slot, _): &(usize, _)| self.copies(id, slot) > shown;
        shell.inputs.counting().filter(having).count()
    }

    /// See [`Algorithm::reconsider`].
    fn reconsider_nodes(&mut self, shell: &mut Shell) {
        if shell.policy.show != Show::Quorum {
            return;
        }
        let mut ids = self.index().unfrozen(shell.max_stable);
        let store = &self.index().store;
        ids.sort_unstable_by(|&a, &b| store.key(a).cmp(&store.key(b)));
        for id in ids {
            self.show_agreed(shell, id);
        }
    }

    /// Count the unfrozen events of each input anew, where the most of them lead.
    fn count_unfrozen(&mut self, shell: &mut Shell) {
        if !shell.policy.leads_by(Leader::Unfrozen) {
            return;
        }
        let ids = self.index().unfrozen(shell.max_stable);
        for slot in shell.inputs.order().to_vec() {
            shell.inputs.get_mut(slot).unfrozen = ids.iter().map(|&id| self.copies(id, slot)).sum();
        }
    }

    /// Most-unfrozen: the node becomes half frozen.
    fn freeze_counted(&self, shell: &mut Shell, id: u32) {
        for slot in shell.inputs.order().to_vec() {
            shell.inputs.get_mut(slot).unfrozen -= self.copies(id, slot);
        }
    }

    /// IV.D line 17 and IV.E line 18: every node that a stable(t) concerns, and only those.
    fn freeze_nodes(&mut self, shell: &mut Shell, slot: usize, t: i64) {
        let index = self.index();
        let mut popped = std::mem::take(&mut index.popped);
        if shell.max_stable < shell.right_from && shell.right_from <= t {
            // The merge becomes right: what it shows must be, also where it is not due.
            let nodes = &index.store.nodes;
            let is_concerned = |&id: &u32| nodes.get(id).vs < shell.max_stable && nodes.get(id).due >= t;
            popped.extend(nodes.ids().into_iter().filter(is_concerned));
        }
        index.store.wheel.pop_below(&mut index.store.nodes, t, &mut popped);
        if index.final_only && t == INF {
            // Final-only shows at last what never ends; such nodes are due at no time. All others are due before.
            popped = index.store.nodes.ids();
        }
        let is_counted = shell.policy.leads_by(Leader::Unfrozen);
        for id in popped.drain(..) {
            self.index().visits += 1;
            if is_counted && self.index().store.nodes.get(id).vs >= shell.max_stable {
                self.freeze_counted(shell, id);
            }
            clean(self, id);
            if self.settle(shell, id, slot, t) {
                self.index().done.push((id, 0));
            } else {
                let due = Self::next_due(self.index(), id, t);
                self.index().store.move_to(id, due);
            }
        }
        let index = self.index();
        index.popped = popped;
        index.emit_rows(shell);
        index.tidy();
    }

    /// The joined input with the largest stable point that has the event of a half-frozen node alive, ending by `latest`.
    fn witness(&self, shell: &Shell, id: u32, latest: i64) -> Option<usize> {
        furthest(shell, |slot| self.has_live_entry(id, slot, shell.max_stable, latest))
    }
}

/// Merge the elements at `indices`, all of one input, in runs between stables.
pub fn apply_runs<A: Algorithm + Indexed>(
    algorithm: &mut A,
    shell: &mut Shell,
    slot: usize,
    batch: &View<'_>,
    mut indices: Indices<'_>,
) -> Checked {
    if shell.inputs.get(slot).observes {
        return observe(algorithm, shell, slot, batch, indices);
    }
    let mut run = Run::default();
    loop {
        let next_stable = algorithm.index().look_up(batch, &mut indices, &mut run);
        for number in 0..run.len() {
            algorithm.merge(shell, slot, batch, &mut run, number)?;
        }
        match next_stable {
            Some(index) => stable(algorithm, shell, slot, batch, index)?,
            None if run.is_empty() => break,
            None => {}
        }
    }
    sweep(algorithm, batch.len());
    Ok(())
}

/// The input that counts and `is_asked` for with the largest stable point, of equals the longest attached.
pub fn furthest(shell: &Shell, is_asked: impl Fn(usize) -> bool) -> Option<usize> {
    let mut best: Option<(usize, i64)> = None;
    for (slot, input) in shell.inputs.counting() {
        if best.is_none_or(|(_, stable)| input.stable > stable) && is_asked(slot) {
            best = Some((slot, input.stable));
        }
    }
    best.map(|(slot, _)| slot)
}

/// The hash that the table sees: it takes its tag from the highest bits and the place from the lowest.
#[inline]
fn wide(hash: u32) -> u64 {
    u64::from(hash) << 32 | u64::from(hash)
}
