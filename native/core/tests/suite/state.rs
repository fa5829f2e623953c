//! Snapshots: equal merges give equal bytes, a restored merge continues like the one that wrote them, damage is refused.

use std::collections::HashMap;

use lmerge_core::columns::Columns;
use lmerge_core::element::{Element, INF, NEG_INF};
use lmerge_core::input::Demands;
use lmerge_core::merge::Kind;
use lmerge_core::policy::LAZY;
use lmerge_core::sharded::Sharded;
use lmerge_core::state::{Counted, EndRow, InputState, R3Row, R4Row, State, Times, decode_payload};
use serde_json::Value;

use crate::session::{ALL, FINAL_ONLY, Session, demands};
use crate::tdb::{a, columns, elements, f, m};

const KINDS: [Kind; 6] = [Kind::R0, Kind::R1, Kind::R2, Kind::R3, Kind::R4, Kind::R3Minus];

/// The whole state of a merge in a snapshot, as text for comparison.
pub fn text(session: &Session, merge: &Sharded) -> String {
    let inputs: Vec<_> = session
        .attached
        .iter()
        .map(|input| (merge.input(input.slot), merge.input_state(input.slot)))
        .collect();
    format!("{:?} {:?} {inputs:?}", merge.state(true), merge.live_state())
}

fn text_of(session: &Session) -> String {
    text(session, &session.merge)
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).expect("JSON")
}

fn int(value: &Value) -> i64 {
    value.as_i64().expect("an integer")
}

fn payload(value: &Value) -> Vec<u8> {
    decode_payload(value.as_str().expect("a text")).expect("base64")
}

fn rows(value: &Value) -> &[Value] {
    value.as_array().expect("a list")
}

fn counted(value: &Value) -> Counted {
    rows(value)
        .iter()
        .map(|row| (payload(&row[0]), int(&row[1]), row[2].as_u64().expect("a count")))
        .collect()
}

/// The slots whose bits are set in an integer.
fn bits(value: &Value) -> Vec<usize> {
    let bits = value.as_u64().expect("a set of slots below 64");
    (0..64).filter(|slot| bits >> slot & 1 == 1).collect()
}

type Fields = HashMap<&'static str, Value>;

fn fields_of(merge: &Sharded) -> Fields {
    let parsed = |(name, text): (_, String)| (name, json(&text));
    merge.state(true).into_iter().map(parsed).collect()
}

const AT_5: Times = Times {
    max_stable: 5,
    announced: 5,
    right_from: NEG_INF,
};

fn times_of(merge: &Sharded) -> Times {
    let fields = fields_of(merge);
    Times {
        max_stable: merge.max_stable(),
        announced: merge.announced(),
        right_from: fields.get("right_from").map_or(NEG_INF, int),
    }
}

fn state_of(merge: &Sharded) -> State {
    let fields = fields_of(merge);
    match merge.kind() {
        Kind::R0 | Kind::R1 | Kind::R2 => insert_only(merge.kind(), &fields),
        Kind::R3 | Kind::R4 => indexed(merge.kind(), &fields),
        Kind::R3Minus => r3minus(&fields),
    }
}

fn insert_only(kind: Kind, fields: &Fields) -> State {
    let element = |value: &Value| (payload(&value[0]), int(&value[1]));
    let max_vs = int(&fields["max_vs"]);
    match kind {
        Kind::R0 => {
            let last = &fields["last"];
            let last = (!last.is_null()).then(|| element(last));
            State::R0 { max_vs, last }
        }
        Kind::R1 => {
            let slot = rows(&fields["slot"]).iter().map(element).collect();
            let out_of_step = fields.contains_key("out_of_step");
            State::R1 {
                max_vs,
                slot,
                out_of_step,
            }
        }
        _ => {
            let row = |row: &Value| (payload(&row[0]), bits(&row[1]));
            let hash = rows(&fields["hash"]).iter().map(row).collect();
            let empty = |row: &Value| (payload(&row[0]), row[1].as_u64().expect("a number") as u32);
            let empties = fields
                .get("empties")
                .map_or(Vec::new(), |list| rows(list).iter().map(empty).collect());
            let copy = |row: &Value| {
                let copies = row[2].as_u64().expect("a number") as u32;
                (payload(&row[0]), int(&row[1]), copies)
            };
            State::R2 {
                max_vs,
                hash,
                ends: fields
                    .get("ends")
                    .map_or(Vec::new(), |list| rows(list).iter().map(int).collect()),
                copies: fields.get("copies").map(|list| rows(list).iter().map(copy).collect()),
                empties,
            }
        }
    }
}

