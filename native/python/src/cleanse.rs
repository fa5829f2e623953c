//! Cleanse for Python: `lmerge.core.comparison.cleanse.Cleanse` on columns, for comparison with merging directly.

use lmerge_core::cleanse as core;
use lmerge_core::violation::{Code, Violation};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

use crate::columns::Columns;
use crate::core::guarded;

/// Cleanses one stream.
#[pyclass(module = "lmerge._native")]
pub struct Cleanse {
    name: String,
    cleanse: core::Cleanse,
}

#[pymethods]
impl Cleanse {
    #[new]
    #[pyo3(signature = (name="stream"))]
    fn new(name: &str) -> Cleanse {
        Cleanse {
            name: name.to_string(),
            cleanse: core::Cleanse::default(),
        }
    }

    #[getter]
    fn buffered(&self) -> usize {
        self.cleanse.buffered()
    }

    #[getter]
    fn memory(&self) -> (usize, usize) {
        self.cleanse.memory()
    }

    fn apply(&mut self, py: Python<'_>, columns: &Columns) -> PyResult<Columns> {
        let cleanse = &mut self.cleanse;
        match guarded(py, move || cleanse.apply(&columns.view()))? {
            Ok(released) => Ok(Columns::written(released)),
            Err(violation) => Err(self.error_of(py, &violation)?),
        }
    }
}

impl Cleanse {
    /// The InputViolation that the Python definition raises.
    fn error_of(&self, py: Python<'_>, broken: &Violation) -> PyResult<PyErr> {
        let violations = py.import("lmerge.core.violations")?;
        let element = &broken.element;
        let payload = PyBytes::new(py, &element.payload);
        let row = (element.kind, element.vs, element.ve, element.vold, payload);
        let of = (&self.name, row, broken.index);
        let stable = PyDict::new(py);
        let error = match broken.code {
            Code::EndBeforeStart => violations.call_method1("end_before_start", of)?,
            Code::UnknownEvent => {
                let known = broken
                    .ends
                    .as_ref()
                    .map_or("no live event".to_string(), |ends| format!("ends {ends:?}"));
                violations.call_method1("unknown_event", (of.0, of.1, of.2, known))?
            }
            code => {
                stable.set_item("stable", broken.detail)?;
                violations.call_method(code.name().replace('-', "_").as_str(), of, Some(&stable))?
            }
        };
        Ok(PyErr::from_value(error))
    }
}
