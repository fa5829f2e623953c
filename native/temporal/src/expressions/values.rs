//! Values of a node for the rows of a batch, and the frame of an operation on each row: NULL if an operand is.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowPrimitiveType, Date32Type, Decimal128Type, Float64Type, Int64Type, TimestampMicrosecondType,
};
use arrow_array::{
    Array, ArrayRef, BooleanArray, Date32Array, Decimal128Array, Float64Array, Int64Array, PrimitiveArray, StringArray,
    TimestampMicrosecondArray,
};
use arrow_buffer::{BooleanBuffer, NullBuffer};
use arrow_schema::DataType;

use crate::Kind;

/// The rows that have an error, by bits.
pub type Errors = Option<BooleanBuffer>;

/// The values of a node. A row with an error has any value.
#[derive(Clone, Debug)]
pub struct Value {
    /// One value for each row, or only one.
    pub array: ArrayRef,
    /// Whether the only value is that of all rows.
    pub is_scalar: bool,
    /// As long as the array.
    pub errors: Errors,
}

impl Value {
    /// The rows with an error, for `len` rows.
    pub fn spread_errors(&self, len: usize) -> Errors {
        let errors = self.errors.as_ref()?;
        match self.is_scalar {
            true => errors.value(0).then(|| BooleanBuffer::new_set(len)),
            false => Some(errors.clone()),
        }
    }

    /// The rows that are not NULL, for `len` rows.
    pub fn spread_nulls(&self, len: usize) -> Option<NullBuffer> {
        let nulls = self.array.nulls().filter(|nulls| nulls.null_count() > 0)?;
        Some(match self.is_scalar {
            true => NullBuffer::new_null(len),
            false => nulls.clone(),
        })
    }

    /// The truth values, for `len` rows.
    pub fn truths(&self, len: usize) -> BooleanArray {
        let truths = self.array.as_boolean();
        if !self.is_scalar {
            return truths.clone();
        }
        let value = truths.value(0);
        let values = if value {
            BooleanBuffer::new_set(len)
        } else {
            BooleanBuffer::new_unset(len)
        };
        BooleanArray::new(values, self.spread_nulls(len))
    }
}

/// The rows of both.
pub fn union(one: Errors, other: Errors) -> Errors {
    match (one, other) {
        (Some(one), Some(other)) => Some(&one | &other),
        (one, other) => one.or(other),
    }
}

/// The rows of `rows` that are in `within`; None if there are none.
pub fn within(rows: Errors, within: &BooleanBuffer) -> Errors {
    Some(&rows? & within).filter(|rows| rows.has_true())
}

/// Values of a primitive type: one for each row, or one for all.
#[derive(Clone, Copy)]
pub enum Cells<'a, T> {
    Many(&'a [T]),
    One(T),
}

impl<T: Copy> Cells<'_, T> {
    #[inline(always)]
    pub fn get(&self, row: usize) -> T {
        match self {
            Cells::Many(values) => values[row],
            Cells::One(value) => *value,
        }
    }
}

/// Texts: one for each row, or one for all.
#[derive(Clone, Copy)]
pub struct Texts<'a> {
    pub array: &'a StringArray,
    is_scalar: bool,
}

impl<'a> Texts<'a> {
    #[inline]
    pub fn get(&self, row: usize) -> &'a str {
        self.array.value(if self.is_scalar { 0 } else { row })
    }
}

/// The operands of an operation on each row.
pub struct Frame<'a> {
    pub operands: &'a [Value],
    /// The number of values of the result.
    pub len: usize,
    is_scalar: bool,
    /// NULL where an operand is.
    pub nulls: Option<NullBuffer>,
    errors: Errors,
}

