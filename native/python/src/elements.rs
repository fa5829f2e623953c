//! Elements between Arrow's rows and batches, for Spark.

use lmerge_core::columns as core;
use lmerge_core::element::STABLE;
use lmerge_rows::changes;
use lmerge_rows::elements::{self, Packs};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyBytes;

use crate::columns::Columns;
use crate::core::guarded;
use crate::rows::{ArrowBatch, imported, structs};

/// A batch, the bytes of its orders, the first and the last of them; None: there is no element.
type Pack<'py> = Option<(Columns, Bound<'py, PyBytes>, i64, i64)>;

/// A pack for each shard, and whether all shards receive an element.
type Packed<'py> = (Vec<Pack<'py>>, bool);

/// The rows of one input, by shard; None if one is no insert, adjust or stable.
#[pyfunction]
pub fn pack_elements<'py>(
    py: Python<'py>,
    batches: Vec<Bound<'py, PyAny>>,
    shards: usize,
    has_order: bool,
) -> PyResult<Option<Packed<'py>>> {
    check_shards(shards)?;
    let Some(batches) = imported(&batches)? else {
        return Ok(None);
    };
    let packs = guarded(py, move || elements::packs(&structs(batches)?, shards, has_order))?;
    Ok(packs.map(|packs| packed(py, packs)))
}

/// A batch by shard, all of it with one order.
#[pyfunction]
pub fn divide<'py>(py: Python<'py>, columns: &Columns, shards: usize, order: i64) -> PyResult<Packed<'py>> {
    check_shards(shards)?;
    let packs = guarded(py, move || elements::divided(&columns.view(), shards, order))?;
    Ok(packed(py, packs))
}

/// The elements of batches by the orders beside them.
#[pyfunction]
pub fn in_order(py: Python<'_>, packs: Vec<(PyRef<'_, Columns>, PyBackedBytes)>, has_order: bool) -> PyResult<Columns> {
    let packs: Vec<(&Columns, &[u8])> = packs.iter().map(|(columns, orders)| (&**columns, &**orders)).collect();
    if packs
        .iter()
        .any(|(columns, orders)| orders.len() != 8 * columns.view().len())
    {
        return Err(PyValueError::new_err("each element needs an order of eight bytes"));
    }
    let sorted = guarded(py, || {
        let packs: Vec<_> = packs
            .iter()
            .map(|&(columns, orders)| (columns.view(), orders))
            .collect();
        elements::in_order(&packs, has_order)
    })?;
    Ok(Columns::written(sorted))
}

/// Inserts and adjusts as rows; None if there is a stable.
#[pyfunction]
pub fn element_rows(py: Python<'_>, columns: &Columns, shard: i32, first: i64) -> PyResult<Option<ArrowBatch>> {
    let rows = guarded(py, move || elements::rows(&columns.view(), shard, first))?;
    Ok(rows.map(ArrowBatch))
}

/// All elements of a batch: kind, vs, ve, vold, payload.
#[pyfunction]
pub fn element_columns(py: Python<'_>, columns: &Columns) -> PyResult<ArrowBatch> {
    Ok(ArrowBatch(guarded(py, move || changes::columns(&columns.view()))?))
}

/// What elements change, and the changes of record batches, in order; None if they do not fit into one batch.
#[pyfunction]
pub fn event_changes(
    py: Python<'_>,
    batches: Vec<PyRef<'_, Columns>>,
    parts: Vec<Bound<'_, PyAny>>,
    adds_up: bool,
) -> PyResult<Option<ArrowBatch>> {
    let Some(parts) = imported(&parts)? else {
        return Ok(None);
    };
    let batches: Vec<&Columns> = batches.iter().map(|columns| &**columns).collect();
    let found = guarded(py, move || {
        let views: Vec<_> = batches.iter().map(|columns| columns.view()).collect();
        changes::changes(&views, &structs(parts)?, adds_up)
    })?;
    Ok(found.map(ArrowBatch))
}

/// The inserts and adjusts of a batch.
#[pyfunction]
pub fn without_stables(py: Python<'_>, columns: &Columns) -> PyResult<Columns> {
    let kept = guarded(py, move || {
        let view = columns.view();
        let mut kept = core::Columns::default();
        let mut start = 0;
        for stop in (0..=view.len()).filter(|&at| at == view.len() || view.kind(at) == STABLE) {
            kept.extend(&view.slice(start.min(stop), stop));
            start = stop + 1;
        }
        kept
    })?;
    Ok(Columns::written(kept))
}

fn packed(py: Python<'_>, packs: Packs) -> Packed<'_> {
    let pack = |pack: elements::Pack| {
        let (first, last) = pack.bounds()?;
        Some((
            Columns::written(pack.columns),
            PyBytes::new(py, &pack.orders),
            first,
            last,
        ))
    };
    (packs.shards.into_iter().map(pack).collect(), packs.concerns_all)
}

fn check_shards(shards: usize) -> PyResult<()> {
    if shards == 0 {
        return Err(PyValueError::new_err("there is at least one shard"));
    }
    Ok(())
}
