//! Snapshot windows and windows of a grid: for each group the windows that are due, each with the aggregates of the
//! events that overlap it.

use lmerge_temporal::INF;
use lmerge_temporal::failure::Failure;
use lmerge_temporal::operator::Operator;
use lmerge_temporal::plain::Plain;
use lmerge_temporal::windows::{Form, WindowKind, WindowOperator};

use crate::computed::count_sum_max;
use crate::windowed::{FORMS, Query, by_ends, by_starts, hopping, query};
use crate::world::{Change, Row, batch, changes};

/// The number of events, the sum of their second column, and its greatest value, by the first column.
fn summed(kind: WindowKind, form: Form) -> Query {
    query(count_sum_max(), kind, form)
}

fn operator(kind: WindowKind, form: Form) -> WindowOperator {
    summed(kind, form).operator()
}

#[test]
fn final_snapshots_are_emitted_when_they_are_closed() {
    summed(WindowKind::Snapshots, Form::Final).judge();
}

#[test]
fn settled_snapshots_are_emitted_when_their_start_is_stable() {
    summed(WindowKind::Snapshots, Form::Settled).judge();
}

#[test]
fn eager_snapshots_are_emitted_when_they_begin() {
    summed(WindowKind::Snapshots, Form::Eager).judge();
}

#[test]
fn snapshots_are_emitted_when_the_watermark_has_come_to_their_ends() {
    summed(WindowKind::Snapshots, Form::Watermark).judge();
}

#[test]
fn final_windows_of_a_grid_are_emitted_at_their_ends() {
    summed(hopping(4, 3, 0, None), Form::Final).judge();
}

#[test]
fn eager_windows_of_a_grid_are_emitted_when_they_begin() {
    summed(hopping(4, 3, 0, None), Form::Eager).judge();
}

#[test]
fn windows_of_a_grid_are_emitted_when_the_watermark_has_come_to_their_ends() {
    summed(hopping(4, 3, 0, None), Form::Watermark).judge();
}

#[test]
fn a_grid_can_have_gaps_an_offset_and_a_first_window() {
    for kind in [
        hopping(2, 5, 1, None),
        hopping(5, 5, -7, Some(-4)),
        hopping(4, 2, 1, Some(3)),
    ] {
        for form in [Form::Final, Form::Eager] {
            summed(kind.clone(), form).judge();
        }
    }
}

#[test]
fn windows_of_a_grid_that_overlap_much_are_windows() {
    for size in [8, 9] {
        summed(hopping(size, 2, 1, None), Form::Final).judge();
    }
}

#[test]
fn results_of_a_grid_can_be_points_at_the_ends_of_windows() {
    for kind in [hopping(4, 3, 0, None), hopping(8, 2, 1, None)] {
        for form in FORMS {
            Query {
                is_point: true,
                ..summed(kind.clone(), form)
            }
            .judge();
        }
    }
}

#[test]
fn without_a_key_all_events_are_one_group() {
    for kind in [WindowKind::Snapshots, hopping(4, 3, 0, None), hopping(8, 2, 1, None)] {
        for form in FORMS {
            Query {
                has_key: false,
                ..summed(kind.clone(), form)
            }
            .judge();
        }
    }
}

#[test]
fn a_group_is_dropped_when_its_windows_are_closed() {
    let kinds = [
        WindowKind::Snapshots,
        WindowKind::Sessions { gap: 1 },
        by_starts(1),
        by_ends(1),
        hopping(4, 3, 0, None),
        hopping(8, 2, 0, None),
    ];
    for kind in kinds {
        for form in FORMS {
            let mut operator = operator(kind.clone(), form);
            let sizes = |operator: &WindowOperator| operator.sizes().iter().map(|(_, size)| *size).collect::<Vec<_>>();
            let inserts: Vec<Change> = (0..9).map(|key| (vec![Some(key), Some(1)], 0, 0, 2)).collect();
            operator.step(&[batch(2, &inserts, Some(0))]).unwrap();
            assert!(sizes(&operator)[0] == 9, "{kind:?} {form:?}");
            operator.step(&[batch(2, &[], Some(20))]).unwrap();
            operator.check();
            assert_eq!(sizes(&operator), [0, 0], "{kind:?} {form:?}");
        }
    }
}

