//! The bound of the lead (`lmerge/core/lead.py`): which stables are held, and when they are released.

use lmerge_core::element::INF;
use lmerge_core::merge::Kind;
use lmerge_core::policy::{LAZY, Policy, Show};

use crate::session::Session;
use crate::tdb::{a, f};

const FAR: i64 = 1_000_000_000_000;
const LEAD: Policy = Policy {
    lead_max: Some(60),
    ..LAZY
};

fn three(kind: Kind) -> Session {
    let mut session = Session::with_policy(kind, LEAD, 3);
    (0..3).for_each(|slot| drop(session.deliver(slot, &[f(10)])));
    session
}

#[test]
fn a_stable_far_ahead_is_held_and_the_others_go_on() {
    for kind in [Kind::R3, Kind::R4] {
        let mut session = three(kind);
        assert_eq!(session.deliver(0, &[f(FAR)]), []);
        assert_eq!(session.deliver(2, &[a("A", 20, 30), f(40)]), [a("A", 20, 30), f(40)]);
    }
}

#[test]
fn it_is_released_when_another_one_follows_or_all_are_gone() {
    for kind in [Kind::R3, Kind::R4] {
        let mut session = three(kind);
        assert_eq!(session.deliver(0, &[f(INF)]), []);
        assert_eq!(session.deliver(1, &[f(500)]), []);
        assert_eq!(session.deliver(2, &[f(440)]), [f(500)]);
        let mut session = three(kind);
        session.deliver(0, &[f(FAR)]);
        assert_eq!(session.leave(1), []);
        assert_eq!(session.leave(2), [f(FAR)]);
    }
}

/// Three inputs have all of A; the last of them and a fourth remain: the fourth, which lacks A, runs ahead.
#[test]
fn an_end_confirms_an_end_only() {
    for kind in [Kind::R3, Kind::R4] {
        let mut session = Session::with_policy(kind, LEAD, 4);
        (0..4).for_each(|slot| drop(session.deliver(slot, &[f(10)])));
        assert_eq!(session.deliver(3, &[f(FAR)]), []);
        assert_eq!(session.deliver(0, &[a("A", 20, 30), f(INF)]), [a("A", 20, 30)]);
        assert_eq!(session.deliver(1, &[a("A", 20, 30), f(INF)]), []);
        assert_eq!(session.deliver(2, &[a("A", 20, 30), f(15)]), [f(15)]);
        assert_eq!(
            session.deliver(2, &[f(INF)]),
            [f(FAR)],
            "with A, as those have it that have ended"
        );
    }
}

#[test]
fn an_input_far_behind_the_output_is_not_awaited() {
    let mut session = Session::with_policy(Kind::R3, LEAD, 1);
    session.deliver(0, &[f(1000)]);
    session.attach(1, None);
    session.deliver(1, &[f(10)]);
    assert_eq!(session.deliver(0, &[f(1100)]), [f(1100)]);
    session.deliver(1, &[f(1090)]);
    assert_eq!(session.deliver(0, &[f(1200)]), []);
}

#[test]
fn a_quorum_is_of_those_that_count_when_one_has_left() {
    let policy = Policy {
        show: Show::Quorum,
        quorum: 2,
        ..LEAD
    };
    for kind in [Kind::R3, Kind::R4] {
        let mut session = Session::with_policy(kind, policy, 3);
        (0..2).for_each(|slot| drop(session.deliver(slot, &[f(100)])));
        session.deliver(0, &[f(FAR)]);
        assert_eq!(session.deliver(2, &[a("A", 2 * FAR, INF)]), []);
        assert_eq!(session.leave(1), [f(FAR)]);
    }
}
