//! Nodes with their payloads, keys and due times: the part of an index without entries, and the live output of R0-R2.
//!
//! `slices` describes how the nodes are divided.

use crate::arena::Arena;
use crate::columns::View;
use crate::element::{INF, NEG_INF};
use crate::hash::KeyHash;
use crate::index::give_back;
use crate::nodes::{NIL, Node, Nodes};
use crate::slices::Slices;
use crate::wheel::Wheel;

/// So many dead nodes, and bytes of their payloads, are never folded away.
const DEAD_FREE: usize = 1024;
const DEAD_BYTES_FREE: usize = 128 * 1024;

/// Nodes, the payloads that they own, the tables of their keys, and the wheel of their due times.
#[derive(Debug)]
pub struct Store {
    pub nodes: Nodes,
    pub arena: Arena,
    pub wheel: Wheel,
    pub(crate) slices: Slices,
    key_hash: KeyHash,
    /// Whether there are tables. Otherwise a node is found by its due time only.
    is_keyed: bool,
}

impl Store {
    /// An empty store in which nodes are found by key.
    pub fn keyed() -> Store {
        Store::new(NEG_INF, true)
    }

    fn new(now: i64, is_keyed: bool) -> Store {
        Store {
            nodes: Nodes::default(),
            arena: Arena::default(),
            wheel: Wheel::new(now),
            slices: Slices::default(),
            key_hash: KeyHash::new(),
            is_keyed,
        }
    }

    #[inline(always)]
    pub fn hash(&self, vs: i64, payload: &[u8]) -> u32 {
        self.key_hash.of(vs, payload)
    }

    /// The node of a key, or NIL.
    #[inline]
    pub fn find(&self, hash: u32, vs: i64, payload: &[u8]) -> u32 {
        let Some(number) = self.slices.at(vs) else { return NIL };
        let is_key = |&(other, id): &(u32, u32)| other == hash && self.has_key(id, vs, payload);
        let entry = self.slices.get(number).table.find(wide(hash), is_key);
        entry.map_or(NIL, |&(_, id)| id)
    }

    /// Look up the keys of the elements of `batch` at `at`. Sets their hashes, and the numbers of their nodes or NIL.
    ///
    /// In steps over all of them, so that the cache misses of a step overlap.
    #[inline]
    pub fn find_all(&self, batch: &View<'_>, at: &[usize], hashes: &mut [u32], ids: &mut [u32]) {
        for (&index, hash) in at.iter().zip(hashes.iter_mut()) {
            *hash = batch
                .hash(index)
                .unwrap_or_else(|| self.hash(batch.vs(index), batch.payload(index)));
        }
        let Some((mut number, mut from, mut to)) = self.slices.with_range(NEG_INF) else {
            return ids.fill(NIL);
        };
        for ((&index, &hash), id) in at.iter().zip(hashes.iter()).zip(ids.iter_mut()) {
            let vs = batch.vs(index);
            if vs < from || vs >= to {
                (number, from, to) = self.slices.with_range(vs).expect("there are slices");
            }
            let entry = self.slices.get(number).table.find(wide(hash), |entry| entry.0 == hash);
            *id = entry.map_or(NIL, |entry| entry.1);
        }
        for ((&index, &hash), id) in at.iter().zip(hashes.iter()).zip(ids.iter_mut()) {
            let (vs, payload) = (batch.vs(index), batch.payload(index));
            if *id != NIL && !self.has_key(*id, vs, payload) {
                *id = self.find(hash, vs, payload); // another key with this hash, or a node that is dead
            }
        }
    }

    #[inline(always)]
    fn has_key(&self, id: u32, vs: i64, payload: &[u8]) -> bool {
        let node = self.nodes.get(id);
        node.vs == vs && self.arena.is_at(node.place, payload)
    }

    /// Add a new node, which is due at `node.due`, with its payload. `hash`: of its key, if the store is keyed.
    #[inline]
    pub fn add(&mut self, hash: u32, mut node: Node, payload: &[u8]) -> u32 {
        let live = self.nodes.len();
        // Without look-up any slice is right: the last one.
        let vs = if self.is_keyed { node.vs } else { INF };
        let number = self.slices.for_new(vs, live, &mut self.arena);
        let due = node.due;
        node.place = self.arena.add(&mut self.slices.get_mut(number).chunks, payload);
        let id = self.put(number, hash, node, payload.len());
        self.wheel.push(due, id);
        id
    }

    /// Put a node into a slice that has its payload.
    #[inline]
    fn put(&mut self, number: u32, hash: u32, node: Node, payload_bytes: usize) -> u32 {
        self.slices.used += 1;
        self.slices.used_bytes += payload_bytes;
        let slice = self.slices.get_mut(number);
        let (page, within) = slice.place(&mut self.nodes, number);
        slice.max_vs = slice.max_vs.max(node.vs);
        slice.used += 1;
        slice.live += 1;
        slice.used_bytes += payload_bytes;
        slice.live_bytes += payload_bytes;
        let id = self.nodes.add(page, within, node);
        if self.is_keyed {
            if slice.table.capacity() == 0 {
                self.slices.begin_table(number);
            }
            let slice = self.slices.get_mut(number);
            let is_crowded = slice.is_crowded();
            slice
                .table
                .insert_unique(wide(hash), (hash, id), |&(hash, _)| wide(hash));
            self.slices.has_crowded |= is_crowded;
        }
        id
    }

