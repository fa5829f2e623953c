//! Batches: the received bytes of the wire, or columns that the core wrote.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use lmerge_core::columns as core;
use lmerge_core::columns::{Limits, Raw, View};
use lmerge_core::element::{ADJUST, INSERT, STABLE};
use lmerge_core::tdb::Held;
use lmerge_core::wire::Batch;
use pyo3::create_exception;
use pyo3::exceptions::{PyException, PyIndexError, PyTypeError};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyBytes, PyIterator, PyList, PyTuple};

create_exception!(
    lmerge._native,
    DecodeError,
    PyException,
    "Columns that cannot be a batch."
);

#[derive(Debug)]
enum Buffers {
    /// Parts of a received message.
    Wire(Batch),
    Written(core::Columns),
}

impl Buffers {
    fn raw(&self) -> Raw<'_> {
        match self {
            Buffers::Wire(batch) => batch.raw(),
            Buffers::Written(columns) => columns.raw(),
        }
    }
}

/// The bytes of a Python object, without a copy.
pub fn shared(bytes: PyBackedBytes) -> Bytes {
    Bytes::from_owner(bytes)
}

/// An immutable batch, or a part of one.
#[pyclass(frozen, module = "lmerge._native")]
#[derive(Debug)]
pub struct Columns {
    buffers: Arc<Buffers>,
    start: usize,
    stop: usize,
    largest_payload: OnceLock<usize>,
}

impl Columns {
    pub fn written(columns: core::Columns) -> Columns {
        let stop = columns.len();
        Columns::new(Arc::new(Buffers::Written(columns)), 0, stop)
    }

    fn new(buffers: Arc<Buffers>, start: usize, stop: usize) -> Columns {
        Columns {
            buffers,
            start,
            stop,
            largest_payload: OnceLock::new(),
        }
    }

    /// The batch that a message carries. Raises DecodeError.
    pub fn checked(py: Python<'_>, batch: Batch, elements_max: usize, payload_bytes_max: usize) -> PyResult<Columns> {
        let limits = Limits {
            elements: elements_max,
            payload_bytes: payload_bytes_max,
        };
        let checked = py.detach(|| View::decode(&batch.raw(), limits).map(|_| ()));
        if let Err(problem) = checked {
            let error = DecodeError::new_err(problem.message);
            error.value(py).setattr("is_limit", problem.is_limit)?;
            return Err(error);
        }
        let stop = batch.kinds.len();
        Ok(Columns::new(Arc::new(Buffers::Wire(batch)), 0, stop))
    }

    pub fn view(&self) -> View<'_> {
        let view = View::known(&self.buffers.raw());
        if self.start == 0 && self.stop == view.len() {
            view
        } else {
            view.slice(self.start, self.stop)
        }
    }

    /// The batch in a form that Rust can keep.
    pub fn kept(&self) -> Kept {
        Kept(self.part(0, self.stop - self.start))
    }

    fn part(&self, start: usize, stop: usize) -> Columns {
        Columns::new(Arc::clone(&self.buffers), self.start + start, self.start + stop)
    }

    fn row<'py>(&self, py: Python<'py>, at: usize) -> PyResult<Bound<'py, PyTuple>> {
        let view = self.view();
        let payload = PyBytes::new(py, view.payload(at));
        (view.kind(at), view.vs(at), view.ve(at), view.vold(at), payload).into_pyobject(py)
    }

    fn element_at<'py>(&self, classes: &Bound<'py, PyModule>, at: usize) -> PyResult<Bound<'py, PyAny>> {
        let view = self.view();
        let payload = PyBytes::new(classes.py(), view.payload(at));
        let (vs, ve) = (view.vs(at), view.ve(at));
        match view.kind(at) {
            INSERT => classes.getattr("Insert")?.call1((payload, vs, ve)),
            ADJUST => classes.getattr("Adjust")?.call1((payload, vs, view.vold(at), ve)),
            _ => classes.getattr("Stable")?.call1((vs,)),
        }
    }
}

/// A batch that Rust keeps, even if Python drops it.
#[derive(Debug)]
pub struct Kept(Columns);

impl Held for Kept {
    fn view(&self) -> View<'_> {
        self.0.view()
    }
}

#[pymethods]
impl Columns {
    #[staticmethod]
    fn of(batch: &Bound<'_, PyAny>) -> PyResult<Columns> {
        let column = |name: &str| -> PyResult<Vec<i64>> {
            let column = batch.getattr(name)?;
            match column.cast::<PyList>() {
                Ok(list) => list.iter().map(|time| time.extract()).collect(),
                Err(_) => column.extract(),
            }
        };
        let kinds = batch.getattr("kinds")?;
        let kinds = kinds.cast::<PyBytes>()?.as_bytes();
        let (vs, ve, vold) = (column("vs")?, column("ve")?, column("vold")?);
        let payloads = batch.getattr("payloads")?;
        let payloads = payloads.cast::<PyList>()?;
        let n = kinds.len();
        if [vs.len(), ve.len(), vold.len(), payloads.len()] != [n; 4] || kinds.iter().any(|&kind| kind > STABLE) {
            return Err(PyTypeError::new_err(
                "the columns of the batch disagree, or a kind is unknown",
            ));
        }
        let mut columns = core::Columns::default();
        for (at, payload) in payloads.iter().enumerate() {
            let payload = payload.cast::<PyBytes>()?;
            columns.push(kinds[at], vs[at], ve[at], vold[at], payload.as_bytes());
        }
        Ok(Columns::written(columns))
    }

