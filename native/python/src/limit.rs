//! The limit for Python's benchmark.

use lmerge_core::limit as core;
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