impl<'a> Frame<'a> {
    pub fn new(operands: &'a [Value], rows: usize) -> Frame<'a> {
        let is_scalar = operands.iter().all(|operand| operand.is_scalar);
        let len = if is_scalar { 1 } else { rows };
        let (mut nulls, mut errors) = (None, None);
        for operand in operands {
            nulls = NullBuffer::union(nulls.as_ref(), operand.spread_nulls(len).as_ref());
            errors = union(errors, operand.spread_errors(len));
        }
        Frame {
            operands,
            len,
            is_scalar,
            nulls,
            errors,
        }
    }

    /// Whether the result of the row is not NULL.
    #[inline]
    pub fn is_valid(&self, row: usize) -> bool {
        self.nulls.as_ref().is_none_or(|nulls| nulls.is_valid(row))
    }

    /// Ints, or moments.
    pub fn ints(&self, operand: usize) -> Cells<'a, i64> {
        let operand = &self.operands[operand];
        match operand.array.data_type() {
            DataType::Timestamp(..) => cells::<TimestampMicrosecondType>(operand),
            _ => cells::<Int64Type>(operand),
        }
    }

    pub fn floats(&self, operand: usize) -> Cells<'a, f64> {
        cells::<Float64Type>(&self.operands[operand])
    }

    pub fn days(&self, operand: usize) -> Cells<'a, i32> {
        cells::<Date32Type>(&self.operands[operand])
    }

    pub fn decimals(&self, operand: usize) -> Cells<'a, i128> {
        cells::<Decimal128Type>(&self.operands[operand])
    }

    pub fn texts(&self, operand: usize) -> Texts<'a> {
        let Value { array, is_scalar, .. } = &self.operands[operand];
        Texts {
            array: array.as_string(),
            is_scalar: *is_scalar,
        }
    }

    pub fn truth(&self, operand: usize) -> impl Fn(usize) -> bool + use<'a> {
        let Value { array, is_scalar, .. } = &self.operands[operand];
        let (values, is_scalar) = (array.as_boolean().values(), *is_scalar);
        move |row| values.value(if is_scalar { 0 } else { row })
    }

    /// The first operand, which is the result.
    pub fn same(self) -> Value {
        self.operands[0].clone()
    }

    /// The result, of as many values as the frame has.
    pub fn value(self, array: ArrayRef) -> Value {
        self.value_or(array, None)
    }

    /// The result, with errors of its own. They do not count where it is NULL.
    pub fn value_or(self, array: ArrayRef, errors: Errors) -> Value {
        debug_assert_eq!(array.len(), self.len);
        let own = match &self.nulls {
            Some(nulls) => within(errors, nulls.inner()),
            None => errors.filter(BooleanBuffer::has_true),
        };
        Value {
            array,
            is_scalar: self.is_scalar,
            errors: union(self.errors, own),
        }
    }

    /// The rows in which an operand has an error.
    pub fn errors(&self) -> Errors {
        self.errors.clone()
    }

    /// The result, with errors also where it is NULL.
    pub fn value_or_errors(self, array: ArrayRef, errors: BooleanBuffer) -> Value {
        Value {
            array,
            is_scalar: self.is_scalar,
            errors: union(self.errors, Some(errors)),
        }
    }

    pub fn of_ints(self, kind: &Kind, values: Vec<i64>, errors: Errors) -> Value {
        let array = ints(kind, values, self.nulls.clone());
        self.value_or(array, errors)
    }

    /// Floats, whose NaNs become one.
    pub fn of_floats(self, values: Vec<f64>) -> Value {
        let array = Arc::new(Float64Array::new(values.into(), self.nulls.clone()));
        self.value(array)
    }

    pub fn of_decimals(self, scale: u8, values: Vec<i128>, errors: Errors) -> Value {
        let array = decimals(scale, values, self.nulls.clone());
        self.value_or(array, errors)
    }

    pub fn of_truths(self, values: BooleanBuffer) -> Value {
        let array = Arc::new(BooleanArray::new(values, self.nulls.clone()));
        self.value(array)
    }

    /// Make the result NULL in more rows: where `is_present` does not hold.
    pub fn present_where(&mut self, is_present: impl Fn(usize) -> bool) {
        let present = BooleanBuffer::collect_bool(self.len, is_present);
        if present.has_false() {
            self.nulls = NullBuffer::union(self.nulls.as_ref(), Some(&NullBuffer::new(present)));
        }
    }
}

