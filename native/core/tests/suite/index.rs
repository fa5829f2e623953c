//! The nodes by key: whatever the payloads are and whatever the hash's seed, the output is the same; memory returns.

use lmerge_core::columns::Columns;
use lmerge_core::element::{Element, INF};
use lmerge_core::merge::Kind;
use lmerge_core::policy::{LAZY, Policy};
use lmerge_core::sharded::Sharded;

use crate::session::{ALL, FINAL_ONLY, Session, demands};
use crate::tdb::{a, columns, elements, f, m};

/// The memory that an empty index may hold: a page of nodes, a chunk or two, the wheel, tables of pages and chunks.
const EMPTY_BYTES: usize = 400_000;
const BURST: usize = 100_000;

fn merge(kind: Kind, inputs: usize) -> Sharded {
    let mut merge = Sharded::new(kind, LAZY, ALL, true, 1);
    (0..inputs).for_each(|slot| merge.attach(slot, slot, demands(kind), None, false, true));
    merge
}

fn deliver(merge: &mut Sharded, slot: usize, batch: &Columns) -> Vec<Element> {
    merge.apply(slot, &batch.view(), 0).expect("a promise that is kept");
    elements(&merge.take().batch.view())
}

/// A burst of events with ends by number; every 1000th survives if `survive`.
fn burst(ends: impl Fn(usize) -> i64) -> Columns {
    let mut batch = Columns::default();
    for at in 0..BURST {
        batch.insert(1, ends(at), format!("payload number {at:060}").as_bytes());
    }
    batch
}

fn few(at: usize) -> bool {
    at.is_multiple_of(1000)
}

#[test]
fn chosen_payloads_give_the_same_output_whatever_the_hash() {
    // Equal lengths, equal beginnings, equal ends; all zeros; bytes of the Vs; and the same payload at many Vs.
    let mut delivered = Vec::new();
    for at in 0..300_i64 {
        let end = [vec![0; 56], at.to_le_bytes().to_vec()].concat();
        for (vs, payload) in [(5, at.to_le_bytes().repeat(8)), (6, end), (7, vec![0; at as usize])] {
            delivered.push(Element {
                kind: 0,
                vs,
                ve: 9 + at,
                vold: 0,
                payload,
            });
        }
        delivered.push(Element {
            kind: 0,
            vs: 5 + at,
            ve: INF,
            vold: 0,
            payload: b"one".to_vec(),
        });
    }
    let mut other = delivered.clone();
    other.reverse();
    other
        .iter_mut()
        .for_each(|element| element.ve = element.ve.saturating_add(1));
    for kind in [Kind::R3, Kind::R4] {
        let run = || {
            let mut merge = merge(kind, 2);
            let mut shown = deliver(&mut merge, 0, &columns(&delivered));
            shown.extend(deliver(&mut merge, 1, &columns(&other)));
            for vc in [6, 50, 200, 500, INF] {
                shown.extend(deliver(&mut merge, 1, &columns(&[f(vc)])));
                shown.extend(deliver(&mut merge, 0, &columns(&[f(vc)])));
                merge.check();
            }
            shown
        };
        let first = run();
        assert!(first.len() > 2000, "{} elements", first.len());
        for _ in 0..3 {
            assert!(first == run(), "the hash's seed reached the output");
        }
    }
}

#[test]
fn memory_returns_when_everything_has_died() {
    for kind in [Kind::R3, Kind::R4] {
        let mut merge = merge(kind, 1);
        deliver(&mut merge, 0, &burst(|_| 9));
        assert!(merge.memory().0 > BURST * (64 + 70) && merge.memory().1 == BURST * 75);
        deliver(&mut merge, 0, &columns(&[f(10)]));
        let (held, payload) = merge.memory();
        assert!(held < EMPTY_BYTES, "{kind:?} holds {held} bytes for nothing");
        assert_eq!((merge.node_count(), payload), (0, 0));
        merge.check();
    }
}

#[test]
fn memory_returns_when_few_survive() {
    for kind in [Kind::R3, Kind::R4] {
        let mut merge = merge(kind, 1);
        // The survivors were inserted first, like the oldest events.
        deliver(&mut merge, 0, &burst(|at| if at < 100 { 1000 } else { 9 }));
        deliver(&mut merge, 0, &columns(&[f(10)]));
        let (held, payload) = merge.memory();
        assert!(held < EMPTY_BYTES, "{kind:?} holds {held} bytes for 100 events");
        assert_eq!((merge.node_count(), payload), (100, 100 * 75));
        merge.check();
    }
}

