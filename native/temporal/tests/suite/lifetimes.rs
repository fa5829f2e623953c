//! Other lifetimes, projections and unions.

use std::sync::Arc;

use lmerge_temporal::operators::lifetimes::{Alteration, Alterations};
use lmerge_temporal::operators::span::{RowPart, Span};
use lmerge_temporal::operators::union::Union;
use lmerge_temporal::{INF, NEG_INF};

use crate::world::{Case, Row, StreamTable, Table, columns_of, counted, form, judge, least, schema};

const ROWS: [[Option<i64>; 2]; 3] = [[Some(0), Some(1)], [Some(0), None], [Some(1), Some(1)]];

fn rows() -> Vec<Row> {
    ROWS.map(Vec::from).into()
}

fn plus(t: i64, d: i64) -> i64 {
    if t == INF || t == NEG_INF { t } else { t + d }
}

fn judge_alteration(alteration: Alteration, altered: impl Fn(i64, i64) -> (i64, i64), stable: impl Fn(i64) -> i64) {
    let rows = rows();
    let definition = |inputs: &[StreamTable], _| -> (Table, i64) {
        let event = |event: &(Row, i64, i64)| {
            let (vs, ve) = altered(event.1, event.2);
            (event.0.clone(), vs, ve)
        };
        (counted(inputs[0].each().map(event)), stable(inputs[0].stable))
    };
    judge(&Case {
        schema: schema(2),
        seeds: 300,
        rows: &[&rows],
        make: &|| Box::new(Span::new("it", schema(2), Alterations(vec![alteration]), Vec::new())),
        definition: &definition,
    });
}

#[test]
fn shifted_events_are_shifted_with_their_stable_point() {
    judge_alteration(
        Alteration::Shift(3),
        |vs, ve| (plus(vs, 3), plus(ve, 3)),
        |c| plus(c, 3),
    );
}

#[test]
fn a_duration_that_is_set_does_not_depend_on_the_end() {
    judge_alteration(Alteration::SetDuration(3), |vs, _| (vs, vs + 3), |c| c);
}

#[test]
fn a_duration_that_is_clipped_is_no_longer() {
    judge_alteration(Alteration::ClipDuration(3), |vs, ve| (vs, ve.min(vs + 3)), |c| c);
}

#[test]
fn extended_events_end_later() {
    judge_alteration(Alteration::Extend(2), |vs, ve| (vs, plus(ve, 2)), |c| c);
}

#[test]
fn events_at_the_end_begin_there() {
    judge_alteration(Alteration::AtEnd(2), |_, ve| (ve, plus(ve, 2)), |c| c);
}

#[test]
fn a_projection_keeps_rows_that_become_equal() {
    let rows = rows();
    let definition = |inputs: &[StreamTable], _| {
        let events = inputs[0].each().map(|(row, vs, ve)| (vec![row[0]], *vs, *ve));
        (counted(events), inputs[0].stable)
    };
    let make = || {
        Span::new(
            "it",
            schema(2),
            Alterations::default(),
            vec![RowPart::Map(Arc::new(columns_of(2, &[0])), schema(1))],
        )
    };
    judge(&Case {
        schema: schema(2),
        seeds: 300,
        rows: &[&rows],
        make: &|| Box::new(make()),
        definition: &definition,
    });
}

#[test]
fn a_union_has_all_events_and_the_least_stable_point() {
    let rows = rows();
    let definition = |inputs: &[StreamTable], _| {
        (
            counted(inputs.iter().flat_map(StreamTable::each).cloned()),
            least(inputs),
        )
    };
    judge(&Case {
        schema: schema(2),
        seeds: 300,
        rows: &[&rows, &rows[..2], &rows[1..]],
        make: &|| Box::new(Union::new("it", schema(2), form(2), 3)),
        definition: &definition,
    });
}
