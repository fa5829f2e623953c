//! Values of rows between Python and columns. They have the forms of `lmerge/temporal/values.py`.

use std::sync::Arc;

use arrow_array::builder::{
    BinaryBuilder, BooleanBuilder, Date32Builder, Decimal128Builder, Float64Builder, Int64Builder, StringBuilder,
    TimestampMicrosecondBuilder,
};
use arrow_array::cast::AsArray;
use arrow_array::types::{Date32Type, Decimal128Type, Float64Type, Int64Type, TimestampMicrosecondType};
use arrow_array::{Array, ArrayRef, ListArray, StructArray};
use arrow_buffer::{NullBuffer, OffsetBuffer};
use lmerge_temporal::plain_rows::{canonical_float, parsed_decimal, shown_decimal};
use lmerge_temporal::{Column, Kind};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyString, PyTuple};

/// The columns of rows, each a tuple with a value for each column.
pub fn columns_of<'py>(columns: &[Column], rows: &[Bound<'py, PyTuple>]) -> PyResult<Vec<ArrayRef>> {
    let mut arrays = Vec::with_capacity(columns.len());
    let mut values = Vec::with_capacity(rows.len());
    for (at, column) in columns.iter().enumerate() {
        values.clear();
        for row in rows {
            values.push(row.get_item(at)?);
        }
        arrays.push(column_of(column, &values)?);
    }
    Ok(arrays)
}

pub fn column_of<'py>(column: &Column, values: &[Bound<'py, PyAny>]) -> PyResult<ArrayRef> {
    macro_rules! built {
        ($builder:expr, $value:ident => $converted:expr) => {{
            let mut builder = $builder;
            for $value in values {
                if $value.is_none() {
                    builder.append_null();
                } else {
                    builder.append_value($converted);
                }
            }
            Arc::new(builder.finish())
        }};
    }
    Ok(match &column.kind {
        Kind::Bool => built!(BooleanBuilder::with_capacity(values.len()), value => value.extract::<bool>()?),
        Kind::Int => built!(Int64Builder::with_capacity(values.len()), value => value.extract::<i64>()?),
        Kind::Float(_) => {
            built!(Float64Builder::with_capacity(values.len()), value => canonical_float(value.extract()?))
        }
        Kind::String => {
            built!(StringBuilder::with_capacity(values.len(), 0), value => {
                value.cast::<PyString>()?.to_cow()?
            })
        }
        Kind::Bytes => {
            built!(BinaryBuilder::with_capacity(values.len(), 0), value => value.cast::<PyBytes>()?.as_bytes())
        }
        Kind::Timestamp => {
            let builder = TimestampMicrosecondBuilder::with_capacity(values.len()).with_timezone("UTC");
            built!(builder, value => value.extract::<i64>()?)
        }
        Kind::Date => built!(Date32Builder::with_capacity(values.len()), value => value.extract::<i32>()?),
        Kind::Decimal(scale) => {
            let builder = Decimal128Builder::with_capacity(values.len()).with_data_type(column.data_type());
            built!(builder, value => {
                let text = value.str()?;
                let text = text.to_cow()?;
                let problem = || PyValueError::new_err(format!("{text:.64} is no decimal({scale})"));
                parsed_decimal(&text, *scale).ok_or_else(problem)?
            })
        }
        Kind::List(element) => {
            let (mut lengths, mut elements) = (Vec::with_capacity(values.len()), Vec::new());
            for value in values {
                if value.is_none() {
                    lengths.push(0);
                    continue;
                }
                let list = value.cast::<PyTuple>()?;
                lengths.push(list.len());
                elements.extend(list.iter());
            }
            let elements = column_of(element, &elements)?;
            let offsets = OffsetBuffer::from_lengths(lengths);
            Arc::new(ListArray::new(
                Arc::new(element.field()),
                offsets,
                elements,
                present(values),
            ))
        }
        Kind::Struct(fields) => {
            let py = values.first().map(Bound::py);
            let none = py
                .map(|py| PyTuple::new(py, fields.iter().map(|_| py.None())))
                .transpose()?;
            let row = |value: &Bound<'py, PyAny>| match &none {
                Some(none) if value.is_none() => Ok(none.clone()),
                _ => Ok::<_, PyErr>(value.cast::<PyTuple>()?.clone()),
            };
            let rows = values.iter().map(row).collect::<PyResult<Vec<_>>>()?;
            let arrays = columns_of(fields, &rows)?;
            let fields = fields.iter().map(Column::field).collect();
            Arc::new(StructArray::new(fields, arrays, present(values)))
        }
    })
}

