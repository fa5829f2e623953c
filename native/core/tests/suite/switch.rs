//! Switches from a running algorithm to a more general one: no event is lost or emitted twice.

use lmerge_core::element::INF;
use lmerge_core::input::Demands;
use lmerge_core::merge::Kind;

use crate::session::{Attached, Session, demands};
use crate::tdb::{a, columns, elements, event, f, m};

#[test]
fn a_merge_that_has_merged_nothing_may_run_any_algorithm() {
    for (from, to) in [
        (Kind::R4, Kind::R0),
        (Kind::R3, Kind::R1),
        (Kind::R0, Kind::R4),
        (Kind::R2, Kind::R1),
    ] {
        let mut session = Session::new(from, 1);
        session.merge.switch(to, false);
        assert_eq!(session.merge.kind(), to);
        assert_eq!(session.deliver(0, &[a("A", 1, 9), f(2)]), [a("A", 1, 9), f(2)]);
    }
}

#[test]
fn an_index_has_what_the_inputs_have_delivered_before() {
    for from in [Kind::R0, Kind::R1, Kind::R2] {
        for to in [Kind::R3, Kind::R4] {
            let mut session = Session::new(from, 2);
            session.deliver(0, &[a("A", 1, 20), a("B", 2, 30), a("C", 3, 40)]);
            session.deliver(1, &[a("A", 1, 20), a("B", 2, 30), f(2)]);
            session.merge.switch(to, true);
            session.merge.demand(0, demands(to));
            session.merge.demand(1, demands(to));
            session.take();
            // 0 has all three, 1 has not delivered C; A is half frozen.
            assert_eq!(session.deliver(0, &[m("A", 1, 20, 25), f(3)]), [f(3)]);
            let (_, violation) = session.refuse(1, &[m("C", 3, 40, 41)]);
            assert_eq!(violation.code.name(), "unknown-event");
            assert_eq!(session.deliver(1, &[m("B", 2, 30, 31), f(3)]), []);
            assert_eq!(session.deliver(0, &[f(26)]), [m("A", 1, 20, 25), f(26)]);
            session.deliver(0, &[f(INF)]);
            session.deliver(1, &[f(INF)]);
            assert_eq!(
                session.events(),
                [event("A", 1, 25), event("B", 2, 31), event("C", 3, 40)]
            );
        }
    }
}

#[test]
fn among_the_ordered_what_was_emitted_at_max_vs_is_not_emitted_again() {
    for (from, to) in [(Kind::R0, Kind::R1), (Kind::R0, Kind::R2), (Kind::R1, Kind::R2)] {
        let mut session = Session::new(from, 2);
        session.deliver(0, &[a("A", 5, 20)]);
        session.merge.switch(to, true);
        session.take();
        assert_eq!(session.deliver(1, &[a("A", 5, 20)]), []);
        assert_eq!(session.deliver(0, &[f(5)]), [f(5)]);
        assert_eq!(session.events(), [event("A", 5, 20)]);
    }
}

#[test]
fn what_waits_to_join_is_not_taken_as_delivered() {
    for (from, to) in [(Kind::R0, Kind::R1), (Kind::R0, Kind::R2), (Kind::R1, Kind::R2)] {
        let mut session = Session::new(from, 1);
        session.deliver(0, &[a("A", 5, 20)]);
        session.attach(1, Some(5));
        assert_eq!(session.deliver(1, &[a("A", 5, 20)]), []);
        session.merge.switch(to, true);
        session.take();
        assert_eq!(session.deliver(0, &[f(5)]), [f(5)]);
        assert_eq!(session.broken, [], "its own element came once");
        assert_eq!(session.events(), [event("A", 5, 20)]);
    }
}

#[test]
fn what_waits_to_join_reaches_the_index() {
    for from in [Kind::R0, Kind::R1, Kind::R2] {
        for to in [Kind::R3, Kind::R4] {
            let mut session = Session::new(from, 1);
            session.deliver(0, &[a("A", 5, 20)]);
            session.attach(1, Some(5));
            assert_eq!(session.deliver(1, &[a("A", 5, 20), a("B", 6, 20)]), []);
            session.merge.switch(to, true);
            session.take();
            session.deliver(0, &[f(5)]);
            session.deliver(1, &[f(21)]);
            assert_eq!(
                session.events(),
                [event("A", 5, 20), event("B", 6, 20)],
                "{from:?} to {to:?}"
            );
        }
    }
}

/// R1 checks no key. At the switch a waiting element is found to break it, and a stable comes in the same call.
#[test]
fn what_waits_and_breaks_a_promise_does_not_join() {
    for to in [Kind::R3, Kind::R4] {
        let mut session = Session::new(Kind::R1, 1);
        session.attach_as(Attached {
            slot: 1,
            demands: Demands::from_bits(1 + 2 + 8 + 16),
            join_at: Some(8),
            observes: false,
        });
        session.deliver(1, &[a("W", 5, 20), a("W", 5, 25), f(99)]);
        session.merge.switch(to, true);
        let stable = columns(&[f(8)]);
        session
            .merge
            .apply(0, &stable.view(), 0)
            .expect("a promise that is kept");
        let taken = session.merge.take();
        assert_eq!(elements(&taken.batch.view()), [a("W", 5, 20), m("W", 5, 20, 5), f(8)]);
        assert_eq!((taken.joined.len(), taken.broken.len()), (0, 1));
    }
}

#[test]
fn equal_events_keep_their_number() {
    let mut session = Session::new(Kind::R1, 2);
    session.deliver(0, &[a("A", 5, 20), a("A", 5, 20), a("A", 5, 21)]);
    session.deliver(1, &[a("A", 5, 20)]);
    session.merge.switch(Kind::R4, true);
    session.take();
    assert_eq!(session.deliver(1, &[a("A", 5, 20), a("A", 5, 21)]), []);
    assert_eq!(session.deliver(1, &[a("A", 5, 22), f(6)]), [a("A", 5, 22), f(6)]);
    assert_eq!(session.events().len(), 4);
}

#[test]
fn r4_takes_over_the_entries_of_r3_of_every_input() {
    for slot in [1, 70] {
        let mut session = Session::new(Kind::R3, 1);
        session.attach(slot, None);
        session.deliver(0, &[a("A", 1, 20), a("B", 2, 30)]);
        session.deliver(slot, &[a("A", 1, 25), a("C", 2, 9)]);
        session.deliver(0, &[f(2)]);
        session.merge.switch(Kind::R4, true);
        session.take();
        assert_eq!(session.deliver(slot, &[a("A", 2, 9)]), [a("A", 2, 9)]);
        assert_eq!(
            session.deliver(slot, &[m("A", 1, 25, 26), f(3)]),
            [m("B", 2, 30, 2), f(3)]
        );
        assert_eq!(session.deliver(slot, &[f(21)]), [m("A", 1, 20, 26), f(21)]);
    }
}

#[test]
#[should_panic(expected = "cannot switch to an algorithm that is not more general")]
fn a_running_index_is_not_made_more_special() {
    let mut session = Session::new(Kind::R4, 1);
    session.deliver(0, &[a("A", 1, 20)]);
    session.merge.switch(Kind::R3, true);
}
