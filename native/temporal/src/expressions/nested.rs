//! Parts of lists and structs, and the choice between values of any type.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowPrimitiveType, Date32Type, Decimal128Type, Float64Type, Int64Type, TimestampMicrosecondType,
};
use arrow_array::{Array, ArrayRef, BooleanArray, PrimitiveArray, Scalar, UInt32Array};
use arrow_buffer::{BooleanBuffer, NullBuffer};
use arrow_cast::cast;
use arrow_select::nullif::nullif;
use arrow_select::take::take;
use arrow_select::zip::zip;

use super::values::{Frame, Value, cells};
use crate::{Column, Kind};

/// A field of structs: NULL where the struct is.
pub fn field(frame: Frame<'_>, index: usize) -> Value {
    let structs = frame.operands[0].array.as_struct();
    let field = structs.column(index);
    let array = match structs.nulls() {
        Some(nulls) => nullif(field, &BooleanArray::new(!nulls.inner(), None)).expect("as many values as structs"),
        None => field.clone(),
    };
    frame.value(array)
}

/// The element at an index, from the end if it is negative; NULL if there is none.
pub fn element(frame: Frame<'_>) -> Value {
    let operand = &frame.operands[0];
    let lists = operand.array.as_list::<i32>();
    let (offsets, indexes) = (lists.offsets(), frame.ints(1));
    let place = |row: usize| {
        let list = if operand.is_scalar { 0 } else { row };
        let (start, end) = (i64::from(offsets[list]), i64::from(offsets[list + 1]));
        let index = indexes.get(row);
        let length = end - start;
        let index = if index < 0 { index + length } else { index };
        let is_there = frame.is_valid(row) && (0..length).contains(&index);
        is_there.then(|| (start + index) as u32)
    };
    let places: UInt32Array = (0..frame.len).map(place).collect();
    let array = take(lists.values(), &places, None).expect("places are within the elements");
    frame.value(array)
}

/// The values of `one` where `mask` is set, else those of `other`. Both are of the type of `column`.
pub fn selected(mask: &BooleanBuffer, one: &Value, other: &Value, len: usize, column: &Column) -> Value {
    let array: ArrayRef = match column.kind {
        Kind::Int => Arc::new(of_primitives::<Int64Type>(mask, one, other, len)),
        Kind::Timestamp => {
            Arc::new(of_primitives::<TimestampMicrosecondType>(mask, one, other, len).with_timezone("UTC"))
        }
        Kind::Float(_) => Arc::new(of_primitives::<Float64Type>(mask, one, other, len)),
        Kind::Date => Arc::new(of_primitives::<Date32Type>(mask, one, other, len)),
        Kind::Decimal(_) => {
            Arc::new(of_primitives::<Decimal128Type>(mask, one, other, len).with_data_type(column.data_type()))
        }
        Kind::Bool => of_truths(mask, one, other, len),
        _ => of_any(mask, one, other, column),
    };
    Value {
        array,
        is_scalar: false,
        errors: None,
    }
}

fn of_primitives<T: ArrowPrimitiveType>(
    mask: &BooleanBuffer,
    one: &Value,
    other: &Value,
    len: usize,
) -> PrimitiveArray<T> {
    let (ones, others) = (cells::<T>(one), cells::<T>(other));
    let values = (0..len).map(|row| {
        if mask.value(row) {
            ones.get(row)
        } else {
            others.get(row)
        }
    });
    PrimitiveArray::new(values.collect(), nulls_of(mask, one, other, len))
}

fn of_truths(mask: &BooleanBuffer, one: &Value, other: &Value, len: usize) -> ArrayRef {
    let (ones, others) = (one.truths(len), other.truths(len));
    let values = &(mask & ones.values()) | &(&!mask & others.values());
    Arc::new(BooleanArray::new(values, nulls_of(mask, one, other, len)))
}

fn of_any(mask: &BooleanBuffer, one: &Value, other: &Value, column: &Column) -> ArrayRef {
    let mask = BooleanArray::new(mask.clone(), None);
    let (ones, others) = (retyped(&one.array, column), retyped(&other.array, column));
    let found = match (one.is_scalar, other.is_scalar) {
        (true, true) => zip(&mask, &Scalar::new(ones), &Scalar::new(others)),
        (true, false) => zip(&mask, &Scalar::new(ones), &others),
        (false, true) => zip(&mask, &ones, &Scalar::new(others)),
        (false, false) => zip(&mask, &ones, &others),
    };
    found.expect("values of one type, as many as the mask has")
}

fn nulls_of(mask: &BooleanBuffer, one: &Value, other: &Value, len: usize) -> Option<NullBuffer> {
    let (ones, others) = (one.spread_nulls(len), other.spread_nulls(len));
    if ones.is_none() && others.is_none() {
        return None;
    }
    let chosen = match &ones {
        Some(nulls) => mask & nulls.inner(),
        None => mask.clone(),
    };
    let rest = match &others {
        Some(nulls) => &!mask & nulls.inner(),
        None => !mask,
    };
    Some(NullBuffer::new(&chosen | &rest))
}

/// Lists or structs whose parts can be NULL where others cannot, in the type of both.
pub fn retyped(array: &ArrayRef, column: &Column) -> ArrayRef {
    let data_type = column.data_type();
    if *array.data_type() == data_type {
        return array.clone();
    }
    cast(array, &data_type).expect("types that differ in what can be NULL")
}
