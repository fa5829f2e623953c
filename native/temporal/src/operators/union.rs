//! Union: the multiset sum of its inputs. `lmerge/temporal/operators/union.py`.

use std::sync::Arc;

use crate::batch::{Batch, COLUMN_LENGTH_MAX, joined};
use crate::failure::Failure;
use crate::operator::{Operator, Progress};
use crate::plain::Plain;
use crate::rows::SharedForm;
use crate::settle::settled;
use crate::{NEG_INF, RowSchema};

/// All events of several streams with the same columns.
#[derive(Debug)]
pub struct Union {
    progress: Progress,
    schema: Arc<RowSchema>,
    form: SharedForm,
    stables: Vec<i64>,
}

impl Union {
    pub fn new(name: &str, schema: Arc<RowSchema>, form: SharedForm, inputs: usize) -> Union {
        Union {
            progress: Progress::new(name),
            schema,
            form,
            stables: vec![NEG_INF; inputs],
        }
    }
}

impl Operator for Union {
    fn inputs(&self) -> usize {
        self.stables.len()
    }

    fn step(&mut self, inputs: &[Batch]) -> Result<Batch, Failure> {
        let all = together(&self.schema, inputs)?;
        let mut moved = false;
        for (stable, input) in self.stables.iter_mut().zip(inputs) {
            if let Some(found) = input.stable {
                *stable = (*stable).max(found);
                moved = true;
            }
        }
        let least = self.stables.iter().copied().min().filter(|_| moved);
        Ok(Batch {
            stable: self.progress.advance(least),
            ..settled(all, &self.form)
        })
    }

    fn fast_forward(&mut self, t: i64) -> Vec<i64> {
        vec![self.progress.fast_forward(t); self.inputs()]
    }

    fn state(&self) -> Plain {
        self.progress
            .state()
            .and([("stables", Plain::ints(self.stables.iter().copied()))])
    }

    fn restore(&mut self, state: &Plain) -> Result<(), Failure> {
        self.progress.restore(state)?;
        let stables = state.get("stables")?.list()?;
        self.stables = stables.iter().map(Plain::int).collect::<Result<_, _>>()?;
        Ok(())
    }

    fn check(&self) {
        assert_eq!(Some(self.progress.stable), self.stables.iter().copied().min());
    }
}

/// The changes of several batches one after the other, without a stable point.
fn together(schema: &Arc<RowSchema>, inputs: &[Batch]) -> Result<Batch, Failure> {
    let filled: Vec<&Batch> = inputs.iter().filter(|input| !input.is_empty()).collect();
    let all = match filled.as_slice() {
        [] => Batch::empty(schema.clone()),
        [only] => (*only).clone(),
        _ => joined(schema, &filled, COLUMN_LENGTH_MAX)?,
    };
    Ok(Batch {
        schema: schema.clone(),
        stable: None,
        mark: None,
        ..all
    })
}
