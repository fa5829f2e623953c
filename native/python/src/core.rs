//! One running merge.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use lmerge_core::input::Demands;
use lmerge_core::merge::Kind;
use lmerge_core::policy::{Closing, Leader, Policy, Show};
use lmerge_core::sharded::{SHARDS_MAX, Sharded};
use lmerge_core::violation;
use pyo3::exceptions::{PyAssertionError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyTuple};

use crate::columns::Columns;
use crate::state::{parse_input, parse_live, parse_state};

/// A broken promise, as numbers.
#[pyclass(frozen, module = "lmerge._native")]
pub struct Violation(pub violation::Violation);

#[pymethods]
impl Violation {
    #[getter]
    fn code(&self) -> &'static str {
        self.0.code.name()
    }

    #[getter]
    fn slot(&self) -> usize {
        self.0.slot
    }

    #[getter]
    fn index(&self) -> usize {
        self.0.index
    }

    #[getter]
    fn row<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let element = &self.0.element;
        let payload = PyBytes::new(py, &element.payload);
        (element.kind, element.vs, element.ve, element.vold, payload).into_pyobject(py)
    }

    #[getter]
    fn detail(&self) -> i64 {
        self.0.detail
    }

    #[getter]
    fn strictly(&self) -> bool {
        self.0.strictly
    }

    #[getter]
    fn ends(&self) -> Option<Vec<i64>> {
        self.0.ends.clone()
    }
}

/// A merge by slot numbers. One thread at a time.
#[pyclass(module = "lmerge._native")]
pub struct Core(Sharded);

impl Core {
    /// Run `work` without the GIL. A panic becomes an AssertionError.
    fn run<T: Send>(&mut self, py: Python<'_>, work: impl FnOnce(&mut Sharded) -> T + Send) -> PyResult<T> {
        let merge = &mut self.0;
        guarded(py, move || work(merge))
    }

    fn ask<T: Send>(&self, py: Python<'_>, work: impl FnOnce(&Sharded) -> T + Send) -> PyResult<T> {
        let merge = &self.0;
        guarded(py, move || work(merge))
    }
}

/// A batch of fewer elements keeps the GIL: it takes some microseconds, and a thread that waits for the GIL would take it
/// meanwhile, which costs both a switch of threads.
const WITHOUT_GIL_MIN: usize = 4_096;

/// Run `work` without the GIL. A panic is a bug of the core; it becomes an AssertionError.
pub fn guarded<T: Send>(py: Python<'_>, work: impl FnOnce() -> T + Send) -> PyResult<T> {
    py.detach(|| catch_unwind(AssertUnwindSafe(work))).map_err(failed)
}

/// Run `work` on so many elements, without the GIL if they are many.
pub fn guarded_for<T: Send>(py: Python<'_>, elements: usize, work: impl FnOnce() -> T + Send) -> PyResult<T> {
    if elements >= WITHOUT_GIL_MIN {
        return guarded(py, work);
    }
    catch_unwind(AssertUnwindSafe(work)).map_err(failed)
}

fn failed(panic: Box<dyn Any + Send>) -> PyErr {
    let text = panic.downcast_ref::<String>().cloned();
    let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_string()));
    PyAssertionError::new_err(text.unwrap_or_else(|| "the native core failed".to_string()))
}

#[pymethods]
impl Core {
    #[new]
    #[pyo3(signature = (algorithm, show, reflects_adjusts, quorum, quorum_percent, leader, lag, closing, track_live, shards=1, lead_max=None))]
    #[expect(clippy::too_many_arguments, reason = "the settings of a merge")]
    fn new(
        algorithm: &str,
        show: &str,
        reflects_adjusts: bool,
        quorum: usize,
        quorum_percent: usize,
        leader: &str,
        lag: i64,
        closing: usize,
        track_live: bool,
        shards: usize,
        lead_max: Option<i64>,
    ) -> PyResult<Core> {
        if !(1..=SHARDS_MAX).contains(&shards) {
            return Err(PyValueError::new_err(format!(
                "{shards} shards; there can be 1 to {SHARDS_MAX}"
            )));
        }
        let show = match show {
            "first" => Show::First,
            "quorum" => Show::Quorum,
            "leading" => Show::Leading,
            "half-frozen" => Show::HalfFrozen,
            "final" => Show::Final,
            _ => return Err(PyValueError::new_err(format!("unknown show {show:?}"))),
        };
        let leader = match leader {
            "furthest-stable" => Leader::Stable,
            "highest-insert" => Leader::Insert,
            "most-unfrozen" => Leader::Unfrozen,
            _ => return Err(PyValueError::new_err(format!("unknown leader {leader:?}"))),
        };
        let policy = Policy {
            show,
            reflects_adjusts,
            quorum,
            lag,
            quorum_percent,
            leader,
            lead_max,
        };
        let closing = Closing((closing > 0).then_some(closing));
        Ok(Core(Sharded::new(
            kind(algorithm)?,
            policy,
            closing,
            track_live,
            shards,
        )))
    }

    /// Keep what inputs deliver under R0-R2. To be called before an input attaches.
    fn keep_delivered(&mut self, py: Python<'_>) -> PyResult<()> {
        self.run(py, Sharded::keep_delivered)
    }

