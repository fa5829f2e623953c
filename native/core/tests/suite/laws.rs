//! The laws beyond the paper, by their numbers: `tests/core/test_laws.py`.

use lmerge_core::element::{INF, NEG_INF};
use lmerge_core::input::Demands;
use lmerge_core::merge::Kind;
use lmerge_core::policy::{Closing, LAZY};

use crate::session::{ALL, Attached, Session, demands};
use crate::tdb::{a, columns, elements, event, f, m};

const INDEXED: [Kind; 2] = [Kind::R3, Kind::R4];
const ORDERED: [Kind; 3] = [Kind::R0, Kind::R1, Kind::R2];
const KINDS: [Kind; 6] = [Kind::R0, Kind::R1, Kind::R2, Kind::R3, Kind::R4, Kind::R3Minus];

#[test]
fn law_1_a_joining_inputs_stable_does_not_move_the_output() {
    for kind in INDEXED {
        let mut session = Session::new(kind, 1);
        session.deliver(0, &[a("short", 1, 5), a("long", 2, 30)]);
        session.attach(1, Some(20));
        assert_eq!(
            session.deliver(1, &[a("long", 2, 30), f(25)]),
            [],
            "short would have been removed"
        );
        assert_eq!(
            session.deliver(0, &[f(20)]),
            [f(20), f(25)],
            "joined: what it delivered before counts at once"
        );
        assert_eq!(session.joined, [1]);
        assert_eq!(session.events(), [event("short", 1, 5), event("long", 2, 30)]);
    }
}

#[test]
fn law_1_a_joining_inputs_insert_does_not_raise_max_vs() {
    for kind in ORDERED {
        let mut session = Session::new(kind, 1);
        session.deliver(0, &[a("A", 8, 9)]);
        session.attach(1, Some(20));
        assert_eq!(session.deliver(1, &[a("D", 20, 40), a("E", 25, 40)]), []);
        assert_eq!(
            session.deliver(0, &[a("B", 9, 12)]),
            [a("B", 9, 12)],
            "it would have been dropped below MaxVs"
        );
        assert_eq!(session.deliver(0, &[f(20)]), [f(20), a("D", 20, 40), a("E", 25, 40)]);
        assert_eq!(session.deliver(0, &[a("D", 20, 40)]), []);
    }
}

#[test]
fn law_1_a_joining_input_can_be_admitted_when_no_other_is_left() {
    for kind in KINDS {
        let mut session = Session::new(kind, 0);
        session.attach(0, Some(10));
        assert!(!session.deliver(0, &[a("A", 12, 20), f(15)]).contains(&f(15)));
        assert_eq!(session.admit(0).last(), Some(&f(15)));
        assert_eq!(session.joined, [0]);
        assert_eq!(session.events(), [event("A", 12, 20)]);
    }
}

#[test]
fn law_1_an_input_that_observes_moves_nothing() {
    for kind in KINDS {
        let mut session = Session::new(kind, 1);
        session.attach_as(Attached {
            slot: 1,
            demands: demands(kind),
            join_at: None,
            observes: true,
        });
        assert_eq!(session.deliver(1, &[a("A", 2, 9), f(5)]), []);
        assert_eq!(session.deliver(0, &[a("B", 1, 9), f(3)]), [a("B", 1, 9), f(3)]);
        let (_, violation) = session.refuse(1, &[a("C", 4, 9)]);
        assert_eq!(
            (violation.code.name(), violation.detail),
            ("insert-below-stable", 5),
            "it is checked"
        );
    }
}

#[test]
fn law_2_stable_visits_only_what_changes() {
    for kind in INDEXED {
        let mut session = Session::new(kind, 1);
        let events: Vec<_> = (0..1000).map(|at| a(&at.to_string(), at, 1_000_000_000)).collect();
        session.deliver(0, &events);
        session.deliver(0, &[f(2000)]);
        assert_eq!(session.merge.visits(), 1000, "each becomes half frozen once");
        session.deliver(0, &(2001..3000).map(f).collect::<Vec<_>>());
        assert_eq!(session.merge.visits(), 1000);
        session.deliver(0, &[a("x", 3000, 3005), f(3001), f(3006)]);
        assert_eq!(session.merge.visits(), 1002, "half frozen, then fully frozen");
    }
}

