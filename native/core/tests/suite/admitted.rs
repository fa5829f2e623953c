//! Inputs that are admitted before MaxStable has reached their join_at: `tests/core/test_admitted_early.py`.

use lmerge_core::element::INF;
use lmerge_core::merge::Kind;
use lmerge_core::policy::LAZY;

use crate::session::{ALL, FINAL_ONLY, Session};
use crate::tdb::{a, event, f, m};

const KINDS: [Kind; 3] = [Kind::R3, Kind::R4, Kind::R3Minus];
const LATE: usize = 0;
const IS_RIGHT: usize = 1;
const LAGS: usize = 2;

/// `LATE` counts already, although it is right only from 39 on; A is half frozen at 27, with the end 55.
fn begun(mut session: Session) -> Session {
    session.attach(LATE, Some(39));
    session.admit(LATE);
    for slot in [IS_RIGHT, LAGS] {
        session.attach(slot, None);
        session.deliver(slot, &[a("A", 26, 55)]);
    }
    session.deliver(IS_RIGHT, &[f(27), m("A", 26, 55, 29)]);
    session
}

fn sessions() -> impl Iterator<Item = Session> {
    let sharded = Session::of(Kind::R3, LAZY, ALL, 3, 0);
    KINDS
        .map(|kind| Session::new(kind, 0))
        .into_iter()
        .chain([sharded])
        .map(begun)
}

#[test]
fn an_end_that_it_refutes_is_not_frozen() {
    for mut session in sessions() {
        session.leave(IS_RIGHT);
        assert_eq!(session.deliver(LATE, &[f(58)]), [m("A", 26, 55, 27), f(58)]);
    }
}

#[test]
fn of_witnesses_one_is_asked_that_it_does_not_refute() {
    for mut session in sessions() {
        session.deliver(IS_RIGHT, &[f(28)]);
        session.deliver(LAGS, &[f(29)]);
        assert_eq!(session.deliver(LATE, &[f(30)]), [m("A", 26, 55, 29), f(30)]);
    }
}

#[test]
fn before_its_join_at_an_end_may_still_be_delivered() {
    for mut session in sessions() {
        session.leave(IS_RIGHT);
        assert_eq!(session.deliver(LATE, &[f(35)]), [f(35)]);
        assert_eq!(
            session.deliver(LAGS, &[m("A", 26, 55, 37), f(38)]),
            [m("A", 26, 55, 37), f(38)]
        );
    }
}

#[test]
fn what_is_due_later_ends_when_the_join_at_is_reached() {
    for ve in [80, INF] {
        for mut session in sessions() {
            session.leave(IS_RIGHT);
            session.deliver(LAGS, &[m("A", 26, 55, ve), a("C", 40, 50)]);
            session.deliver(LATE, &[a("C", 40, 50), f(35)]); // from here on A is due at 55
            assert_eq!(session.deliver(LATE, &[f(39)]), [m("A", 26, 55, 35), f(39)]);
            assert_eq!(session.deliver(LATE, &[f(90)]), [f(90)]);
            assert_eq!(session.events(), [event("A", 26, 35), event("C", 40, 50)]);
        }
    }
}

#[test]
fn of_several_equal_events_those_end_that_it_lacks() {
    let mut session = begun(Session::new(Kind::R4, 0));
    for (slot, ends) in [(LAGS, &[50, 60, 65, 71][..]), (LATE, &[60, 70])] {
        for &end in ends {
            session.deliver(slot, &[a("B", 28, end)]);
        }
    }
    session.deliver(LAGS, &[f(30)]);
    session.leave(LAGS);
    assert_eq!(
        session.deliver(LATE, &[f(62)]),
        [
            m("A", 26, 55, 30),
            m("B", 28, 50, 70),
            m("B", 28, 65, 30),
            m("B", 28, 71, 30),
            f(62)
        ]
    );
}

#[test]
fn final_only_shows_no_end_that_it_refutes() {
    for kind in [Kind::R3, Kind::R4] {
        let mut session = begun(Session::with_policy(kind, FINAL_ONLY, 0));
        session.leave(IS_RIGHT);
        assert_eq!(session.deliver(LATE, &[f(58)]), [f(58)]);
    }
}

/// A wrong end below its join_at must not become the end of a right event while the output shows fewer events.
#[test]
fn an_end_that_never_was_takes_no_right_event() {
    let mut session = Session::new(Kind::R4, 0);
    session.attach(LATE, Some(39));
    session.admit(LATE);
    session.attach(LAGS, None);
    session.deliver(LAGS, &[a("B", 28, 60), f(30)]);
    session.deliver(LATE, &[a("B", 28, 32), a("B", 28, 45)]);
    assert_eq!(session.deliver(LATE, &[f(35)]), [f(35)]);
    session.deliver(LATE, &[m("B", 28, 45, 60), f(70)]);
    assert_eq!(session.events(), [event("B", 28, 60)]);
}
