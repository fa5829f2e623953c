//! Payloads are read as they were stored, and their memory is freed when they are removed.

use std::collections::HashMap;

use fastrand::Rng;
use lmerge_temporal::arena::{Arena, Place};

/// Waste that the arena allows, and the current chunk.
const SLACK: usize = 5 * 64 * 1024;
/// The bytes that the arena stores beside a payload.
const HEADER: usize = 8;

/// An arena and the expected contents.
#[derive(Default)]
struct Twin {
    arena: Arena,
    payloads: HashMap<u32, (Place, Vec<u8>)>,
}

impl Twin {
    fn add(&mut self, owner: u32, payload: Vec<u8>) {
        let place = self.arena.add(owner, &payload);
        self.payloads.insert(owner, (place, payload));
    }

    fn remove(&mut self, owner: u32) {
        let (place, _) = self.payloads.remove(&owner).expect("an owner");
        self.arena.remove(place);
    }

    fn evacuate(&mut self) -> usize {
        let mut moved = 0;
        self.arena.evacuate(|owner, place| {
            self.payloads.get_mut(&owner).expect("only live payloads move").0 = place;
            moved += 1;
        });
        moved
    }

    fn check(&self) {
        self.arena.check();
        for (&owner, (place, payload)) in &self.payloads {
            assert_eq!(self.arena.get(*place), payload);
            assert_eq!(self.arena.owner(*place), owner);
        }
        assert_eq!(self.arena.payload_bytes(), self.payload_bytes());
    }

    fn payload_bytes(&self) -> usize {
        self.payloads.values().map(|(_, payload)| payload.len()).sum()
    }
}

#[test]
fn payloads_of_every_size_come_back_as_they_were() {
    let mut twin = Twin::default();
    for (owner, size) in [
        0, 1, 7, 8, 1000, 1016, 1017, 8183, 8184, 8185, 65_528, 65_536, 1_000_000,
    ]
    .into_iter()
    .enumerate()
    {
        twin.add(owner as u32, vec![owner as u8 + 1; size]);
        twin.check();
    }
    for owner in 0..13 {
        twin.remove(owner);
        twin.check();
    }
}

#[test]
fn a_random_life_keeps_every_payload_and_bounds_the_memory() {
    for seed in 0..20 {
        let mut random = Rng::with_seed(seed);
        let mut twin = Twin::default();
        let mut owners: Vec<u32> = Vec::new();
        for step in 0..6000 {
            let is_growing = step / 1000 % 2 == 0;
            if owners.is_empty() || random.u8(0..10) < if is_growing { 8 } else { 2 } {
                let size = if random.u8(0..50) == 0 {
                    random.usize(0..20_000)
                } else {
                    random.usize(0..300)
                };
                twin.add(step, (0..size).map(|_| random.u8(..)).collect());
                owners.push(step);
            } else {
                twin.remove(owners.swap_remove(random.usize(0..owners.len())));
            }
            if step % 100 == 0 {
                twin.evacuate();
                twin.check();
                let live = twin.payload_bytes() + HEADER * owners.len();
                let held = twin.arena.held_bytes();
                assert!(
                    held <= 2 * live + SLACK,
                    "{held} bytes held for {live} live ones, seed {seed}"
                );
            }
        }
    }
}

#[test]
fn when_everything_has_gone_the_memory_has_gone() {
    let mut twin = Twin::default();
    for owner in 0..50_000 {
        twin.add(owner, vec![1; 100]);
    }
    assert!(twin.arena.held_bytes() >= 5_000_000);
    for owner in 0..50_000 {
        twin.remove(owner);
    }
    assert!(
        twin.arena.held_bytes() <= SLACK,
        "{} bytes held for nothing, before anything is moved",
        twin.arena.held_bytes()
    );
    assert_eq!(twin.arena.payload_bytes(), 0);
    assert_eq!(twin.evacuate(), 0, "nothing is left to be moved");
}

#[test]
fn a_few_survivors_of_a_burst_are_moved_together_and_their_owners_get_the_new_places() {
    let mut twin = Twin::default();
    for owner in 0..50_000 {
        twin.add(owner, owner.to_le_bytes().repeat(25));
    }
    for owner in (0..50_000).filter(|owner| owner % 100 != 0) {
        twin.remove(owner);
    }
    assert!(
        twin.arena.held_bytes() >= 5_000_000,
        "a survivor in every chunk holds them all"
    );
    let moved = twin.evacuate();
    // Payloads that were moved into the current chunk move again with its contents.
    assert!((400..=600).contains(&moved), "{moved} moves of 500 survivors");
    assert!(
        twin.arena.held_bytes() <= 2 * 500 * (100 + HEADER) + SLACK,
        "{} bytes held for 500 payloads",
        twin.arena.held_bytes()
    );
    twin.check();
}

#[test]
fn nothing_moves_while_little_is_wasted() {
    let mut twin = Twin::default();
    for owner in 0..50_000 {
        twin.add(owner, vec![1; 100]);
    }
    for owner in (0..50_000).filter(|owner| owner % 5 < 2) {
        twin.remove(owner);
    }
    assert_eq!(twin.evacuate(), 0, "three of five are alive in every chunk");
}

#[test]
fn a_large_payload_has_a_chunk_of_its_own_that_goes_with_it() {
    let mut twin = Twin::default();
    twin.add(0, vec![1; 10]);
    let before = twin.arena.held_bytes();
    twin.add(1, vec![2; 1_000_000]);
    twin.add(2, vec![3; 10]);
    let with_it = twin.arena.held_bytes();
    assert!(
        (before + 1_000_000..before + 1_010_000).contains(&with_it),
        "it takes its own size"
    );
    twin.remove(1);
    assert!(twin.arena.held_bytes() <= before + 10_000);
    twin.check();
}

#[test]
fn an_arena_of_one_payload_takes_little() {
    let mut twin = Twin::default();
    twin.add(0, vec![1; 10]);
    assert!(twin.arena.held_bytes() < 2048, "many merges are small");
}
