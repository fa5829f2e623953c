//! The wheel against a plain table of due times.

use std::collections::HashMap;

use fastrand::Rng;
use lmerge_core::element::{INF, NEG_INF};
use lmerge_core::nodes::{Node, Nodes, PAGE};
use lmerge_core::wheel::Wheel;

use crate::nodes::some_place;

/// A wheel and its expected contents.
struct Twin {
    nodes: Nodes,
    wheel: Wheel,
    due: HashMap<u32, i64>,
    /// Numbers that can be used again: old entries of the wheel have them.
    removed: Vec<u32>,
    ids_ever: usize,
    /// All live nodes, also those that are never due, in a known order.
    ids: Vec<u32>,
}

impl Twin {
    fn new(now: i64) -> Twin {
        Twin {
            nodes: Nodes::default(),
            wheel: Wheel::new(now),
            due: HashMap::new(),
            removed: Vec::new(),
            ids_ever: 0,
            ids: Vec::new(),
        }
    }

    fn add(&mut self, due: i64) -> u32 {
        let mut node = Node::new(due, due);
        node.place = some_place();
        let id = match self.removed.pop() {
            Some(id) => self.nodes.add(id / PAGE as u32, id as usize % PAGE, node),
            None => {
                let within = self.ids_ever % PAGE;
                if within == 0 {
                    self.nodes.new_page(0);
                }
                self.ids_ever += 1;
                self.nodes.add(self.nodes.pages() as u32 - 1, within, node)
            }
        };
        self.wheel.push(due, id);
        self.due.insert(id, due);
        self.ids.push(id);
        id
    }

    fn remove(&mut self, id: u32) {
        self.nodes.remove(id);
        self.removed.push(id);
        self.due.remove(&id);
        self.ids.retain(|&other| other != id);
    }

    fn move_to(&mut self, id: u32, due: i64) {
        self.nodes.get_mut(id).due = due;
        self.wheel.push(due, id);
        self.due.insert(id, due);
    }

    /// Move time to `t`, and check that exactly the nodes due before `t` are popped, once.
    fn pop_below(&mut self, t: i64) -> usize {
        let mut popped = Vec::new();
        self.wheel.pop_below(&mut self.nodes, t, &mut popped);
        popped.sort_unstable();
        let mut expected: Vec<u32> = self
            .due
            .iter()
            .filter(|&(_, &due)| due < t)
            .map(|(&id, _)| id)
            .collect();
        expected.sort_unstable();
        assert_eq!(popped, expected, "due before {t}");
        for &id in &popped {
            self.nodes.remove(id);
            self.removed.push(id);
            self.due.remove(&id);
        }
        self.ids.retain(|id| self.due.contains_key(id));
        popped.len()
    }

    fn check(&self) {
        let mut entered = self.wheel.entries(&self.nodes);
        entered.sort_unstable();
        let mut expected: Vec<u32> = self
            .due
            .iter()
            .filter(|&(_, &due)| due < INF)
            .map(|(&id, _)| id)
            .collect();
        expected.sort_unstable();
        assert_eq!(entered, expected);
    }
}

/// A time not before `now`: near, far, around zero, at the ends of the numbers.
fn some_time(random: &mut Rng, now: i64) -> i64 {
    let near = random
        .choice([0, 1, 255, 256, 257, 65_535, 65_536, 1 << 24, 1 << 40, 1 << 56, 1 << 62])
        .expect("one");
    let time = match random.u8(0..6) {
        0 => random
            .choice([NEG_INF, NEG_INF + 1, -257, -1, 0, 1, 255, 256, INF - 1, INF])
            .expect("one"),
        1 => random.i64(..),
        2 => now.saturating_add(random.i64(0..=300)),
        _ => now.saturating_add(random.i64(0..=near)),
    };
    time.max(now)
}

