//! Batches of changes as columns, from and to Python.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arrow_array::{Array, Int64Array, RecordBatch, StructArray};
use arrow_schema::{DataType, Field, Schema};
use lmerge_temporal::RowSchema;
use lmerge_temporal::batch::{Batch, COLUMN_LENGTH_MAX};
use lmerge_temporal::elements::ElementForm;
use lmerge_temporal::history::{ResultTable, in_order};
use lmerge_temporal::row_blocks::by_window;
use lmerge_temporal::windows::Grid;
use pyo3::exceptions::{PyIndexError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple};

use super::blocks::GroupKeys;
use super::failure::raised;
use super::values::{columns_of, rows_of};
use crate::columns::Columns;
use crate::core::guarded;
use crate::rows::{ArrowBatch, column_of, imported, structs};

/// The rows of one schema as columns.
#[pyclass(frozen, module = "lmerge._native")]
pub struct ColumnForm(pub Arc<RowSchema>);

#[pymethods]
impl ColumnForm {
    #[new]
    fn new(columns: Vec<Bound<'_, PyAny>>) -> PyResult<ColumnForm> {
        let columns: PyResult<_> = columns.iter().map(column_of).collect();
        Ok(ColumnForm(Arc::new(RowSchema { columns: columns? })))
    }

    /// Changes (row, vs, old, new) as a batch.
    #[pyo3(signature = (changes, stable=None, mark=None))]
    fn batch(&self, changes: &Bound<'_, PyList>, stable: Option<i64>, mark: Option<i64>) -> PyResult<ColumnBatch> {
        let count = changes.len();
        let (mut rows, mut vs) = (Vec::with_capacity(count), Vec::with_capacity(count));
        let (mut old, mut new) = (Vec::with_capacity(count), Vec::with_capacity(count));
        for change in changes.iter() {
            let change = change.cast_into::<PyTuple>()?;
            rows.push(change.get_item(0)?.cast_into::<PyTuple>()?);
            vs.push(change.get_item(1)?.extract()?);
            old.push(change.get_item(2)?.extract()?);
            new.push(change.get_item(3)?.extract()?);
        }
        let columns = columns_of(&self.0.columns, &rows)?;
        let (vs, old, new) = (vs.into(), old.into(), new.into());
        Ok(ColumnBatch(Batch {
            schema: self.0.clone(),
            columns,
            vs,
            old,
            new,
            stable,
            mark,
        }))
    }

    /// The elements of batches, or None if they are refused.
    fn elements(&self, py: Python<'_>, batches: Vec<PyRef<'_, ColumnBatch>>) -> PyResult<Option<Columns>> {
        let batches: Vec<Batch> = batches.iter().map(|batch| batch.0.clone()).collect();
        let form = ElementForm::new(&self.0);
        Ok(guarded(py, move || form.elements(&batches))?.map(Columns::written))
    }

    /// Inserts with the rows of a record batch whose columns are those of the schema, in its order.
    #[pyo3(signature = (rows, times, stable=None, mark=None))]
    fn inserts(
        &self,
        rows: Bound<'_, PyAny>,
        times: Bound<'_, PyAny>,
        stable: Option<i64>,
        mark: Option<i64>,
    ) -> PyResult<ColumnBatch> {
        let unsupported = || PyTypeError::new_err("the columns have types that Arrow's Rust library does not have");
        let mut found = imported(&[rows, times])?.and_then(structs).ok_or_else(unsupported)?;
        let (times, rows) = (found.pop(), found.pop());
        let (Some(times), Some(rows)) = (times, rows) else {
            return Err(unsupported());
        };
        let types = self.0.columns.iter().map(|column| column.data_type());
        if !types.eq(rows.columns().iter().map(|column| column.data_type().clone())) {
            return Err(PyValueError::new_err("the columns are not those of the schema"));
        }
        let time = |at: usize| {
            let array = times
                .columns()
                .get(at)
                .and_then(|column| column.as_any().downcast_ref::<Int64Array>());
            array
                .map(|array| array.values().clone())
                .ok_or_else(|| PyValueError::new_err("times are two columns of int64"))
        };
        let (vs, new) = (time(0)?, time(1)?);
        if vs.len() != rows.len() {
            return Err(PyValueError::new_err("each row has its times"));
        }
        let columns = rows.columns().to_vec();
        Ok(ColumnBatch(Batch {
            schema: self.0.clone(),
            columns,
            old: vs.clone(),
            vs,
            new,
            stable,
            mark,
        }))
    }
}

/// The table of a result.
#[pyclass(frozen, module = "lmerge._native")]
pub struct ColumnTable(Mutex<ResultTable>);

#[pymethods]
impl ColumnTable {
    #[new]
    fn new(form: &ColumnForm) -> ColumnTable {
        ColumnTable(Mutex::new(ResultTable::new(form.0.clone(), COLUMN_LENGTH_MAX)))
    }

