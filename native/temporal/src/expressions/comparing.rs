//! Comparisons, `is_in`, `least` and `greatest`: the order of rows. Within lists and structs NULL equals NULL.

use std::cmp::Ordering;
use std::collections::HashSet;

use ahash::RandomState;
use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Array, ArrayRef, Datum, Scalar};
use arrow_buffer::BooleanBuffer;
use arrow_ord::cmp;
use arrow_ord::ord::make_comparator;
use arrow_schema::{DataType, SortOptions};

use super::decimals;
use super::nested::selected;
use super::nodes::Comparison;
use super::values::{Cells, Frame, Value, union};
use crate::{Column, Kind};

impl Comparison {
    fn holds(self, order: Ordering) -> bool {
        match self {
            Comparison::Equal => order.is_eq(),
            Comparison::NotEqual => order.is_ne(),
            Comparison::Less => order.is_lt(),
            Comparison::LessEqual => order.is_le(),
            Comparison::Greater => order.is_gt(),
            Comparison::GreaterEqual => order.is_ge(),
        }
    }

    fn of_arrays(self, one: &dyn Datum, other: &dyn Datum) -> BooleanBuffer {
        let compare = match self {
            Comparison::Equal => cmp::eq,
            Comparison::NotEqual => cmp::neq,
            Comparison::Less => cmp::lt,
            Comparison::LessEqual => cmp::lt_eq,
            Comparison::Greater => cmp::gt,
            Comparison::GreaterEqual => cmp::gt_eq,
        };
        let found = compare(one, other).expect("values of one type");
        found.values().clone()
    }
}

pub fn compared(frame: Frame<'_>, comparison: Comparison, one: &Kind, other: &Kind) -> Value {
    let [left, right] = frame.operands else {
        unreachable!("a comparison has two operands")
    };
    let values = match (one, other) {
        (Kind::Decimal(one), Kind::Decimal(other)) if one == other => of_operands(comparison, left, right, frame.len),
        (Kind::Decimal(_), _) | (_, Kind::Decimal(_)) => {
            let (left, left_scale) = scaled(&frame, 0, one);
            let (right, right_scale) = scaled(&frame, 1, other);
            BooleanBuffer::collect_bool(frame.len, |row| {
                comparison.holds(decimals::ordered(left(row), left_scale, right(row), right_scale))
            })
        }
        (Kind::List(_) | Kind::Struct(_), _) => {
            let order = order_of(&left.array, &right.array);
            let at = |value: &Value, row| if value.is_scalar { 0 } else { row };
            BooleanBuffer::collect_bool(frame.len, |row| comparison.holds(order(at(left, row), at(right, row))))
        }
        _ => of_operands(comparison, left, right, frame.len),
    };
    frame.of_truths(values)
}

/// Values of one type that Arrow compares as rows are ordered: floats have no -0.0, and the NaN that is last.
fn of_operands(comparison: Comparison, left: &Value, right: &Value, len: usize) -> BooleanBuffer {
    // Arrow's result for a scalar NULL has no values.
    if [left, right]
        .iter()
        .any(|value| value.is_scalar && value.array.is_null(0))
    {
        return BooleanBuffer::new_unset(len);
    }
    match (left.is_scalar, right.is_scalar) {
        (true, false) => comparison.of_arrays(&Scalar::new(&left.array), &right.array),
        (false, true) => comparison.of_arrays(&left.array, &Scalar::new(&right.array)),
        _ => comparison.of_arrays(&left.array, &right.array),
    }
}

/// Decimals, or ints as decimals, with their scale.
fn scaled<'a>(frame: &Frame<'a>, operand: usize, kind: &Kind) -> (Box<dyn Fn(usize) -> i128 + 'a>, u8) {
    match *kind {
        Kind::Decimal(scale) => {
            let cells: Cells<'a, i128> = frame.decimals(operand);
            (Box::new(move |row| cells.get(row)), scale)
        }
        _ => {
            let cells: Cells<'a, i64> = frame.ints(operand);
            (Box::new(move |row| i128::from(cells.get(row))), 0)
        }
    }
}

/// The order of any values of one type, by rows. NULL equals NULL and is last.
fn order_of(one: &ArrayRef, other: &ArrayRef) -> arrow_ord::ord::DynComparator {
    let options = SortOptions {
        descending: false,
        nulls_first: false,
    };
    make_comparator(one, other, options).expect("values of one type")
}

/// Whether a value is one of `values`, which has no NULL.
pub fn is_in(frame: Frame<'_>, values: &ArrayRef) -> Value {
    let found = match frame.operands[0].array.data_type() {
        DataType::Int64 => {
            let known: HashSet<i64, RandomState> =
                values.as_primitive::<Int64Type>().values().iter().copied().collect();
            let ints = frame.ints(0);
            BooleanBuffer::collect_bool(frame.len, |row| known.contains(&ints.get(row)))
        }
        DataType::Utf8 => {
            let known: HashSet<&str, RandomState> = values.as_string::<i32>().iter().flatten().collect();
            let texts = frame.texts(0);
            BooleanBuffer::collect_bool(frame.len, |row| known.contains(texts.get(row)))
        }
        _ => is_equal_to_one(&frame, values),
    };
    frame.of_truths(found)
}

fn is_equal_to_one(frame: &Frame<'_>, values: &ArrayRef) -> BooleanBuffer {
    let array = &frame.operands[0].array;
    let mut found = BooleanBuffer::new_unset(frame.len);
    for at in 0..values.len() {
        let one = values.slice(at, 1);
        let equal = match array.data_type() {
            DataType::List(_) | DataType::Struct(_) => {
                let order = order_of(array, &one);
                BooleanBuffer::collect_bool(frame.len, |row| order(row, 0).is_eq())
            }
            _ => Comparison::Equal.of_arrays(array, &Scalar::new(&one)),
        };
        found = &found | &equal;
    }
    found
}

/// The least or the greatest operand that is not NULL.
pub fn extreme(operands: &[Value], rows: usize, column: &Column, is_least: bool) -> Value {
    let comparison = if is_least {
        Comparison::Less
    } else {
        Comparison::Greater
    };
    let mut found = operands[0].clone();
    for next in &operands[1..] {
        let is_scalar = found.is_scalar && next.is_scalar;
        let len = if is_scalar { 1 } else { rows };
        let errors = union(found.spread_errors(len), next.spread_errors(len));
        let better = is_better(comparison, next, &found, len);
        found = Value {
            is_scalar,
            errors,
            ..selected(&better, next, &found, len, column)
        };
    }
    found
}

/// The rows in which `next` is there, and `found` is missing or compares so with it.
fn is_better(comparison: Comparison, next: &Value, found: &Value, len: usize) -> BooleanBuffer {
    // Where one is NULL, the comparison is of any value.
    let mut better = of_operands(comparison, next, found, len);
    if let Some(nulls) = found.spread_nulls(len) {
        better = &better | &!nulls.inner();
    }
    match next.spread_nulls(len) {
        Some(nulls) => &better & nulls.inner(),
        None => better,
    }
}
