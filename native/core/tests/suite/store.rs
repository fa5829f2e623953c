//! A store against a plain map: nodes are found by key wherever they move, and dead ones take little memory.

use std::collections::{BTreeMap, HashMap, HashSet};

use fastrand::Rng;
use lmerge_core::columns::Columns;
use lmerge_core::nodes::{NIL, Node};
use lmerge_core::store::Store;

type Key = (i64, Vec<u8>);

/// A store and its expected contents.
struct Twin {
    store: Store,
    ids: HashMap<Key, u32>,
    moves: usize,
}

impl Twin {
    fn new() -> Twin {
        Twin {
            store: Store::keyed(),
            ids: HashMap::new(),
            moves: 0,
        }
    }

    fn add(&mut self, vs: i64, payload: &[u8]) {
        let hash = self.store.hash(vs, payload);
        let mut node = Node::new(vs, vs + 1000);
        node.common = vs; // something that must move with it
        let id = self.store.add(hash, node, payload);
        assert!(self.ids.insert((vs, payload.to_vec()), id).is_none());
    }

    fn remove(&mut self, key: &Key) {
        let id = self.ids.remove(key).expect("a key");
        self.store.remove(id);
    }

    fn arrange(&mut self) {
        let mut to: HashMap<u32, u32> = HashMap::new();
        self.store.arrange(|nodes, old, new| {
            assert_eq!(nodes.get(new).common, nodes.get(new).vs);
            assert!(to.insert(old, new).is_none(), "a node that moves twice");
        });
        self.moves += to.len();
        // All in one step: a number can be free and used again within one call.
        self.ids
            .values_mut()
            .for_each(|id| *id = to.get(id).copied().unwrap_or(*id));
        assert!(!self.store.must_arrange(), "nothing is left to do");
        self.store.tidy();
    }

    fn check(&self) {
        self.store.check();
        assert_eq!(self.store.nodes.len(), self.ids.len());
        for ((vs, payload), &id) in &self.ids {
            assert_eq!(self.store.find(self.store.hash(*vs, payload), *vs, payload), id);
        }
    }

    fn is_absent(&self, vs: i64, payload: &[u8]) -> bool {
        self.store.find(self.store.hash(vs, payload), vs, payload) == NIL
    }

    /// Without the wheel.
    fn bytes_per_node(&self) -> usize {
        (self.store.held_bytes() - self.store.wheel.held_bytes()) / self.ids.len().max(1)
    }

    fn keys(&self) -> Vec<Key> {
        let mut keys: Vec<Key> = self.ids.keys().cloned().collect();
        keys.sort();
        keys
    }
}

#[test]
fn a_random_life_finds_every_key_and_bounds_the_memory() {
    let mut moves = 0;
    for seed in 0..25 {
        let mut random = Rng::with_seed(seed);
        let mut twin = Twin::new();
        let spread = random.choice([0, 1, 50, 5000, 1 << 40]).expect("one");
        for step in 0..12_000_i64 {
            let is_growing = step / 4000 % 2 == 0;
            if twin.ids.is_empty() || random.u8(0..10) < if is_growing { 8 } else { 2 } {
                let vs = step + random.i64(-spread..=spread);
                let size = if random.u8(0..100) == 0 {
                    9000
                } else {
                    random.usize(4..40)
                };
                let payload = [&(step as u32).to_le_bytes()[..], &vec![1; size - 4]].concat();
                twin.add(vs, &payload);
            } else {
                let keys = twin.keys();
                let count = if is_growing {
                    1
                } else {
                    random.usize(1..10).min(keys.len())
                };
                let at = random.usize(0..=keys.len() - count);
                keys[at..at + count].iter().for_each(|key| twin.remove(key));
                assert!(twin.is_absent(keys[at].0, &keys[at].1), "a dead key is found");
            }
            if random.u8(0..20) == 0 {
                twin.arrange();
            }
            if step % 500 == 0 {
                twin.check();
            }
        }
        twin.arrange();
        twin.check();
        moves += twin.moves;
    }
    assert!(moves > 10_000, "{moves} moves");
}

#[test]
fn keys_with_equal_hashes_are_distinct() {
    let mut twin = Twin::new();
    let mut batch = Columns::default();
    let mut hashes = HashSet::new();
    let mut equal = 0;
    // Among 400,000 keys, about 18 pairs have one hash of 32 bits.
    for at in 0..400_000_i64 {
        let payload = at.to_le_bytes();
        equal += usize::from(!hashes.insert(twin.store.hash(1, &payload)));
        batch.insert(1, 9, &payload);
        twin.add(1, &payload);
    }
    assert!(equal > 0, "no two keys have one hash");
    let at: Vec<usize> = (0..batch.len()).collect();
    let (mut hash, mut ids) = (vec![0; at.len()], vec![NIL; at.len()]);
    twin.store.find_all(&batch.view(), &at, &mut hash, &mut ids);
    for (at, id) in ids.into_iter().enumerate() {
        assert_eq!(twin.store.payload(id), (at as i64).to_le_bytes());
    }
}

