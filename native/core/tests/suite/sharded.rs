//! One merge whose work is divided by payload: the same events as with one shard, whichever input breaks a promise.

use lmerge_core::columns::Columns;
use lmerge_core::element::{Event, INF, STABLE};
use lmerge_core::input::Demands;
use lmerge_core::merge::Kind;
use lmerge_core::policy::{Closing, LAZY};
use lmerge_core::sharded::Sharded;

use crate::session::{ALL, Session};
use crate::tdb::{a, f, m};

const INDEXED: [Kind; 2] = [Kind::R3, Kind::R4];

/// The number of emitted elements without stables, of which several shards emit one per call.
fn changes(session: &Session) -> Vec<Event> {
    let changes = session.emitted.iter().filter(|element| element.kind != STABLE);
    let mut changes: Vec<Event> = changes
        .map(|element| Event {
            vs: element.vs,
            payload: element.payload.clone(),
            ve: element.ve,
        })
        .collect();
    changes.sort();
    changes
}

#[test]
fn shards_emit_what_one_emits_in_another_order() {
    let ends = ["", &"x".repeat(100)];
    for (kind, end) in INDEXED.into_iter().flat_map(|kind| ends.map(|end| (kind, end))) {
        let run = |shards: usize| {
            let mut session = Session::of(kind, LAZY, ALL, shards, 2);
            let payload = |at: i64| format!("{end}{at}{end}");
            let delivered: Vec<_> = (0..2000).map(|at| a(&payload(at), at / 10, 300 + at)).collect();
            session.deliver(0, &delivered);
            session.deliver(1, &delivered[..1500]);
            session.deliver(1, &[m(&payload(7), 0, 307, 320), f(100), f(318)]);
            session.deliver(0, &[f(319), f(INF)]);
            session.deliver(1, &[f(INF)]);
            session
        };
        let one = run(1);
        for shards in [2, 3, 64] {
            let shared = run(shards);
            assert_eq!(shared.events(), one.events());
            assert!(changes(&shared) == changes(&one), "{shards} shards");
            assert!(
                shared.merge.visits() <= one.merge.visits(),
                "a stable that another one implies visits no node"
            );
        }
    }
}

#[test]
fn new_inserts_come_out_in_the_order_of_their_batch_and_before_what_changes_them() {
    for (kind, shards) in INDEXED
        .into_iter()
        .flat_map(|kind| [1, 2, 5].map(|shards| (kind, shards)))
    {
        let mut session = Session::of(kind, LAZY, ALL, shards, 2);
        let insert = |at: i64| a(&at.to_string(), at, 100);
        let inserts: Vec<_> = (0..40).map(insert).collect();
        session.deliver(1, &[insert(3), insert(20)]);
        let mut batch = inserts.clone();
        batch.extend([m("7", 7, 100, 120), m("9", 9, 100, 9), f(110)]);
        let emitted = session.deliver(0, &batch);
        let new: Vec<_> = inserts
            .into_iter()
            .filter(|insert| ![3, 20].contains(&insert.vs))
            .collect();
        assert_eq!(emitted[..38], new);
        assert_eq!(
            emitted[38..].len(),
            3,
            "two changes and the stable: {:?}",
            &emitted[38..]
        );
        assert_eq!(session.events().len(), 39);
    }
}

#[test]
fn a_broken_rule_is_found_at_the_same_element() {
    for kind in INDEXED {
        for shards in [1, 3] {
            let mut session = Session::of(kind, LAZY, ALL, shards, 1);
            let (emitted, violation) = session.refuse(0, &[a("A", 1, 5), f(3), a("B", 2, 5), a("C", 4, 5), f(4)]);
            assert_eq!(
                (violation.index, violation.code.name(), violation.detail),
                (2, "insert-below-stable", 3)
            );
            assert_eq!(emitted, [a("A", 1, 5), f(3)]);
        }
    }
}

#[test]
fn a_stable_after_a_broken_promise_moves_no_shard() {
    for kind in INDEXED {
        for payload in ["A", "B", "C", "D", "E", "F"] {
            let mut session = Session::of(kind, LAZY, ALL, 3, 2);
            session.deliver(1, &[a("A", 1, 50), a("B", 1, 50), a("C", 1, 50)]);
            let (_, violation) = session.refuse(0, &[m(payload, 1, 50, 60), f(20)]);
            assert_eq!((violation.index, violation.code.name()), (0, "unknown-event"));
            session.leave(0);
            assert_eq!(session.deliver(1, &[f(10)]), [f(10)]);
            assert_eq!(session.events().len(), 3, "nothing of the others was removed");
        }
    }
}

/// A batch that is large enough for threads, with a stable in every hundred elements.
fn large(elements: i64, offender: Option<i64>) -> Columns {
    let mut columns = Columns::default();
    for at in 0..elements {
        if Some(at) == offender {
            columns.adjust(at, at + 7, at + 9, b"never seen");
        }
        columns.insert(at, at + 300, format!("payload {at}").as_bytes());
        if at % 100 == 99 {
            columns.stable(at - 50);
        }
    }
    columns
}

fn shared(kind: Kind, shards: usize) -> Sharded {
    let mut merge = Sharded::new(kind, LAZY, Closing(None), true, shards);
    for slot in 0..2 {
        merge.attach(slot, slot, Demands::default(), None, false, true);
    }
    merge
}

#[test]
fn threads_emit_the_same_every_time_and_the_table_of_one_shard() {
    for kind in INDEXED {
        let batch = large(6_000, None);
        let outputs: Vec<Vec<Columns>> = [1, 3, 3, 5]
            .into_iter()
            .map(|shards| {
                let mut merge = shared(kind, shards);
                let emitted = (0..2).map(|slot| {
                    assert!(merge.apply(slot, &batch.view(), 0).is_ok());
                    merge.check();
                    merge.take().batch
                });
                let mut emitted: Vec<Columns> = emitted.collect();
                emitted.push(merge.live_events().expect("live events are tracked"));
                emitted
            })
            .collect();
        assert_eq!(outputs[1], outputs[2], "who is faster does not matter");
        for emitted in &outputs[1..] {
            assert_eq!(emitted[2], outputs[0][2], "the same live events");
            assert_eq!(emitted[0].view().counts()[0], outputs[0][0].view().counts()[0]);
        }
    }
}

#[test]
fn no_shard_gets_a_stable_behind_a_broken_promise() {
    for kind in INDEXED {
        let offender = 3_333;
        let batch = large(6_000, Some(offender));
        let at = offender as usize + offender as usize / 100;
        let mut merge = shared(kind, 4);
        let violation = merge.apply(0, &batch.view(), 0).expect_err("no input has the event");
        assert_eq!((violation.index, violation.code.name()), (at, "unknown-event"));
        assert_eq!(merge.max_stable(), 3_299 - 50, "the last stable before the offender");
        merge.check();
        merge.remove(0);
        merge.after_detach();
        merge.check();
    }
}