fn indexed(kind: Kind, fields: &Fields) -> State {
    let slots = fields["slots"].as_u64().expect("a number") as usize;
    let nodes = rows(&fields["nodes"]).iter();
    let due = |row: &Value| -> EndRow { (int(&row[0]), payload(&row[1]), int(&row[2])) };
    let dues = fields
        .get("due")
        .map_or_else(Vec::new, |dues| rows(dues).iter().map(due).collect());
    if kind == Kind::R3 {
        let row = |row: &Value| -> R3Row {
            let ends = rows(row)[2..].iter().map(Value::as_i64).collect();
            (int(&row[0]), payload(&row[1]), ends)
        };
        let nodes = nodes.map(row).collect();
        return State::R3 { slots, nodes, dues };
    }
    let ends = |value: &Value| value.as_array().map(|ends| ends.iter().map(int).collect());
    let row = |row: &Value| -> R4Row {
        let ends = rows(row)[2..].iter().map(ends).collect();
        (int(&row[0]), payload(&row[1]), ends)
    };
    let nodes = nodes.map(row).collect();
    State::R4 { slots, nodes, dues }
}

fn r3minus(fields: &Fields) -> State {
    let row = |row: &Value| -> EndRow { (int(&row[0]), payload(&row[1]), int(&row[2])) };
    let ends = |value: &Value| -> Vec<EndRow> { rows(value).iter().map(row).collect() };
    let index = |(slot, value): (&String, &Value)| (slot.parse().expect("a slot"), ends(value));
    let indexes = fields["indexes"].as_object().expect("an object").iter().map(index);
    State::R3Minus {
        output: ends(&fields["output"]),
        indexes: indexes.collect(),
    }
}

fn input_state_of(merge: &Sharded, slot: usize) -> InputState {
    let (joined, stable, last_vs, tie_count, late) = merge.input(slot);
    let fields: Fields = merge
        .input_state(slot)
        .into_iter()
        .map(|(name, text)| (name, json(&text)))
        .collect();
    let number = |value: &Value| value.as_u64().expect("a number") as u32;
    let mark = |row: &Value| (row[0].as_u64().expect("a slot") as usize, number(&row[1]));
    let order = fields
        .get("tie_order")
        .map_or(Vec::new(), |list| rows(list).iter().map(number).collect());
    let marks = fields
        .get("tie_marks")
        .map_or(Vec::new(), |list| rows(list).iter().map(mark).collect());
    let waiting = |row: &Value| Element {
        kind: int(&row[0]) as u8,
        vs: int(&row[1]),
        ve: int(&row[2]),
        vold: int(&row[3]),
        payload: payload(&row[4]),
    };
    InputState {
        joined,
        stable,
        last_vs,
        tie_count,
        late,
        at_last_vs: counted(&fields["at_last_vs"]),
        tie_order: order,
        tie_marks: marks,
        waiting: rows(&fields["waiting"]).iter().map(waiting).collect(),
        delivered: None, // no session of this suite keeps it
    }
}

/// A merge restored from a snapshot of the session's merge, with `shards` shards.
pub fn restored(session: &Session, shards: usize) -> Sharded {
    let merge = &session.merge;
    let mut copy = Sharded::new(merge.kind(), session.policy, session.closing, true, shards);
    for input in &session.attached {
        let state = input_state_of(merge, input.slot);
        copy.attach(
            input.slot,
            input.slot,
            input.demands,
            input.join_at,
            input.observes,
            state.joined,
        );
        copy.load_input(input.slot, &state, false);
    }
    let live = merge.live_state().map(|text| {
        let row = |row: &Value| (int(&row[0]), payload(&row[1]), int(&row[2]));
        rows(&json(&text)).iter().map(row).collect()
    });
    copy.load(times_of(merge), state_of(merge), live)
        .expect("a whole snapshot");
    copy.check();
    copy
}

