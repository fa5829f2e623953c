//! Span operators: filter, project and other lifetimes, fused. `lmerge/temporal/operators/span.py`.
//!
//! Lifetimes come first, so after feedback no expression sees what is left out. Then each part takes all rows that are
//! left. Python takes each row through all parts; so where a row fails, the parts behind still see the rows before it,
//! and the first row that fails decides.

use std::borrow::Cow;
use std::sync::Arc;

use arrow_array::{ArrayRef, BooleanArray, Int64Array};
use arrow_buffer::ScalarBuffer;
use arrow_select::filter::{FilterBuilder, FilterPredicate};

use super::lifetimes::Alterations;
use super::skipping::SkippedEvents;
use crate::RowSchema;
use crate::batch::Batch;
use crate::expressions::{Expressions, RowError};
use crate::failure::Failure;
use crate::operator::{Operator, Progress};
use crate::plain::Plain;
use crate::rows::{RowForm, SharedForm};
use crate::settle::settled;

/// What happens to rows.
#[derive(Debug)]
pub enum RowPart {
    /// Rows for which the predicate is true stay.
    Keep(Arc<Expressions>),
    /// One row of these columns for each row.
    Map(Arc<Expressions>, Arc<RowSchema>),
}

/// A chain of span operators.
#[derive(Debug)]
pub struct Span {
    progress: Progress,
    schema: Arc<RowSchema>,
    form: SharedForm,
    alterations: Alterations,
    parts: Vec<RowPart>,
    skip: SkippedEvents,
}

impl Span {
    /// `input`: of the rows that come in.
    pub fn new(name: &str, input: Arc<RowSchema>, alterations: Alterations, parts: Vec<RowPart>) -> Span {
        let is_map = |part: &RowPart| match part {
            RowPart::Map(_, schema) => Some(schema.clone()),
            RowPart::Keep(_) => None,
        };
        let schema = parts.iter().rev().find_map(is_map).unwrap_or_else(|| input.clone());
        let input_form = Arc::new(RowForm::new(&input));
        Span {
            progress: Progress::new(name),
            form: if Arc::ptr_eq(&schema, &input) {
                input_form.clone()
            } else {
                Arc::new(RowForm::new(&schema))
            },
            schema,
            skip: SkippedEvents::new(input_form, alterations.clone()),
            alterations,
            parts,
        }
    }

    /// The changes with the lifetimes of results.
    fn altered<'a>(&self, batch: Cow<'a, Batch>) -> Cow<'a, Batch> {
        if self.alterations.is_empty() {
            return batch;
        }
        let (mut rows, mut vs, mut old, mut new) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for at in 0..batch.len() {
            self.alterations
                .moved(batch.vs[at], batch.old[at], batch.new[at], |start, before, after| {
                    rows.push(at as u32);
                    vs.push(start);
                    old.push(before);
                    new.push(after);
                });
        }
        let is_one_each = rows.len() == batch.len() && rows.iter().zip(0..).all(|(&row, at)| row == at);
        let taken = if is_one_each {
            batch.into_owned()
        } else {
            batch.take(&rows)
        };
        Cow::Owned(Batch {
            vs: vs.into(),
            old: old.into(),
            new: new.into(),
            ..taken
        })
    }
}

impl Operator for Span {
    fn step(&mut self, inputs: &[Batch]) -> Result<Batch, Failure> {
        let taken = self.skip.take(&inputs[0]);
        let stable = taken.stable.map(|stable| self.alterations.stable(stable));
        let mut changes = self.altered(Cow::Owned(taken)).into_owned();
        let mut failed = None;
        for part in &self.parts {
            changes = match part {
                RowPart::Keep(predicate) => {
                    let kept = until_failure(&mut changes, &mut failed, |changes| {
                        predicate.kept(&changes.columns, changes.len())
                    })?;
                    filtered(changes, BooleanArray::new(kept, None))
                }
                RowPart::Map(expressions, schema) => {
                    let columns = until_failure(&mut changes, &mut failed, |changes| {
                        expressions.evaluate(&changes.columns, changes.len())
                    })?;
                    Batch {
                        columns,
                        schema: schema.clone(),
                        ..changes
                    }
                }
            };
        }
        if let Some(failure) = failed {
            return Err(failure);
        }
        let out = settled(changes, &self.form);
        Ok(Batch {
            schema: self.schema.clone(),
            stable: self.progress.advance(stable),
            mark: None,
            ..out
        })
    }

    fn mark_of(&self, mark: i64) -> i64 {
        self.alterations.stable(mark)
    }

    fn fast_forward(&mut self, t: i64) -> Vec<i64> {
        let t = self.progress.fast_forward(t);
        self.skip.fast_forward(t);
        vec![self.alterations.needed(t)]
    }

    fn state(&self) -> Plain {
        self.progress
            .state()
            .and([("skips", Plain::List(vec![self.skip.state()]))])
    }

    fn restore(&mut self, state: &Plain) -> Result<(), Failure> {
        self.progress.restore(state)?;
        let [skip] = state.get("skips")?.tuple()?;
        self.skip.restore(skip)
    }

    fn live(&self) -> usize {
        self.skip.live()
    }

    fn skipped(&self) -> u64 {
        self.skip.skipped()
    }

    fn check(&self) {
        self.skip.check();
    }
}

/// Evaluate for all rows, or for those before the first that fails, whose failure is kept.
fn until_failure<T>(
    changes: &mut Batch,
    failed: &mut Option<Failure>,
    evaluate: impl Fn(&Batch) -> Result<T, RowError>,
) -> Result<T, Failure> {
    evaluate(changes).or_else(|RowError { row, failure }| {
        *failed = Some(failure);
        *changes = changes.slice(0, row);
        evaluate(changes).map_err(|RowError { failure, .. }| failure)
    })
}

/// The changes for which `kept` is true.
fn filtered(changes: Batch, kept: BooleanArray) -> Batch {
    let count = kept.true_count();
    if count == changes.len() {
        return changes;
    }
    let columns = changes.columns.len() + 3;
    let builder = FilterBuilder::new(&kept);
    let predicate = if columns > 1 { builder.optimize() } else { builder }.build();
    let vs = times(&predicate, &changes.vs);
    let old = if changes.old.ptr_eq(&changes.vs) {
        vs.clone()
    } else {
        times(&predicate, &changes.old)
    };
    let column = |column: &ArrayRef| predicate.filter(column).expect("a filter has one bit for each row");
    Batch {
        columns: changes.columns.iter().map(column).collect(),
        old,
        new: times(&predicate, &changes.new),
        vs,
        ..changes
    }
}

fn times(predicate: &FilterPredicate, times: &ScalarBuffer<i64>) -> ScalarBuffer<i64> {
    let times = Int64Array::new(times.clone(), None);
    let kept = predicate.filter(&times).expect("a filter has one bit for each row");
    arrow_array::cast::AsArray::as_primitive::<arrow_array::types::Int64Type>(&kept)
        .values()
        .clone()
}