#[test]
fn law_2_an_end_that_falls_below_is_visited_in_time() {
    for kind in INDEXED {
        let mut session = Session::new(kind, 2);
        session.deliver(0, &[a("A", 1, 1000), a("B", 1, 500), f(5)]);
        session.deliver(1, &[a("A", 1, 50), f(40)]);
        assert_eq!(session.deliver(1, &[f(51)]), [m("A", 1, 1000, 50), f(51)]);
        assert_eq!(session.merge.node_count(), 1);
    }
}

#[test]
fn law_3_a_new_incarnation_starts_with_nothing_of_the_old_one() {
    for kind in INDEXED {
        let mut session = Session::new(kind, 2);
        session.deliver(0, &[a("A", 2, 9)]);
        session.deliver(1, &[a("B", 3, 9)]);
        session.leave(0);
        session.attach(0, None);
        let (_, violation) = session.refuse(0, &[m("A", 2, 9, 12)]);
        assert_eq!((violation.code.name(), violation.ends), ("unknown-event", None));
        assert_eq!(
            session.deliver(0, &[f(4)]),
            [m("A", 2, 9, 2), m("B", 3, 9, 3), f(4)],
            "it has neither event"
        );
    }
}

#[test]
fn law_3_in_r2_a_new_incarnation_may_repeat_the_elements_of_the_old_one() {
    for slot in [0, 100] {
        let mut session = Session::new(Kind::R2, 0);
        session.attach(slot, None);
        session.deliver(slot, &[a("A", 2, 9)]);
        let (_, violation) = session.refuse(slot, &[a("A", 2, 9)]);
        assert_eq!(violation.code.name(), "duplicate-key");
        session.leave(slot);
        session.attach(slot, None);
        assert_eq!(session.deliver(slot, &[a("A", 2, 9), a("B", 2, 9)]), [a("B", 2, 9)]);
    }
}

#[test]
fn law_4_r1_after_a_replay_inside_a_slot_neither_doubles_nor_drops() {
    let mut session = Session::new(Kind::R1, 2);
    session.deliver(0, &[a("x", 5, 9), a("y", 5, 9)]);
    session.leave(0);
    assert_eq!(
        session.deliver(1, &[a("x", 5, 9)]),
        [],
        "the counter of 0 left with it; the output's has not"
    );
    session.attach(0, None);
    assert_eq!(
        session.deliver(0, &[a("x", 5, 9), a("y", 5, 9), a("z", 5, 9)]),
        [a("z", 5, 9)]
    );
    assert_eq!(
        session.deliver(1, &[a("y", 5, 9), a("z", 5, 9), a("w", 5, 9)]),
        [a("w", 5, 9)]
    );
}

#[test]
fn law_4_a_replay_that_begins_in_the_middle_of_a_slot_is_aligned() {
    let mut session = Session::new(Kind::R1, 1);
    session.deliver(0, &[a("x", 5, 9), a("y", 5, 9)]);
    session.leave(0);
    session.attach(0, None);
    assert_eq!(session.deliver(0, &[a("y", 5, 9), a("z", 5, 9)]), [a("z", 5, 9)]);
    assert_eq!(
        session.deliver(0, &[a("x", 5, 9)]),
        [],
        "the one that had x before y has left"
    );
    session.attach(1, None);
    let (_, violation) = session.refuse(1, &[a("x", 5, 9), a("y", 5, 9)]);
    assert_eq!((violation.code.name(), violation.index), ("ties-differ", 1));
}

#[test]
fn law_5_one_inputs_end_does_not_close_the_output() {
    for kind in KINDS {
        let mut session = Session::new(kind, 2);
        assert_eq!(session.deliver(0, &[a("A", 1, 5), f(INF)]), [a("A", 1, 5)]);
        assert_eq!(session.deliver(1, &[a("A", 1, 5), a("B", 2, 5)]), [a("B", 2, 5)]);
        assert_eq!(session.deliver(1, &[f(INF)]), [f(INF)]);
    }
}

#[test]
fn law_5_the_rest_agrees_when_the_one_that_had_not_ended_leaves() {
    for kind in KINDS {
        let mut session = Session::new(kind, 2);
        session.deliver(0, &[a("A", 1, 5), f(INF)]);
        assert_eq!(session.leave(1), [f(INF)]);
    }
}

#[test]
fn law_5_closing_is_a_policy() {
    for (closing, closes_after) in [(Closing(Some(1)), 1), (Closing(Some(2)), 2), (ALL, 3)] {
        let mut session = Session::of(Kind::R3, LAZY, closing, 1, 3);
        for count in 1..=3 {
            let shown = session.deliver(count - 1, &[f(INF)]);
            assert_eq!(shown == [f(INF)], count == closes_after);
        }
    }
}

