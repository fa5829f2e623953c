//! Expressions, with Python as their host: `lmerge/temporal/expressions/lowering.py` makes the nodes, and
//! `lmerge/temporal/native/expressions.py` the host.

use std::sync::Arc;

use arrow_array::{Array, ArrayRef};
use lmerge_temporal::batch::Batch;
use lmerge_temporal::expressions::{self as native, CallFailure, Host, Lowered, Operation};
use lmerge_temporal::failure::Failure;
use lmerge_temporal::{Column, RowSchema};
use pyo3::exceptions::{PyAssertionError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyList, PyString, PyTuple};

use super::batch::{ColumnBatch, ColumnForm};
use super::calls::UserFunction;
use super::failure::{module_violation, raised};
use super::values::{columns_of, rows_of};
use crate::core::guarded;
use crate::rows::column_of;

/// The operation, the type, the operands and what else a node needs: `LoweredNode` in Python.
type LoweredNode<'py> = (String, Bound<'py, PyAny>, Vec<usize>, Bound<'py, PyAny>);

/// The expressions of one operator, for rows of one schema. Equal parts of them are evaluated once.
#[pyclass(frozen, module = "lmerge._native")]
pub struct Expressions(pub Arc<native::Expressions>);

#[pymethods]
impl Expressions {
    /// `host`: what runs in Python.
    #[new]
    fn new(
        form: &ColumnForm,
        nodes: Vec<LoweredNode<'_>>,
        roots: Vec<usize>,
        host: Bound<'_, PyAny>,
    ) -> PyResult<Expressions> {
        let py = host.py();
        let mut lowered: Vec<Lowered> = Vec::with_capacity(nodes.len());
        for node in nodes {
            let node = lowered_of(py, node, &lowered)?;
            lowered.push(node);
        }
        let host = Arc::new(PythonHost {
            columns: form.0.columns.clone(),
            evaluate: host.getattr("evaluate")?.unbind(),
            violation: host.getattr("violation")?.unbind(),
            functions: functions_of(&host.getattr("callers")?, &lowered)?,
        });
        // Constants are evaluated here, which can call Python.
        let bound = guarded(py, move || native::Expressions::bind(lowered, roots, host))?;
        bound
            .map(|bound| Expressions(Arc::new(bound)))
            .map_err(PyValueError::new_err)
    }

    /// The batch with the values of the expressions as rows.
    fn evaluate(&self, py: Python<'_>, batch: &ColumnBatch) -> PyResult<ColumnBatch> {
        let (expressions, batch) = (&self.0, batch.0.clone());
        let values = guarded(py, || expressions.evaluate(&batch.columns, batch.len()))?;
        let columns = values.map_err(|error| raised(py, error.failure))?;
        let named = expressions.columns().enumerate().map(|(at, column)| Column {
            name: at.to_string(),
            ..column.clone()
        });
        let schema = Arc::new(RowSchema {
            columns: named.collect(),
        });
        Ok(ColumnBatch(Batch {
            schema,
            columns,
            ..batch
        }))
    }
}

fn lowered_of(py: Python<'_>, node: LoweredNode<'_>, earlier: &[Lowered]) -> PyResult<Lowered> {
    let (name, column, operands, detail) = node;
    let column = column_of(&column)?;
    let operation = match name.as_str() {
        "column" => Operation::Load(detail.extract()?),
        "constant" => Operation::Constant(array_of(py, &column, vec![detail])?),
        "is_in" => {
            let operand = operands.first().and_then(|&operand| earlier.get(operand));
            let operand = operand.ok_or_else(|| PyValueError::new_err("is_in has no operand"))?;
            Operation::IsIn(array_of(
                py,
                &operand.column,
                detail.cast::<PyList>()?.iter().collect(),
            )?)
        }
        "field" => Operation::Field(detail.extract()?),
        "round" => Operation::Round(detail.extract()?),
        "trim" => Operation::Trim(detail.extract()?),
        "truncate" => Operation::Truncate(detail.extract()?),
        "call" => {
            let (function, skips_nulls) = detail.extract()?;
            Operation::Call { function, skips_nulls }
        }
        "cast" => Operation::Cast { is_strict: true },
        "cast_or_null" => Operation::Cast { is_strict: false },
        name => {
            let unknown = || PyValueError::new_err(format!("there is no native operation {name:?}"));
            Operation::named(name).ok_or_else(unknown)?
        }
    };
    Ok(Lowered {
        operation,
        column,
        operands,
    })
}

