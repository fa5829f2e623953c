//! Expressions for native operators.

use std::sync::Arc;

use arrow_array::ArrayRef;
use lmerge_temporal::expressions as native;
use lmerge_temporal::failure::Failure;
use pyo3::exceptions::{PyIndexError, PyValueError};
use pyo3::prelude::*;

use super::batch::ColumnForm;

/// Expressions for the rows of one schema.
#[pyclass(frozen, module = "lmerge._native")]
pub struct Expressions(pub Arc<native::Expressions>);

#[pymethods]
impl Expressions {
    /// The values of the columns at these places.
    #[staticmethod]
    fn of_columns(form: &ColumnForm, places: Vec<usize>) -> PyResult<Expressions> {
        let columns = &form.0.columns;
        let node = |&place: &usize| {
            let column = columns.get(place).ok_or_else(|| PyIndexError::new_err(place))?;
            let operation = native::Operation::Load(place);
            Ok(native::Lowered {
                operation,
                column: column.clone(),
                operands: Vec::new(),
            })
        };
        let nodes = places.iter().map(node).collect::<PyResult<Vec<_>>>()?;
        let roots = (0..nodes.len()).collect();
        let bound = native::Expressions::bind(nodes, roots, Arc::new(Plain)).map_err(PyValueError::new_err)?;
        Ok(Expressions(Arc::new(bound)))
    }
}

/// Columns have no failures and no cases.
#[derive(Debug)]
struct Plain;

impl native::Host for Plain {
    fn failure(&self, _columns: &[ArrayRef], _row: usize) -> Failure {
        unreachable!("a column has all of its values")
    }

    fn cased(&self, _texts: &[&str], _to_upper: bool) -> Result<Vec<String>, Failure> {
        unreachable!("a column is not computed")
    }
}