#[test]
fn law_6_an_input_that_breaks_its_promise_leaves_the_output_untouched() {
    for kind in INDEXED {
        let mut session = Session::new(kind, 2);
        session.deliver(0, &[a("A", 1, 5), f(3)]);
        session.deliver(1, &[a("B", 4, 9)]);
        let (emitted, violation) = session.refuse(0, &[m("A", 1, 7, 9), a("C", 5, 6)]);
        assert_eq!(
            (emitted, violation.code.name(), violation.index),
            (vec![], "unknown-event", 0)
        );
        assert_eq!(violation.ends, Some(vec![5]), "what it has instead");
        session.leave(0);
        assert_eq!(session.deliver(1, &[a("C", 5, 6)]), [a("C", 5, 6)]);
    }
}

#[test]
fn law_6_the_elements_before_the_offender_are_merged() {
    for kind in KINDS {
        let mut session = Session::new(kind, 1);
        let (emitted, violation) = session.refuse(0, &[a("A", 1, 5), f(3), a("B", 2, 5), a("C", 4, 5)]);
        assert_eq!((emitted, violation.index), (vec![a("A", 1, 5), f(3)], 2));
        assert_eq!((violation.code.name(), violation.detail), ("insert-below-stable", 3));
        // The rest can be merged from a place in the batch on.
        let batch = columns(&[a("B", 2, 5), a("C", 4, 5)]);
        session.merge.apply(0, &batch.view(), 1).expect("the rest");
        assert_eq!(session.take(), [a("C", 4, 5)]);
    }
}

#[test]
fn law_6_every_broken_promise_has_its_code() {
    let code_of = |kind: Kind, demands: u32, delivered: &[_]| {
        let mut session = Session::new(kind, 0);
        session.attach_as(Attached {
            slot: 0,
            demands: Demands::from_bits(demands),
            join_at: None,
            observes: false,
        });
        let (_, violation) = session.refuse(0, delivered);
        (violation.code.name(), violation.strictly)
    };
    for kind in INDEXED {
        assert_eq!(
            code_of(kind, 16, &[a("A", 1, 5), a("A", 1, 6)]),
            ("duplicate-key", false)
        );
        assert_eq!(code_of(kind, 2, &[a("A", 2, 5), a("B", 1, 5)]), ("out-of-order", false));
        assert_eq!(code_of(kind, 6, &[a("A", 2, 5), a("B", 2, 5)]), ("out-of-order", true));
        assert_eq!(
            code_of(kind, 1, &[a("A", 2, 5), m("A", 2, 5, 6)]),
            ("adjust-not-promised", false)
        );
    }
    assert_eq!(
        code_of(Kind::R0, 5, &[a("A", 2, 5), a("B", 2, 5)]),
        ("out-of-order", true)
    );
    assert_eq!(
        code_of(Kind::R1, 3, &[a("A", 2, 5), a("B", 1, 5)]),
        ("out-of-order", false)
    );
    assert_eq!(
        code_of(Kind::R2, 19, &[a("A", 2, 5), m("A", 2, 5, 6)]),
        ("adjust-not-promised", false)
    );
    assert_eq!(code_of(Kind::R2, 19, &[f(5), f(4)]), ("stable-backwards", false));
}

#[test]
fn law_6_what_waited_and_breaks_a_promise_is_reported_when_it_counts() {
    let mut session = Session::new(Kind::R2, 1);
    session.attach(1, Some(5));
    session.deliver(1, &[a("A", 6, 9), a("A", 6, 9)]);
    assert_eq!(session.deliver(0, &[f(5)]), [f(5)], "nothing of it is merged");
    let violations: Vec<_> = session
        .broken
        .iter()
        .map(|broken| (broken.slot, broken.code.name()))
        .collect();
    assert_eq!(violations, [(1, "duplicate-key")]);
}

#[test]
fn law_6_what_waited_and_breaks_a_promise_leaves_the_others_as_they_are() {
    for (kind, lie) in [
        (Kind::R1, [a("B", 5, 50), a("A", 5, 50)]),
        (Kind::R2, [a("C", 8, 50), a("C", 8, 60)]),
    ] {
        let mut session = Session::new(kind, 2);
        session.deliver(0, &[a("A", 5, 50), a("B", 5, 50)]);
        session.attach(2, Some(5));
        session.deliver(2, &lie);
        session.deliver(2, &[f(20)]);
        assert_eq!(session.deliver(0, &[f(5)]), [f(5)]);
        assert_eq!(session.broken.len(), 1);
        assert_eq!(session.merge.input(2).1, NEG_INF, "its stable point goes with it");
        session.leave(2);
        assert_eq!(session.deliver(1, &[a("E", 6, 50)]), [a("E", 6, 50)]);
    }
}

