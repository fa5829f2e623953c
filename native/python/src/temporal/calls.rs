//! Calls of users' functions for columns: `ColumnCaller` in `lmerge/temporal/expressions/calling.py` makes them.
//!
//! A function of lists gets the values of each argument as a list, and its results become a column at once where they
//! have exactly the declared type. Others are converted, and refused, by Python. A function of arrays gets the columns as
//! they are.

use std::sync::Arc;

use arrow_array::builder::{BinaryBuilder, BooleanBuilder, Float64Builder, Int64Builder, StringBuilder};
use arrow_array::cast::AsArray;
use arrow_array::types::Float64Type;
use arrow_array::{Array, ArrayRef, Float64Array, RecordBatch, StructArray};
use arrow_schema::{Field, Schema};
use lmerge_temporal::expressions::CallFailure;
use lmerge_temporal::failure::Failure;
use lmerge_temporal::plain_rows::canonical_float;
use lmerge_temporal::{Column, Kind};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyFloat, PyInt, PyList, PyString};

use super::values::{column_of, values_of};
use crate::rows::{ArrowBatch, imported, structs};

/// A user's function at one place of an expression.
#[derive(Debug)]
pub struct UserFunction {
    caller: Py<PyAny>,
    arguments: Vec<Column>,
    result: Column,
    takes_arrow: bool,
}

impl UserFunction {
    /// `result`: the type of the call. The function itself may have to return a value where the call can be NULL.
    pub fn new(caller: Bound<'_, PyAny>, arguments: Vec<Column>, result: Column) -> PyResult<UserFunction> {
        let nullable = caller.getattr("can_return_none")?.extract()?;
        Ok(UserFunction {
            takes_arrow: caller.getattr("takes_arrow")?.extract()?,
            caller: caller.unbind(),
            arguments,
            result: Column { nullable, ..result },
        })
    }

    /// The results for `len` rows.
    pub fn results(&self, py: Python<'_>, arguments: &[ArrayRef], len: usize) -> Result<ArrayRef, CallFailure> {
        self.column(py, arguments, len).map_err(|error| {
            let index = error
                .value(py)
                .getattr("index")
                .and_then(|index| index.extract::<Option<usize>>());
            CallFailure {
                row: index.ok().flatten().unwrap_or(0),
                failure: Failure::Python(Box::new(error)),
            }
        })
    }

    fn column(&self, py: Python<'_>, arguments: &[ArrayRef], len: usize) -> PyResult<ArrayRef> {
        let caller = self.caller.bind(py);
        let results = if self.takes_arrow {
            caller.call_method1("results_of_arrow", (self.batch(arguments)?, len))?
        } else {
            let columns = self.arguments.iter().zip(arguments);
            let lists = columns.map(|(column, array)| PyList::new(py, values_of(py, column, &**array)?));
            caller.call_method1("results", (lists.collect::<PyResult<Vec<_>>>()?, len))?
        };
        let Ok(results) = results.cast::<PyList>() else {
            return self.imported(results);
        };
        if let Some(column) = exact_column(&self.result, results)? {
            return Ok(column);
        }
        let canonical = caller.call_method1("canonical", (results,))?;
        column_of(&self.result, &canonical.cast::<PyList>()?.iter().collect::<Vec<_>>())
    }

    /// The arguments as a batch of Arrow.
    fn batch(&self, arguments: &[ArrayRef]) -> PyResult<ArrowBatch> {
        let fields = self.arguments.iter().enumerate();
        let fields = fields.map(|(at, column)| Field::new(at.to_string(), column.data_type(), true));
        let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        let batch = RecordBatch::try_new(schema, arguments.to_vec());
        let batch = batch.map_err(|problem| PyValueError::new_err(problem.to_string()))?;
        Ok(ArrowBatch(StructArray::from(batch)))
    }

    /// The only column of a batch of Arrow, with canonical floats.
    fn imported(&self, batch: Bound<'_, PyAny>) -> PyResult<ArrayRef> {
        let unsupported = || PyTypeError::new_err("a user's function returned an array of another type");
        let batches = imported(&[batch])?.and_then(structs).ok_or_else(unsupported)?;
        let column = batches[0].columns().first().ok_or_else(unsupported)?;
        if *column.data_type() != self.result.data_type() {
            return Err(unsupported());
        }
        Ok(match self.result.kind {
            Kind::Float(_) => canonical_floats(column),
            _ => column.clone(),
        })
    }
}

/// Floats of which each is canonical. Most are, so they are looked at before they are copied.
fn canonical_floats(column: &ArrayRef) -> ArrayRef {
    let floats = column.as_primitive::<Float64Type>();
    let is_other = |value: f64| canonical_float(value).to_bits() != value.to_bits();
    if !floats.values().iter().fold(false, |any, &value| any | is_other(value)) {
        return column.clone();
    }
    let values = floats.values().iter().map(|&value| canonical_float(value)).collect();
    Arc::new(Float64Array::new(values, floats.nulls().cloned()))
}

/// Results as a column, or None if one of them does not have exactly the type, or needs a conversion.
fn exact_column(column: &Column, results: &Bound<'_, PyList>) -> PyResult<Option<ArrayRef>> {
    macro_rules! built {
        ($builder:expr, $exact:ty, $value:ident => $converted:expr) => {{
            let mut builder = $builder;
            for value in results.iter() {
                match value.cast_exact::<$exact>() {
                    Ok($value) => match $converted {
                        Some(converted) => builder.append_value(converted),
                        None => return Ok(None),
                    },
                    Err(_) if column.nullable && value.is_none() => builder.append_null(),
                    Err(_) => return Ok(None),
                }
            }
            Some(Arc::new(builder.finish()) as ArrayRef)
        }};
    }
    let count = results.len();
    Ok(match &column.kind {
        Kind::Int => built!(Int64Builder::with_capacity(count), PyInt, value => value.extract::<i64>().ok()),
        Kind::Float(None) => {
            built!(Float64Builder::with_capacity(count), PyFloat, value => Some(canonical_float(value.value())))
        }
        Kind::Bool => built!(BooleanBuilder::with_capacity(count), PyBool, value => Some(value.is_true())),
        Kind::String => built!(StringBuilder::with_capacity(count, 0), PyString, value => value.to_cow().ok()),
        Kind::Bytes => {
            built!(BinaryBuilder::with_capacity(count, 0), PyBytes, value => Some(value.as_bytes()))
        }
        _ => None,
    })
}