/// The values of an array of primitives.
pub fn cells<T: ArrowPrimitiveType>(value: &Value) -> Cells<'_, T::Native> {
    let values = value.array.as_primitive::<T>().values();
    if value.is_scalar {
        Cells::One(values[0])
    } else {
        Cells::Many(values)
    }
}

/// An array of ints or of moments.
pub fn ints(kind: &Kind, values: Vec<i64>, nulls: Option<NullBuffer>) -> ArrayRef {
    match kind {
        Kind::Timestamp => Arc::new(TimestampMicrosecondArray::new(values.into(), nulls).with_timezone("UTC")),
        _ => Arc::new(Int64Array::new(values.into(), nulls)),
    }
}

pub fn days(values: Vec<i32>, nulls: Option<NullBuffer>) -> ArrayRef {
    Arc::new(Date32Array::new(values.into(), nulls))
}

pub fn decimals(scale: u8, values: Vec<i128>, nulls: Option<NullBuffer>) -> ArrayRef {
    let array: Decimal128Array = PrimitiveArray::new(values.into(), nulls);
    let data_type = DataType::Decimal128(lmerge_rows::schema::DECIMAL_DIGITS_MAX, scale as i8);
    Arc::new(array.with_data_type(data_type))
}

/// The results of a function of one operand.
#[inline]
pub fn map<A: Copy, O: Clone>(len: usize, a: Cells<'_, A>, mut f: impl FnMut(A) -> O) -> Vec<O> {
    match a {
        Cells::Many(a) => a.iter().map(|&a| f(a)).collect(),
        Cells::One(a) => vec![f(a); len],
    }
}

/// The results of a function of two operands.
#[inline]
pub fn zip<A: Copy, B: Copy, O: Clone>(
    len: usize,
    a: Cells<'_, A>,
    b: Cells<'_, B>,
    mut f: impl FnMut(A, B) -> O,
) -> Vec<O> {
    match (a, b) {
        (Cells::Many(a), Cells::Many(b)) => a.iter().zip(b).map(|(&a, &b)| f(a, b)).collect(),
        (Cells::Many(a), Cells::One(b)) => a.iter().map(|&a| f(a, b)).collect(),
        (Cells::One(a), Cells::Many(b)) => b.iter().map(|&b| f(a, b)).collect(),
        (Cells::One(a), Cells::One(b)) => vec![f(a, b); len],
    }
}

/// As `map`, for a function that also returns whether its result is wrong.
#[inline]
pub fn checked_map<A: Copy, O: Clone>(len: usize, a: Cells<'_, A>, f: impl Fn(A) -> (O, bool)) -> (Vec<O>, Errors) {
    let mut any = false;
    let values = map(len, a, |a| {
        let (value, is_wrong) = f(a);
        any |= is_wrong;
        value
    });
    (
        values,
        any.then(|| BooleanBuffer::collect_bool(len, |row| f(a.get(row)).1)),
    )
}

/// As `zip`, for a function that also returns whether its result is wrong.
#[inline]
pub fn checked_zip<A: Copy, B: Copy, O: Clone>(
    len: usize,
    a: Cells<'_, A>,
    b: Cells<'_, B>,
    f: impl Fn(A, B) -> (O, bool),
) -> (Vec<O>, Errors) {
    let mut any = false;
    let values = zip(len, a, b, |a, b| {
        let (value, is_wrong) = f(a, b);
        any |= is_wrong;
        value
    });
    let errors = any.then(|| BooleanBuffer::collect_bool(len, |row| f(a.get(row), b.get(row)).1));
    (values, errors)
}