/// A session in which every part of the state is used.
fn some(kind: Kind) -> Session {
    let mut session = Session::new(kind, 2);
    let delivered: Vec<_> = (0..100)
        .map(|at| a(&format!("{:02}", at * 37 % 100), at / 10, 50 + at))
        .collect();
    let delivered = if kind == Kind::R0 {
        vec![a("A", 1, 60), a("B", 2, 70)]
    } else {
        delivered
    };
    session.deliver(0, &delivered);
    session.deliver(1, &delivered[..delivered.len() / 2]);
    if matches!(kind, Kind::R3 | Kind::R4 | Kind::R3Minus) {
        session.deliver(1, &[m("00", 0, 50, 55), m("37", 0, 51, 99), a("only here", 9, 12)]);
    }
    session.deliver(0, &[f(2)]);
    session.attach(2, Some(90));
    let waiting = if kind == Kind::R0 {
        vec![a("Y", 95, 96), a("Z", 96, 97)]
    } else {
        vec![a("Z", 95, 97), a("Y", 95, 96)]
    };
    session.deliver(2, &waiting);
    session
}

#[test]
fn equal_merges_give_equal_bytes_whatever_the_hash() {
    for kind in KINDS {
        let first = text_of(&some(kind));
        assert!(first.len() > 300, "{first}");
        for _ in 0..5 {
            assert_eq!(text_of(&some(kind)), first);
        }
    }
}

#[test]
fn the_same_events_in_another_order_give_equal_nodes() {
    for kind in [Kind::R3, Kind::R4] {
        let mut delivered: Vec<_> = (0..100)
            .map(|at| a(&format!("{:02}", at * 37 % 100), at / 10, 50 + at))
            .collect();
        let nodes = |delivered: &[Element]| {
            let mut session = Session::new(kind, 1);
            session.deliver(0, delivered);
            session.merge.state(true)
        };
        let first = nodes(&delivered);
        delivered.reverse();
        assert_eq!(nodes(&delivered), first);
    }
}

#[test]
fn a_restored_merge_is_the_same_and_goes_on_the_same() {
    for kind in KINDS {
        let mut session = some(kind);
        let mut copy = restored(&session, 1);
        assert_eq!(text(&session, &copy), text_of(&session));
        for (slot, delivered) in [
            (0, vec![a("new", 90, 99), f(91)]),
            (1, vec![a("new", 93, 99), f(95)]),
            (2, vec![f(INF)]),
        ] {
            let batch: Columns = columns(&delivered);
            copy.apply(slot, &batch.view(), 0).expect("a promise that is kept");
            copy.check();
            assert_eq!(
                elements(&copy.take().batch.view()),
                session.deliver(slot, &delivered),
                "{kind:?}"
            );
        }
        assert_eq!(text(&session, &copy), text_of(&session));
    }
}

#[test]
fn final_only_still_holds_the_stable_point_back_after_a_restart() {
    for kind in [Kind::R3, Kind::R4] {
        let mut session = Session::with_policy(kind, FINAL_ONLY, 1);
        assert_eq!(
            session.deliver(0, &[a("A", 5, 50), a("B", 2, 9), f(20)]),
            [a("B", 2, 9), f(5)]
        );
        let mut copy = restored(&session, 1);
        copy.apply(0, &columns(&[f(30), f(60)]).view(), 0)
            .expect("a promise that is kept");
        assert_eq!(elements(&copy.take().batch.view()), [a("A", 5, 50), f(60)]);
    }
}

#[test]
fn a_snapshot_does_not_depend_on_the_number_of_shards() {
    for kind in [Kind::R3, Kind::R4] {
        for policy in [LAZY, FINAL_ONLY] {
            let run = |shards: usize| {
                let mut session = Session::of(kind, policy, ALL, shards, 2);
                let delivered: Vec<_> = (0..100)
                    .map(|at| a(&format!("{:02}", at * 37 % 100), at / 10, 50 + at))
                    .collect();
                session.deliver(0, &delivered);
                session.deliver(1, &delivered[..50]);
                session.deliver(0, &[f(2), f(60)]);
                session
            };
            let one = run(1);
            let three = run(3);
            assert_eq!(text_of(&three), text_of(&one));
            assert_eq!(three.merge.live_events(), one.merge.live_events());
            assert_eq!(text(&one, &restored(&one, 4)), text_of(&one));
        }
    }
}