#[test]
fn a_window_of_events_moves_no_node() {
    let mut twin = Twin::new();
    let mut random = Rng::with_seed(1);
    for at in 0..20_001_i64 {
        let vs = at * 10 - if random.u8(0..5) == 0 { random.i64(0..2000) } else { 0 };
        twin.add(vs, &at.to_le_bytes());
    }
    let mut in_order: BTreeMap<i64, Key> = BTreeMap::new();
    for key in twin.ids.keys() {
        in_order.insert(
            i64::from_le_bytes(key.1[..].try_into().expect("eight bytes")),
            key.clone(),
        );
    }
    for (at, key) in in_order {
        twin.remove(&key);
        let next = at + 20_001;
        twin.add(next * 10, &next.to_le_bytes());
        twin.arrange();
    }
    assert_eq!(twin.moves, 0);
    assert!(
        twin.bytes_per_node() < 90,
        "{} bytes for 20,000 nodes",
        twin.bytes_per_node()
    );
    twin.check();
}

#[test]
fn a_crowded_slice_is_split_by_vs() {
    let mut twin = Twin::new();
    twin.add(1_000_000, b"an outlier: all others come before it");
    for at in 0..10_000_i64 {
        twin.add(at * 7919 % 10_000, &at.to_le_bytes());
        if at % 100 == 0 {
            twin.arrange();
        }
    }
    twin.check();
    assert!(
        (10_000..40_000).contains(&twin.moves),
        "{} moves of 10,000 nodes",
        twin.moves
    );
}

#[test]
fn nodes_with_one_vs_stay_together() {
    let mut twin = Twin::new();
    for at in 0..10_000_i64 {
        twin.add(5, &at.to_le_bytes());
        twin.arrange();
    }
    twin.add(4, b"before");
    twin.add(6, b"after");
    twin.check();
    assert_eq!(twin.moves, 0);
}

#[test]
fn scattered_survivors_are_folded_together() {
    let mut twin = Twin::new();
    for at in 0..50_000_i64 {
        twin.add(at, &at.to_le_bytes().repeat(12));
    }
    for key in twin.keys().into_iter().filter(|key| key.0 % 100 != 0) {
        twin.remove(&key);
    }
    assert!(
        twin.store.held_bytes() > 5_000_000,
        "a survivor in every chunk holds them all"
    );
    twin.arrange();
    twin.check();
    assert_eq!(twin.moves, 500);
    assert!(
        twin.store.held_bytes() < 400_000,
        "{} bytes for 500 nodes",
        twin.store.held_bytes()
    );
}

#[test]
fn nothing_moves_while_little_is_dead() {
    let mut twin = Twin::new();
    for at in 0..50_000_i64 {
        twin.add(at, &at.to_le_bytes());
    }
    for key in twin.keys().into_iter().filter(|key| key.0 % 5 < 2) {
        twin.remove(&key);
    }
    twin.arrange();
    assert_eq!(twin.moves, 0, "three of five are alive in every slice");
}

#[test]
fn what_comes_and_goes_at_one_key_takes_no_memory() {
    let mut twin = Twin::new();
    twin.add(1, b"kept");
    for _ in 0..100_000 {
        twin.add(2, b"one");
        twin.remove(&(2, b"one".to_vec()));
        twin.arrange();
    }
    twin.check();
    assert!(
        twin.store.held_bytes() < 300_000,
        "{} bytes for one node",
        twin.store.held_bytes()
    );
}

#[test]
fn a_store_of_one_node_takes_little() {
    let mut twin = Twin::new();
    twin.add(1, b"one");
    assert!(
        twin.store.held_bytes() < 50_000,
        "{} bytes: many merges are small",
        twin.store.held_bytes()
    );
}

#[test]
fn the_ends_of_time_are_in_slices_too() {
    let mut twin = Twin::new();
    for at in 0..2000_i64 {
        twin.add(i64::MIN + 1 + at, b"early");
        twin.add(i64::MAX - 3000 + at, b"late");
        twin.add(at, b"now");
        twin.arrange();
    }
    twin.check();
    assert!(twin.is_absent(i64::MIN, b"early") && twin.is_absent(i64::MAX, b"late"));
}
