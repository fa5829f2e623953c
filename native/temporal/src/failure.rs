//! What ends a step: the errors of `lmerge.errors` and `lmerge.temporal.errors`. The binding raises them.

use std::any::Any;

use crate::plain::Plain;

/// Why a step has failed. The operator cannot go on.
#[derive(Debug)]
pub enum Failure {
    /// ModuleViolation.
    Module(String),
    /// LimitExceeded.
    Limit(String),
    /// UsageError.
    Usage(String),
    /// UsageError whose text ends with rows, as Python shows them, in the order of these texts.
    UsageOfRows { text: String, rows: Vec<Plain> },
    /// InputViolation.
    Input(Box<Violation>),
    /// A ModuleViolation or a UsageError whose text has a row in it, which Python shows.
    Shown {
        is_usage: bool,
        before: String,
        row: Plain,
        after: String,
    },
    /// An exception of Python, from a user's function.
    Python(Box<dyn Any + Send>),
}

/// An element that breaks a promise of its stream: the arguments of InputViolation.
#[derive(Debug)]
pub struct Violation {
    pub code: &'static str,
    pub input: String,
    /// The change, as (row, vs, old, new).
    pub row: Plain,
    pub times: [i64; 3],
    pub promised: String,
    pub came: String,
    /// The property that is broken, if a stream without it could still be taken.
    pub promise: Option<&'static str>,
}
