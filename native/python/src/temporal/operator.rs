//! Native operators for Python.

use std::sync::{Arc, Mutex, PoisonError};

use lmerge_temporal::RowSchema;
use lmerge_temporal::batch::Batch;
use lmerge_temporal::failure::Failure;
use lmerge_temporal::operator::Operator;
use lmerge_temporal::operators::as_of::AsOf;
use lmerge_temporal::operators::cleanse::Cleanse;
use lmerge_temporal::operators::coalesce::Coalesce;
use lmerge_temporal::operators::edges::Edges;
use lmerge_temporal::operators::join::{Join, JoinKind};
use lmerge_temporal::operators::join_side::JoinInput;
use lmerge_temporal::operators::lifetimes::{Alteration, Alterations};
use lmerge_temporal::operators::row_keys::KeyOf;
use lmerge_temporal::operators::span::{RowPart, Span};
use lmerge_temporal::operators::union::Union;
use lmerge_temporal::packed::{packed, unpacked};
use lmerge_temporal::rows::RowForm;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyBytes, PyDict, PyList};

use super::batch::{ColumnBatch, ColumnForm};
use super::expressions::Expressions;
use super::failure::raised;
use super::plain::{object_of, plain_of};
use super::windows::window_operator;
use crate::core::guarded;

/// An operator that runs. One thread at a time uses it; others wait.
#[pyclass(frozen, module = "lmerge._native")]
pub struct TemporalOperator(Mutex<Box<dyn Operator>>);

#[pymethods]
impl TemporalOperator {
    /// `inputs`, `output`: the rows; `description`: the kind and its parameters (`lmerge/temporal/native/describing.py`).
    #[new]
    fn new(
        name: &str,
        inputs: Vec<PyRef<'_, ColumnForm>>,
        output: &ColumnForm,
        description: &Bound<'_, PyDict>,
    ) -> PyResult<TemporalOperator> {
        let inputs: Vec<_> = inputs.iter().map(|form| form.0.clone()).collect();
        let described = Described {
            name,
            inputs,
            output: output.0.clone(),
            description,
        };
        Ok(TemporalOperator(Mutex::new(described.operator()?)))
    }

    fn step(&self, py: Python<'_>, inputs: Vec<PyRef<'_, ColumnBatch>>) -> PyResult<ColumnBatch> {
        let inputs: Vec<Batch> = inputs.iter().map(|batch| batch.0.clone()).collect();
        let found = self.run(py, move |operator| operator.step(&inputs))?;
        found.map(ColumnBatch).map_err(|failure| raised(py, failure))
    }

    fn mark_of(&self, py: Python<'_>, mark: i64) -> PyResult<i64> {
        self.run(py, |operator| operator.mark_of(mark))
    }

    fn fast_forward(&self, py: Python<'_>, t: i64) -> PyResult<Vec<i64>> {
        self.run(py, |operator| operator.fast_forward(t))
    }

    fn state<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let state = self.run(py, |operator| operator.state())?;
        object_of(py, &state)
    }

    fn restore(&self, py: Python<'_>, state: &Bound<'_, PyAny>) -> PyResult<()> {
        let state = plain_of(state)?;
        let restored = self.run(py, |operator| operator.restore(&state))?;
        restored.map_err(|failure: Failure| raised(py, failure))
    }

    /// The state as MessagePack.
    fn packed_state<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let state = self.run(py, |operator| packed(&operator.state()))?;
        state
            .map(|bytes| PyBytes::new(py, &bytes))
            .map_err(|failure| raised(py, failure))
    }

    /// Take the state of `packed_state`. Returns the stable point, and the time from which events are needed.
    fn restore_packed(&self, py: Python<'_>, state: PyBackedBytes) -> PyResult<(i64, i64)> {
        let restored = self.run(py, move |operator| {
            let state = unpacked(&state)?;
            operator.restore(&state)?;
            Ok((state.get("stable")?.int()?, state.get("fast_forwarded")?.int()?))
        })?;
        restored.map_err(|failure: Failure| raised(py, failure))
    }

    fn live(&self, py: Python<'_>) -> PyResult<usize> {
        self.run(py, |operator| operator.live())
    }

    #[getter]
    fn skipped(&self, py: Python<'_>) -> PyResult<u64> {
        self.run(py, |operator| operator.skipped())
    }

    #[getter]
    fn purged(&self, py: Python<'_>) -> PyResult<u64> {
        self.run(py, |operator| operator.purged())
    }

    fn sizes(&self, py: Python<'_>) -> PyResult<Vec<(&'static str, usize)>> {
        self.run(py, |operator| operator.sizes())
    }

    fn check(&self, py: Python<'_>) -> PyResult<()> {
        self.run(py, |operator| operator.check())
    }
}

