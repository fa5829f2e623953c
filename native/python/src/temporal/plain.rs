//! State as plain values, from and to Python.

use lmerge_temporal::plain::Plain;
use lmerge_temporal::plain_rows::canonical_float;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyDict, PyFloat, PyInt, PyList, PyString, PyTuple};

/// The value of an object. Raises TypeError if it is no plain value.
pub fn plain_of(value: &Bound<'_, PyAny>) -> PyResult<Plain> {
    if value.is_none() {
        return Ok(Plain::None);
    }
    if let Ok(value) = value.cast::<PyBool>() {
        return Ok(Plain::Bool(value.is_true()));
    }
    if let Ok(value) = value.cast::<PyInt>() {
        return Ok(match value.extract::<i64>() {
            Ok(small) => Plain::Int(small),
            Err(_) => Plain::Big(value.str()?.to_string()),
        });
    }
    if let Ok(value) = value.cast::<PyList>() {
        return list_of(value.iter());
    }
    if let Ok(value) = value.cast::<PyTuple>() {
        return list_of(value.iter());
    }
    if let Ok(value) = value.cast::<PyString>() {
        return Ok(Plain::Text(value.to_cow()?.into_owned()));
    }
    if let Ok(value) = value.cast::<PyFloat>() {
        return Ok(Plain::Float(canonical_float(value.value())));
    }
    if let Ok(value) = value.cast::<PyBytes>() {
        return Ok(Plain::Bytes(value.as_bytes().to_owned()));
    }
    if let Ok(value) = value.cast::<PyDict>() {
        let entry = |(key, value): (Bound<'_, PyAny>, Bound<'_, PyAny>)| Ok((key.extract()?, plain_of(&value)?));
        return value.iter().map(entry).collect::<PyResult<_>>().map(Plain::Map);
    }
    Err(PyTypeError::new_err(format!(
        "{:.100} is no plain value",
        value.repr()?.to_cow()?
    )))
}

/// A list of as many values as there are: room for them is made once.
fn list_of<'py>(values: impl ExactSizeIterator<Item = Bound<'py, PyAny>>) -> PyResult<Plain> {
    let mut found = Vec::with_capacity(values.len());
    for value in values {
        found.push(plain_of(&value)?);
    }
    Ok(Plain::List(found))
}

/// The object of a value.
pub fn object_of<'py>(py: Python<'py>, value: &Plain) -> PyResult<Bound<'py, PyAny>> {
    Ok(match value {
        Plain::None => py.None().into_bound(py),
        Plain::Bool(value) => value.into_pyobject(py)?.to_owned().into_any(),
        Plain::Int(value) => value.into_pyobject(py)?.into_any(),
        Plain::Big(digits) => py.get_type::<PyInt>().call1((digits,))?,
        Plain::Float(value) => value.into_pyobject(py)?.into_any(),
        Plain::Text(value) => value.into_pyobject(py)?.into_any(),
        Plain::Bytes(value) => PyBytes::new(py, value).into_any(),
        Plain::List(values) => PyList::new(py, values.iter().map(Shown))?.into_any(),
        Plain::Map(entries) => {
            let map = PyDict::new(py);
            entries
                .iter()
                .try_for_each(|(key, value)| map.set_item(key, object_of(py, value)?))?;
            map.into_any()
        }
    })
}

/// A value on its way into a list of objects, which is made at once.
struct Shown<'a>(&'a Plain);

impl<'py> IntoPyObject<'py> for Shown<'_> {
    type Target = PyAny;
    type Output = Bound<'py, PyAny>;
    type Error = PyErr;

    fn into_pyobject(self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        object_of(py, self.0)
    }
}
