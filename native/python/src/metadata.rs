//! Metadata of calls, in the form of Python.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use tonic::metadata::{KeyAndValueRef, MetadataKey, MetadataMap, MetadataValue};

/// Metadata as pairs of texts, or of a text and bytes where the key ends in "-bin".
pub type Pairs = Vec<(String, PairValue)>;

#[derive(FromPyObject)]
pub enum PairValue {
    Text(String),
    Bytes(Vec<u8>),
}

/// The same on its way to Python.
pub type ShownPairs<'py> = Vec<(String, Bound<'py, PyAny>)>;

pub fn metadata_of(pairs: Pairs) -> PyResult<MetadataMap> {
    let mut metadata = MetadataMap::new();
    for (key, value) in pairs {
        let wrong = || PyValueError::new_err(format!("metadata {key:?} cannot be sent"));
        match value {
            PairValue::Text(text) => {
                let key = MetadataKey::from_bytes(key.as_bytes()).map_err(|_| wrong())?;
                metadata.append(key, MetadataValue::try_from(text).map_err(|_| wrong())?);
            }
            PairValue::Bytes(bytes) => {
                let key = MetadataKey::from_bytes(key.as_bytes()).map_err(|_| wrong())?;
                metadata.append_bin(key, MetadataValue::from_bytes(&bytes));
            }
        }
    }
    Ok(metadata)
}

pub fn pairs_of<'py>(py: Python<'py>, metadata: &MetadataMap) -> ShownPairs<'py> {
    let pairs = metadata.iter().filter_map(|pair| match pair {
        KeyAndValueRef::Ascii(key, value) => {
            let text = value.to_str().ok()?;
            Some((key.to_string(), text.into_pyobject(py).ok()?.into_any()))
        }
        KeyAndValueRef::Binary(key, value) => {
            let bytes = value.to_bytes().ok()?;
            Some((key.to_string(), PyBytes::new(py, &bytes).into_any()))
        }
    });
    pairs.collect()
}