impl TemporalOperator {
    /// Run `work` without the GIL. A panic becomes an AssertionError.
    fn run<T: Send>(&self, py: Python<'_>, work: impl FnOnce(&mut dyn Operator) -> T + Send) -> PyResult<T> {
        guarded(py, || {
            // An operator that has failed is not asked again; a check of it can still be worth something.
            let mut operator = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            work(&mut **operator)
        })
    }
}

/// What an operator is made of.
struct Described<'a, 'py> {
    name: &'a str,
    inputs: Vec<Arc<RowSchema>>,
    output: Arc<RowSchema>,
    description: &'a Bound<'py, PyDict>,
}

impl<'py> Described<'_, 'py> {
    fn operator(&self) -> PyResult<Box<dyn Operator>> {
        let kind: String = self.field("kind")?.extract()?;
        Ok(match kind.as_str() {
            "span" => Box::new(self.span()?),
            "union" => {
                let form = Arc::new(RowForm::new(&self.output));
                Box::new(Union::new(self.name, self.output.clone(), form, self.inputs.len()))
            }
            "join" => Box::new(self.join()?),
            "as_of" => Box::new(self.as_of()?),
            "edges" => Box::new(self.edges()?),
            "coalesce" => Box::new(Coalesce::new(self.name, self.output.clone())),
            "cleanse" => Box::new(Cleanse::new(self.name, self.output.clone())),
            "windows" => Box::new(window_operator(
                self.name,
                &self.inputs[0],
                &self.output,
                self.description,
            )?),
            other => return Err(unknown(other)),
        })
    }

    fn span(&self) -> PyResult<Span> {
        let (mut alterations, mut parts) = (Alterations::default(), Vec::new());
        for part in self.field("parts")?.cast::<PyList>()?.iter() {
            let (kind, value, schema): (String, Bound<'_, PyAny>, Bound<'_, PyAny>) = part.extract()?;
            match kind.as_str() {
                "keep" => parts.push(RowPart::Keep(expressions(&value)?)),
                "map" => {
                    let schema = schema.cast::<ColumnForm>()?.get().0.clone();
                    parts.push(RowPart::Map(expressions(&value)?, schema));
                }
                other => {
                    let alteration = Alteration::of(other, value.extract()?);
                    alterations.0.push(alteration.ok_or_else(|| unknown(other))?);
                }
            }
        }
        Ok(Span::new(self.name, self.inputs[0].clone(), alterations, parts))
    }

    fn join(&self) -> PyResult<Join> {
        let how: String = self.field("how")?.extract()?;
        let kind = JoinKind::of(&how).ok_or_else(|| unknown(&how))?;
        let predicate = self.field("predicate")?;
        let predicate = if predicate.is_none() {
            None
        } else {
            Some(expressions(&predicate)?)
        };
        let inputs = [self.join_input(0)?, self.join_input(1)?];
        Ok(Join::new(
            self.name,
            self.output.clone(),
            kind,
            inputs,
            predicate,
            self.field("pairs_max")?.extract()?,
        ))
    }

    fn join_input(&self, at: usize) -> PyResult<JoinInput> {
        Ok(JoinInput {
            form: Arc::new(RowForm::new(&self.inputs[at])),
            key: key_of(&self.field("keys")?.get_item(at)?)?,
        })
    }

    fn as_of(&self) -> PyResult<AsOf> {
        let side = |at: usize| {
            let JoinInput { form, key } = self.join_input(at)?;
            Ok::<_, PyErr>((form, key))
        };
        let (is_outer, within) = (self.field("is_outer")?.extract()?, self.field("within")?.extract()?);
        Ok(AsOf::new(
            self.name,
            self.output.clone(),
            [side(0)?, side(1)?],
            is_outer,
            within,
        ))
    }

    fn edges(&self) -> PyResult<Edges> {
        let (refuses_ties, lasts) = (self.field("refuses_ties")?.extract()?, self.field("lasts")?.extract()?);
        Ok(Edges::new(
            self.name,
            self.output.clone(),
            key_of(&self.field("by")?)?,
            refuses_ties,
            lasts,
        ))
    }

    fn field(&self, name: &str) -> PyResult<Bound<'py, PyAny>> {
        let missing = || PyValueError::new_err(format!("{}: the description has no {name:?}", self.name));
        self.description.get_item(name)?.ok_or_else(missing)
    }
}

fn expressions(handle: &Bound<'_, PyAny>) -> PyResult<Arc<lmerge_temporal::expressions::Expressions>> {
    Ok(handle.cast::<Expressions>()?.get().0.clone())
}

fn key_of(handle: &Bound<'_, PyAny>) -> PyResult<KeyOf> {
    Ok(KeyOf::new(if handle.is_none() {
        None
    } else {
        Some(expressions(handle)?)
    }))
}

fn unknown(what: &str) -> PyErr {
    PyValueError::new_err(format!("there is no native {what:?}"))
}