    fn apply(&self, py: Python<'_>, batch: &ColumnBatch) -> PyResult<()> {
        guarded(py, || self.table().apply(&batch.0))?.map_err(|failure| raised(py, failure))
    }

    /// The events as inserts.
    fn events(&self, py: Python<'_>) -> PyResult<ColumnBatch> {
        let events = guarded(py, || self.table().events().cloned())?;
        events.map(ColumnBatch).map_err(|failure| raised(py, failure))
    }
}

impl ColumnTable {
    fn table(&self) -> MutexGuard<'_, ResultTable> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A batch of changes, the stable point and the watermark behind them.
#[pyclass(frozen, module = "lmerge._native")]
pub struct ColumnBatch(pub Batch);

#[pymethods]
impl ColumnBatch {
    #[getter]
    fn stable(&self) -> Option<i64> {
        self.0.stable
    }

    #[getter]
    fn mark(&self) -> Option<i64> {
        self.0.mark
    }

    /// Whether nothing changes.
    #[getter]
    fn is_empty(&self) -> bool {
        self.0.is_empty() && self.0.stable.is_none() && self.0.mark.is_none()
    }

    fn __len__(&self) -> usize {
        self.0.len()
    }

    /// The same batch with another watermark.
    fn marked(&self, mark: Option<i64>) -> ColumnBatch {
        ColumnBatch(Batch { mark, ..self.0.clone() })
    }

    /// `count` changes from the one at `first`, without stable point and watermark.
    fn part(&self, first: usize, count: usize) -> PyResult<ColumnBatch> {
        if first > self.0.len() || count > self.0.len() - first {
            let problem = format!("{count} changes from {first} of a batch of {}", self.0.len());
            return Err(PyIndexError::new_err(problem));
        }
        Ok(ColumnBatch(Batch {
            stable: None,
            mark: None,
            ..self.0.slice(first, count)
        }))
    }

    /// Inserts as the batches of a source that has them all, `count` changes each.
    fn in_order(&self, py: Python<'_>, count: usize) -> PyResult<Vec<ColumnBatch>> {
        let batches = guarded(py, || in_order(&self.0, count.max(1)))?;
        Ok(batches.into_iter().map(ColumnBatch).collect())
    }

    /// The changes as tuples (row, vs, old, new).
    fn changes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let batch = &self.0;
        let rows = rows_of(py, &batch.schema.columns, &batch.columns, batch.len())?;
        let list = PyList::empty(py);
        for (at, row) in rows.into_iter().enumerate() {
            list.append((row, batch.vs[at], batch.old[at], batch.new[at]))?;
        }
        Ok(list)
    }

    /// New events by the key of their group: blocks of rows by the starts of windows, and those that end at or after
    /// `reach`. None if a change is no new event, an event has no first window, or opens more than `windows_max` windows.
    ///
    /// `grid`: size, hop, offset, and the time before which no window begins. Windows begin until `begun`. `keys`: the
    /// columns of the key; else `key_of` returns that of a row; without either all have that of no columns.
    #[pyo3(signature = (grid, begun, reach, windows_max, keys=None, key_of=None))]
    #[expect(clippy::too_many_arguments, reason = "the windows of Python, as they call this")]
    fn blocks_by_window<'py>(
        &self,
        py: Python<'py>,
        grid: (i64, i64, i64, Option<i64>),
        begun: i64,
        reach: i64,
        windows_max: i64,
        keys: Option<Vec<usize>>,
        key_of: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Option<Bound<'py, PyDict>>> {
        let (size, hop, offset, since) = grid;
        let grid = Grid {
            size,
            hop,
            offset,
            since,
            shown: String::new(),
        };
        let groups = GroupKeys::of(py, &self.0, keys, key_of)?;
        let found = by_window(&self.0, &grid, begun, reach, windows_max, groups.numbers());
        found.map(|found| groups.blocks(py, &self.0, found)).transpose()
    }

    /// The rows as a record batch.
    fn rows(&self) -> ArrowBatch {
        ArrowBatch(StructArray::from(self.0.rows()))
    }

    /// vs, old and new of each change as a record batch.
    fn times(&self) -> PyResult<ArrowBatch> {
        let field = |name| Field::new(name, DataType::Int64, false);
        let schema = Arc::new(Schema::new(vec![field("vs"), field("old"), field("new")]));
        let column = |times: &arrow_buffer::ScalarBuffer<i64>| Arc::new(Int64Array::new(times.clone(), None)) as _;
        let columns = vec![column(&self.0.vs), column(&self.0.old), column(&self.0.new)];
        let batch =
            RecordBatch::try_new(schema, columns).map_err(|problem| PyValueError::new_err(problem.to_string()))?;
        Ok(ArrowBatch(StructArray::from(batch)))
    }
}
