//! What every operator is: `PlanOperator` of `lmerge/temporal/operators/operator.py`.

use crate::batch::Batch;
use crate::failure::Failure;
use crate::plain::Plain;
use crate::{INF, NEG_INF};

/// An operator that runs. `step` takes a batch of each input, which are legal streams, and returns the batch of the
/// output: settled (`changes`), then at most one stable. The mark of the output is set by who calls `step`.
pub trait Operator: Send {
    /// The number of inputs.
    fn inputs(&self) -> usize {
        1
    }

    fn step(&mut self, inputs: &[Batch]) -> Result<Batch, Failure>;

    /// The watermark of the output at one of the inputs.
    fn mark_of(&self, mark: i64) -> i64 {
        mark
    }

    /// Learn that the consumer needs no event that ends before `t`; return the same for each input.
    fn fast_forward(&mut self, t: i64) -> Vec<i64>;

    /// What the operator has to know to go on: the same values as in Python.
    fn state(&self) -> Plain;

    /// Take a state that `state` has returned, there or here. The operator is a new one.
    fn restore(&mut self, state: &Plain) -> Result<(), Failure>;

    /// The number of events that the operator keeps.
    fn live(&self) -> usize {
        0
    }

    /// How often an event was left out after feedback, and not evaluated.
    fn skipped(&self) -> u64 {
        0
    }

    /// How many events were dropped after feedback.
    fn purged(&self) -> u64 {
        0
    }

    /// What the operator keeps besides events, by kind, such as groups.
    fn sizes(&self) -> Vec<(&'static str, usize)> {
        Vec::new()
    }

    /// Panic unless the invariants of the state hold.
    fn check(&self) {}
}

/// What all operators keep: the name, for messages, and the progress of the output.
#[derive(Clone, Debug)]
pub struct Progress {
    pub name: String,
    /// Of the output.
    pub stable: i64,
    /// The consumer needs no event that ends before it.
    pub fast_forwarded: i64,
}

impl Progress {
    pub fn new(name: impl Into<String>) -> Progress {
        Progress {
            name: name.into(),
            stable: NEG_INF,
            fast_forwarded: NEG_INF,
        }
    }

    /// Move the stable point if `stable` is beyond it. Returns the stable of the output batch.
    pub fn advance(&mut self, stable: Option<i64>) -> Option<i64> {
        let moved = stable.filter(|&stable| stable > self.stable)?;
        self.stable = moved;
        Some(moved)
    }

    pub fn fast_forward(&mut self, t: i64) -> i64 {
        self.fast_forwarded = self.fast_forwarded.max(t);
        self.fast_forwarded
    }

    pub fn state(&self) -> Plain {
        Plain::map([
            ("stable", Plain::Int(self.stable)),
            ("fast_forwarded", Plain::Int(self.fast_forwarded)),
        ])
    }

    pub fn restore(&mut self, state: &Plain) -> Result<(), Failure> {
        self.stable = state.get("stable")?.int()?;
        self.fast_forwarded = state.get("fast_forwarded")?.int()?;
        Ok(())
    }
}

/// `t + d` in units of time, saturated; an infinity stays where it is.
#[inline]
pub fn plus(t: i64, d: i64) -> i64 {
    if t == INF || t == NEG_INF {
        t
    } else {
        t.saturating_add(d)
    }
}

/// A time as text for messages: the two infinities by name.
pub fn show_time(t: i64) -> String {
    match t {
        INF => "inf".to_owned(),
        NEG_INF => "-inf".to_owned(),
        t => t.to_string(),
    }
}