    #[getter]
    fn algorithm(&self) -> &'static str {
        self.0.kind().name()
    }

    #[getter]
    fn max_stable(&self) -> i64 {
        self.0.max_stable()
    }

    #[getter]
    fn announced(&self) -> i64 {
        self.0.announced()
    }

    #[getter]
    fn node_count(&self) -> usize {
        self.0.node_count()
    }

    #[getter]
    fn live_count(&self) -> Option<usize> {
        self.0.live_count()
    }

    #[getter]
    fn visits(&self) -> u64 {
        self.0.visits()
    }

    #[getter]
    fn memory(&self) -> (usize, usize) {
        self.0.memory()
    }

    #[getter]
    fn changes(&self) -> usize {
        self.0.changes()
    }

    #[expect(clippy::too_many_arguments, reason = "the properties of an input")]
    fn attach(
        &mut self,
        py: Python<'_>,
        slot: usize,
        place: usize,
        demands: u32,
        join_at: Option<i64>,
        observes: bool,
        joined: bool,
    ) -> PyResult<()> {
        self.run(py, |merge| {
            merge.attach(slot, place, Demands::from_bits(demands), join_at, observes, joined)
        })
    }

    fn free_slot(&mut self, py: Python<'_>) -> PyResult<usize> {
        self.run(py, Sharded::free_slot)
    }

    #[getter]
    fn swept(&self) -> u64 {
        self.0.swept()
    }

    fn demand(&mut self, py: Python<'_>, slot: usize, demands: u32) -> PyResult<()> {
        self.run(py, |merge| merge.demand(slot, Demands::from_bits(demands)))
    }

    fn remove(&mut self, py: Python<'_>, slot: usize) -> PyResult<()> {
        self.run(py, |merge| merge.remove(slot))
    }

    fn after_detach(&mut self, py: Python<'_>) -> PyResult<()> {
        self.run(py, Sharded::after_detach)
    }

    fn admit(&mut self, py: Python<'_>, slot: usize) -> PyResult<()> {
        self.run(py, |merge| merge.admit(slot))
    }

    fn excuse(&mut self, py: Python<'_>, slot: usize) -> PyResult<()> {
        self.run(py, |merge| merge.excuse(slot))
    }

    fn apply(&mut self, py: Python<'_>, slot: usize, columns: &Columns, start: usize) -> PyResult<Option<Violation>> {
        let result = self.run(py, |merge| merge.apply(slot, &columns.view(), start))?;
        Ok(result.err().map(|violation| Violation(*violation)))
    }

    fn switch(&mut self, py: Python<'_>, algorithm: &str, started: bool) -> PyResult<()> {
        let kind = kind(algorithm)?;
        self.run(py, |merge| merge.switch(kind, started))
    }

    fn repeats_a_key(&self, py: Python<'_>) -> PyResult<bool> {
        self.ask(py, Sharded::repeats_a_key)
    }

    fn take(&mut self, py: Python<'_>) -> PyResult<(Columns, Vec<usize>, Vec<Violation>)> {
        let taken = self.run(py, Sharded::take)?;
        Ok((
            Columns::written(taken.batch),
            taken.joined,
            taken.broken.into_iter().map(Violation).collect(),
        ))
    }

    fn input(&self, py: Python<'_>, slot: usize) -> PyResult<(bool, i64, Option<i64>, usize, u64)> {
        self.ask(py, |merge| merge.input(slot))
    }

    fn live_events(&self, py: Python<'_>) -> PyResult<Option<Columns>> {
        Ok(self.ask(py, Sharded::live_events)?.map(Columns::written))
    }

    fn supporters(&self, py: Python<'_>, columns: &Columns) -> PyResult<Vec<u32>> {
        self.ask(py, |merge| merge.supporters(&columns.view()))
    }

    fn check(&self, py: Python<'_>) -> PyResult<()> {
        self.ask(py, Sharded::check)
    }

    #[pyo3(signature = (with_nodes=true))]
    fn state<'py>(&self, py: Python<'py>, with_nodes: bool) -> PyResult<Bound<'py, PyDict>> {
        fields(py, self.ask(py, |merge| merge.state(with_nodes))?)
    }

    fn node_block<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyBytes>>> {
        Ok(self.ask(py, Sharded::node_block)?.map(|block| PyBytes::new(py, &block)))
    }

    fn live_state<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyBytes>>> {
        Ok(self
            .ask(py, Sharded::live_state)?
            .map(|text| PyBytes::new(py, text.as_bytes())))
    }

    fn input_state<'py>(&self, py: Python<'py>, slot: usize) -> PyResult<Bound<'py, PyDict>> {
        fields(py, self.ask(py, |merge| merge.input_state(slot))?)
    }

    fn load(&mut self, py: Python<'_>, state: &Bound<'_, PyDict>, live: Option<&Bound<'_, PyList>>) -> PyResult<()> {
        let (times, state) = parse_state(self.0.kind(), state)?;
        let live = live.map(parse_live).transpose()?;
        self.run(py, |merge| merge.load(times, state, live))?
            .map_err(PyValueError::new_err)
    }

    #[pyo3(signature = (slot, fields, excused=false))]
    fn load_input(&mut self, py: Python<'_>, slot: usize, fields: &Bound<'_, PyDict>, excused: bool) -> PyResult<()> {
        let state = parse_input(fields)?;
        self.run(py, |merge| merge.load_input(slot, &state, excused))
    }
}

fn kind(name: &str) -> PyResult<Kind> {
    Kind::parse(name).ok_or_else(|| PyValueError::new_err(format!("unknown algorithm {name:?}")))
}

fn fields<'py>(py: Python<'py>, fields: Vec<(&'static str, String)>) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    for (name, text) in fields {
        dict.set_item(name, PyBytes::new(py, text.as_bytes()))?;
    }
    Ok(dict)
}
