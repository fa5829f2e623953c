//! The small values: when an event is shown, how far the output may go, when it closes.

use lmerge_core::element::{INF, NEG_INF};
use lmerge_core::policy::{Closing, LAZY, Policy};

use crate::session::{EAGER, HALF_FROZEN_ONLY, quorum};

#[test]
fn only_first_without_adjusts_is_lazy() {
    assert!(LAZY.is_lazy() && Policy { lag: 5, ..LAZY }.is_lazy());
    assert!(!EAGER.is_lazy() && !HALF_FROZEN_ONLY.is_lazy());
}

#[test]
fn a_lag_holds_every_finite_time_back_and_none_below_minus_infinity() {
    let policy = Policy { lag: 10, ..LAZY };
    assert_eq!([policy.held_back(25), policy.held_back(INF - 1)], [15, INF - 11]);
    assert_eq!(
        [
            policy.held_back(INF),
            policy.held_back(NEG_INF),
            policy.held_back(NEG_INF + 3)
        ],
        [INF, NEG_INF, NEG_INF]
    );
    assert_eq!(Policy { lag: INF, ..LAZY }.held_back(-2), NEG_INF);
    assert_eq!(LAZY.held_back(7), 7);
}

#[test]
fn closing_needs_as_many_as_declared_and_at_least_one() {
    let all = Closing(None);
    assert!(all.agreed(2, 2) && !all.agreed(1, 2) && !all.agreed(0, 0));
    let two = Closing(Some(2));
    assert!(two.agreed(2, 5) && !two.agreed(1, 5));
    assert!(two.agreed(1, 1), "more than there are means all");
    assert!(!Closing(Some(0)).agreed(0, 3), "no input has ended");
}

#[test]
fn a_quorum_is_of_one_at_least_and_of_all_at_most() {
    let enough = |policy: Policy| [0, 1, 2, 3, 4].map(|joined| policy.enough(joined));
    assert_eq!(enough(quorum(2)), [1, 1, 2, 2, 2]);
    let percent = |quorum_percent| Policy {
        quorum_percent,
        ..quorum(0)
    };
    assert_eq!(enough(percent(1)), [1, 1, 1, 1, 1]);
    assert_eq!(enough(percent(34)), [1, 1, 1, 2, 2], "rounded up");
    assert_eq!(enough(percent(50)), [1, 1, 1, 2, 2]);
    assert_eq!(enough(percent(100)), [1, 1, 2, 3, 4]);
}
