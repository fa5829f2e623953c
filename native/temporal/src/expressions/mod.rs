//! Scalar expressions over columns: the twin of `lmerge/temporal/expressions`, whose table E1-E27 is the definition.
//!
//! Python gives an expression its types, and hands over what that makes of it (`lowering.py` there): a list of nodes,
//! each behind its operands, equal nodes once. So the rules of types exist once, and a node is evaluated once a batch
//! (E22). A node is evaluated for all rows, also for those for which a condition in front of it makes it needless (E3):
//! this costs less than to gather the rows. So a value comes with the rows for which it has none, its errors. An
//! operation hands on the errors of its operands, but `&`, `|`, `case` and `coalesce` only those of rows that need the
//! operand. A node that no row needs is not evaluated.
//!
//! Users' functions are called by Python, once a batch, for the rows that need them (`calling`).
//!
//! An error is only a row here. Its message is made in Python (`Host`), by the evaluation of that row, or where a user's
//! function has failed.
//!
//! | module | what |
//! |---|---|
//! | `nodes` | operations by their names |
//! | `values` | values of a node with their errors; the frame of an operation on each row |
//! | `calling` | calls of users' functions |
//! | `evaluating` | which node is evaluated, and which errors count |
//! | `arithmetic`, `comparing`, `casting`, `numeric`, `decimals`, `texts`, `times`, `nested` | operations |

mod arithmetic;
mod calling;
mod casting;
mod comparing;
mod decimals;
mod evaluating;
mod nested;
mod nodes;
mod numeric;
mod texts;
mod times;
mod values;

use std::fmt::Debug;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, UInt32Array};
use arrow_buffer::BooleanBuffer;
use arrow_select::take::take;

use crate::Column;
use crate::failure::Failure;

pub use calling::CallFailure;
pub use evaluating::Rows;
use evaluating::{Evaluation, Node, without};
pub use nodes::{Lowered, Operation};
use values::{Value, union, within};

/// What the library cannot do itself: Python does it, which is the definition.
pub trait Host: Debug + Send + Sync {
    /// The error of the expressions for the row at `row`. `failed`: what `call` has returned for it; without it they are
    /// evaluated again, to make the message.
    fn failure(&self, columns: &[ArrayRef], row: usize, failed: Option<Failure>) -> Failure;

    /// The results of a user's function for `len` rows of arguments.
    fn call(&self, function: usize, arguments: &[ArrayRef], len: usize) -> Result<ArrayRef, CallFailure>;

    /// Texts in upper case or in lower case. Unicode changes, and its version is that of Python.
    fn cased(&self, texts: &[&str], to_upper: bool) -> Result<Vec<String>, Failure>;
}

/// The first row that has no value, and its error.
#[derive(Debug)]
pub struct RowError {
    pub row: usize,
    pub failure: Failure,
}

/// The expressions of one operator, for rows of one schema. Equal parts of them are evaluated once.
#[derive(Debug)]
pub struct Expressions {
    nodes: Vec<Node>,
    roots: Vec<usize>,
    host: Arc<dyn Host>,
}

impl Expressions {
    /// `nodes`: each behind its operands. `roots`: the nodes that are the expressions. Err: what does not fit.
    pub fn bind(nodes: Vec<Lowered>, roots: Vec<usize>, host: Arc<dyn Host>) -> Result<Expressions, String> {
        let mut bound: Vec<Node> = Vec::with_capacity(nodes.len());
        for node in nodes {
            let node = Node::of(node, &bound)?;
            bound.push(node);
        }
        if let Some(root) = roots.iter().find(|&&root| root >= bound.len()) {
            return Err(format!("there is no node {root}"));
        }
        let mut expressions = Expressions {
            nodes: bound,
            roots,
            host,
        };
        expressions.fold();
        Ok(expressions)
    }

    /// The types of the expressions.
    pub fn columns(&self) -> impl Iterator<Item = &Column> {
        self.roots.iter().map(|&root| &self.nodes[root].column)
    }

    /// The values of the expressions for `len` rows. Err: the first row in which one of them has none.
    pub fn evaluate(&self, columns: &[ArrayRef], len: usize) -> Result<Vec<ArrayRef>, RowError> {
        self.evaluate_within(columns, len, self.roots.len(), &None)
    }

    /// As `evaluate`; of the expressions behind the first `everywhere` only the rows in `some` need a value.
    pub fn evaluate_within(
        &self,
        columns: &[ArrayRef],
        len: usize,
        everywhere: usize,
        some: &Rows,
    ) -> Result<Vec<ArrayRef>, RowError> {
        let values = self.values(columns, len, everywhere, some)?;
        Ok(values.into_iter().map(|value| spread(value, len)).collect())
    }

    /// The rows that the only expression, a predicate, keeps: those for which it is true.
    pub fn kept(&self, columns: &[ArrayRef], len: usize) -> Result<BooleanBuffer, RowError> {
        let value = self.values(columns, len, 1, &None)?.remove(0);
        let truths = value.array.as_boolean();
        let kept = match truths.nulls() {
            Some(nulls) => truths.values() & nulls.inner(),
            None => truths.values().clone(),
        };
        Ok(match value.is_scalar {
            true if kept.value(0) => BooleanBuffer::new_set(len),
            true => BooleanBuffer::new_unset(len),
            false => kept,
        })
    }

    fn values(&self, columns: &[ArrayRef], len: usize, everywhere: usize, some: &Rows) -> Result<Vec<Value>, RowError> {
        let mut evaluation = Evaluation::new(&self.nodes, columns, len, &*self.host);
        let (mut values, mut errors, mut rows): (_, _, Rows) = (Vec::with_capacity(self.roots.len()), None, None);
        for (at, &root) in self.roots.iter().enumerate() {
            let some = some.as_ref().filter(|_| at >= everywhere);
            let value = evaluation.value(root, &rows);
            let value = value.map_err(|failure| RowError { row: 0, failure })?;
            let mut wrong = value.spread_errors(len);
            if let Some(some) = some {
                wrong = within(wrong, some);
            }
            rows = without(rows, wrong.clone());
            errors = union(errors, wrong);
            values.push(value);
        }
        let Some(row) = errors.and_then(|errors| errors.set_indices().next()) else {
            return Ok(values);
        };
        let failed = evaluation.failed.filter(|(first, _)| *first == row);
        Err(RowError {
            row,
            failure: self.host.failure(columns, row, failed.map(|(_, failure)| failure)),
        })
    }

    /// Replace what is the same for all rows by its value.
    fn fold(&mut self) {
        for at in 0..self.nodes.len() {
            let node = &self.nodes[at];
            let is_constant = |&operand: &usize| matches!(self.nodes[operand].operation, Operation::Constant(_));
            if node.calls || node.operands.is_empty() || !node.operands.iter().all(is_constant) {
                continue;
            }
            let mut evaluation = Evaluation::new(&self.nodes, &[], 1, &*self.host);
            if let Ok(Value {
                array, errors: None, ..
            }) = evaluation.value(at, &None)
            {
                let node = &mut self.nodes[at];
                node.operation = Operation::Constant(array);
                node.operands.clear();
            }
        }
    }
}

/// The array of a value that may be one for all rows.
fn spread(value: Value, len: usize) -> ArrayRef {
    if !value.is_scalar {
        return value.array;
    }
    let first = UInt32Array::from(vec![0; len]);
    take(&value.array, &first, None).expect("a scalar has a value at 0")
}
