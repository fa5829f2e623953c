//! Joins: pairs where both events are valid, and the parts of events without a partner, instant by instant.

use lmerge_temporal::failure::Failure;
use lmerge_temporal::operator::Operator;
use lmerge_temporal::operators::join::{Join, JoinKind, PAIRS_MAX};
use lmerge_temporal::operators::join_side::JoinInput;
use lmerge_temporal::operators::row_keys::KeyOf;

use crate::world::{Case, Event, Row, StreamTable, Table, batch, counted, first_column, form, judge, least, schema};

fn join(kind: JoinKind, has_key: bool, pairs_max: u64) -> Join {
    let input = || JoinInput {
        form: form(2),
        key: if has_key { first_column(2) } else { KeyOf::new(None) },
    };
    let columns = if kind == JoinKind::Anti { 2 } else { 4 };
    Join::new("it", schema(columns), kind, [input(), input()], None, pairs_max)
}

fn matches(one: &Row, other: &Row, has_key: bool) -> bool {
    !has_key || (one[0].is_some() && one[0] == other[0])
}

/// The parts of an event that no event of the other side covers.
fn parts(event: &Event, others: &StreamTable, has_key: bool) -> Vec<(i64, i64)> {
    let mut covers: Vec<(i64, i64)> = others
        .each()
        .filter(|other| matches(&event.0, &other.0, has_key))
        .map(|other| (other.1.max(event.1), other.2.min(event.2)))
        .filter(|(start, end)| start < end)
        .collect();
    covers.sort_unstable();
    let (mut reach, mut found) = (event.1, Vec::new());
    for (start, end) in covers {
        if start > reach {
            found.push((reach, start));
        }
        reach = reach.max(end);
    }
    if reach < event.2 {
        found.push((reach, event.2));
    }
    found
}

fn defined(inputs: &[StreamTable], kind: JoinKind, has_key: bool) -> Table {
    let [left, right] = inputs else {
        unreachable!("a join has two inputs")
    };
    let mut events = Vec::new();
    let none = vec![None, None];
    for one in left.each() {
        for other in right.each().filter(|other| matches(&one.0, &other.0, has_key)) {
            if kind != JoinKind::Anti {
                events.push((
                    [one.0.clone(), other.0.clone()].concat(),
                    one.1.max(other.1),
                    one.2.min(other.2),
                ));
            }
        }
        if matches!(kind, JoinKind::Left | JoinKind::Full | JoinKind::Anti) {
            let row = if kind == JoinKind::Anti {
                one.0.clone()
            } else {
                [one.0.clone(), none.clone()].concat()
            };
            events.extend(
                parts(one, right, has_key)
                    .into_iter()
                    .map(|(start, end)| (row.clone(), start, end)),
            );
        }
    }
    if matches!(kind, JoinKind::Right | JoinKind::Full) {
        for other in right.each() {
            let row = [none.clone(), other.0.clone()].concat();
            events.extend(
                parts(other, left, has_key)
                    .into_iter()
                    .map(|(start, end)| (row.clone(), start, end)),
            );
        }
    }
    counted(events)
}

fn judge_kind(kind: JoinKind) {
    let rows = [[Some(0), Some(1)], [Some(0), Some(2)], [Some(1), None], [None, Some(1)]].map(Vec::from);
    for has_key in [true, false] {
        judge(&Case {
            schema: schema(2),
            seeds: 300,
            rows: &[&rows[..], &rows[1..]],
            make: &|| Box::new(join(kind, has_key, PAIRS_MAX)),
            definition: &|inputs, _| (defined(inputs, kind, has_key), least(inputs)),
        });
    }
}

#[test]
fn an_inner_join_has_the_pairs() {
    judge_kind(JoinKind::Inner);
}

#[test]
fn a_left_join_has_the_parts_of_left_events_too() {
    judge_kind(JoinKind::Left);
}

#[test]
fn a_right_join_has_the_parts_of_right_events_too() {
    judge_kind(JoinKind::Right);
}

#[test]
fn a_full_join_has_the_parts_of_both() {
    judge_kind(JoinKind::Full);
}

#[test]
fn an_anti_join_has_the_parts_of_left_events_alone() {
    judge_kind(JoinKind::Anti);
}

#[test]
fn a_step_compares_no_more_pairs_than_it_may() {
    let row = || vec![Some(0), Some(0)];
    let four: Vec<_> = (0..4).map(|at| (row(), at, at, at + 10)).collect();
    let inputs = [batch(2, &four, None), batch(2, &[(row(), 0, 0, 10)], None)];
    assert_eq!(join(JoinKind::Inner, true, 4).step(&inputs).unwrap().len(), 4);
    let Err(Failure::Limit(text)) = join(JoinKind::Inner, true, 3).step(&inputs) else {
        panic!("no limit")
    };
    assert_eq!(text, "it: a step compares more than 3 pairs (pairs_max)");
}
