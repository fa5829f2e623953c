//! Messages that carry batches, from bytes and to bytes.

use lmerge_core::columns::View;
use lmerge_core::wire::{self, Batch, Outgoing};
use pyo3::exceptions::PyOverflowError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::columns::Columns;
use crate::transport::AnyMessage;

/// A batch from a message, with unchecked columns.
#[pyclass(frozen, module = "lmerge._native")]
pub struct Received {
    #[pyo3(get)]
    sequence: u64,
    batch: Batch,
}

#[pymethods]
impl Received {
    fn decode(&self, py: Python<'_>, elements_max: usize, payload_bytes_max: usize) -> PyResult<Columns> {
        Columns::checked(py, self.batch.clone(), elements_max, payload_bytes_max)
    }
}

/// The batch of a PublishRequest; None if it has another content or cannot be read.
#[pyfunction]
pub fn read_publish(message: AnyMessage<'_>) -> Option<Received> {
    let received = wire::read_publish(message.bytes())?;
    Some(Received {
        sequence: received.sequence,
        batch: received.batch.unwrap_or_default(),
    })
}

/// The batch of a SubscribeResponse; None if it has another content or cannot be read.
#[pyfunction]
pub fn read_subscribe(message: AnyMessage<'_>) -> Option<Received> {
    let batch = wire::read_subscribe(message.bytes())?;
    Some(Received { sequence: 0, batch })
}

/// A PublishRequest with these batches as one.
#[pyfunction]
pub fn encode_publish<'py>(
    py: Python<'py>,
    sequence: u64,
    batches: Vec<PyRef<'py, Columns>>,
) -> PyResult<Bound<'py, PyBytes>> {
    encode(py, &batches, Some(sequence))
}

/// A SubscribeResponse with these batches as one.
#[pyfunction]
pub fn encode_subscribe<'py>(py: Python<'py>, batches: Vec<PyRef<'py, Columns>>) -> PyResult<Bound<'py, PyBytes>> {
    encode(py, &batches, None)
}

fn encode<'py>(
    py: Python<'py>,
    batches: &[PyRef<'py, Columns>],
    sequence: Option<u64>,
) -> PyResult<Bound<'py, PyBytes>> {
    let views: Vec<View<'_>> = batches.iter().map(|batch| batch.view()).collect();
    if views.iter().map(View::payload_bytes).sum::<usize>() > u32::MAX as usize {
        return Err(PyOverflowError::new_err("one batch has at most 4 GiB of payloads"));
    }
    let message = Outgoing::new(&views, sequence);
    PyBytes::new_with(py, message.encoded_len(), |mut out| {
        py.detach(|| message.write(&mut out));
        Ok(())
    })
}
