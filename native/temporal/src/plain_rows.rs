//! Rows between columns and plain values, as `state_of_row` and `row_of_state` of `operators/operator.py` convert them.

use std::sync::Arc;

use arrow_array::builder::{
    BinaryBuilder, BooleanBuilder, Date32Builder, Decimal128Builder, Float64Builder, Int64Builder, StringBuilder,
    TimestampMicrosecondBuilder,
};
use arrow_array::cast::AsArray;
use arrow_array::types::{Date32Type, Decimal128Type, Float64Type, Int64Type, TimestampMicrosecondType};
use arrow_array::{Array, ArrayRef, ListArray, StructArray};
use arrow_buffer::{NullBuffer, OffsetBuffer};

use crate::failure::Failure;
use crate::plain::Plain;
use crate::{Column, Kind};
use lmerge_rows::schema::DECIMAL_DIGITS_MAX;

/// The one NaN.
pub const NAN: f64 = f64::from_bits(0x7ff8_0000_0000_0000);

/// 0.0 for -0.0, `NAN` for every NaN.
#[inline]
pub fn canonical_float(value: f64) -> f64 {
    if value.is_nan() { NAN } else { value + 0.0 }
}

/// The rows of columns, each a list of its values.
pub fn plain_rows(columns: &[Column], arrays: &[ArrayRef], count: usize) -> Vec<Plain> {
    let mut rows: Vec<_> = (0..count).map(|_| Vec::with_capacity(columns.len())).collect();
    for (column, array) in columns.iter().zip(arrays) {
        for (at, row) in rows.iter_mut().enumerate() {
            row.push(plain_value(column, &**array, at));
        }
    }
    rows.into_iter().map(Plain::List).collect()
}

/// One value of a column.
pub fn plain_value(column: &Column, array: &dyn Array, at: usize) -> Plain {
    if array.is_null(at) {
        return Plain::None;
    }
    match &column.kind {
        Kind::Bool => Plain::Bool(array.as_boolean().value(at)),
        Kind::Int => Plain::Int(array.as_primitive::<Int64Type>().value(at)),
        Kind::Float(_) => Plain::Float(array.as_primitive::<Float64Type>().value(at)),
        Kind::String => Plain::Text(array.as_string::<i32>().value(at).to_owned()),
        Kind::Bytes => Plain::Bytes(array.as_binary::<i32>().value(at).to_owned()),
        Kind::Timestamp => Plain::Int(array.as_primitive::<TimestampMicrosecondType>().value(at)),
        Kind::Date => Plain::Int(array.as_primitive::<Date32Type>().value(at).into()),
        Kind::Decimal(scale) => {
            let unscaled = array.as_primitive::<Decimal128Type>().value(at);
            Plain::map([("decimal", Plain::Text(shown_decimal(unscaled, *scale)))])
        }
        Kind::List(element) => {
            let values = array.as_list::<i32>().value(at);
            Plain::List((0..values.len()).map(|at| plain_value(element, &*values, at)).collect())
        }
        Kind::Struct(fields) => {
            let arrays = array.as_struct().columns();
            Plain::List(
                fields
                    .iter()
                    .zip(arrays)
                    .map(|(field, array)| plain_value(field, &**array, at))
                    .collect(),
            )
        }
    }
}

/// A decimal as `str` of Python's Decimal shows it.
pub fn shown_decimal(unscaled: i128, scale: u8) -> String {
    let sign = if unscaled < 0 { "-" } else { "" };
    let digits = unscaled.unsigned_abs().to_string();
    let scale = usize::from(scale);
    if scale == 0 {
        return format!("{sign}{digits}");
    }
    // Where the point stands: below -6 Python writes an exponent.
    let point = digits.len() as i64 - scale as i64;
    if point > 0 {
        let (whole, part) = digits.split_at(point as usize);
        return format!("{sign}{whole}.{part}");
    }
    if point > -6 {
        return format!("{sign}0.{}{digits}", "0".repeat(-point as usize));
    }
    let (first, rest) = digits.split_at(1);
    let dot = if rest.is_empty() { "" } else { "." };
    format!("{sign}{first}{dot}{rest}E{}", point - 1)
}

