//! Values of one column as keys, whose order is that of rows, and keys as columns again.

use std::sync::Arc;

use arrow_array::builder::{BooleanBuilder, Date32Builder, Float64Builder, Int64Builder, TimestampMicrosecondBuilder};
use arrow_array::cast::AsArray;
use arrow_array::types::{Date32Type, Float64Type, Int64Type, TimestampMicrosecondType};
use arrow_array::{Array, ArrayRef, new_null_array};
use arrow_row::Rows;

use crate::failure::Failure;
use crate::plain::Plain;
use crate::plain_rows::{columns_of_plain, plain_value};
use crate::rows::RowForm;
use crate::{Column, Kind};

/// A value that is there.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Key {
    /// Of a bool, int, float, timestamp or date.
    Number(i64),
    /// Of another type: as arrow-row encodes it.
    Bytes(Arc<[u8]>),
}

/// How values of a column are keys.
#[derive(Debug)]
pub struct KeyForm {
    column: Column,
    /// For types whose keys are bytes.
    form: Option<RowForm>,
}

/// The keys of a column of a batch.
#[derive(Debug)]
pub enum Keys {
    Numbers(Vec<i64>, ArrayRef),
    Encoded(Rows, ArrayRef),
}

impl Keys {
    /// The key of a value; None if it is missing.
    #[inline]
    pub fn get(&self, at: usize) -> Option<Key> {
        match self {
            Keys::Numbers(values, array) => (!array.is_null(at)).then(|| Key::Number(values[at])),
            Keys::Encoded(rows, array) => (!array.is_null(at)).then(|| Key::Bytes(rows.row(at).data().into())),
        }
    }
}

impl KeyForm {
    pub fn new(column: &Column) -> KeyForm {
        let is_number = matches!(
            column.kind,
            Kind::Bool | Kind::Int | Kind::Float(_) | Kind::Timestamp | Kind::Date
        );
        // Results can be missing where values cannot.
        let column = Column {
            nullable: true,
            ..column.clone()
        };
        let form = (!is_number).then(|| RowForm::of_columns(std::slice::from_ref(&column)));
        KeyForm { column, form }
    }

    /// Whether keys are numbers; else they are bytes.
    pub fn are_numbers(&self) -> bool {
        self.form.is_none()
    }

    pub fn keys(&self, array: &ArrayRef) -> Keys {
        if let Some(form) = &self.form {
            return Keys::Encoded(form.encode(std::slice::from_ref(array)), array.clone());
        }
        let numbers = match self.column.kind {
            Kind::Bool => (0..array.len())
                .map(|at| i64::from(array.as_boolean().value(at)))
                .collect(),
            Kind::Float(_) => array
                .as_primitive::<Float64Type>()
                .values()
                .iter()
                .map(|&one| of_float(one))
                .collect(),
            Kind::Timestamp => array.as_primitive::<TimestampMicrosecondType>().values().to_vec(),
            Kind::Date => array
                .as_primitive::<Date32Type>()
                .values()
                .iter()
                .map(|&day| day.into())
                .collect(),
            _ => array.as_primitive::<Int64Type>().values().to_vec(),
        };
        Keys::Numbers(numbers, array.clone())
    }

    /// A column of keys; a missing value where there is none.
    pub fn array<'a>(&self, keys: impl Iterator<Item = Option<&'a Key>>) -> ArrayRef {
        if let Some(form) = &self.form {
            let missing = form.missing().expect("a missing value has bytes");
            let keys: Vec<_> = keys.collect();
            if keys.is_empty() {
                return new_null_array(&self.column.data_type(), 0);
            }
            let bytes = keys.iter().map(|key| match key {
                Some(Key::Bytes(bytes)) => &**bytes,
                _ => &missing[..],
            });
            return form.decode(bytes).swap_remove(0);
        }
        let numbers = keys.map(|key| match key {
            Some(Key::Number(number)) => Some(*number),
            _ => None,
        });
        match self.column.kind {
            Kind::Bool => built(
                numbers,
                BooleanBuilder::new(),
                |builder, number| builder.append_option(number.map(|one| one != 0)),
                |mut builder| Arc::new(builder.finish()),
            ),
            Kind::Float(_) => built(
                numbers,
                Float64Builder::new(),
                |builder, number| builder.append_option(number.map(to_float)),
                |mut builder| Arc::new(builder.finish()),
            ),
            Kind::Timestamp => built(
                numbers,
                TimestampMicrosecondBuilder::new().with_timezone("UTC"),
                |builder, number| builder.append_option(number),
                |mut builder| Arc::new(builder.finish()),
            ),
            Kind::Date => built(
                numbers,
                Date32Builder::new(),
                |builder, number| builder.append_option(number.map(|day| day as i32)),
                |mut builder| Arc::new(builder.finish()),
            ),
            _ => built(
                numbers,
                Int64Builder::new(),
                |builder, number| builder.append_option(number),
                |mut builder| Arc::new(builder.finish()),
            ),
        }
    }

    pub fn plain(&self, key: &Key) -> Plain {
        match (key, &self.column.kind) {
            (Key::Number(number), Kind::Bool) => Plain::Bool(*number != 0),
            (Key::Number(number), Kind::Float(_)) => Plain::Float(to_float(*number)),
            (Key::Number(number), _) => Plain::Int(*number),
            (Key::Bytes(_), _) => plain_value(&self.column, &*self.array(std::iter::once(Some(key))), 0),
        }
    }

    /// The keys of plain values that `plain` has returned.
    pub fn all_restored(&self, values: &[Plain]) -> Result<Vec<Key>, Failure> {
        let rows: Vec<Plain> = values.iter().map(|value| Plain::List(vec![value.clone()])).collect();
        let rows: Vec<&Plain> = rows.iter().collect();
        let columns = columns_of_plain(std::slice::from_ref(&self.column), &rows)?;
        let keys = self.keys(&columns[0]);
        (0..values.len())
            .map(|at| keys.get(at).ok_or_else(|| values[at].unexpected("a value")))
            .collect()
    }

    /// The float of a key of a column of floats.
    pub fn float(key: &Key) -> f64 {
        match key {
            Key::Number(number) => to_float(*number),
            Key::Bytes(_) => unreachable!("floats are numbers"),
        }
    }
}

fn built<B>(
    numbers: impl Iterator<Item = Option<i64>>,
    mut builder: B,
    append: impl Fn(&mut B, Option<i64>),
    finish: impl Fn(B) -> ArrayRef,
) -> ArrayRef {
    numbers.for_each(|number| append(&mut builder, number));
    finish(builder)
}

/// An integer whose order is that of floats, with NaN last.
fn of_float(value: f64) -> i64 {
    let bits = value.to_bits() as i64;
    bits ^ (((bits >> 63) as u64) >> 1) as i64
}

fn to_float(key: i64) -> f64 {
    f64::from_bits((key ^ (((key >> 63) as u64) >> 1) as i64) as u64)
}
