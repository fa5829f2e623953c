//! Coalesce and cleanse.

use std::collections::{BTreeMap, BTreeSet};

use lmerge_temporal::operators::cleanse::Cleanse;
use lmerge_temporal::operators::coalesce::Coalesce;
use lmerge_temporal::{INF, NEG_INF};

use crate::world::{Case, Row, StreamTable, counted, judge, schema};

fn rows() -> Vec<Row> {
    [[Some(0), Some(1)], [Some(0), None], [Some(1), Some(1)]]
        .map(Vec::from)
        .into()
}

#[test]
fn coalesce_has_the_longest_stretches_of_a_row() {
    let rows = rows();
    let definition = |inputs: &[StreamTable], _| {
        let mut lifetimes: BTreeMap<&Row, BTreeSet<(i64, i64)>> = BTreeMap::new();
        for (row, vs, ve) in inputs[0].each() {
            lifetimes.entry(row).or_default().insert((*vs, *ve));
        }
        let mut events: Vec<(Row, i64, i64)> = Vec::new();
        for (row, lifetimes) in lifetimes {
            let first = events.len();
            for (vs, ve) in lifetimes {
                match events[first..].last_mut() {
                    Some(last) if last.2 >= vs => last.2 = last.2.max(ve),
                    _ => events.push((row.clone(), vs, ve)),
                }
            }
        }
        (counted(events), inputs[0].stable)
    };
    judge(&Case {
        schema: schema(2),
        seeds: 300,
        rows: &[&rows],
        make: &|| Box::new(Coalesce::new("it", schema(2))),
        definition: &definition,
    });
}

#[test]
fn cleanse_releases_final_events_in_order() {
    let rows = rows();
    let definition = |inputs: &[StreamTable], _| {
        let stable = inputs[0].stable;
        if stable == NEG_INF {
            return (counted([]), NEG_INF);
        }
        let is_live = |ve: i64| ve >= stable && stable < INF;
        let first = inputs[0]
            .each()
            .filter(|event| is_live(event.2))
            .map(|event| event.1)
            .min();
        let free = first.unwrap_or(INF).min(stable);
        let released = inputs[0]
            .each()
            .filter(|event| !is_live(event.2) && (event.1 < free || free == INF));
        (counted(released.cloned()), free)
    };
    judge(&Case {
        schema: schema(2),
        seeds: 300,
        rows: &[&rows],
        make: &|| Box::new(Cleanse::new("it", schema(2))),
        definition: &definition,
    });
}
