//! Where streams enter plans as columns, for Python.

use std::sync::{Mutex, MutexGuard, PoisonError};

use lmerge_temporal::batch::Batch;
use lmerge_temporal::entrance::{LatePolicy, ProgressRule, Promises, StreamEntrance};
use lmerge_temporal::failure::Failure;
use lmerge_temporal::packed::{packed, unpacked};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyBytes;

use super::batch::{ColumnBatch, ColumnForm};
use super::failure::raised;
use super::plain::{object_of, plain_of};
use crate::core::guarded;

/// The entrance of a stream. One thread at a time uses it; others wait.
#[pyclass(frozen, module = "lmerge._native")]
pub struct ColumnEntrance(Mutex<StreamEntrance>);

#[pymethods]
impl ColumnEntrance {
    /// `rule`: delay, every and events; `promises`: names of properties, closed.
    #[new]
    fn new(
        name: &Bound<'_, PyAny>,
        form: &ColumnForm,
        rule: Option<(i64, i64, i64)>,
        late: &str,
        has_points: bool,
        promises: Vec<String>,
    ) -> PyResult<ColumnEntrance> {
        let late = match late {
            "drop" => LatePolicy::Drop,
            "move" => LatePolicy::Move,
            "fail" => LatePolicy::Fail,
            other => return Err(PyValueError::new_err(format!("there is no policy {other:?}"))),
        };
        let promised = |property: &str| promises.iter().any(|promise| promise == property);
        let promises = Promises {
            has_points,
            insert_only: promised("insert-only"),
            ordered: promised("ordered"),
            strictly_ordered: promised("strictly-ordered"),
            key: promised("key"),
        };
        let rule = rule.map(|(delay, every, events)| ProgressRule { delay, every, events });
        let (shown, name) = (name.repr()?.to_string(), name.extract::<String>()?);
        let entrance = StreamEntrance::new(&name, &shown, form.0.clone(), rule, late, promises);
        Ok(ColumnEntrance(Mutex::new(entrance)))
    }

    fn take(&self, py: Python<'_>, changes: &ColumnBatch, stables: Vec<(usize, i64)>) -> PyResult<Vec<ColumnBatch>> {
        let input = &changes.0;
        self.batches(py, |entrance| entrance.take(input, &stables))
    }

    fn advance(&self, py: Python<'_>, latest: i64) -> PyResult<Vec<ColumnBatch>> {
        self.batches(py, |entrance| entrance.advance(latest))
    }

    #[getter]
    fn mark(&self) -> i64 {
        self.entrance().watermark()
    }

    #[getter]
    fn stable(&self) -> i64 {
        self.entrance().live.stable
    }

    /// How many changes were dropped and moved.
    #[getter]
    fn late(&self) -> (u64, u64) {
        let entrance = self.entrance();
        (entrance.dropped, entrance.moved)
    }

    /// The number of live events.
    fn live(&self) -> usize {
        self.entrance().live.len()
    }

    /// The live events as inserts.
    fn events(&self, py: Python<'_>) -> PyResult<ColumnBatch> {
        guarded(py, || ColumnBatch(self.entrance().live.events()))
    }

    fn state<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let state = guarded(py, || self.entrance().state())?;
        object_of(py, &state)
    }

    /// The state as MessagePack.
    fn packed_state<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let state = guarded(py, || packed(&self.entrance().state()))?;
        state
            .map(|bytes| PyBytes::new(py, &bytes))
            .map_err(|failure| raised(py, failure))
    }

    /// Take the state of `packed_state`.
    fn restore_packed(&self, py: Python<'_>, state: PyBackedBytes) -> PyResult<()> {
        let restored = guarded(py, move || self.entrance().restore(&unpacked(&state)?))?;
        restored.map_err(|failure| raised(py, failure))
    }

    fn restore(&self, py: Python<'_>, state: &Bound<'_, PyAny>) -> PyResult<()> {
        let state = plain_of(state)?;
        let restored = guarded(py, || self.entrance().restore(&state))?;
        restored.map_err(|failure| raised(py, failure))
    }

    fn check(&self, py: Python<'_>) -> PyResult<()> {
        guarded(py, || self.entrance().check())
    }
}

impl ColumnEntrance {
    /// One that has failed is not asked again; a check of it can still be worth something.
    fn entrance(&self) -> MutexGuard<'_, StreamEntrance> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn batches(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&mut StreamEntrance) -> Result<Vec<Batch>, Failure> + Send,
    ) -> PyResult<Vec<ColumnBatch>> {
        let found = guarded(py, || work(&mut self.entrance()))?;
        let batches = found.map_err(|failure| raised(py, failure))?;
        Ok(batches.into_iter().map(ColumnBatch).collect())
    }
}
