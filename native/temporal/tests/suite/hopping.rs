//! Hopping windows that overlap.

use std::sync::Arc;

use fastrand::Rng;
use lmerge_temporal::aggregates::{Aggregates, Call, Function, Module};
use lmerge_temporal::operator::Operator;
use lmerge_temporal::windows::{Form, Grid, WindowKind, WindowOperator, WindowSpec};
use lmerge_temporal::{Column, INF, Kind};

use crate::world::{Row, StreamTable, Table, batch, changes, columns_of, form, random_stream, schema};

const HOP: i64 = 2;

fn column() -> Column {
    Column {
        name: "n".to_owned(),
        kind: Kind::Int,
        nullable: true,
    }
}

/// The number of events by the first column, and the sum and the greatest value of the second.
fn summed(size: i64) -> Box<dyn Operator> {
    let call = |function, argument| Call {
        function,
        argument,
        result: column(),
        overflow: Default::default(),
    };
    let calls = vec![
        call(Function::Count, None),
        call(Function::Sum, Some(0)),
        call(Function::Max, Some(0)),
    ];
    Box::new(WindowOperator::new(WindowSpec {
        name: "it".to_owned(),
        input: schema(2),
        output: schema(4),
        keys: vec![column()],
        expressions: Arc::new(columns_of(2, &[0, 1])),
        module: Module::Aggregates(Aggregates::new(calls, &[column()], &form(2))),
        kind: WindowKind::Hopping(Grid {
            size,
            hop: HOP,
            offset: 1,
            since: None,
            shown: "a grid".to_owned(),
        }),
        form: Form::Final,
        is_point: false,
        windows_max: 10_000,
    }))
}

/// The results of the windows that are closed at the stable point of the input.
fn definition(input: &StreamTable, size: i64) -> Table {
    let mut found = Table::new();
    for start in (-201..)
        .step_by(HOP as usize)
        .take_while(|start| start + size <= input.stable)
    {
        for key in [0, 1] {
            let events = input
                .each()
                .filter(|(row, vs, ve)| row[0] == Some(key) && *vs < start + size && *ve > start);
            let rows: Vec<&Row> = events.map(|event| &event.0).collect();
            let values: Vec<i64> = rows.iter().filter_map(|row| row[1]).collect();
            if !rows.is_empty() {
                let sum = (!values.is_empty()).then(|| values.iter().sum());
                let row = vec![Some(key), Some(rows.len() as i64), sum, values.iter().max().copied()];
                found.insert((row, start, start + size), 1);
            }
        }
    }
    found
}

#[test]
fn windows_that_overlap_have_the_aggregates_of_their_events() {
    let rows: Vec<Row> = vec![vec![Some(0), Some(3)], vec![Some(0), None], vec![Some(1), Some(-5)]];
    for size in [8, 9, 20, 120] {
        for seed in 0..200 {
            let mut rng = Rng::with_seed(seed);
            let mut operator = summed(size);
            let (mut input, mut output) = (StreamTable::new(), StreamTable::new());
            // Where windows without end stop at the end of the stream does not follow from the table.
            let stream = random_stream(&mut rng, &rows);
            for (changed, stable) in stream.into_iter().take_while(|(_, stable)| *stable != Some(INF)) {
                input.apply(&changed, stable);
                let found = operator.step(&[batch(2, &changed, stable)]).unwrap();
                operator.check();
                output.apply(&changes(&found), found.stable);
                assert_eq!(output.events, definition(&input, size));
                if rng.bool() {
                    let mut twin = summed(size);
                    twin.restore(&operator.state()).unwrap();
                    twin.check();
                    assert_eq!(twin.state(), operator.state());
                    operator = twin;
                }
            }
            operator.step(&[batch(2, &[], Some(INF))]).unwrap();
            operator.check();
            assert_eq!(operator.live(), 0);
        }
    }
}