#[test]
fn law_10_after_one_missed_element_no_input_is_accused() {
    let mut session = Session::new(Kind::R1, 5);
    session.deliver(0, &[a("A", 1, 5), a("B", 1, 5)]);
    for slot in 1..5 {
        let emitted = session.deliver(slot, &[a("A", 1, 5), a("X", 1, 5), a("B", 1, 5)]);
        assert_eq!(emitted.len(), usize::from(slot == 1));
    }
}

#[test]
fn law_10_an_empty_lifetime_hides_no_event_with_its_key() {
    for kind in [Kind::R0, Kind::R1, Kind::R2] {
        let mut session = Session::new(kind, 2);
        assert_eq!(
            session.deliver(0, &[a("A", NEG_INF, NEG_INF)]),
            [a("A", NEG_INF, NEG_INF)]
        );
        assert_eq!(session.deliver(1, &[a("A", NEG_INF, 9)]), [a("A", NEG_INF, 9)]);
        assert_eq!(session.events(), [event("A", NEG_INF, 9)]);
    }
}

#[test]
fn law_10_without_a_key_copies_count() {
    let without_key = |slot| Attached {
        slot,
        demands: Demands::from_bits(1 + 2),
        join_at: None,
        observes: false,
    };
    let mut session = Session::new(Kind::R2, 2);
    session.deliver(0, &[a("A", 5, 9), a("B", 5, 9)]);
    assert_eq!(session.deliver(1, &[a("A", 5, 8)]), [], "while the key counts");
    session.attach_as(without_key(2));
    let events = [event("A", 5, 8), event("A", 5, 9), event("B", 5, 9)];
    assert_eq!(
        session.events(),
        events,
        "what only the key kept from the output is emitted"
    );
    let copies = [a("B", 5, 9), a("A", 5, 9), a("B", 5, 9), a("B", 5, 9)];
    assert_eq!(session.deliver(2, &copies), [a("B", 5, 9), a("B", 5, 9)]);
    let (_, violation) = session.refuse(0, &[a("B", 5, 9)]);
    assert_eq!(violation.code.name(), "duplicate-key", "its own key still binds it");
    session.attach_as(without_key(3));
    assert_eq!(session.deliver(3, &copies), []);
    assert_eq!(
        session.deliver(3, &[a("B", 5, 9), a("B", 6, 9), a("B", 6, 9)]),
        [a("B", 5, 9), a("B", 6, 9), a("B", 6, 9)]
    );
    let again = session.deliver(2, &[a("B", 6, 9), a("B", 6, 9), a("B", 6, 9)]);
    assert_eq!(again, [a("B", 6, 9)], "its copies at 5 do not count at 6");
}

#[test]
fn law_7_what_a_stable_causes_comes_in_order_of_vs_and_payload() {
    for kind in INDEXED {
        let mut session = Session::new(kind, 2);
        let delivered: Vec<_> = (0..200)
            .map(|at| a(&format!("{:03}", at * 77 % 200), at * 31 % 7, 500 + at))
            .collect();
        session.deliver(0, &delivered);
        let shown = session.deliver(1, &[f(10)]);
        assert_eq!(shown.len(), 201);
        assert!(shown[..200].is_sorted_by_key(|element| (element.vs, element.payload.clone())));
    }
}

#[test]
fn law_8_a_stable_is_emitted_once() {
    for kind in KINDS {
        let mut session = Session::new(kind, 2);
        assert_eq!(session.deliver(0, &[f(3), f(3), f(5)]), [f(3), f(5)]);
        assert_eq!(session.deliver(1, &[f(3), f(4), f(5), f(6)]), [f(6)]);
    }
}

#[test]
fn taking_gives_everything_once() {
    for kind in KINDS {
        let mut session = Session::new(kind, 1);
        session.deliver(0, &[a("A", 1, 9), f(1)]);
        let taken = session.merge.take();
        assert!(elements(&taken.batch.view()).is_empty() && taken.joined.is_empty() && taken.broken.is_empty());
        assert_eq!(session.merge.changes(), 0);
    }
}