fn present(values: &[Bound<'_, PyAny>]) -> Option<NullBuffer> {
    let nulls: NullBuffer = values.iter().map(|value| !value.is_none()).collect();
    (nulls.null_count() > 0).then_some(nulls)
}

/// The rows of columns as tuples.
pub fn rows_of<'py>(
    py: Python<'py>,
    columns: &[Column],
    arrays: &[ArrayRef],
    count: usize,
) -> PyResult<Vec<Bound<'py, PyTuple>>> {
    let values = columns
        .iter()
        .zip(arrays)
        .map(|(column, array)| values_of(py, column, &**array));
    let mut values: Vec<_> = values
        .map(|values| values.map(Vec::into_iter))
        .collect::<PyResult<_>>()?;
    let mut row = || {
        PyTuple::new(
            py,
            values
                .iter_mut()
                .map(|column| column.next().expect("one for each row"))
                .collect::<Vec<_>>(),
        )
    };
    (0..count).map(|_| row()).collect()
}

/// The values of a column.
pub fn values_of<'py>(py: Python<'py>, column: &Column, array: &dyn Array) -> PyResult<Vec<Bound<'py, PyAny>>> {
    macro_rules! values {
        ($at:ident => $value:expr) => {
            (0..array.len())
                .map(|$at| {
                    if array.is_null($at) {
                        Ok(py.None().into_bound(py))
                    } else {
                        $value
                    }
                })
                .collect()
        };
    }
    macro_rules! plain {
        ($typed:expr) => {{
            let typed = $typed;
            values!(at => Ok(typed.value(at).into_pyobject(py)?.to_owned().into_any()))
        }};
    }
    match &column.kind {
        Kind::Bool => plain!(array.as_boolean()),
        Kind::Int => plain!(array.as_primitive::<Int64Type>()),
        Kind::Float(_) => {
            let typed = array.as_primitive::<Float64Type>();
            let nan = nan(py)?;
            values!(at => {
                let value = typed.value(at);
                Ok(if value.is_nan() { nan.clone() } else { value.into_pyobject(py)?.into_any() })
            })
        }
        Kind::String => plain!(array.as_string::<i32>()),
        Kind::Bytes => {
            let typed = array.as_binary::<i32>();
            values!(at => Ok(PyBytes::new(py, typed.value(at)).into_any()))
        }
        Kind::Timestamp => plain!(array.as_primitive::<TimestampMicrosecondType>()),
        Kind::Date => plain!(array.as_primitive::<Date32Type>()),
        Kind::Decimal(scale) => {
            let typed = array.as_primitive::<Decimal128Type>();
            let decimal = decimal(py)?;
            values!(at => decimal.call1((shown_decimal(typed.value(at), *scale),)))
        }
        Kind::List(element) => {
            let lists = array.as_list::<i32>();
            values!(at => {
                let values = values_of(py, element, &*lists.value(at))?;
                Ok(PyTuple::new(py, values)?.into_any())
            })
        }
        Kind::Struct(fields) => {
            let rows = rows_of(py, fields, array.as_struct().columns(), array.len())?;
            values!(at => Ok(rows[at].clone().into_any()))
        }
    }
}

/// The object that every NaN is: equal rows are equal tuples.
pub fn nan<'py>(py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
    static NAN: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let made = || Ok::<_, PyErr>(py.import("lmerge.temporal.values")?.getattr("NAN")?.unbind());
    Ok(NAN.get_or_try_init(py, made)?.bind(py).clone())
}

pub fn decimal<'py>(py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
    static DECIMAL: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let made = || Ok::<_, PyErr>(py.import("decimal")?.getattr("Decimal")?.unbind());
    Ok(DECIMAL.get_or_try_init(py, made)?.bind(py).clone())
}
