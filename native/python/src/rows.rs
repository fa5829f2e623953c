//! Rows between Arrow's C data interface and payloads.

use arrow_array::ffi::{FFI_ArrowArray, FFI_ArrowSchema, from_ffi, to_ffi};
use arrow_array::{Array, StructArray};
use lmerge_core::element::STABLE;
use lmerge_rows::schema::{Column, Schema};
use pyo3::exceptions::{PyNotImplementedError, PyValueError};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyBytes, PyCapsule, PyList};

use crate::columns::Columns;
use crate::core::guarded;

/// name, type, nullable, `round_digits`, scale, children: a `Column` of `lmerge/wire/schema.py`.
type Declared<'py> = (String, String, bool, Option<i32>, u8, Vec<Bound<'py, PyAny>>);

/// The rows of one schema. A method returns None for data that it refuses.
#[pyclass(frozen, module = "lmerge._native")]
pub struct Rows(Schema);

#[pymethods]
impl Rows {
    #[new]
    fn new(columns: Vec<Bound<'_, PyAny>>) -> PyResult<Rows> {
        let columns: PyResult<_> = columns.iter().map(column_of).collect();
        Ok(Rows(Schema { columns: columns? }))
    }

    fn inserts(
        &self,
        py: Python<'_>,
        batches: Vec<Bound<'_, PyAny>>,
        vs: &str,
        ve: Option<&str>,
    ) -> PyResult<Option<Columns>> {
        let Some(batches) = imported(&batches)? else {
            return Ok(None);
        };
        let schema = &self.0;
        let columns = guarded(py, move || schema.inserts(&structs(batches)?, vs, ve))?;
        Ok(columns.map(Columns::written))
    }

    fn payloads<'py>(&self, py: Python<'py>, batches: Vec<Bound<'py, PyAny>>) -> PyResult<Option<Bound<'py, PyList>>> {
        let Some(batches) = imported(&batches)? else {
            return Ok(None);
        };
        let schema = &self.0;
        let Some(payloads) = guarded(py, move || schema.payloads(&structs(batches)?, &[]))? else {
            return Ok(None);
        };
        let list = PyList::empty(py);
        payloads
            .iter()
            .try_for_each(|payload| list.append(PyBytes::new(py, payload)))?;
        Ok(Some(list))
    }

    /// The first insert or adjust from `start` on whose payload is not certainly a row.
    fn first_doubt(&self, py: Python<'_>, columns: &Columns, start: usize) -> PyResult<Option<usize>> {
        let schema = &self.0;
        guarded(py, move || {
            let view = columns.view();
            (start..view.len()).find(|&at| view.kind(at) != STABLE && !schema.takes(view.payload(at)))
        })
    }

    fn decode(&self, py: Python<'_>, payloads: &Bound<'_, PyAny>) -> PyResult<Option<ArrowBatch>> {
        let schema = &self.0;
        let decoded = if let Ok(columns) = payloads.cast::<Columns>() {
            let columns = columns.get();
            guarded(py, move || {
                let view = columns.view();
                schema.decode((0..view.len()).map(|at| view.payload(at)))
            })?
        } else {
            let payloads: Vec<PyBackedBytes> = payloads.extract()?;
            let payloads = &payloads;
            guarded(py, move || schema.decode(payloads.iter().map(|payload| &**payload)))?
        };
        Ok(decoded.map(ArrowBatch))
    }
}

/// A record batch, for any library with the Arrow PyCapsule interface.
#[pyclass(frozen, module = "lmerge._native")]
pub struct ArrowBatch(pub StructArray);

#[pymethods]
impl ArrowBatch {
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_array__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<(Bound<'py, PyCapsule>, Bound<'py, PyCapsule>)> {
        let _ = requested_schema; // the interface requires only best effort
        let exported = to_ffi(&self.0.to_data());
        let (array, schema) = exported.map_err(|problem| PyValueError::new_err(problem.to_string()))?;
        Ok((
            PyCapsule::new(py, schema, Some(c"arrow_schema".to_owned()))?,
            PyCapsule::new(py, array, Some(c"arrow_array".to_owned()))?,
        ))
    }
}

pub fn column_of(declared: &Bound<'_, PyAny>) -> PyResult<Column> {
    let (name, type_name, nullable, round_digits, scale, children): Declared<'_> = declared.extract()?;
    let children: PyResult<_> = children.iter().map(column_of).collect();
    let unknown = || PyValueError::new_err(format!("column {name:?}: no such type: {type_name}"));
    Column::parse(name.clone(), &type_name, nullable, round_digits, scale, children?).ok_or_else(unknown)
}

/// A batch as the interface exports it.
pub type Imported = (FFI_ArrowArray, FFI_ArrowSchema);

/// Import the batches. None if one has a type that its library does not export.
pub fn imported(batches: &[Bound<'_, PyAny>]) -> PyResult<Option<Vec<Imported>>> {
    let mut taken = Vec::with_capacity(batches.len());
    for batch in batches {
        let capsules = match batch.call_method0("__arrow_c_array__") {
            Err(problem) if problem.is_instance_of::<PyNotImplementedError>(batch.py()) => return Ok(None),
            capsules => capsules?,
        };
        let (schema, array): (Bound<'_, PyAny>, Bound<'_, PyAny>) = capsules.extract()?;
        let schema = schema.cast::<PyCapsule>()?.pointer_checked(Some(c"arrow_schema"))?;
        let array = array.cast::<PyCapsule>()?.pointer_checked(Some(c"arrow_array"))?;
        // SAFETY: capsules of these names hold these structs (the Arrow PyCapsule interface), and no other code has
        // them: they have just been made. Moved structs are marked as released, so the capsules do not free them.
        taken.push(unsafe {
            (
                FFI_ArrowArray::from_raw(array.as_ptr().cast()),
                FFI_ArrowSchema::from_raw(schema.as_ptr().cast()),
            )
        });
    }
    Ok(Some(taken))
}

/// The batches. None if one has a type that Rust's Arrow does not support.
pub fn structs(batches: Vec<Imported>) -> Option<Vec<StructArray>> {
    let of = |(array, schema): Imported| {
        // SAFETY: the array and its schema were exported together, by a library that keeps the C data interface.
        let mut data = unsafe { from_ffi(array, &schema) }.ok()?;
        data.align_buffers();
        matches!(data.data_type(), arrow_schema::DataType::Struct(_)).then(|| StructArray::from(data))
    };
    batches.into_iter().map(of).collect()
}
