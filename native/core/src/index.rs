//! The part that in2t (R3) and in3t (R4) share: nodes by (Vs, payload), and the times at which they are due.
//! `lmerge/core/index.py` describes the due times and the departures from the listings.
//!
//! The top tier is a hash by key, divided by Vs (`slices`). An entry holds the hash and the node's number. So a look-up
//! compares the key in its place without a copy, and growing does not touch the nodes. The hash is keyed at random:
//! chosen payloads cannot make it slow, and its order never reaches the output.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::algorithm::{Checked, Shell};
use crate::columns::View;
use crate::element::{ADJUST, INF, INSERT};
use crate::nodes::{NIL, NONE, Node};
use crate::policy::{Leader, Show};
use crate::retired::{Retired, clean};
use crate::run::Run;
use crate::store::Store;

/// Tables and lists up to this many entries keep their memory.
const KEPT: usize = 4096;

/// The entries of a node whose inputs do not agree. Cleared ones are used again.
pub trait Spill: Default {
    fn clear(&mut self);
    fn held_bytes(&self) -> usize;
}

/// An output element of a node that a stable causes.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    kind: u8,
    vs: i64,
    ve: i64,
    vold: i64,
    id: u32,
}

/// The part of R3 and R4 above the entries of a node.
#[derive(Debug)]
pub struct Index<S> {
    pub store: Store,
    pub spills: Vec<S>,
    /// The node of each spill, so that the spills in use can be moved together; NIL of an unused one.
    pub(crate) spill_owners: Vec<u32>,
    pub(crate) unused_spills: Vec<u32>,
    /// Columns for inputs, as a snapshot lists them.
    pub slots: usize,
    /// Number of nodes visited by stables: the measure of law 2 (docs/laws.md).
    pub visits: u64,
    pub final_only: bool,
    /// Final-only: half-frozen events that are not shown yet, by Vs. The output's stable may not pass them. A node's
    /// number may have been used again, but then for an event with a Vs above that of every held event.
    pub(crate) held: BinaryHeap<Reverse<(i64, u32)>>,
    pub rows: Vec<Row>,
    popped: Vec<u32>,
    /// Nodes that leave the index at a stable.
    done: Vec<u32>,
    pub retired: Retired,
}

impl<S: Spill> Index<S> {
    pub fn new(final_only: bool) -> Index<S> {
        Index {
            store: Store::keyed(),
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
        self.store.hash(vs, payload)
    }

    /// The node of a key, or NIL.
    #[inline]
    pub fn find(&self, hash: u32, vs: i64, payload: &[u8]) -> u32 {
        self.store.find(hash, vs, payload)
    }

    /// Add a new node, unfrozen: due at its Vs.
    #[inline]
    pub fn enter(&mut self, hash: u32, vs: i64, payload: &[u8]) -> u32 {
        self.enter_at(hash, vs, payload, vs)
    }

    /// Add a new node that is due at `due`.
    #[inline]
    pub fn enter_at(&mut self, hash: u32, vs: i64, payload: &[u8], due: i64) -> u32 {
        self.store.add(hash, Node::new(vs, due), payload)
    }

    /// The node of a key, made if it does not exist. For switches and snapshots, after which the index is rebuilt.
    pub fn adopt(&mut self, vs: i64, payload: &[u8]) -> u32 {
        let hash = self.hash(vs, payload);
        match self.find(hash, vs, payload) {
            NIL => self.enter_at(hash, vs, payload, INF),
            id => id,
        }
    }

    /// Enter the node in the wheel again if `ve`, an end from an element, is before its due time.
    #[inline]
    pub fn fall_due(&mut self, id: u32, ve: i64, max_stable: i64) {
        if max_stable <= ve && ve < self.store.nodes.get(id).due {
            self.store.enter(id, ve);
        }
    }

    /// Final-only: hold a node that has become half frozen and cannot be shown yet.
    pub fn hold(&mut self, id: u32) {
        self.held.push(Reverse((self.store.nodes.get(id).vs, id)));
    }

    /// The stable that the output may emit after `t` is frozen. Final-only: an event that is not shown yet keeps it at
    /// or below its Vs.
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

    /// Make spilled entries for a node that has none.
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

    /// Free the spilled entries of a node whose inputs agree again.
    pub fn unspill(&mut self, id: u32) {
        let node = self.store.nodes.get_mut(id);
        let at = node.spill();
        (node.common, node.has) = (NONE, 0);
        self.spills[at as usize].clear();
        self.spill_owners[at as usize] = NIL;
        self.unused_spills.push(at);
    }

    /// Remove a node with its entries.
    #[inline]
    pub fn drop_node(&mut self, id: u32) {
        if self.store.nodes.get(id).spill() != NIL {
            self.unspill(id);
        }
        self.store.remove(id);
    }

    pub fn held_bytes(&self) -> usize {
        let spills: usize = self.spills.iter().map(Spill::held_bytes).sum();
        let entries = spills
            + self.spills.capacity() * size_of::<S>()
            + (self.unused_spills.capacity() + self.spill_owners.capacity()) * size_of::<u32>();
        let scratch = self.popped.capacity() * size_of::<u32>()
            + self.done.capacity() * size_of::<u32>()
            + self.rows.capacity() * size_of::<Row>()
            + self.held.capacity() * size_of::<Reverse<(i64, u32)>>();
        self.store.held_bytes() + entries + scratch
    }

    /// The nodes that no stable has reached, in no useful order.
    pub fn unfrozen(&self, max_stable: i64) -> Vec<u32> {
        let nodes = &self.store.nodes;
        let mut ids = nodes.ids();
        ids.retain(|&id| nodes.get(id).vs >= max_stable);
        ids
    }

    /// Sort the rows that a stable caused by (Vs, payload), so that no hash or wheel order reaches the output (law 7).
    /// Emit them, and remove the nodes that leave the index.
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
        done.drain(..).for_each(|id| self.drop_node(id));
        self.done = done;
    }