    #[staticmethod]
    #[expect(clippy::too_many_arguments, reason = "the wire has six columns")]
    fn decode(
        py: Python<'_>,
        kinds: PyBackedBytes,
        vs: PyBackedBytes,
        ve: PyBackedBytes,
        vold: PyBackedBytes,
        payload_ends: PyBackedBytes,
        payloads: PyBackedBytes,
        elements_max: usize,
        payload_bytes_max: usize,
    ) -> PyResult<Columns> {
        let (kinds, vs, ve) = (shared(kinds), shared(vs), shared(ve));
        let (vold, ends, payloads) = (shared(vold), shared(payload_ends), shared(payloads));
        let batch = Batch {
            kinds,
            vs,
            ve,
            vold,
            ends,
            payloads,
        };
        Columns::checked(py, batch, elements_max, payload_bytes_max)
    }

    #[staticmethod]
    fn concat(py: Python<'_>, batches: Vec<PyRef<'_, Columns>>) -> Columns {
        let batches: Vec<&Columns> = batches.iter().map(|batch| &**batch).collect();
        py.detach(|| {
            let mut joined = core::Columns::default();
            batches.iter().for_each(|batch| joined.extend(&batch.view()));
            Columns::written(joined)
        })
    }

    #[getter]
    fn count(&self) -> usize {
        self.stop - self.start
    }

    #[getter]
    fn kinds<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, self.view().kinds())
    }

    #[getter]
    fn vs(&self) -> Vec<i64> {
        let view = self.view();
        (0..view.len()).map(|at| view.vs(at)).collect()
    }

    #[getter]
    fn ve(&self) -> Vec<i64> {
        let view = self.view();
        (0..view.len()).map(|at| view.ve(at)).collect()
    }

    #[getter]
    fn vold(&self) -> Vec<i64> {
        let view = self.view();
        (0..view.len()).map(|at| view.vold(at)).collect()
    }

    #[getter]
    fn payloads<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let view = self.view();
        PyList::new(py, (0..view.len()).map(|at| PyBytes::new(py, view.payload(at))))
    }

    #[getter]
    fn payload_sizes(&self) -> (usize, usize) {
        let view = self.view();
        let largest = self.largest_payload.get_or_init(|| view.largest_payload());
        (view.payload_bytes(), *largest)
    }

    fn __len__(&self) -> usize {
        self.count()
    }

    fn __eq__(&self, other: &Bound<'_, PyAny>) -> bool {
        let Ok(other) = other.cast::<Columns>() else {
            return false;
        };
        let (mine, theirs) = (self.view(), other.get().view());
        let same = |at| {
            mine.kind(at) == theirs.kind(at)
                && mine.vs(at) == theirs.vs(at)
                && mine.ve(at) == theirs.ve(at)
                && mine.vold(at) == theirs.vold(at)
                && mine.payload(at) == theirs.payload(at)
        };
        mine.len() == theirs.len() && (0..mine.len()).all(same)
    }

    fn __repr__(&self) -> String {
        format!("<Columns of {} elements>", self.count())
    }

    fn elements<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyIterator>> {
        let classes = py.import("lmerge.core.elements")?;
        let elements: PyResult<Vec<_>> = (0..self.count()).map(|at| self.element_at(&classes, at)).collect();
        PyList::new(py, elements?)?.try_iter()
    }

    fn element<'py>(&self, py: Python<'py>, i: usize) -> PyResult<Bound<'py, PyAny>> {
        if i >= self.count() {
            return Err(PyIndexError::new_err(format!(
                "element {i} of a batch of {}",
                self.count()
            )));
        }
        self.element_at(&py.import("lmerge.core.elements")?, i)
    }

    #[pyo3(signature = (start=0))]
    fn rows<'py>(&self, py: Python<'py>, start: usize) -> PyResult<Bound<'py, PyIterator>> {
        let rows: PyResult<Vec<_>> = (start..self.count()).map(|at| self.row(py, at)).collect();
        PyList::new(py, rows?)?.try_iter()
    }

    fn slice(&self, start: usize, stop: usize) -> PyResult<Columns> {
        if start > stop || stop > self.count() {
            return Err(PyIndexError::new_err(format!(
                "elements {start}..{stop} of a batch of {}",
                self.count()
            )));
        }
        Ok(self.part(start, stop))
    }

    fn counts(&self, stop: usize) -> (usize, usize, usize) {
        let view = self.view();
        let [inserts, adjusts, stables] = view.slice(0, stop.min(view.len())).counts();
        (inserts, adjusts, stables)
    }

    fn end_bounds(&self, py: Python<'_>, samples: usize) -> (i64, i64, Vec<i64>) {
        py.detach(|| self.view().end_bounds(samples))
    }

    fn split(&self, elements_max: usize, bytes_max: usize) -> Vec<Columns> {
        let mut start = 0;
        let cuts = self.view().cuts(elements_max, bytes_max);
        cuts.into_iter()
            .map(|stop| self.part(std::mem::replace(&mut start, stop), stop))
            .collect()
    }
}