#[test]
fn payloads_of_scattered_survivors_are_moved_and_still_found() {
    for kind in [Kind::R3, Kind::R4] {
        let mut session = Session::new(kind, 1);
        session.deliver(0, &elements(&burst(|at| if few(at) { 1000 } else { 9 }).view()));
        session.deliver(0, &[f(10)]);
        let (held, _) = session.merge.memory();
        let pages = BURST / 1000 * 256 * 64;
        assert!(
            held < EMPTY_BYTES + pages,
            "{kind:?} holds {held} bytes for 100 events in as many pages"
        );
        let shown = session.deliver(0, &[m(&format!("payload number {:060}", 5000), 1, 1000, 50), f(51)]);
        assert_eq!(shown.len(), 2, "it was found: {shown:?}");
        assert_eq!(session.merge.node_count(), 99);
    }
}

/// Input 1 has other ends for the survivors of a burst than input 0. With `others`, the rest of the burst dies around
/// them, so that the survivors move. Returns the merge's output afterwards.
fn disagreeing_survivors(kind: Kind, policy: Policy, others: bool) -> (Sharded, Vec<Element>) {
    let mut merge = Sharded::new(kind, policy, ALL, false, 1);
    for slot in [0, 1] {
        merge.attach(slot, slot, demands(kind), None, false, true);
        let mut batch = Columns::default();
        for at in (0..BURST).filter(|&at| others || few(at)) {
            let end = if few(at) { 1000 + slot as i64 } else { 9 };
            batch.insert(1, end, format!("{at:020}").as_bytes());
        }
        deliver(&mut merge, slot, &batch);
    }
    deliver(&mut merge, 0, &columns(&[f(10)]));
    merge.check();
    let mut adjusts = Columns::default();
    for at in (0..BURST).filter(|&at| few(at) && at < BURST / 2) {
        adjusts.adjust(1, 1001, 1000, format!("{at:020}").as_bytes());
    }
    let mut shown = deliver(&mut merge, 1, &adjusts);
    merge.check();
    for vc in [20, 1001] {
        shown.extend(deliver(&mut merge, 1, &columns(&[f(vc)])));
        merge.check();
    }
    (merge, shown)
}

#[test]
fn entries_move_with_their_nodes() {
    for kind in [Kind::R3, Kind::R4] {
        let (_, expected) = disagreeing_survivors(kind, LAZY, false);
        let (merge, shown) = disagreeing_survivors(kind, LAZY, true);
        assert!(expected.len() >= 50, "half of them are adjusted: {expected:?}");
        assert_eq!(shown, expected);
        assert!(merge.memory().0 < EMPTY_BYTES, "they have moved");
    }
}

#[test]
fn final_only_holds_a_node_that_moves() {
    for kind in [Kind::R3, Kind::R4] {
        let (merge, shown) = disagreeing_survivors(kind, FINAL_ONLY, true);
        assert_eq!(shown.len(), 50, "what ends at 1001 is not shown yet");
        assert!(
            merge.node_count() == 50 && merge.memory().0 < EMPTY_BYTES,
            "they have moved"
        );
        assert_eq!(merge.announced(), 1);
    }
}

#[test]
fn no_node_moves_while_entries_are_swept() {
    for kind in [Kind::R3, Kind::R4] {
        let mut merge = merge(kind, 2);
        let mut first = Columns::default();
        (0..500_i64).for_each(|at| first.insert(0, 3, &at.to_le_bytes())); // their pages are used again
        deliver(&mut merge, 0, &first);
        for slot in [0, 1] {
            deliver(&mut merge, slot, &burst(|at| if few(at) { 1000 } else { 9 }));
        }
        deliver(&mut merge, 0, &columns(&[f(5)])); // no stable visits the survivors again
        merge.remove(1);
        deliver(&mut merge, 0, &columns(&[a("the first pages", 10, INF)]));
        deliver(&mut merge, 0, &columns(&[f(10)]));
        while merge.free_slot() != 1 {
            deliver(&mut merge, 0, &columns(&[a("those that follow", 10, INF - 1)]));
            deliver(&mut merge, 0, &columns(&[m("those that follow", 10, INF - 1, 10)]));
            merge.check();
        }
        deliver(&mut merge, 0, &columns(&[f(10)]));
        merge.check();
        assert!(merge.memory().0 < EMPTY_BYTES + 32 * 48 * 32, "they move afterwards");
    }
}

#[test]
fn memory_returns_when_inputs_agree_again() {
    for kind in [Kind::R3, Kind::R4] {
        let mut merge = merge(kind, 2);
        deliver(&mut merge, 0, &burst(|_| 900));
        deliver(&mut merge, 1, &burst(|_| 901));
        let disagreeing = merge.memory().0;
        // The inputs agree on all nodes but a few; then all those that agree are removed.
        let mut adjusts = Columns::default();
        for at in (0..BURST).filter(|&at| !few(at)) {
            adjusts.adjust(1, 901, 900, format!("payload number {at:060}").as_bytes());
        }
        deliver(&mut merge, 1, &adjusts);
        merge.check();
        deliver(&mut merge, 0, &columns(&[f(2)]));
        deliver(&mut merge, 0, &columns(&[f(3)]));
        merge.check();
        let agreeing = merge.memory().0;
        assert!(
            disagreeing - agreeing > BURST * 24,
            "{kind:?}: {disagreeing} bytes, then {agreeing}"
        );
        deliver(&mut merge, 1, &columns(&[f(901)]));
        merge.check();
        let held = merge.memory().0;
        let pages = BURST / 1000 * 256 * 64;
        assert!(
            held < EMPTY_BYTES + pages,
            "{kind:?} holds {held} bytes for {} events",
            merge.node_count()
        );
        assert_eq!(merge.node_count(), BURST / 1000);
    }
}

