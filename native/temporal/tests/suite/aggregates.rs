//! What modules compute in windows that events enter and leave.

use lmerge_temporal::windows::{Form, WindowKind};

use crate::computed::{floats, large_floats, means, places, top_2};
use crate::windowed::{Computed, by_starts, hopping, query};

/// Judge a module in a kind of windows for each way in which states are kept.
fn judge(computed: fn() -> Computed) {
    for (kind, form) in [
        (hopping(4, 3, 0, None), Form::Eager),
        (hopping(8, 2, 1, None), Form::Final),
        (WindowKind::Snapshots, Form::Watermark),
        (WindowKind::Snapshots, Form::Final),
        (by_starts(3), Form::Eager),
        (WindowKind::Sessions { gap: 1 }, Form::Watermark),
    ] {
        query(computed(), kind, form).judge();
    }
}

#[test]
fn places_are_those_of_the_values_that_are_there() {
    judge(places);
}

#[test]
fn means_and_deviations_are_rounded_once() {
    judge(means);
}

#[test]
fn infinities_and_nan_leave_as_they_came() {
    judge(floats);
}

#[test]
fn sums_of_floats_do_not_depend_on_their_order() {
    judge(large_floats);
}

#[test]
fn rows_of_one_rank_are_all_among_the_first() {
    judge(top_2);
}