#[test]
fn a_step_opens_as_many_windows_as_it_may_and_no_more() {
    for size in [3, 30] {
        for form in [Form::Final, Form::Eager] {
            let step = |hops: i64| {
                let changed: [Change; 2] = [
                    (vec![Some(0), Some(1)], 0, 0, 3 * hops),
                    (vec![Some(1), Some(1)], 3 * hops, 3 * hops, 3 * hops + 1),
                ];
                operator(hopping(size, 3, 0, None), form).step(&[batch(2, &changed, None)])
            };
            let before = size / 3 - 1;
            assert!(step(1_000 - before).is_ok());
            let Err(Failure::Limit(text)) = step(1_001 - before) else {
                panic!("no limit")
            };
            assert!(text.starts_with("a step would open 1001 windows of a grid"), "{text}");
        }
    }
}

/// A window that is there waits for its end when that has moved.
#[test]
fn a_snapshot_that_is_longer_than_before_is_emitted_by_the_watermark() {
    let mut operator = operator(WindowKind::Snapshots, Form::Watermark);
    let row: Row = vec![Some(0), Some(1)];
    let other: Row = vec![Some(1), Some(1)];
    let mut step = |changed: &[Change], stable: Option<i64>| {
        let found = operator.step(&[batch(2, changed, stable)]).unwrap();
        operator.check();
        changes(&found)
    };
    let result = vec![Some(0), Some(1), Some(1), Some(1)];
    step(&[(row.clone(), 0, 0, 5)], None);
    let at_its_end = step(&[(other.clone(), 5, 5, 6)], None);
    assert_eq!(at_its_end, [(result.clone(), 0, 0, 5)]);
    let is_longer = step(&[(row, 0, 5, 9)], None);
    assert_eq!(is_longer, [(result.clone(), 0, 5, 0)]);
    let of_the_other = (vec![Some(1), Some(1), Some(1), Some(1)], 5, 5, 6);
    let at_its_new_end = step(&[(other, 9, 9, 10)], None);
    assert_eq!(at_its_new_end, [(result, 0, 0, 9), of_the_other]);
}

/// The watermark comes to the ends of a window that is there and of one behind it in one step.
#[test]
fn a_snapshot_that_is_longer_than_before_is_emitted_with_the_next_one() {
    let mut operator = operator(WindowKind::Snapshots, Form::Watermark);
    let row = |value: i64| -> Row { vec![Some(0), Some(value)] };
    let mut step = |changed: &[Change]| {
        let found = operator.step(&[batch(2, changed, None)]).unwrap();
        operator.check();
        changes(&found)
    };
    step(&[(row(1), 0, 0, 5), (row(2), 1, 1, 8)]);
    step(&[(vec![Some(1), Some(1)], 5, 5, 6)]);
    step(&[(row(1), 0, 5, 7)]);
    let at_both_ends = step(&[(row(3), 9, 9, 10)]);
    assert!(at_both_ends.contains(&(vec![Some(0), Some(2), Some(3), Some(2)], 1, 1, 7)));
    assert!(at_both_ends.contains(&(vec![Some(0), Some(1), Some(2), Some(2)], 7, 7, 8)));
}

#[test]
fn the_first_group_that_fails_is_named_and_in_it_the_first_window() {
    let rows: [Row; 4] = [
        [Some(2), Some(i64::MAX)],
        [Some(1), Some(i64::MAX)],
        [Some(3), Some(i64::MAX)],
        [Some(1), Some(1)],
    ]
    .map(Vec::from);
    let overlapping = [
        (0, 5, 9),
        (0, 5, 9),
        (1, 9, 12),
        (3, 9, 12),
        (1, 20, 22),
        (3, 20, 22),
        (2, 1, 9),
        (2, 2, 9),
    ];
    for kind in [WindowKind::Snapshots, WindowKind::Sessions { gap: 0 }] {
        for form in [Form::Final, Form::Eager] {
            let inserts: Vec<Change> = overlapping
                .iter()
                .map(|&(row, vs, ve)| (rows[row].clone(), vs, vs, ve))
                .collect();
            let failure = operator(kind.clone(), form).step(&[batch(2, &inserts, Some(INF))]);
            let Err(Failure::Shown { before, row, .. }) = failure else {
                panic!("{failure:?}");
            };
            assert_eq!(
                (before.as_str(), row),
                ("too large in [9, 12) of group ", Plain::List(vec![Plain::Int(1)]))
            );
        }
    }
}