    /// Move nodes if slices are crowded or many nodes are dead. Numbers of nodes are not valid afterwards.
    #[inline]
    pub fn arrange(&mut self) {
        // A sweep of entries goes by page, and would miss nodes that move to a page before.
        if self.store.must_arrange() && self.retired.is_empty() {
            self.move_nodes();
        }
    }

    #[cold]
    fn move_nodes(&mut self) {
        let (owners, held, now) = (&mut self.spill_owners, &mut self.held, self.store.wheel.now());
        let final_only = self.final_only;
        self.store.arrange(|nodes, _, id| {
            let node = nodes.get(id);
            if node.spill() != NIL {
                owners[node.spill() as usize] = id;
            }
            if final_only && node.vs < now {
                held.push(Reverse((node.vs, id)));
            }
        });
    }

    /// Give memory back where much of it is unused.
    pub fn tidy(&mut self) {
        self.arrange();
        self.store.tidy();
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

/// Free the memory of a list that is empty between two calls, if the list is large.
pub fn give_back<T>(list: &mut Vec<T>) {
    debug_assert!(list.is_empty());
    if list.capacity() > KEPT {
        *list = Vec::new();
    }
}

/// The part in which R3 and R4 differ: the entries of a node.
pub trait Indexed {
    type Entries: Spill;

    fn index(&mut self) -> &mut Index<Self::Entries>;

    /// Merge an insert or adjust that has been looked up.
    fn merge(&mut self, shell: &mut Shell, slot: usize, batch: &View<'_>, run: &mut Run, number: usize) -> Checked;

    /// Note what the output must emit for the node before stable(t) of the input in `slot`. True: it leaves the index.
    fn settle(&mut self, shell: &Shell, id: u32, slot: usize, t: i64) -> bool;

    /// Remove the entry of the input in `slot`.
    fn forget_entry(&mut self, id: u32, slot: usize);

    /// The smallest end in the node that is not below `t`, without inputs that have left; INF if there is none.
    fn next_due(index: &Index<Self::Entries>, id: u32, t: i64) -> i64;

    /// Whether the input in `slot` has an event here that is not fully frozen at MaxStable, and ends by `latest`.
    fn has_live_entry(&self, id: u32, slot: usize, max_stable: i64, latest: i64) -> bool;

    /// How many events the input in `slot` has here.
    fn copies(&self, id: u32, slot: usize) -> usize;

    /// Quorum: show the events of an unfrozen node that enough inputs have and the output lacks.
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

    /// Count the unfrozen events of each input again, if the input with the most of them leads.
    fn count_unfrozen(&mut self, shell: &mut Shell) {
        if !shell.policy.leads_by(Leader::Unfrozen) {
            return;
        }
        let ids = self.index().unfrozen(shell.max_stable);
        for slot in shell.inputs.order().to_vec() {
            shell.inputs.get_mut(slot).unfrozen = ids.iter().map(|&id| self.copies(id, slot)).sum();
        }
    }

    /// Most-unfrozen: subtract the events of a node that becomes half frozen.
    fn freeze_counted(&self, shell: &mut Shell, id: u32) {
        for slot in shell.inputs.order().to_vec() {
            shell.inputs.get_mut(slot).unfrozen -= self.copies(id, slot);
        }
    }

    /// Settle every node that a stable(t) concerns, and only those (IV.D line 17, IV.E line 18).
    fn freeze_nodes(&mut self, shell: &mut Shell, slot: usize, t: i64) {
        let index = self.index();
        let mut popped = std::mem::take(&mut index.popped);
        if shell.max_stable < shell.right_from && shell.right_from <= t {
            // The merge becomes right: its half-frozen events must be right, also those that are not due.
            let nodes = &index.store.nodes;
            let is_concerned = |&id: &u32| nodes.get(id).vs < shell.max_stable && nodes.get(id).due >= t;
            popped.extend(nodes.ids().into_iter().filter(is_concerned));
        }
        index.store.wheel.pop_below(&mut index.store.nodes, t, &mut popped);
        if index.final_only && t == INF {
            // Final-only shows events without an end at stable(+inf). Such nodes have no due time; all others are due.
            popped = index.store.nodes.ids();
        }
        let is_counted = shell.policy.leads_by(Leader::Unfrozen);
        for id in popped.drain(..) {
            self.index().visits += 1;
            if is_counted && self.index().store.nodes.get(id).vs >= shell.max_stable {
                self.freeze_counted(shell, id);
            }
            clean(self, id);
            if self.index().visit_usual(shell.max_stable, id, slot, t) {
                continue;
            }
            if self.settle(shell, id, slot, t) {
                self.index().done.push(id);
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

    /// The joined input with the largest stable point that has a live event in a half-frozen node, with an end by
    /// `latest`.
    fn witness(&self, shell: &Shell, id: u32, latest: i64) -> Option<usize> {
        furthest(shell, |slot| self.has_live_entry(id, slot, shell.max_stable, latest))
    }
}

/// The input that counts and `fits` with the largest stable point; of equals the longest attached.
pub fn furthest(shell: &Shell, fits: impl Fn(usize) -> bool) -> Option<usize> {
    let mut best: Option<(usize, i64)> = None;
    for (slot, input) in shell.inputs.counting() {
        if best.is_none_or(|(_, stable)| input.stable > stable) && fits(slot) {
            best = Some((slot, input.stable));
        }
    }
    best.map(|(slot, _)| slot)
}
