//! The live events of one stream, for publishers and subscribers.

use lmerge_core::columns;
use lmerge_core::element::{INF, NEG_INF};
use lmerge_core::tdb;
use pyo3::prelude::*;

use crate::columns::Columns;
use crate::core::{Violation, guarded, guarded_for};

/// A TDB that drops fully frozen events. One thread at a time.
#[pyclass(module = "lmerge._native")]
pub struct Tdb(tdb::Tdb);

#[pymethods]
impl Tdb {
    #[new]
    #[pyo3(signature = (stable_point=NEG_INF, trimmed=INF))]
    fn new(stable_point: i64, trimmed: i64) -> Tdb {
        Tdb(tdb::Tdb::new(stable_point, trimmed))
    }

    #[getter]
    fn stable_point(&self) -> i64 {
        self.0.stable_point()
    }

    #[getter]
    fn trimmed(&self) -> i64 {
        self.0.trimmed()
    }

    #[getter]
    fn memory(&self) -> (usize, usize) {
        self.0.memory()
    }

    fn __len__(&mut self) -> usize {
        self.0.settle();
        self.0.len()
    }

    #[getter]
    fn at_most(&self) -> usize {
        self.0.at_most()
    }

    fn apply(&mut self, py: Python<'_>, columns: &Columns) -> PyResult<Option<Violation>> {
        let (tdb, batch) = (&mut self.0, Box::new(columns.kept()));
        let result = guarded_for(py, columns.view().len(), move || tdb.receive(batch))?;
        Ok(result.err().map(|violation| Violation(*violation)))
    }

    fn apply_row(&mut self, kind: u8, vs: i64, ve: i64, vold: i64, payload: &[u8]) -> Option<Violation> {
        let mut one = columns::Columns::default();
        one.push(kind, vs, ve, vold, payload);
        self.0
            .apply(&one.view(), 0)
            .err()
            .map(|violation| Violation(*violation))
    }

    fn enter(&mut self, vs: i64, payload: &[u8], ve: i64) {
        self.0.enter(vs, payload, ve);
    }

    fn trim(&mut self, py: Python<'_>, stable_point: i64) -> PyResult<()> {
        let tdb = &mut self.0;
        guarded(py, move || tdb.trim(stable_point))
    }

    fn prelude(&mut self, py: Python<'_>) -> PyResult<Columns> {
        let tdb = &mut self.0;
        Ok(Columns::written(guarded(py, move || tdb.prelude())?))
    }

    fn live_events(&mut self, py: Python<'_>) -> PyResult<Columns> {
        let tdb = &mut self.0;
        Ok(Columns::written(guarded(py, move || tdb.live_events())?))
    }

    fn live_ends(&mut self, vs: i64, payload: &[u8]) -> Vec<i64> {
        self.0.live_ends(vs, payload)
    }

    fn check(&self, py: Python<'_>) -> PyResult<()> {
        let tdb = &self.0;
        guarded(py, move || tdb.check())
    }
}