fn array_of<'py>(py: Python<'py>, column: &Column, values: Vec<Bound<'py, PyAny>>) -> PyResult<ArrayRef> {
    let rows: Vec<_> = values
        .into_iter()
        .map(|value| PyTuple::new(py, [value]))
        .collect::<PyResult<_>>()?;
    let mut arrays = columns_of(std::slice::from_ref(column), &rows)?;
    Ok(arrays.remove(0))
}

/// The functions of the calls among nodes.
fn functions_of(callers: &Bound<'_, PyAny>, nodes: &[Lowered]) -> PyResult<Vec<UserFunction>> {
    let calls = nodes
        .iter()
        .filter(|node| matches!(node.operation, Operation::Call { .. }));
    let pairs = callers.try_iter()?.zip(calls);
    let of = |(caller, node): (PyResult<Bound<'_, PyAny>>, &Lowered)| {
        let arguments = node.operands.iter().map(|&operand| nodes[operand].column.clone());
        UserFunction::new(caller?, arguments.collect(), node.column.clone())
    };
    pairs.map(of).collect()
}

/// Python, which makes messages, changes the case of texts and calls users' functions.
#[derive(Debug)]
struct PythonHost {
    columns: Vec<Column>,
    evaluate: Py<PyAny>,
    violation: Py<PyAny>,
    functions: Vec<UserFunction>,
}

impl PythonHost {
    /// The exception of a row: of a call that has failed, or else the one that its evaluation raises.
    fn raised_for(&self, py: Python<'_>, columns: &[ArrayRef], row: usize, failed: Option<Failure>) -> PyResult<PyErr> {
        let failed = match failed {
            Some(Failure::Python(failed)) => failed.downcast::<PyErr>().ok(),
            _ => None,
        };
        let is_of_call = |error: &PyErr| error.value(py).hasattr("index").unwrap_or(false);
        if let Some(error) = failed.as_ref().filter(|error| !is_of_call(error)) {
            return Ok(error.clone_ref(py));
        }
        let cells: Vec<_> = columns.iter().map(|column| column.slice(row, 1)).collect();
        let rows = rows_of(py, &self.columns, &cells, 1)?;
        if let Some(error) = failed {
            let violation = self.violation.call1(py, (error.value(py), &rows[0]))?;
            let violation = PyErr::from_value(violation.into_bound(py));
            violation.set_cause(py, error.cause(py));
            return Ok(violation);
        }
        Ok(match self.evaluate.bind(py).call1((&rows[0],)) {
            Err(error) => error,
            Ok(value) if self.functions.is_empty() => {
                let text = format!("the native expression fails for {}, which is {value}", rows[0]);
                PyAssertionError::new_err(text)
            }
            Ok(value) => {
                let text = "a function is not deterministic: the row had no value before, and now it has";
                module_violation(py, format!("{text} {value}, in row {}", rows[0]))?
            }
        })
    }
}

impl Host for PythonHost {
    fn failure(&self, columns: &[ArrayRef], row: usize, failed: Option<Failure>) -> Failure {
        let raised = |py: Python<'_>| self.raised_for(py, columns, row, failed).unwrap_or_else(|error| error);
        Failure::Python(Box::new(Python::attach(raised)))
    }

    fn call(&self, function: usize, arguments: &[ArrayRef], len: usize) -> Result<ArrayRef, CallFailure> {
        Python::attach(|py| self.functions[function].results(py, arguments, len))
    }

    fn cased(&self, texts: &[&str], to_upper: bool) -> Result<Vec<String>, Failure> {
        let method = if to_upper { "upper" } else { "lower" };
        let cased = |py: Python<'_>| {
            let one = |text: &&str| PyString::new(py, text).call_method0(method)?.extract();
            texts.iter().map(one).collect::<PyResult<_>>()
        };
        Python::attach(cased).map_err(|error| Failure::Python(Box::new(error)))
    }
}
