//! What ends a step, as the exceptions of `lmerge.errors` and `lmerge.temporal.errors`.

use lmerge_temporal::failure::{Failure, Violation};
use lmerge_temporal::plain::Plain;
use pyo3::exceptions::PyAssertionError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use super::plain::object_of;

/// The exception of a failure.
pub fn raised(py: Python<'_>, failure: Failure) -> PyErr {
    let made = match failure {
        Failure::Module(text) => module_violation(py, text),
        Failure::Limit(text) => error(py, "lmerge.errors", "LimitExceeded", (text,)),
        Failure::Usage(text) => error(py, "lmerge.errors", "UsageError", (text,)),
        Failure::UsageOfRows { text, rows } => usage_of_rows(py, &text, &rows),
        Failure::Input(violation) => input_violation(py, *violation),
        Failure::Shown {
            is_usage,
            before,
            row,
            after,
        } => shown(py, is_usage, before, &row, after),
        Failure::Python(exception) => match exception.downcast::<PyErr>() {
            Ok(exception) => Ok(*exception),
            Err(_) => Err(PyAssertionError::new_err("an exception of Python is none")),
        },
    };
    made.unwrap_or_else(|problem| problem)
}

pub fn module_violation(py: Python<'_>, text: String) -> PyResult<PyErr> {
    error(py, "lmerge.temporal.errors", "ModuleViolation", (text,))
}

fn error<'py>(
    py: Python<'py>,
    module: &str,
    name: &str,
    arguments: impl IntoPyObject<'py, Target = PyTuple, Output = Bound<'py, PyTuple>, Error = PyErr>,
) -> PyResult<PyErr> {
    let made = py.import(module)?.getattr(name)?.call1(arguments.into_pyobject(py)?)?;
    Ok(PyErr::from_value(made))
}

fn usage_of_rows(py: Python<'_>, text: &str, rows: &[Plain]) -> PyResult<PyErr> {
    let show = py.import("lmerge.temporal.values")?.getattr("show_values")?;
    let shown = rows
        .iter()
        .map(|row| show.call1((row_of(py, row)?,))?.extract::<String>());
    let mut shown = shown.collect::<PyResult<Vec<_>>>()?;
    shown.sort_unstable();
    error(
        py,
        "lmerge.errors",
        "UsageError",
        (format!("{text}{}", shown.join(" and ")),),
    )
}

/// A row as a tuple.
fn row_of<'py>(py: Python<'py>, row: &Plain) -> PyResult<Bound<'py, PyAny>> {
    let of_state = py
        .import("lmerge.temporal.operators.operator")?
        .getattr("row_of_state")?;
    of_state.call1((object_of(py, row)?,))
}

/// An error whose text has a row in it.
fn shown(py: Python<'_>, is_usage: bool, before: String, row: &Plain, after: String) -> PyResult<PyErr> {
    let show = py.import("lmerge.temporal.values")?.getattr("show_values")?;
    let row: String = show.call1((row_of(py, row)?,))?.extract()?;
    let text = format!("{before}{row}{after}");
    if is_usage {
        return error(py, "lmerge.errors", "UsageError", (text,));
    }
    error(py, "lmerge.temporal.errors", "ModuleViolation", (text,))
}

fn input_violation(py: Python<'_>, violation: Violation) -> PyResult<PyErr> {
    let Violation {
        code,
        input,
        row,
        times: [vs, old, new],
        promised,
        came,
        promise,
    } = violation;
    let row = row_of(py, &row)?;
    let change = py
        .import("lmerge.temporal.changes")?
        .getattr("Change")?
        .call1((row, vs, old, new))?;
    let named = PyDict::new(py);
    named.set_item("property_name", promise)?;
    let arguments = (code, input, change.str()?, promised, came);
    let made = py
        .import("lmerge.errors")?
        .getattr("InputViolation")?
        .call(arguments, Some(&named))?;
    Ok(PyErr::from_value(made))
}
