//! Converts a column of Arrow of any width, unit or layout to one of a few forms, then each cell to bytes.
//!
//! The value of a null slot is undefined, so checks look only at the other slots.

use std::collections::HashMap;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowPrimitiveType, ByteArrayType, Date32Type, Date64Type, Decimal32Type, Decimal64Type, Decimal128Type,
    Decimal256Type, Float16Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type,
    TimestampMicrosecondType, TimestampMillisecondType, TimestampNanosecondType, TimestampSecondType, UInt8Type,
    UInt16Type, UInt32Type, UInt64Type,
};
use arrow_array::{Array, ArrayRef, BinaryViewArray, FixedSizeBinaryArray, GenericByteArray, OffsetSizeTrait};
use arrow_buffer::{ArrowNativeType, BooleanBuffer, Buffer, NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow_schema::{DataType, Field, Fields, TimeUnit};

use crate::decimal::{self, Rescale};
use crate::pack;
use crate::round::round;
use crate::schema::{Column, Kind};

/// A key in a field's metadata: only a library for that type can interpret the values.
const EXTENSION: &str = "ARROW:extension:name";
const NAN: f64 = f64::from_bits(0x7ff8_0000_0000_0000);

const DAY_US: i64 = 86_400_000_000;
const DAY_MS: i64 = 86_400_000;
/// 0001-01-01 and 9999-12-31: the range of Python's dates.
const DAYS: std::ops::RangeInclusive<i64> = -719_162..=2_932_896;
/// The range of nested timestamps. Python reads them as datetimes in their own time zone, so a day at each end is left
/// out.
const NESTED_US: std::ops::Range<i64> = (*DAYS.start() + 1) * DAY_US..*DAYS.end() * DAY_US;

/// One column, ready to be written.
#[derive(Debug)]
pub struct Cells {
    nulls: Option<NullBuffer>,
    nullable: bool,
    values: Values,
}

#[derive(Debug)]
enum Values {
    /// Null in every row.
    Missing,
    Bool(BooleanBuffer),
    /// Also timestamps and dates.
    Int(ScalarBuffer<i64>),
    /// In canonical form.
    Float(Vec<f64>),
    String(Spans),
    Bytes(Spans),
    Decimal(Vec<i128>, u8),
    /// Element `i` of the list in row `r` has index `ends[r] + i`, up to `ends[r + 1]`.
    List(Vec<usize>, Box<Cells>),
    Struct(Vec<Cells>),
    /// A dictionary: the index of the value of each row.
    Keyed(Vec<usize>, Box<Cells>),
}

/// Byte strings, in any of Arrow's layouts.
#[derive(Debug)]
enum Spans {
    Small(OffsetBuffer<i32>, Buffer),
    Large(OffsetBuffer<i64>, Buffer),
    Views(BinaryViewArray),
    Fixed(FixedSizeBinaryArray),
}

impl Spans {
    #[inline]
    fn get(&self, row: usize) -> &[u8] {
        match self {
            Spans::Small(ends, data) => &data[ends[row] as usize..ends[row + 1] as usize],
            Spans::Large(ends, data) => &data[ends[row] as usize..ends[row + 1] as usize],
            Spans::Views(array) => array.value(row),
            Spans::Fixed(array) => array.value(row),
        }
    }
}

/// The place of each of `columns` among `fields`, if it is there. None if a field has no column and no name in
/// `others`, if two fields have one name, or if a field has an extension type.
pub fn positions(columns: &[Column], fields: &Fields, others: &[&str]) -> Option<Vec<Option<usize>>> {
    let mut at: HashMap<&str, usize> = HashMap::with_capacity(fields.len());
    for (index, field) in fields.iter().enumerate() {
        if !is_plain(field) || at.insert(field.name(), index).is_some() {
            return None;
        }
    }
    let found: Vec<Option<usize>> = columns.iter().map(|column| at.remove(column.name.as_str())).collect();
    at.keys().all(|name| others.contains(name)).then_some(found)
}

fn is_plain(field: &Field) -> bool {
    !field.metadata().contains_key(EXTENSION)
}

/// A column of times as `int64_column` in `lmerge/wire/arrow.py` takes it.
pub fn times(array: &ArrayRef) -> Option<ScalarBuffer<i64>> {
    if array.null_count() > 0 {
        return None;
    }
    micros(array).or_else(|| ints(array))
}

impl Cells {
    /// The cells of `column` in `array`. `nested`: it is not a column of the batch itself.
    pub fn of(column: &Column, array: &ArrayRef, nested: bool) -> Option<Cells> {
        let values = match (array.data_type(), &column.kind) {
            (DataType::Null, _) => Values::Missing,
            (DataType::Dictionary(..), _) => keyed(column, array, nested)?,
            (_, Kind::Bool) => Values::Bool(array.as_boolean_opt()?.values().clone()),
            (_, Kind::Int) => Values::Int(ints(array)?),
            (_, Kind::Float(digits)) => Values::Float(floats(array, *digits)?),
            (_, Kind::String) => Values::String(strings(array)?),
            (_, Kind::Bytes) => Values::Bytes(byte_strings(array)?),
            (_, Kind::Timestamp) => Values::Int(moments(array, nested)?),
            (_, Kind::Date) => Values::Int(days(array)?),
            (_, Kind::Decimal(scale)) => Values::Decimal(decimals(array, *scale)?, *scale),
            (_, Kind::List(element)) => lists(element, array)?,
            (_, Kind::Struct(fields)) => structs(fields, array)?,
        };
        Some(Cells {
            nulls: array.nulls().cloned(),
            nullable: column.nullable,
            values,
        })
    }

    /// Append the cell of a row. None if it is null in a column that is not nullable, or too large.
    #[inline]
    pub fn write(&self, row: usize, out: &mut Vec<u8>) -> Option<()> {
        let is_null = self.nulls.as_ref().is_some_and(|nulls| nulls.is_null(row));
        if is_null || matches!(self.values, Values::Missing) {
            out.push(pack::NIL);
            return self.nullable.then_some(());
        }
        match &self.values {
            Values::Int(values) => pack::int(out, values[row]),
            Values::Float(values) => pack::float(out, values[row]),
            Values::String(spans) => pack::string(out, spans.get(row))?,
            Values::Bytes(spans) => pack::bytes(out, spans.get(row))?,
            Values::Bool(values) => pack::bool(out, values.value(row)),
            Values::Decimal(values, scale) => {
                pack::string(out, decimal::text(values[row], *scale, &mut decimal::buffer()))?;
            }
            Values::Keyed(keys, cells) => cells.write(keys[row], out)?,
            Values::List(ends, cells) => {
                pack::array(out, ends[row + 1] - ends[row])?;
                (ends[row]..ends[row + 1]).try_for_each(|at| cells.write(at, out))?;
            }
            Values::Struct(fields) => {
                pack::array(out, fields.len())?;
                fields.iter().try_for_each(|cells| cells.write(row, out))?;
            }
            Values::Missing => unreachable!("a value of a column without any"),
        }
        Some(())
    }
}

/// Convert `values`. None if a value that is not null cannot be converted.
fn valid<T: Copy, U: Default>(
    values: &[T],
    nulls: Option<&NullBuffer>,
    convert: impl Fn(T) -> Option<U>,
) -> Option<Vec<U>> {
    let of_null = |at: usize| nulls.is_some_and(|nulls| nulls.is_null(at)).then(U::default);
    let converted = |(at, &value): (usize, &T)| convert(value).or_else(|| of_null(at));
    values.iter().enumerate().map(converted).collect()
}

fn ints(array: &dyn Array) -> Option<ScalarBuffer<i64>> {
    fn widened<T: ArrowPrimitiveType<Native: Into<i64>>>(array: &dyn Array) -> ScalarBuffer<i64> {
        array
            .as_primitive::<T>()
            .values()
            .iter()
            .map(|&value| value.into())
            .collect()
    }
    Some(match array.data_type() {
        DataType::Int64 => array.as_primitive::<Int64Type>().values().clone(),
        DataType::Int8 => widened::<Int8Type>(array),
        DataType::Int16 => widened::<Int16Type>(array),
        DataType::Int32 => widened::<Int32Type>(array),
        DataType::UInt8 => widened::<UInt8Type>(array),
        DataType::UInt16 => widened::<UInt16Type>(array),
        DataType::UInt32 => widened::<UInt32Type>(array),
        DataType::UInt64 => {
            let values = array.as_primitive::<UInt64Type>().values();
            valid(values, array.nulls(), |value| i64::try_from(value).ok())?.into()
        }
        _ => return None,
    })
}

fn floats(array: &dyn Array, digits: Option<i32>) -> Option<Vec<f64>> {
    let canonical = |value: f64| match digits {
        _ if value.is_nan() => NAN,
        Some(digits) => round(value, digits) + 0.0,
        None => value + 0.0, // -0.0 + 0.0 is 0.0
    };
    Some(match array.data_type() {
        DataType::Float64 => {
            let values = array.as_primitive::<Float64Type>().values().iter();
            values.map(|&value| canonical(value)).collect()
        }
        DataType::Float32 => {
            let values = array.as_primitive::<Float32Type>().values().iter();
            values.map(|&value| canonical(f64::from(value))).collect()
        }
        DataType::Float16 => {
            let values = array.as_primitive::<Float16Type>().values().iter();
            values.map(|&value| canonical(f64::from(value))).collect()
        }
        DataType::UInt64 => {
            let values = array.as_primitive::<UInt64Type>().values().iter();
            values.map(|&value| canonical(value as f64)).collect()
        }
        _ => ints(array)?.iter().map(|&value| canonical(value as f64)).collect(),
    })
}

fn strings(array: &ArrayRef) -> Option<Spans> {
    fn checked<T: ByteArrayType>(array: &GenericByteArray<T>) -> Option<()> {
        let (ends, data) = (array.value_offsets(), array.values());
        let index = |end: &T::Offset| end.as_usize();
        let (first, last) = (index(ends.first()?), index(ends.last()?));
        let text = str::from_utf8(data.get(first..last)?).ok()?;
        // All together are UTF-8. So each is UTF-8 if it does not begin or end within a character.
        let is_whole = |end: &T::Offset| text.is_char_boundary(index(end).wrapping_sub(first));
        ends.iter().all(is_whole).then_some(())
    }
    Some(match array.data_type() {
        DataType::Utf8 => {
            let array = array.as_string::<i32>();
            checked(array)?;
            Spans::Small(array.offsets().clone(), array.values().clone())
        }
        DataType::LargeUtf8 => {
            let array = array.as_string::<i64>();
            checked(array)?;
            Spans::Large(array.offsets().clone(), array.values().clone())
        }
        DataType::Utf8View => {
            let array = array.as_string_view().clone().to_binary_view();
            let is_text = |at| array.is_null(at) || str::from_utf8(array.value(at)).is_ok();
            (0..array.len()).all(is_text).then_some(())?;
            Spans::Views(array)
        }
        _ => return None,
    })
}

fn byte_strings(array: &ArrayRef) -> Option<Spans> {
    Some(match array.data_type() {
        DataType::Binary => {
            let array = array.as_binary::<i32>();
            Spans::Small(array.offsets().clone(), array.values().clone())
        }
        DataType::LargeBinary => {
            let array = array.as_binary::<i64>();
            Spans::Large(array.offsets().clone(), array.values().clone())
        }
        DataType::BinaryView => Spans::Views(array.as_binary_view().clone()),
        DataType::FixedSizeBinary(_) => Spans::Fixed(array.as_fixed_size_binary().clone()),
        _ => return None,
    })
}

fn moments(array: &ArrayRef, nested: bool) -> Option<ScalarBuffer<i64>> {
    let Some(moments) = micros(array) else {
        return ints(array);
    };
    if nested {
        let in_range = |us: i64| NESTED_US.contains(&us).then_some(us);
        return Some(valid(&moments, array.nulls(), in_range)?.into());
    }
    Some(moments)
}

/// Timestamps of a time zone as microseconds. None if the unit is finer and a value is no whole number of microseconds.
fn micros(array: &ArrayRef) -> Option<ScalarBuffer<i64>> {
    let nulls = array.nulls();
    let DataType::Timestamp(unit, Some(_)) = array.data_type() else {
        return None;
    };
    Some(match unit {
        TimeUnit::Microsecond => array.as_primitive::<TimestampMicrosecondType>().values().clone(),
        TimeUnit::Second => {
            let values = array.as_primitive::<TimestampSecondType>().values();
            valid(values, nulls, |s| s.checked_mul(1_000_000))?.into()
        }
        TimeUnit::Millisecond => {
            let values = array.as_primitive::<TimestampMillisecondType>().values();
            valid(values, nulls, |ms| ms.checked_mul(1_000))?.into()
        }
        TimeUnit::Nanosecond => {
            let values = array.as_primitive::<TimestampNanosecondType>().values();
            valid(values, nulls, |ns| (ns % 1_000 == 0).then_some(ns / 1_000))?.into()
        }
    })
}

fn days(array: &ArrayRef) -> Option<ScalarBuffer<i64>> {
    let known = |day: i64| DAYS.contains(&day).then_some(day);
    let days = match array.data_type() {
        DataType::Date32 => {
            let values = array.as_primitive::<Date32Type>().values();
            valid(values, array.nulls(), |day| known(i64::from(day)))?
        }
        DataType::Date64 => {
            let values = array.as_primitive::<Date64Type>().values();
            valid(values, array.nulls(), |ms| {
                (ms % DAY_MS == 0).then(|| known(ms / DAY_MS))?
            })?
        }
        _ => return None,
    };
    Some(days.into())
}

fn decimals(array: &ArrayRef, scale: u8) -> Option<Vec<i128>> {
    let nulls = array.nulls();
    let rescale = |from: i8| {
        // For larger scales Python checks the digits before any arithmetic.
        (from.unsigned_abs() <= 76).then(|| Rescale::new(i32::from(from), i32::from(scale)))
    };
    match *array.data_type() {
        DataType::Decimal32(_, from) => {
            let (values, rescale) = (array.as_primitive::<Decimal32Type>().values(), rescale(from)?);
            valid(values, nulls, |value| rescale.narrow(i128::from(value)))
        }
        DataType::Decimal64(_, from) => {
            let (values, rescale) = (array.as_primitive::<Decimal64Type>().values(), rescale(from)?);
            valid(values, nulls, |value| rescale.narrow(i128::from(value)))
        }
        DataType::Decimal128(_, from) => {
            let (values, rescale) = (array.as_primitive::<Decimal128Type>().values(), rescale(from)?);
            valid(values, nulls, |value| rescale.narrow(value))
        }
        DataType::Decimal256(_, from) => {
            let (values, rescale) = (array.as_primitive::<Decimal256Type>().values(), rescale(from)?);
            valid(values, nulls, |value| rescale.wide(value))
        }
        DataType::UInt64 => {
            let (values, rescale) = (array.as_primitive::<UInt64Type>().values(), rescale(0)?);
            valid(values, nulls, |value| rescale.narrow(i128::from(value)))
        }
        _ => {
            let (values, rescale) = (ints(array)?, rescale(0)?);
            valid(&values, nulls, |value| rescale.narrow(i128::from(value)))
        }
    }
}

fn lists(element: &Column, array: &ArrayRef) -> Option<Values> {
    fn spread<O: OffsetSizeTrait>(element: &Column, array: &ArrayRef) -> Option<Values> {
        let array = array.as_list::<O>();
        let ends = array.value_offsets();
        let (first, last) = (ends.first()?.as_usize(), ends.last()?.as_usize());
        // A slice has all of its parent's elements.
        let elements = array.values().slice(first, last.checked_sub(first)?);
        let ends = ends.iter().map(|end| end.as_usize() - first).collect();
        Some(Values::List(ends, Box::new(Cells::of(element, &elements, true)?)))
    }
    match array.data_type() {
        DataType::List(field) if is_plain(field) => spread::<i32>(element, array),
        DataType::LargeList(field) if is_plain(field) => spread::<i64>(element, array),
        DataType::FixedSizeList(field, _) if is_plain(field) => {
            let array = array.as_fixed_size_list();
            let ends = (0..=array.len()).map(|row| array.value_offset_at(row)).collect();
            Some(Values::List(ends, Box::new(Cells::of(element, array.values(), true)?)))
        }
        _ => None,
    }
}

fn structs(columns: &[Column], array: &ArrayRef) -> Option<Values> {
    let array = array.as_struct_opt()?;
    let positions = positions(columns, array.fields(), &[])?;
    let cells = |(column, at): (&Column, Option<usize>)| match at {
        Some(at) => Cells::of(column, array.column(at), true),
        None => Some(Cells {
            nulls: None,
            nullable: column.nullable,
            values: Values::Missing,
        }),
    };
    let cells: Option<Vec<Cells>> = columns.iter().zip(positions).map(cells).collect();
    Some(Values::Struct(cells?))
}

fn keyed(column: &Column, array: &ArrayRef, nested: bool) -> Option<Values> {
    let array = array.as_any_dictionary_opt()?;
    let cells = Cells::of(column, array.values(), nested)?;
    let keys = if array.values().is_empty() {
        vec![0; array.len()] // of nulls: they are not used
    } else {
        array.normalized_keys()
    };
    Some(Values::Keyed(keys, Box::new(cells)))
}
