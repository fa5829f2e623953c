//! Blocks of new events for windows whose modules run in Python: rows and columns of them, where they are needed.

use lmerge_temporal::NEG_INF;
use lmerge_temporal::batch::{Batch, taken};
use lmerge_temporal::row_blocks::{GroupBlocks, RowBlock as Block, group_numbers, in_order};
use lmerge_temporal::{Column, INF, RowSchema};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyList, PyTuple};

use super::values::{rows_of, values_of};
use crate::core::guarded;
use crate::rows::ArrowBatch;

/// New events of one group, in the order in which they came.
#[pyclass(frozen, module = "lmerge._native")]
pub struct RowBlock {
    block: Block,
    /// Made when they are first needed.
    rows: PyOnceLock<Py<PyList>>,
}

#[pymethods]
impl RowBlock {
    fn __len__(&self) -> usize {
        self.block.len()
    }

    /// The rows.
    fn rows<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let made = || {
            let numbers: Vec<usize> = (0..self.block.schema().len()).collect();
            let columns = self.block.columns(&numbers);
            let rows = rows_of(py, self.block.schema(), &columns, self.block.len())?;
            Ok::<_, PyErr>(PyList::new(py, rows)?.unbind())
        };
        Ok(self.rows.get_or_try_init(py, made)?.bind(py).clone())
    }

    /// The events as (row, start, end).
    fn events<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let list = PyList::empty(py);
        for (row, (vs, ve)) in self.rows(py)?.iter().zip(self.block.lifetimes()) {
            list.append((row, vs, ve))?;
        }
        Ok(list)
    }

    /// The first end, the last end, and the last one that is finite; None where there is none.
    fn ends(&self) -> (Option<i64>, Option<i64>, Option<i64>) {
        let ends = || self.block.lifetimes().map(|(_, ve)| ve);
        (ends().min(), ends().max(), ends().filter(|&ve| ve < INF).max())
    }

    /// The events whose lifetimes overlap `[start, end)`.
    fn overlapping(&self, start: i64, end: i64) -> RowBlock {
        self.block.filtered(|vs, ve| vs < end && ve > start).into()
    }

    /// The events that end after `t`.
    fn ending_after(&self, t: i64) -> RowBlock {
        self.block.filtered(|_, ve| ve > t).into()
    }

    /// The events that start before `t`, and the others.
    fn split(&self, t: i64) -> (RowBlock, RowBlock) {
        let before = self.block.filtered(|vs, _| vs < t);
        (before.into(), self.block.filtered(|vs, _| vs >= t).into())
    }
}

impl From<Block> for RowBlock {
    fn from(block: Block) -> RowBlock {
        RowBlock {
            block,
            rows: PyOnceLock::new(),
        }
    }
}

/// The values of some columns of all rows of several blocks, in the order of rows of these columns.
fn ordered(py: Python<'_>, blocks: &[PyRef<'_, RowBlock>], numbers: &[usize]) -> PyResult<(Vec<Column>, Batch)> {
    let blocks: Vec<&Block> = blocks.iter().map(|block| &block.block).collect();
    let schema: Vec<Column> = blocks.first().map_or_else(Vec::new, |block| {
        numbers.iter().map(|&at| block.schema()[at].clone()).collect()
    });
    let columns = guarded(py, || in_order(&blocks, numbers))?;
    let count = columns.first().map_or(0, |column| column.len());
    let times = || vec![NEG_INF; count].into();
    let batch = Batch {
        columns,
        vs: times(),
        old: times(),
        new: times(),
        ..Batch::empty(std::sync::Arc::new(RowSchema {
            columns: schema.clone(),
        }))
    };
    Ok((schema, batch))
}

