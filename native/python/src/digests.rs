//! The digests of one input.

use lmerge_core::digests as core;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::columns::Columns;
use crate::core::guarded_for;

/// (interval, events, their sum, starts, their sum)
type Row = (i64, i64, u128, i64, u128);

/// The index of the offender, if there is one, and the first and last interval that was changed.
type AddOutcome = (Option<usize>, Option<(i64, i64)>);

/// Counts and sums of one input's events, by interval. One thread at a time.
#[pyclass(module = "lmerge._native")]
pub struct Digests(core::Digests);

#[pymethods]
impl Digests {
    #[classattr]
    const HASH: &'static str = core::HASH;

    #[new]
    fn new(interval: i64, starts: bool, open_max: usize) -> PyResult<Digests> {
        if interval < 1 {
            return Err(PyValueError::new_err(format!("an interval of {interval}")));
        }
        Ok(Digests(core::Digests::new(interval, starts, open_max)))
    }

    #[getter]
    fn stable_point(&self) -> i64 {
        self.0.stable_point()
    }

    #[getter]
    fn overflowed(&self) -> bool {
        self.0.overflowed()
    }

    #[getter]
    fn open(&mut self) -> usize {
        self.0.open()
    }

    fn add(&mut self, py: Python<'_>, columns: &Columns, stop: usize) -> PyResult<AddOutcome> {
        let digests = &mut self.0;
        let outcome = guarded_for(py, stop, move || digests.add(&columns.view(), stop))?;
        Ok((outcome.offender, outcome.touched))
    }

    fn take_below(&mut self, bound: Option<i64>) -> Vec<Row> {
        let rows = self.0.take_below(bound).into_iter();
        rows.map(|(index, ends, starts)| (index, ends.count, ends.sum, starts.count, starts.sum))
            .collect()
    }
}