#[test]
fn entries_of_inputs_beyond_the_bits_are_kept_apart() {
    for kind in [Kind::R3, Kind::R4] {
        let mut session = Session::new(kind, 0);
        for slot in [0, 63, 64, 65, 200] {
            session.attach(slot, None);
        }
        for slot in [200, 0, 64, 63, 65] {
            session.deliver(slot, &[a("A", 2, 9), a("B", 3, 9 + slot as i64)]);
        }
        session.leave(64);
        assert_eq!(session.deliver(65, &[f(10)]), [f(10)]);
        session.leave(65);
        assert_eq!(session.deliver(63, &[f(73)]), [m("B", 3, 209, 72), f(73)]);
        assert_eq!(session.merge.node_count(), 0);
    }
}

#[test]
fn memory_returns_while_an_event_that_never_ends_is_held() {
    for kind in [Kind::R3, Kind::R4] {
        let mut merge = Sharded::new(kind, FINAL_ONLY, ALL, false, 1);
        merge.attach(0, 0, demands(kind), None, false, true);
        deliver(&mut merge, 0, &columns(&[a("never", 1, INF)]));
        for turn in 1..100 {
            let start = 1000 * turn;
            let mut batch = Columns::default();
            (0..1000).for_each(|at| batch.insert(start + at, start + at + 1500, b"event"));
            batch.stable(start + 1000);
            deliver(&mut merge, 0, &batch);
        }
        merge.check();
        assert_eq!(merge.announced(), 1, "the output's stable point may not pass it");
        let held = merge.memory().0;
        assert!(
            held < EMPTY_BYTES + 2000 * (64 + 8 + 16 + 24),
            "{kind:?} holds {held} bytes for 1501 events"
        );
    }
}

/// Inputs 0, 1 and 2 with the same live events, except for some ends of input 2.
fn live(kind: Kind, count: usize) -> Sharded {
    let mut merge = merge(kind, 3);
    for slot in 0..3 {
        let mut batch = Columns::default();
        for at in 0..count {
            let differs = i64::from(slot == 2 && at.is_multiple_of(7));
            batch.insert(
                at as i64 % 50,
                1000 + at as i64 + differs,
                format!("event {at}").as_bytes(),
            );
        }
        deliver(&mut merge, slot, &batch);
    }
    merge
}

#[test]
fn entries_of_an_input_that_has_left_are_swept_by_batches_that_follow() {
    for kind in [Kind::R3, Kind::R4] {
        let mut merge = live(kind, 10_000);
        merge.remove(1);
        assert_eq!((merge.swept(), merge.visits()), (0, 0));
        assert_eq!(merge.free_slot(), 3);
        for at in 0..9 {
            deliver(&mut merge, 0, &columns(&[a("one more", 200 + at, INF)]));
            let swept = 850 * (at as u64 + 1)..=1024 * (at as u64 + 1);
            assert!(swept.contains(&merge.swept()), "{} nodes of 32 pages", merge.swept());
            assert_eq!(merge.free_slot(), 3);
            merge.check();
        }
        (0..5).for_each(|at| drop(deliver(&mut merge, 0, &columns(&[a("one more", 300 + at, INF)]))));
        assert_eq!(merge.free_slot(), 1);
        merge.check();
    }
}

#[test]
fn a_stable_forgets_at_what_it_visits_what_inputs_that_have_left_had() {
    for kind in [Kind::R3, Kind::R4] {
        let mut merge = live(kind, 10_000);
        merge.remove(1);
        merge.remove(2);
        deliver(&mut merge, 0, &columns(&[f(100)])); // visits all: half frozen now
        let state = merge.state(true);
        let mut other = live(kind, 10_000);
        other.remove(1);
        other.remove(2);
        (0..30).for_each(|at| drop(deliver(&mut other, 0, &columns(&[f(at)]))));
        (0..30).for_each(|_| drop(deliver(&mut other, 0, &columns(&[f(30)]))));
        assert!(other.swept() >= 10_000);
        deliver(&mut other, 0, &columns(&[f(100)]));
        assert_eq!(other.state(true), state);
        // A new input in any slot has only the events that it delivers.
        for merge in [&mut merge, &mut other] {
            let slot = merge.free_slot();
            merge.attach(slot, slot, demands(kind), Some(0), false, true);
            let mut batch = Columns::default();
            batch.adjust(0, 1000, 1000, b"event 0");
            assert!(merge.apply(slot, &batch.view(), 0).is_err(), "an adjust of nothing");
        }
    }
}