/// The rows of columns of several blocks in their order: tuples, or values of a single column.
#[pyfunction]
pub fn block_values<'py>(
    py: Python<'py>,
    blocks: Vec<PyRef<'py, RowBlock>>,
    numbers: Vec<usize>,
) -> PyResult<Bound<'py, PyList>> {
    let (schema, batch) = ordered(py, &blocks, &numbers)?;
    match (&schema[..], &batch.columns[..]) {
        ([column], [values]) => PyList::new(py, values_of(py, column, &**values)?),
        _ => PyList::new(py, rows_of(py, &schema, &batch.columns, batch.len())?),
    }
}

/// The columns of several blocks as a record batch, in the order of its rows.
#[pyfunction]
pub fn block_arrays(py: Python<'_>, blocks: Vec<PyRef<'_, RowBlock>>, numbers: Vec<usize>) -> PyResult<ArrowBatch> {
    let (_, batch) = ordered(py, &blocks, &numbers)?;
    Ok(ArrowBatch(batch.rows().into()))
}

/// The groups of the rows of a batch.
pub struct GroupKeys<'py> {
    numbers: Option<Vec<u32>>,
    /// The columns of the key, else the key of each group.
    keys: Result<Vec<usize>, Vec<Bound<'py, PyAny>>>,
}

impl<'py> GroupKeys<'py> {
    /// `keys`: the columns of the key; else `key_of` returns that of a row; without either there is one group.
    pub fn of(
        py: Python<'py>,
        batch: &Batch,
        keys: Option<Vec<usize>>,
        key_of: Option<Bound<'py, PyAny>>,
    ) -> PyResult<GroupKeys<'py>> {
        if let Some(places) = keys {
            let columns: Vec<Column> = places.iter().map(|&at| batch.schema.columns[at].clone()).collect();
            let values: Vec<_> = places.iter().map(|&at| batch.columns[at].clone()).collect();
            let numbers = guarded(py, || group_numbers(&columns, &values))?;
            return Ok(GroupKeys {
                numbers: Some(numbers),
                keys: Ok(places),
            });
        }
        let Some(key_of) = key_of else {
            return Ok(GroupKeys {
                numbers: None,
                keys: Ok(Vec::new()),
            });
        };
        let (by_key, mut found, mut numbers) = (PyDict::new(py), Vec::new(), Vec::with_capacity(batch.len()));
        for row in rows_of(py, &batch.schema.columns, &batch.columns, batch.len())? {
            let key = key_of.call1((row,))?;
            let number = match by_key.get_item(&key)? {
                Some(number) => number.extract()?,
                None => {
                    let number = found.len() as u32;
                    by_key.set_item(&key, number)?;
                    found.push(key);
                    number
                }
            };
            numbers.push(number);
        }
        Ok(GroupKeys {
            numbers: Some(numbers),
            keys: Err(found),
        })
    }

    pub fn numbers(&self) -> Option<&[u32]> {
        self.numbers.as_deref()
    }

    /// The blocks of each group by its key.
    pub fn blocks(self, py: Python<'py>, batch: &Batch, found: Vec<GroupBlocks>) -> PyResult<Bound<'py, PyDict>> {
        let keys: Vec<Bound<'py, PyAny>> = match self.keys {
            Err(keys) => keys,
            Ok(places) if places.is_empty() => vec![PyTuple::empty(py).into_any()],
            Ok(places) => {
                let firsts: Vec<u32> = found.iter().map(|group| group.first).collect();
                let columns: Vec<Column> = places.iter().map(|&at| batch.schema.columns[at].clone()).collect();
                let values: Vec<_> = places.iter().map(|&at| batch.columns[at].clone()).collect();
                let rows = rows_of(py, &columns, &taken(&values, &firsts), firsts.len())?;
                rows.into_iter().map(Bound::into_any).collect()
            }
        };
        let groups = PyDict::new(py);
        for (key, group) in keys.into_iter().zip(found) {
            let windows = PyDict::new(py);
            for (start, block) in group.windows {
                windows.set_item(start, Bound::new(py, RowBlock::from(block))?)?;
            }
            groups.set_item(key, (windows, Bound::new(py, RowBlock::from(group.kept))?))?;
        }
        Ok(groups)
    }
}
