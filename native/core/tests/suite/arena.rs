//! Payloads are read as they were stored, and their memory is freed with their list.

use lmerge_core::arena::{Arena, CHUNK_BYTES, ChunkList, Place};

const SIZES: [usize; 13] = [0, 1, 7, 8, 31, 33, 1000, 8191, 8192, 8193, 32_768, 65_536, 1_000_000];
/// What an arena without payloads may keep: spare chunks, and the tables of chunks.
const EMPTY_BYTES: usize = 5 * CHUNK_BYTES;

fn payload(size: usize, first: usize) -> Vec<u8> {
    (0..size).map(|at| (at * 7 + first) as u8).collect()
}

fn stored(arena: &mut Arena, list: &mut ChunkList, payloads: &[Vec<u8>]) -> Vec<Place> {
    payloads.iter().map(|payload| arena.add(list, payload)).collect()
}

#[test]
fn payloads_of_every_size_come_back_as_they_were() {
    let mut arena = Arena::default();
    let mut list = arena.list();
    let payloads: Vec<Vec<u8>> = SIZES.into_iter().map(|size| payload(size, 1)).collect();
    let places = stored(&mut arena, &mut list, &payloads);
    arena.check();
    for (&place, payload) in places.iter().zip(&payloads) {
        assert_eq!(arena.get(place), payload);
        assert_eq!(arena.len(place), payload.len());
    }
    assert_eq!(arena.payload_bytes(), SIZES.iter().sum::<usize>());
    for (place, payload) in places.into_iter().zip(&payloads) {
        assert_eq!(arena.remove(place), payload.len());
        arena.check();
    }
    assert_eq!(arena.payload_bytes(), 0);
}

#[test]
fn a_payload_equals_itself_only() {
    let mut arena = Arena::default();
    let mut list = arena.list();
    arena.add(&mut list, &payload(600_000, 1));
    let mut list = arena.list(); // begins with a full chunk, which has room for a large payload
    for size in (0..70).chain([8191, 8192, 8193, 20_000]) {
        let stored = payload(size, 3);
        let place = arena.add(&mut list, &stored);
        assert!(arena.is_at(place, &stored));
        assert!(!arena.is_at(Place::NONE, &stored), "no place has a payload");
        let longer = [&stored[..], &[0]].concat();
        assert!(!arena.is_at(place, &longer));
        for at in [0, size / 2, size.saturating_sub(1)]
            .into_iter()
            .filter(|&at| at < size)
        {
            let mut other = stored.clone();
            other[at] ^= 1;
            assert!(!arena.is_at(place, &other), "byte {at} of {size}");
        }
    }
}

#[test]
fn lists_are_freed_one_by_one() {
    let mut arena = Arena::default();
    let mut lists: Vec<(ChunkList, Vec<Place>)> = Vec::new();
    for first in 0..50 {
        let mut list = arena.list();
        let payloads: Vec<Vec<u8>> = (0..1000).map(|at| payload(100, first + at)).collect();
        let places = stored(&mut arena, &mut list, &payloads);
        arena.finish(&mut list);
        lists.push((list, places));
    }
    let held = arena.held_bytes();
    assert!(
        (5_000_000..5_000_000 * 21 / 20).contains(&held),
        "{held} bytes for 5,000,000"
    );
    for (number, (list, places)) in lists.drain(..25).enumerate() {
        places.into_iter().for_each(|place| {
            arena.remove(place);
        });
        arena.release(list);
        arena.check();
        let live = (49 - number) * 100_000;
        assert!(
            arena.held_bytes() <= live * 5 / 4 + EMPTY_BYTES,
            "{} for {live}",
            arena.held_bytes()
        );
    }
    for (first, (_, places)) in lists.iter().enumerate() {
        for (at, &place) in places.iter().enumerate() {
            assert_eq!(arena.get(place), payload(100, first + 25 + at));
        }
    }
    for (list, places) in lists {
        places.into_iter().for_each(|place| {
            arena.remove(place);
        });
        arena.release(list);
    }
    assert!(
        arena.held_bytes() <= EMPTY_BYTES,
        "{} bytes for nothing",
        arena.held_bytes()
    );
    assert_eq!(arena.payload_bytes(), 0);
}