    /// Remove a node. Its entry in the table stays until the slice is freed.
    #[inline]
    pub fn remove(&mut self, id: u32) {
        let (place, number) = self.nodes.remove(id);
        let bytes = self.arena.remove(place);
        let slice = self.slices.get_mut(number);
        slice.live -= 1;
        slice.live_bytes -= bytes;
        if slice.live == 0 {
            self.slices.remove(number);
            self.slices.free(number, &mut self.nodes, &mut self.arena);
        }
    }

    /// Enter a node at `due`, whatever its due time was before.
    #[inline]
    pub fn enter(&mut self, id: u32, due: i64) {
        self.nodes.get_mut(id).due = due;
        self.wheel.push(due, id);
    }

    /// Like `enter`, but a node that is due then already is not entered twice.
    #[inline]
    pub fn move_to(&mut self, id: u32, due: i64) {
        if self.nodes.due(id) != due {
            self.enter(id, due);
        }
    }

    #[inline]
    pub fn payload(&self, id: u32) -> &[u8] {
        self.arena.get(self.nodes.get(id).place)
    }

    #[inline]
    pub fn key(&self, id: u32) -> (i64, &[u8]) {
        (self.nodes.get(id).vs, self.payload(id))
    }

    /// Free memory of the wheel that is wasted.
    pub fn tidy(&mut self) {
        self.wheel.tidy(&self.nodes);
    }

    /// Whether [`Store::arrange`] has something to do.
    #[inline]
    pub fn must_arrange(&self) -> bool {
        self.slices.has_crowded || self.has_many_dead()
    }

    #[inline]
    fn has_many_dead(&self) -> bool {
        self.slices.used > 2 * self.nodes.len() + DEAD_FREE
            || self.slices.used_bytes > 2 * self.arena.payload_bytes() + DEAD_BYTES_FREE
    }

    /// Split crowded slices, and fold sparse ones together if there are many dead nodes. Calls `moved` with the number
    /// of each node that moves, before and after. O(1) for each node that was added or removed, amortised.
    pub fn arrange(&mut self, mut moved: impl FnMut(&Nodes, u32, u32)) {
        if std::mem::take(&mut self.slices.has_crowded) {
            for number in self.slices.order().to_vec() {
                if self.slices.get(number).is_crowded() {
                    self.split(number, &mut moved);
                }
            }
        }
        if self.has_many_dead() {
            self.fold(&mut moved);
        }
    }

    /// Split a slice into parts of about as many nodes as it should have, each with other Vs.
    fn split(&mut self, number: u32, moved: &mut impl FnMut(&Nodes, u32, u32)) {
        let mut vs: Vec<i64> = self.ids_of(number).iter().map(|&id| self.nodes.get(id).vs).collect();
        vs.sort_unstable();
        let place = self.slices.order().iter().position(|&other| other == number);
        let place = place.expect("a slice in use");
        let mut starts = vec![self.slices.starts()[place]];
        let slice = self.slices.get_mut(number);
        let mut from = 0;
        while from + slice.full < vs.len() {
            from += slice.full;
            let start = vs[from];
            from = vs.partition_point(|&other| other < start);
            if start > starts[starts.len() - 1] && from > 0 {
                starts.push(start);
            } else {
                from = vs.partition_point(|&other| other <= start); // many nodes with one Vs stay together
            }
        }
        if starts.len() == 1 {
            slice.full = slice.used; // try again when there are twice as many
            return;
        }
        self.rebuild(place, place + 1, &starts, moved);
    }

    /// Fold sparse slices together, each with the sparse and small ones that follow it.
    fn fold(&mut self, moved: &mut impl FnMut(&Nodes, u32, u32)) {
        let full = Slices::full_for(self.nodes.len());
        let mut from = 0;
        while from < self.slices.order().len() {
            let (mut to, mut live, mut is_sparse) = (from, 0, false);
            for &number in &self.slices.order()[from..] {
                let slice = self.slices.get(number);
                if !(slice.is_sparse() || slice.is_small()) || (to > from && live + slice.live > full) {
                    break;
                }
                (to, live, is_sparse) = (to + 1, live + slice.live, is_sparse || slice.is_sparse());
            }
            if is_sparse {
                let start = self.slices.starts()[from];
                self.rebuild(from, to, &[start], moved);
                to = from + 1;
            }
            from = to.max(from + 1);
        }
    }

