//! Modules with their results by definition.

use lmerge_temporal::Kind;
use lmerge_temporal::aggregates::{Aggregates, Call, Function, Module, RankBy, TopK};

use crate::trees::OfKind;
use crate::windowed::Computed;
use crate::world::{Event, Row, form_of, of_float, schema, schema_of, to_float};

/// 2 to this power is far beyond the digits of a float that has halves.
const LARGE: i32 = 100;

/// Functions with the types of their results; `true`: of the second column.
type Calls = Vec<(Function, bool, Kind)>;

/// Aggregates of the second column, which has this type.
fn aggregates(of: Kind, calls: Calls, rows: Vec<Row>, results: fn(&[&Event]) -> Row) -> Computed {
    let input = schema_of(&[Kind::Int, of.clone()]);
    let output = calls.iter().map(|(.., kind)| kind.clone()).collect();
    let (form, argument) = (form_of(&input), input.columns[1].clone());
    let module = move || {
        let call = |(function, has_argument, kind): &(Function, bool, Kind)| Call {
            function: function.clone(),
            argument: has_argument.then_some(0),
            result: kind.clone().of("it"),
            overflow: ("too large in ".to_owned(), String::new()),
        };
        let calls = calls.iter().map(call).collect();
        Module::Aggregates(Aggregates::new(calls, std::slice::from_ref(&argument), &form))
    };
    Computed {
        input,
        rows,
        arguments: vec![1],
        module: Box::new(module),
        output,
        results: Box::new(move |events| vec![results(events)]),
    }
}

/// The values that are there, in order.
fn values(events: &[&Event]) -> Vec<i64> {
    let mut values: Vec<i64> = events.iter().filter_map(|event| event.0[1]).collect();
    values.sort_unstable();
    values
}

fn rows<const N: usize>(rows: [(Option<i64>, Option<i64>); N]) -> Vec<Row> {
    rows.map(|(key, value)| vec![key, value]).into()
}

/// The number of events, the sum of their values and the greatest one.
pub fn count_sum_max() -> Computed {
    let calls = vec![
        (Function::Count, false, Kind::Int),
        (Function::Sum, true, Kind::Int),
        (Function::Max, true, Kind::Int),
    ];
    let given = rows([
        (Some(0), Some(1)),
        (Some(0), Some(2)),
        (Some(1), None),
        (None, Some(-3)),
    ]);
    aggregates(Kind::Int, calls, given, |events| {
        let values = values(events);
        let sum = (!values.is_empty()).then(|| values.iter().sum());
        vec![Some(events.len() as i64), sum, values.last().copied()]
    })
}

/// Counts and places of values, by their order or by that of events.
pub fn places() -> Computed {
    let disc = |up: i32, down: i32| Function::PercentileDisc(up.into(), down.into());
    let of_values = [
        Function::Count,
        Function::DistinctCount,
        Function::Mode,
        Function::Min,
        Function::Max,
        Function::First,
        Function::Last,
        disc(1, 2),
        disc(9, 10),
        disc(0, 1),
        disc(1, 1),
    ];
    let calls = of_values
        .into_iter()
        .map(|function| (function, true, Kind::Int))
        .collect();
    let given = rows([
        (Some(0), Some(1)),
        (Some(0), Some(2)),
        (Some(0), Some(7)),
        (Some(0), None),
        (Some(1), Some(-3)),
    ]);
    aggregates(Kind::Int, calls, given, |events| {
        let values = values(events);
        let copies = |value: &i64| values.iter().filter(|other| *other == value).count();
        let most = values.iter().map(copies).max();
        let mode = values.iter().find(|value| Some(copies(value)) == most).copied();
        let mut by_start: Vec<(i64, i64)> = events.iter().filter_map(|(row, vs, _)| Some((*vs, row[1]?))).collect();
        by_start.sort_unstable();
        // The first value with at least this part of all values up to it.
        let place = |up: usize, down: usize| {
            let has = |at: &usize| (at + 1) * down >= up * values.len();
            (0..values.len()).find(has).map(|at| values[at])
        };
        let mut distinct = values.clone();
        distinct.dedup();
        vec![
            Some(values.len() as i64),
            Some(distinct.len() as i64),
            mode,
            values.first().copied(),
            values.last().copied(),
            by_start.first().map(|first| first.1),
            by_start.last().map(|last| last.1),
            place(1, 2),
            place(9, 10),
            place(0, 1),
            place(1, 1),
        ]
    })
}

/// Averages, variances, deviations and percentiles between values.
pub fn means() -> Computed {
    let spread = |of_sample, is_root| Function::Spread { of_sample, is_root };
    let cont = |up: i32, down: i32| Function::PercentileCont(up.into(), down.into());
    let functions = [
        Function::Avg,
        spread(false, false),
        spread(true, false),
        spread(false, true),
        spread(true, true),
        cont(1, 2),
        cont(1, 4),
    ];
    let calls = functions
        .into_iter()
        .map(|function| (function, true, Kind::Float(None)))
        .collect();
    let given = rows([
        (Some(0), Some(1)),
        (Some(0), Some(2)),
        (Some(0), Some(7)),
        (Some(1), None),
        (Some(1), Some(-3)),
    ]);
    aggregates(Kind::Int, calls, given, |events| {
        let values = values(events);
        let count = values.len() as i64;
        let (total, squares): (i64, i64) = (values.iter().sum(), values.iter().map(|value| value * value).sum());
        let up = count * squares - total * total;
        let ratio = |up: i64, down: i64| (down != 0).then(|| of_float(up as f64 / down as f64));
        let root = |down: i64| (down != 0).then(|| of_float(root(up as u128, down as u128)));
        let between = |up: usize, down: usize| {
            let way = up * values.len().checked_sub(1)?;
            let (low, rest) = (values[way / down], (way % down) as i64);
            let high = values[way.div_ceil(down)];
            ratio(low * down as i64 + (high - low) * rest, down as i64)
        };
        vec![
            ratio(total, count),
            ratio(up, count * count),
            ratio(up, count * (count - 1)),
            root(count * count),
            root(count * (count - 1)),
            between(1, 2),
            between(1, 4),
        ]
    })
}

