//! Edges and as-of joins: samples that hold until the next one of their key.

use std::collections::BTreeMap;

use lmerge_temporal::INF;
use lmerge_temporal::failure::Failure;
use lmerge_temporal::operator::Operator;
use lmerge_temporal::operators::as_of::AsOf;
use lmerge_temporal::operators::edges::Edges;

use crate::world::{Case, Row, StreamTable, batch, counted, first_column, form, judge, least, schema};

fn rows() -> Vec<Row> {
    [[Some(0), Some(1)], [Some(0), Some(2)], [Some(1), None], [None, Some(1)]]
        .map(Vec::from)
        .into()
}

/// What holds from each time on, by key: the last row in the order of rows, where None is last.
fn held(samples: &StreamTable) -> BTreeMap<Option<i64>, BTreeMap<i64, Row>> {
    let order = |row: &Row| {
        row.iter()
            .map(|value| (value.is_none(), value.unwrap_or(0)))
            .collect::<Vec<_>>()
    };
    let mut held: BTreeMap<_, BTreeMap<i64, Row>> = BTreeMap::new();
    for (row, t, _) in samples.each() {
        let holder = held.entry(row[0]).or_default().entry(*t).or_insert_with(|| row.clone());
        if order(row) > order(holder) {
            *holder = row.clone();
        }
    }
    held
}

#[test]
fn a_sample_lasts_until_the_next_one_of_its_key() {
    let rows = rows();
    for lasts in [None, Some(3)] {
        let definition = |inputs: &[StreamTable], _| {
            let mut events = Vec::new();
            for rows in held(&inputs[0]).into_values() {
                for (&t, row) in &rows {
                    let next = rows.range(t + 1..).next().map_or(INF, |(&next, _)| next);
                    events.push((row.clone(), t, lasts.map_or(next, |lasts| next.min(t + lasts))));
                }
            }
            (counted(events), inputs[0].stable)
        };
        judge(&Case {
            schema: schema(2),
            seeds: 300,
            rows: &[&rows],
            make: &|| Box::new(Edges::new("it", schema(2), first_column(2), false, lasts)),
            definition: &definition,
        });
    }
}

#[test]
fn two_different_samples_at_one_time_can_be_an_error() {
    let sample = |value| (vec![Some(0), Some(value)], 3, 3, 9);
    let edges = || Edges::new("it", schema(2), first_column(2), true, None);
    assert!(edges().step(&[batch(2, &[sample(1), sample(1)], None)]).is_ok());
    let found = edges().step(&[batch(2, &[sample(1), sample(2)], None)]);
    let Err(Failure::UsageOfRows { text, rows }) = found else {
        panic!("no error")
    };
    assert_eq!(text, "it: there are two samples of one key at 3: ");
    assert_eq!(rows.len(), 2);
}

#[test]
fn a_left_event_has_the_sample_that_holds_at_its_start() {
    let rows = rows();
    for (is_outer, within) in [(false, None), (true, None), (true, Some(2)), (false, Some(0))] {
        let definition = |inputs: &[StreamTable], _| {
            let held = held(&inputs[1]);
            let mut events = Vec::new();
            for (row, vs, ve) in inputs[0].each() {
                let of_key = row[0].and_then(|key| held.get(&Some(key)));
                let last = of_key.and_then(|samples| samples.range(..=vs).next_back());
                let sample = last.filter(|(t, _)| within.is_none_or(|within| *t + within >= *vs));
                if sample.is_some() || is_outer {
                    let found = sample.map_or_else(|| vec![None, None], |(_, found)| found.clone());
                    events.push(([row.clone(), found].concat(), *vs, *ve));
                }
            }
            (counted(events), least(inputs))
        };
        let side = || (form(2), first_column(2));
        judge(&Case {
            schema: schema(2),
            seeds: 300,
            rows: &[&rows, &rows],
            make: &|| Box::new(AsOf::new("it", schema(4), [side(), side()], is_outer, within)),
            definition: &definition,
        });
    }
}