    /// Move the nodes of the slices at `from..to` in the order to new slices with these starts.
    fn rebuild(&mut self, from: usize, to: usize, starts: &[i64], moved: &mut impl FnMut(&Nodes, u32, u32)) {
        let old = self.slices.replace(from, to, starts, self.nodes.len(), &self.arena);
        let new = self.slices.order()[from..from + starts.len()].to_vec();
        for number in old {
            for id in self.ids_of(number) {
                let node = self.nodes.get(id).clone();
                let at = starts.partition_point(|&start| start <= node.vs).max(1) - 1;
                self.move_node(id, node, new[at], moved);
            }
            self.slices.free(number, &mut self.nodes, &mut self.arena);
        }
        for number in new {
            self.arena.finish(&mut self.slices.get_mut(number).chunks);
        }
    }

    fn move_node(&mut self, id: u32, mut node: Node, to: u32, moved: &mut impl FnMut(&Nodes, u32, u32)) {
        let hash = if self.is_keyed {
            self.hash(node.vs, self.arena.get(node.place))
        } else {
            0
        };
        let (due, bytes) = (node.due, self.arena.len(node.place));
        node.place = self.arena.move_to(&mut self.slices.get_mut(to).chunks, node.place);
        self.nodes.remove(id);
        let new = self.put(to, hash, node, bytes);
        self.wheel.push(due, new);
        moved(&self.nodes, id, new);
    }

    /// The nodes of a slice.
    fn ids_of(&self, number: u32) -> Vec<u32> {
        let mut ids = Vec::new();
        for &page in &self.slices.get(number).pages {
            self.nodes.ids_of_page(page as usize, &mut ids);
        }
        ids
    }

    pub fn held_bytes(&self) -> usize {
        self.nodes.held_bytes() + self.arena.held_bytes() + self.wheel.held_bytes() + self.slices.held_bytes()
    }

    /// Assert that every node is found by its key, and is in the wheel if and only if it has a due time.
    pub fn check(&self) {
        self.arena.check();
        self.slices.check(&self.nodes);
        let ids = self.nodes.ids();
        let entered = self.wheel.entries(&self.nodes);
        let due: Vec<u32> = ids.iter().copied().filter(|&id| self.nodes.get(id).due < INF).collect();
        assert_eq!(entered, due, "the nodes in the wheel are those that are due");
        let mut bytes = 0;
        for id in ids {
            let (vs, payload) = self.key(id);
            bytes += payload.len();
            assert!(self.nodes.get(id).due >= self.wheel.now(), "a node was due before now");
            if self.is_keyed {
                assert_eq!(
                    self.find(self.hash(vs, payload), vs, payload),
                    id,
                    "a node under another key"
                );
            }
        }
        assert_eq!(bytes, self.arena.payload_bytes(), "bytes of all payloads");
    }
}

/// The hash for a table, which takes its tag from the highest bits and the place from the lowest.
#[inline]
fn wide(hash: u32) -> u64 {
    u64::from(hash) << 32 | u64::from(hash)
}

/// The live output of an algorithm that keeps no output events itself. Such an algorithm emits only inserts and
/// stables.
#[derive(Debug)]
pub struct Live {
    store: Store,
    popped: Vec<u32>,
}

impl Live {
    pub fn new(stable_point: i64) -> Live {
        Live {
            store: Store::new(stable_point, false),
            popped: Vec::new(),
        }
    }

    pub fn len(&self) -> usize {
        self.store.nodes.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    #[inline]
    pub fn insert(&mut self, vs: i64, ve: i64, payload: &[u8]) {
        if ve > vs {
            let mut node = Node::new(vs, ve);
            node.out = ve;
            self.store.add(0, node, payload);
        }
    }

    pub fn stable(&mut self, vc: i64) {
        let mut popped = std::mem::take(&mut self.popped);
        self.store.wheel.pop_below(&mut self.store.nodes, vc, &mut popped);
        for id in popped.drain(..) {
            self.store.remove(id);
        }
        self.popped = popped;
        give_back(&mut self.popped);
        self.store.arrange(|_, _, _| {});
        self.store.tidy();
    }

    /// All live events as (vs, payload, ve), in that order.
    pub fn events(&self) -> Vec<(i64, &[u8], i64)> {
        let store = &self.store;
        let event = |id: u32| (store.nodes.get(id).vs, store.payload(id), store.nodes.get(id).out);
        let mut events: Vec<_> = store.nodes.ids().into_iter().map(event).collect();
        events.sort_unstable();
        events
    }

    pub fn held_bytes(&self) -> usize {
        self.store.held_bytes() + self.popped.capacity() * size_of::<u32>()
    }

    pub fn payload_bytes(&self) -> usize {
        self.store.arena.payload_bytes()
    }

    /// Assert the invariants: only live events, in the wheel at their ends.
    pub fn check(&self, stable_point: i64) {
        self.store.check();
        assert!(
            self.store.wheel.now() == stable_point || stable_point == NEG_INF,
            "the live output is not up to date"
        );
        for id in self.store.nodes.ids() {
            let node = self.store.nodes.get(id);
            assert!(node.out >= stable_point, "a fully frozen event among the live ones");
            assert_eq!(node.out, node.due, "a live event that is not due at its end");
        }
    }
}
