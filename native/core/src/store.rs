//! Nodes with their payloads and due times: the part of an index without look-up, and the live output of R0-R2.

use crate::arena::Arena;
use crate::element::{INF, NEG_INF};
use crate::index::give_back;
use crate::nodes::Nodes;
use crate::wheel::Wheel;

/// Nodes, the payloads that they own, and the wheel of their due times.
#[derive(Debug, Default)]
pub struct Store {
    pub nodes: Nodes,
    pub arena: Arena,
    pub wheel: Wheel,
}

impl Store {
    pub fn new(now: i64) -> Store {
        Store {
            wheel: Wheel::new(now),
            ..Store::default()
        }
    }

    /// Add a new node that is due at `due`.
    #[inline]
    pub fn add(&mut self, vs: i64, payload: &[u8], due: i64) -> u32 {
        let id = self.nodes.add(vs);
        let place = self.arena.add(id, payload);
        let node = self.nodes.get_mut(id);
        node.place = place;
        node.due = due;
        self.wheel.add(&self.nodes, id);
        id
    }

    /// Remove a node.
    #[inline]
    pub fn remove(&mut self, id: u32) {
        self.arena.remove(self.nodes.get(id).place);
        self.nodes.remove(id);
    }

    /// Enter a node at `due`, whatever its due time was before.
    #[inline]
    pub fn enter(&mut self, id: u32, due: i64) {
        self.nodes.get_mut(id).due = due;
        self.wheel.add(&self.nodes, id);
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

    /// Free memory where much of it is wasted.
    pub fn tidy(&mut self) {
        self.wheel.tidy(&self.nodes);
        let nodes = &mut self.nodes;
        self.arena.evacuate(|owner, place| nodes.get_mut(owner).place = place);
    }

    pub fn held_bytes(&self) -> usize {
        self.nodes.held_bytes() + self.arena.held_bytes() + self.wheel.held_bytes()
    }

    #[inline]
    pub fn key(&self, id: u32) -> (i64, &[u8]) {
        (self.nodes.get(id).vs, self.payload(id))
    }

    /// Assert that every node owns its payload, and is in the wheel if and only if it has a due time.
    pub fn check(&self) {
        self.arena.check();
        let entered = self.wheel.entries(&self.nodes);
        let due: Vec<u32> = self
            .nodes
            .ids()
            .into_iter()
            .filter(|&id| self.nodes.get(id).due < INF)
            .collect();
        assert_eq!(entered, due, "the nodes in the wheel are those that are due");
        for id in self.nodes.ids() {
            assert_eq!(
                self.arena.owner(self.nodes.get(id).place),
                id,
                "a payload of another node"
            );
            assert!(self.nodes.get(id).due >= self.wheel.now(), "a node was due before now");
        }
    }
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
            store: Store::new(stable_point),
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
            let id = self.store.add(vs, payload, ve);
            self.store.nodes.get_mut(id).out = ve;
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