/// A decimal from the text that Python's Decimal shows, in units of 10^-scale. None if it is no such number.
pub fn parsed_decimal(text: &str, scale: u8) -> Option<i128> {
    let (number, exponent) = match text.split_once(['E', 'e']) {
        Some((number, exponent)) => (number, exponent.parse::<i64>().ok()?),
        None => (text, 0),
    };
    let (is_negative, number) = match number.strip_prefix('-') {
        Some(number) => (true, number),
        None => (false, number.strip_prefix('+').unwrap_or(number)),
    };
    let (whole, part) = number.split_once('.').unwrap_or((number, ""));
    let mut digits = format!("{whole}{part}");
    let missing = i64::from(scale) + exponent - part.len() as i64;
    if missing < 0 {
        let extra = usize::try_from(-missing).ok()?.min(digits.len());
        let cut = digits.split_off(digits.len() - extra);
        if cut.bytes().any(|digit| digit != b'0') {
            return None;
        }
    } else if digits.bytes().any(|digit| digit != b'0') {
        digits.push_str(&"0".repeat(usize::try_from(missing).ok().filter(|&count| count <= 38)?));
    }
    let value: i128 = if digits.is_empty() { 0 } else { digits.parse().ok()? };
    Some(if is_negative { -value } else { value })
}

/// The columns of rows as `plain_rows` gives them.
pub fn columns_of_plain(columns: &[Column], rows: &[&Plain]) -> Result<Vec<ArrayRef>, Failure> {
    let lists: Vec<&[Plain]> = rows.iter().map(|row| row.list()).collect::<Result<_, _>>()?;
    if let Some(at) = lists.iter().position(|list| list.len() != columns.len()) {
        return Err(rows[at].unexpected("a row of the schema"));
    }
    let of = |(at, column)| {
        let values: Vec<&Plain> = lists.iter().map(|list| &list[at]).collect();
        column_of_plain(column, &values)
    };
    columns.iter().enumerate().map(of).collect()
}

/// One column of plain values.
fn column_of_plain(column: &Column, values: &[&Plain]) -> Result<ArrayRef, Failure> {
    macro_rules! built {
        ($builder:expr, $value:ident => $converted:expr) => {{
            let mut builder = $builder;
            for &$value in values {
                match $value {
                    Plain::None => builder.append_null(),
                    _ => builder.append_value($converted),
                }
            }
            Arc::new(builder.finish())
        }};
    }
    Ok(match &column.kind {
        Kind::Bool => built!(BooleanBuilder::new(), value => value.int()? != 0),
        Kind::Int => built!(Int64Builder::new(), value => value.int()?),
        Kind::Float(_) => built!(Float64Builder::new(), value => float_of(value)?),
        Kind::String => built!(StringBuilder::new(), value => value.text()?),
        Kind::Bytes => built!(BinaryBuilder::new(), value => bytes_of(value)?),
        Kind::Timestamp => {
            built!(TimestampMicrosecondBuilder::new().with_timezone("UTC"), value => value.int()?)
        }
        Kind::Date => built!(Date32Builder::new(), value => {
            i32::try_from(value.int()?).map_err(|_| value.unexpected("a date"))?
        }),
        Kind::Decimal(scale) => {
            let builder = Decimal128Builder::new().with_data_type(column.data_type());
            debug_assert!(*scale <= DECIMAL_DIGITS_MAX);
            built!(builder, value => {
                let text = value.get("decimal")?.text()?;
                parsed_decimal(text, *scale).ok_or_else(|| value.unexpected("a decimal"))?
            })
        }
        Kind::List(element) => Arc::new(lists_of_plain(element, values)?),
        Kind::Struct(fields) => {
            let missing = Plain::List(vec![Plain::None; fields.len()]);
            let rows: Vec<&Plain> = values
                .iter()
                .map(|&value| if *value == Plain::None { &missing } else { value })
                .collect();
            let arrays = columns_of_plain(fields, &rows)?;
            let fields = fields.iter().map(Column::field).collect();
            Arc::new(StructArray::new(fields, arrays, present(values)))
        }
    })
}

fn lists_of_plain(element: &Column, values: &[&Plain]) -> Result<ListArray, Failure> {
    let mut lengths = Vec::with_capacity(values.len());
    let mut elements = Vec::new();
    for &value in values {
        let list = if *value == Plain::None { &[] } else { value.list()? };
        lengths.push(list.len());
        elements.extend(list);
    }
    let array = column_of_plain(element, &elements)?;
    Ok(ListArray::new(
        Arc::new(element.field()),
        OffsetBuffer::from_lengths(lengths),
        array,
        present(values),
    ))
}

/// Which values are there; None if all are.
fn present(values: &[&Plain]) -> Option<NullBuffer> {
    let nulls: NullBuffer = values.iter().map(|&value| *value != Plain::None).collect();
    (nulls.null_count() > 0).then_some(nulls)
}

fn float_of(value: &Plain) -> Result<f64, Failure> {
    match value {
        Plain::Float(value) => Ok(canonical_float(*value)),
        Plain::Int(value) => Ok(*value as f64),
        other => Err(other.unexpected("a float")),
    }
}

fn bytes_of(value: &Plain) -> Result<&[u8], Failure> {
    match value {
        Plain::Bytes(value) => Ok(value),
        other => Err(other.unexpected("bytes")),
    }
}
