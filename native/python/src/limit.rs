//! The limits for Python's benchmarks.

use lmerge_core::limit as core;
use lmerge_temporal::limit as temporal;
use pyo3::prelude::*;

use crate::columns::Columns;
use crate::core::guarded;

/// One hash-table probe per element.
#[pyclass(module = "lmerge._native")]
pub struct Limit(core::Limit);

#[pymethods]
impl Limit {
    #[new]
    fn new() -> Limit {
        Limit(core::Limit::default())
    }

    fn apply(&mut self, py: Python<'_>, columns: &Columns) -> PyResult<usize> {
        let limit = &mut self.0;
        guarded(py, move || limit.apply(&columns.view()))
    }
}

/// One hash-table probe and one addition per key.
#[pyclass(module = "lmerge._native")]
pub struct CountLimit(temporal::CountLimit);

#[pymethods]
impl CountLimit {
    #[new]
    fn new() -> CountLimit {
        CountLimit(temporal::CountLimit::default())
    }

    /// Count keys: 64-bit integers in native order.
    fn apply(&mut self, py: Python<'_>, keys: &[u8]) -> PyResult<usize> {
        let limit = &mut self.0;
        guarded(py, move || {
            limit.apply(keys.as_chunks::<8>().0.iter().map(|key| i64::from_ne_bytes(*key)))
        })
    }
}
