//! Count windows and sessions.

use lmerge_temporal::windows::{Form, WindowKind};

use crate::computed::count_sum_max;
use crate::windowed::{FORMS, Query, by_ends, by_starts, query};

fn judge(kind: &WindowKind, form: Form, is_point: bool, has_key: bool) {
    Query {
        is_point,
        has_key,
        ..query(count_sum_max(), kind.clone(), form)
    }
    .judge();
}

#[test]
fn count_windows_by_start_have_the_events_of_n_starts() {
    for count in [1, 2, 3] {
        for form in FORMS {
            judge(&by_starts(count), form, false, true);
        }
    }
}

#[test]
fn count_windows_by_end_have_the_events_of_n_ends() {
    for count in [1, 2, 3] {
        for form in FORMS {
            judge(&by_ends(count), form, false, true);
        }
    }
}

#[test]
fn sessions_have_no_gap_that_is_longer_than_they_may_have() {
    for gap in [0, 1, 3] {
        for form in FORMS {
            judge(&WindowKind::Sessions { gap }, form, false, true);
        }
    }
}

#[test]
fn results_can_be_points_at_the_ends_of_windows() {
    for kind in [by_starts(2), by_ends(2)] {
        for form in FORMS {
            judge(&kind, form, true, true);
        }
    }
}

#[test]
fn without_a_key_all_events_are_one_group() {
    for kind in [by_starts(2), by_ends(2), WindowKind::Sessions { gap: 1 }] {
        for form in FORMS {
            judge(&kind, form, false, false);
        }
    }
}
