//! Windows: for each group the windows that are due, each with the aggregates of the events that overlap it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use lmerge_temporal::aggregates::{Aggregates, Call, Function, Module};
use lmerge_temporal::operator::Operator;
use lmerge_temporal::windows::{Form, Grid, WindowKind, WindowOperator, WindowSpec};
use lmerge_temporal::{INF, NEG_INF};

use crate::world::{
    Case, Change, Event, Row, StreamTable, Table, batch, changes, columns_of, counted, form, judge, schema,
};

const SIZE: i64 = 4;
const HOP: i64 = 3;

/// The number of events, the sum of their second column, and its greatest value, by the first column.
fn operator(kind: WindowKind, form_of_results: Form) -> WindowOperator {
    let input = schema(2);
    let arguments = [input.columns[1].clone()];
    let calls = [
        (Function::Count, None),
        (Function::Sum, Some(0)),
        (Function::Max, Some(0)),
    ];
    let call = |(function, argument): (Function, Option<usize>)| Call {
        function,
        argument,
        result: input.columns[1].clone(),
        overflow: Default::default(),
    };
    let calls = calls.into_iter().map(call).collect();
    WindowOperator::new(WindowSpec {
        name: "it".to_owned(),
        input: input.clone(),
        output: schema(4),
        keys: vec![input.columns[0].clone()],
        expressions: Arc::new(columns_of(2, &[0, 1])),
        module: Module::Aggregates(Aggregates::new(calls, &arguments, &form(2))),
        kind,
        form: form_of_results,
        is_point: false,
        windows_max: 1_000,
    })
}

/// The row of a window `[start, end)`. None without events.
fn result(key: Option<i64>, events: &[&Event], start: i64, end: i64) -> Option<Event> {
    let members: Vec<&&Event> = events.iter().filter(|event| event.1 < end && event.2 > start).collect();
    let values = || members.iter().filter_map(|event| event.0[1]);
    let sum = values().next().is_some().then(|| values().sum());
    let row = vec![key, Some(members.len() as i64), sum, values().max()];
    (!members.is_empty()).then_some((row, start, end))
}

/// The windows of a group, with ends; `latest`: the latest finite time.
type Divide<'a> = &'a dyn Fn(&[&Event], i64) -> Vec<(i64, i64)>;

/// All results, due or not.
fn results(input: &StreamTable, divide: Divide<'_>) -> Vec<Event> {
    let mut groups: BTreeMap<Option<i64>, Vec<&Event>> = BTreeMap::new();
    for event in input.each() {
        groups.entry(event.0[0]).or_default().push(event);
    }
    let of = |(key, events): (Option<i64>, Vec<&Event>)| -> Vec<Event> {
        let windows = divide(&events, input.latest).into_iter();
        windows
            .filter_map(|(start, end)| result(key, &events, start, end))
            .collect()
    };
    groups.into_iter().flat_map(of).collect()
}

/// From each edge of an event to the next one.
fn snapshots(events: &[&Event], _latest: i64) -> Vec<(i64, i64)> {
    let edges: BTreeSet<i64> = events.iter().flat_map(|event| [event.1, event.2]).collect();
    let ends = edges.iter().skip(1).copied().chain([INF]);
    edges
        .iter()
        .copied()
        .zip(ends)
        .filter(|(start, _)| *start < INF)
        .collect()
}

/// The windows of the grid that begin at the latest finite time at the latest.
fn hops(_events: &[&Event], latest: i64) -> Vec<(i64, i64)> {
    let starts = (-10 * HOP..=latest.max(-10 * HOP)).filter(|start| start.rem_euclid(HOP) == 0);
    starts.map(|start| (start, start + SIZE)).collect()
}

/// The results that `is_due` at a stable point, and where the first that is not holds the output's.
fn due(input: &StreamTable, divide: Divide<'_>, is_due: impl Fn(&Event, i64) -> bool) -> (Table, i64) {
    let stable = input.stable;
    let (due, ahead): (Vec<Event>, Vec<Event>) = results(input, divide)
        .into_iter()
        .partition(|event| is_due(event, stable));
    let held = ahead.iter().map(|event| event.1).min().unwrap_or(INF);
    (counted(due), if stable == NEG_INF { NEG_INF } else { held.min(stable) })
}

fn judge_windows(kind: &WindowKind, form: Form, definition: impl Fn(&StreamTable) -> (Table, i64)) {
    let rows: [Row; 4] = [
        [Some(0), Some(1)],
        [Some(0), Some(2)],
        [Some(1), None],
        [None, Some(-3)],
    ]
    .map(Vec::from);
    judge(&Case {
        columns: 2,
        rows: &[&rows],
        make: &|| Box::new(operator(kind.clone(), form)),
        definition: &|inputs| definition(&inputs[0]),
    });
}

/// Whether no change can reach a snapshot window any more: at the stable point itself its end can still move.
fn is_closed(event: &Event, stable: i64) -> bool {
    event.2 < stable || stable == INF
}

#[test]
fn final_snapshots_are_emitted_when_they_are_closed() {
    judge_windows(&WindowKind::Snapshots, Form::Final, |input| {
        due(input, &snapshots, is_closed)
    });
}

#[test]
fn settled_snapshots_are_emitted_when_their_start_is_stable() {
    judge_windows(&WindowKind::Snapshots, Form::Settled, |input| {
        due(input, &snapshots, |event, stable| {
            event.1 < stable || is_closed(event, stable)
        })
    });
}

#[test]
fn final_windows_of_a_grid_are_emitted_at_their_ends() {
    let grid = Grid {
        size: SIZE,
        hop: HOP,
        offset: 0,
        since: None,
        shown: String::new(),
    };
    judge_windows(&WindowKind::Hopping(grid), Form::Final, |input| {
        let (table, _) = due(input, &hops, |event, stable| event.2 <= stable);
        // An event can still come into the first window that ends behind the stable point.
        let open = |stable: i64| ((stable - SIZE).div_euclid(HOP) + 1) * HOP;
        let is_finite = (NEG_INF + 1..INF).contains(&input.stable);
        (table, if is_finite { open(input.stable) } else { input.stable })
    });
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