#[test]
fn a_random_life_gives_exactly_what_is_due() {
    for seed in 0..300 {
        let mut random = Rng::with_seed(seed);
        let start = random
            .choice([NEG_INF, -1_000_000, -300, 0, 5, 1 << 40, INF - 1000])
            .expect("one");
        let mut twin = Twin::new(start);
        for _ in 0..400 {
            let now = twin.wheel.now();
            match random.u8(0..10) {
                0..5 => {
                    let due = some_time(&mut random, now);
                    twin.add(due);
                }
                5..7 if !twin.ids.is_empty() => {
                    let id = twin.ids[random.usize(0..twin.ids.len())];
                    let due = some_time(&mut random, now);
                    twin.move_to(id, due);
                }
                7 if !twin.ids.is_empty() => twin.remove(twin.ids[random.usize(0..twin.ids.len())]),
                _ => {
                    let t = some_time(&mut random, now);
                    // Mostly small steps, because time stays at its end once it is there.
                    let t = if random.u8(0..4) > 0 {
                        t.min(now.saturating_add(random.i64(0..100_000)))
                    } else {
                        t
                    };
                    twin.pop_below(t);
                }
            }
            twin.check();
        }
        twin.pop_below(INF);
        assert!(
            twin.due.values().all(|&due| due == INF),
            "nothing that is ever due is missed"
        );
    }
}

#[test]
fn every_step_of_time_gives_what_is_due_then() {
    let mut twin = Twin::new(-70_000);
    for due in -70_000..70_000 {
        twin.add(due);
    }
    for t in -69_999..=70_000 {
        let mut popped = Vec::new();
        twin.wheel.pop_below(&mut twin.nodes, t, &mut popped);
        let due: Vec<i64> = popped.iter().map(|&id| twin.nodes.get(id).vs).collect();
        assert_eq!(due, [t - 1]);
    }
}

#[test]
fn what_is_due_at_t_itself_stays() {
    for t in [NEG_INF + 1, -256, -1, 0, 1, 255, 256, 65_536, 1 << 56, INF - 1] {
        let mut twin = Twin::new(NEG_INF);
        twin.add(t - 1);
        twin.add(t);
        assert_eq!(twin.pop_below(t), 1);
        assert_eq!(twin.pop_below(t), 0, "nothing is due twice");
        twin.check();
        assert_eq!(twin.pop_below(t + 1), 1);
    }
}

#[test]
fn time_does_not_go_back() {
    let mut twin = Twin::new(NEG_INF);
    twin.add(10);
    assert_eq!(twin.pop_below(5), 0);
    let mut popped = Vec::new();
    twin.wheel.pop_below(&mut twin.nodes, NEG_INF, &mut popped);
    assert_eq!((popped.len(), twin.wheel.now()), (0, 5));
}

#[test]
fn a_sign_change_of_time_loses_nothing() {
    for before in [NEG_INF, -(1 << 40), -1] {
        let mut twin = Twin::new(before);
        let times = [before, -1, 0, 1, 300, 1 << 20, 1 << 62, INF - 1, INF];
        times.into_iter().filter(|&due| due >= before).for_each(|due| {
            twin.add(due);
        });
        twin.check();
        for t in [0, 1, 2, 301, (1 << 20) + 1, INF - 1, INF] {
            twin.pop_below(t);
            twin.check();
        }
        assert_eq!(twin.due.len(), 1, "all but what is never due");
    }
}

#[test]
fn what_is_taken_out_leaves_nothing_behind() {
    let mut twin = Twin::new(0);
    let ids: Vec<u32> = (0..50).map(|at| twin.add(at / 10)).collect();
    for at in [0, 49, 25, 24, 26, 9, 10, 1] {
        twin.remove(ids[at]); // the head, the tail and the middle of a slot
        twin.check();
    }
    for _ in 0..100_000 {
        twin.move_to(ids[30], 5000);
        twin.move_to(ids[30], 3);
    }
    twin.check();
    assert_eq!(twin.pop_below(10), 42);
}

#[test]
fn only_levels_in_use_take_memory() {
    let twin = Twin::new(0);
    assert!(
        twin.wheel.held_bytes() < 600,
        "{} bytes for nothing",
        twin.wheel.held_bytes()
    );
    let with = |now, due| {
        let mut twin = Twin::new(now);
        twin.add(due);
        twin.check();
        (twin.wheel.held_bytes(), twin)
    };
    let ((near, _), (far, mut twin)) = (with(0, 200), with(0, 1 << 60));
    assert!(near + 6_000 < far, "{near} bytes for one level, {far} for all");
    twin.add(200);
    assert_eq!(twin.pop_below(201), 1);
    twin.check();
    // Due times of the other sign have a slot of their own, before those of the levels.
    assert!(with(-1, 1 << 60).0 + 1_000 < with(-1, -1).0);
}