#[test]
fn a_payload_moves_to_another_list() {
    let mut arena = Arena::default();
    let (mut from, mut to) = (arena.list(), arena.list());
    let payloads: Vec<Vec<u8>> = SIZES.into_iter().map(|size| payload(size, 9)).collect();
    let places = stored(&mut arena, &mut from, &payloads);
    let moved: Vec<Place> = places.into_iter().map(|place| arena.move_to(&mut to, place)).collect();
    arena.release(from);
    arena.check();
    for (place, payload) in moved.into_iter().zip(&payloads) {
        assert_eq!(arena.get(place), payload);
    }
    assert_eq!(arena.payload_bytes(), SIZES.iter().sum::<usize>());
}

#[test]
fn a_large_payload_has_a_chunk_of_its_own_that_goes_with_it() {
    let mut arena = Arena::default();
    let mut list = arena.list();
    arena.add(&mut list, &[1; 10]);
    let before = arena.held_bytes();
    let large = arena.add(&mut list, &[2; 1_000_000]);
    arena.add(&mut list, &[3; 10]);
    let with_it = arena.held_bytes();
    assert!(
        (before + 1_000_000..before + 1_010_000).contains(&with_it),
        "it takes its own size"
    );
    arena.remove(large);
    assert!(arena.held_bytes() <= before + 10_000);
    arena.check();
}

#[test]
fn a_full_chunk_is_used_again_first() {
    let mut arena = Arena::default();
    let mut kept = arena.list();
    (0..100_000).for_each(|_| {
        arena.add(&mut kept, &[0; 100]);
    });
    let mut held = Vec::new();
    for _ in 0..10 {
        let mut list = arena.list();
        let places: Vec<Place> = (0..600).map(|_| arena.add(&mut list, &[1; 100])).collect();
        held.push(arena.held_bytes());
        places.into_iter().for_each(|place| {
            arena.remove(place);
        });
        arena.release(list);
        assert!(arena.held_bytes() + 1000 > held[0], "its chunks wait to be used again");
        arena.check();
    }
    assert!(held.iter().all(|&bytes| bytes < held[0] + 1000), "{held:?}");
}

#[test]
fn an_arena_of_one_payload_takes_little() {
    let mut arena = Arena::default();
    let mut list = arena.list();
    arena.add(&mut list, &[1; 10]);
    assert!(arena.held_bytes() < 2048, "many merges are small");
}

#[test]
fn long_payloads_leave_little_of_their_chunks_unused() {
    const SIZE: usize = 1_000; // a full chunk has half a payload's room left
    let mut arena = Arena::default();
    let mut kept = arena.list();
    let life = |arena: &mut Arena, list: &mut ChunkList| -> Vec<Place> {
        (0..10_000).map(|_| arena.add(list, &[1; SIZE])).collect()
    };
    life(&mut arena, &mut kept);
    arena.finish(&mut kept);
    let per_payload = arena.held_bytes() / 10_000;
    assert!(per_payload < SIZE + 4, "{per_payload} bytes for a payload of {SIZE}");
    // Such chunks wait to be used again like others.
    let before = arena.held_bytes();
    let mut list = arena.list();
    let places = life(&mut arena, &mut list);
    places.into_iter().for_each(|place| {
        arena.remove(place);
    });
    arena.release(list);
    assert!(arena.held_bytes() > before + 60_000, "a chunk waits");
    let mut again = arena.list();
    for _ in 0..3 * CHUNK_BYTES / SIZE {
        let place = arena.add(&mut again, &[2; SIZE]);
        assert_eq!(arena.get(place), [2; SIZE]);
    }
    arena.check();
}