#[test]
fn slots_beyond_64_bits_are_written_as_one_integer() {
    let mut session = Session::new(Kind::R2, 0);
    for slot in [0, 64, 100] {
        session.attach(slot, None);
        session.deliver(slot, &[a("A", 1, 2)]);
    }
    let hash = session.merge.state(true).pop().expect("the last field");
    let number = (1_u128 << 100) + (1 << 64) + 1;
    assert_eq!(hash, ("hash", format!("[[\"QQ==\",{number}]]")));
}

#[test]
fn a_payload_that_is_no_base64_is_refused_with_its_text() {
    assert_eq!(decode_payload("QUI=").expect("base64"), b"AB");
    let refused = decode_payload("Q!I=").expect_err("no base64");
    assert!(refused.contains("\"Q!I=\""), "{refused}");
}

#[test]
fn damage_is_refused_or_found_by_check() {
    let load = |kind: Kind, state: State, live: Option<Vec<(i64, Vec<u8>, i64)>>| {
        let mut merge = Sharded::new(kind, LAZY, ALL, true, 1);
        merge.attach(0, 0, demands(kind), None, false, true);
        merge.load(AT_5, state, live)
    };
    let r3 = |ends: Vec<Option<i64>>| State::R3 {
        slots: 1,
        nodes: vec![(1, b"A".to_vec(), ends)],
        dues: Vec::new(),
    };
    let r4 = |ends: Vec<Option<Vec<i64>>>| State::R4 {
        slots: 1,
        nodes: vec![(1, b"A".to_vec(), ends)],
        dues: Vec::new(),
    };
    let refused = [
        (
            load(Kind::R3, r3(vec![Some(9)]), None),
            "a node at 1 has 1 entries where 2 are due",
        ),
        (
            load(Kind::R3, r3(vec![Some(9), Some(1)]), None),
            "a node at 1 has an event that ends at 1",
        ),
        (
            load(Kind::R4, r4(vec![]), None),
            "a node at 1 has 0 entries where 2 are due",
        ),
        (
            load(Kind::R4, r4(vec![Some(vec![9, -1]), None]), None),
            "a node at 1 has an event that ends at -1",
        ),
        (load(Kind::R3, r4(vec![]), None), "the state is of another algorithm"),
        (load(Kind::R4, r3(vec![]), None), "the state is of another algorithm"),
        (
            load(
                Kind::R0,
                State::R1 {
                    max_vs: 3,
                    slot: vec![],
                    out_of_step: false,
                },
                None,
            ),
            "the state is of another algorithm",
        ),
        (
            load(
                Kind::R1,
                State::R1 {
                    max_vs: 3,
                    slot: vec![],
                    out_of_step: false,
                },
                Some(vec![(1, vec![], 4)]),
            ),
            "a live event that ends at 4, below the stable point 5",
        ),
    ];
    for (result, message) in refused {
        assert_eq!(result, Err(message.to_string()));
    }
}

#[test]
#[should_panic(expected = "a half-frozen event is not in the output")]
fn check_finds_a_half_frozen_event_without_output() {
    let mut merge = Sharded::new(Kind::R3, LAZY, ALL, true, 1);
    merge.attach(0, 0, Demands::from_bits(16), None, false, true);
    let state = State::R3 {
        dues: Vec::new(),
        slots: 1,
        nodes: vec![(1, b"A".to_vec(), vec![None, Some(9)])],
    };
    merge.load(AT_5, state, None).expect("no damage that shows");
    merge.check();
}

#[test]
#[should_panic(expected = "an entry of an input that has left")]
fn check_finds_an_entry_of_no_attached_input() {
    let mut merge = Sharded::new(Kind::R4, LAZY, ALL, true, 1);
    merge.attach(0, 0, Demands::from_bits(0), None, false, true);
    let ends = |ve| Some(vec![ve]);
    let state = State::R4 {
        dues: Vec::new(),
        slots: 2,
        nodes: vec![(1, b"A".to_vec(), vec![ends(9), ends(9), ends(9)])],
    };
    merge.load(AT_5, state, None).expect("no damage that shows");
    merge.check();
}