/// The float nearest to the root of `up / down`. The last bit of the root of integers is set if anything is behind it.
fn root(up: u128, down: u128) -> f64 {
    let (quotient, rest) = ((up << 114) / down, (up << 114) % down);
    let root = quotient.isqrt();
    let is_exact = rest == 0 && root * root == quotient;
    (root | u128::from(!is_exact)) as f64 * 2_f64.powi(-57)
}

/// Sums and more of floats, some of which are not finite.
pub fn floats() -> Computed {
    let spread = |is_root| Function::Spread {
        of_sample: false,
        is_root,
    };
    let cont = Function::PercentileCont(1.into(), 2.into());
    let functions = [
        Function::Sum,
        Function::Avg,
        spread(false),
        Function::Min,
        Function::Max,
        cont,
    ];
    let calls = functions
        .into_iter()
        .map(|function| (function, true, Kind::Float(None)))
        .collect();
    let given = [0.5, -1.25, f64::INFINITY, f64::NEG_INFINITY, f64::NAN].map(|value| (Some(0), Some(of_float(value))));
    let given = [
        &rows(given)[..],
        &rows([(Some(1), None), (Some(1), Some(of_float(0.5)))]),
    ]
    .concat();
    aggregates(Kind::Float(None), calls, given, |events| {
        let values: Vec<f64> = values(events).into_iter().map(to_float).collect();
        let count = values.len() as f64;
        // Sums of quarters, as of their squares, are exact.
        let (total, squares): (f64, f64) = (values.iter().sum(), values.iter().map(|value| value * value).sum());
        let (low, high) = (values.get((values.len().max(1) - 1) / 2), values.get(values.len() / 2));
        let middle = low.zip(high).map(|(low, high)| {
            if values.len() % 2 == 1 {
                *low
            } else {
                (low + high) / 2.0
            }
        });
        let found = |value: f64| of_float(if value.is_nan() { f64::NAN } else { value });
        let of_some = |value: f64| (!values.is_empty()).then(|| found(value));
        vec![
            of_some(total),
            of_some(total / count),
            of_some((count * squares - total * total) / (count * count)),
            values.first().copied().map(found),
            values.last().copied().map(found),
            middle.map(found),
        ]
    })
}

/// Sums of floats that lose digits if they are added as they come.
pub fn large_floats() -> Computed {
    let calls = [Function::Sum, Function::Avg].map(|function| (function, true, Kind::Float(None)));
    let large = 2_f64.powi(LARGE);
    let given = [0.5, large, -large].map(|value| (Some(0), Some(of_float(value))));
    let given = [
        &rows(given)[..],
        &rows([(Some(1), None), (Some(1), Some(of_float(large)))]),
    ]
    .concat();
    aggregates(Kind::Float(None), calls.into(), given, |events| {
        let halves = |value: i64| (to_float(value) * 2.0) as i128;
        let values = values(events);
        let total: i128 = values.iter().copied().map(halves).sum();
        let of_some = |value: f64| (!values.is_empty()).then(|| of_float(value));
        vec![
            of_some(total as f64 / 2.0),
            of_some(total as f64 / (2 * values.len()) as f64),
        ]
    })
}

/// The rows whose rank by the second column, the greatest first, is at most 2; rows of one rank are all there.
pub fn top_2() -> Computed {
    let input = schema(3);
    let rows = [[0, 5, 1], [0, 5, 2], [0, 4, 1], [0, 3, 1], [1, 4, 0]].map(|row| row.map(Some).into());
    let rows = [&rows[..], &[vec![Some(0), None, Some(1)], vec![Some(1), None, Some(2)]]].concat();
    let (form, by) = (form_of(&input), input.columns[1].clone());
    let module = move || {
        let by = [RankBy {
            argument: by.clone(),
            descending: true,
        }];
        Module::TopK(TopK::new(2, &by, true, vec![1, 2], form.clone()))
    };
    let results = |events: &[&Event]| {
        let rank = |row: &Row| 1 + events.iter().filter(|(other, ..)| other[1] > row[1]).count();
        let ranked = events
            .iter()
            .map(|(row, ..)| (rank(row), row))
            .filter(|(rank, _)| *rank <= 2);
        ranked
            .map(|(rank, row)| vec![row[1], row[2], Some(rank as i64)])
            .collect()
    };
    Computed {
        input,
        rows,
        arguments: vec![1],
        module: Box::new(module),
        output: vec![Kind::Int, Kind::Int, Kind::Int],
        results: Box::new(results),
    }
}
