//! Which nodes are evaluated, and whose errors count: `&`, `|`, `case` and `coalesce` take only what decides (E3).
//!
//! A node that calls a user's function is evaluated for the rows that need it, and for no others: a call can fail, be slow
//! or be seen. All other nodes are evaluated for all rows of a batch.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, BooleanArray};
use arrow_buffer::{BooleanBuffer, NullBuffer};

use super::comparing::{compared, extreme, is_in};
use super::nodes::{Lowered, Operation};
use super::values::{Errors, Frame, Value, union, within};
use super::{Host, arithmetic, casting, nested, numeric, texts, times};
use crate::failure::Failure;
use crate::{Column, Kind};

/// A node: an operation with the type of its values and the numbers of its operands.
#[derive(Debug)]
pub struct Node {
    pub operation: Operation,
    pub column: Column,
    pub operands: Vec<usize>,
    /// Whether it, or a node below it, calls a user's function.
    pub calls: bool,
}

impl Node {
    /// Err: an operand is not among the `earlier` nodes.
    pub fn of(lowered: Lowered, earlier: &[Node]) -> Result<Node, String> {
        let Lowered {
            operation,
            column,
            operands,
        } = lowered;
        if let Some(operand) = operands.iter().find(|&&operand| operand >= earlier.len()) {
            return Err(format!(
                "node {} reads node {operand}, which is not before it",
                earlier.len()
            ));
        }
        let calls = matches!(operation, Operation::Call { .. }) || operands.iter().any(|&at| earlier[at].calls);
        Ok(Node {
            operation,
            column,
            operands,
            calls,
        })
    }
}

/// Rows by bits; None: all of them.
pub type Rows = Option<BooleanBuffer>;

/// A node's values, and the rows that have one.
struct Found {
    value: Value,
    rows: Rows,
}

/// The nodes at one batch. Each is evaluated once for a row, if the row needs it.
pub struct Evaluation<'a> {
    nodes: &'a [Node],
    columns: &'a [ArrayRef],
    pub(super) len: usize,
    pub(super) host: &'a dyn Host,
    found: Vec<Option<Found>>,
    /// The first row for which a call has failed, and how.
    pub failed: Option<(usize, Failure)>,
}

impl<'a> Evaluation<'a> {
    pub fn new(nodes: &'a [Node], columns: &'a [ArrayRef], len: usize, host: &'a dyn Host) -> Evaluation<'a> {
        Evaluation {
            nodes,
            columns,
            len,
            host,
            found: nodes.iter().map(|_| None).collect(),
            failed: None,
        }
    }

    /// The values of a node for the rows that need it; other rows have any. Err: the host has failed.
    pub fn value(&mut self, at: usize, rows: &Rows) -> Result<Value, Failure> {
        let nodes = self.nodes;
        let node = &nodes[at];
        let missing = match &self.found[at] {
            None if node.calls => rows.clone(),
            None => None,
            Some(Found { value, rows: None }) => return Ok(value.clone()),
            Some(Found {
                value,
                rows: Some(done),
            }) => {
                let missing = &self.all(rows) & &!done;
                if !missing.has_true() {
                    return Ok(value.clone());
                }
                Some(missing)
            }
        };
        let value = self.evaluated(node, &missing)?;
        let found = match self.found[at].take() {
            Some(before) => self.joined_rows(before, value, missing, &node.column),
            None => Found { value, rows: missing },
        };
        let value = found.value.clone();
        self.found[at] = Some(found);
        Ok(value)
    }

    /// What was found before, with the values of further rows.
    fn joined_rows(&self, before: Found, value: Value, rows: Rows, column: &Column) -> Found {
        let (done, more) = (self.all(&before.rows), self.all(&rows));
        let errors = union(
            within(before.value.spread_errors(self.len), &done),
            within(value.spread_errors(self.len), &more),
        );
        let value = Value {
            errors,
            ..nested::selected(&more, &value, &before.value, self.len, column)
        };
        let rows = Some(&done | &more);
        Found { value, rows }
    }

    fn all(&self, rows: &Rows) -> BooleanBuffer {
        rows.clone().unwrap_or_else(|| BooleanBuffer::new_set(self.len))
    }

    fn evaluated(&mut self, node: &Node, rows: &Rows) -> Result<Value, Failure> {
        Ok(match &node.operation {
            Operation::Load(index) => Value {
                array: self.columns[*index].clone(),
                is_scalar: false,
                errors: None,
            },
            Operation::Constant(array) => Value {
                array: array.clone(),
                is_scalar: true,
                errors: None,
            },
            Operation::And => self.junction(&node.operands, true, rows)?,
            Operation::Or => self.junction(&node.operands, false, rows)?,
            Operation::Case => self.case(node, rows)?,
            Operation::Coalesce => self.coalesce(node, rows)?,
            Operation::Call { function, skips_nulls } => {
                let operands = self.operands(node, rows)?;
                self.called(node, *function, *skips_nulls, &operands, rows)
            }
            _ => self.strict(node, rows)?,
        })
    }

    /// The values of a node's operands, from left to right. A row without one needs none of the next.
    fn operands(&mut self, node: &Node, rows: &Rows) -> Result<Vec<Value>, Failure> {
        let mut rows = rows.clone();
        let mut values = Vec::with_capacity(node.operands.len());
        for &operand in &node.operands {
            let value = self.value(operand, &rows)?;
            if node.calls {
                rows = without(rows, value.spread_errors(self.len));
            }
            values.push(value);
        }
        Ok(values)
    }

    fn strict(&mut self, node: &Node, rows: &Rows) -> Result<Value, Failure> {
        let operands = self.operands(node, rows)?;
        let nodes = self.nodes;
        let kind = |operand: usize| &nodes[node.operands[operand]].column.kind;
        let frame = Frame::new(&operands, self.len);
        let result = &node.column.kind;
        Ok(match &node.operation {
            Operation::Not => {
                let values = frame.operands[0].array.as_boolean().values();
                let opposite = !values;
                frame.of_truths(opposite)
            }
            Operation::IsNull => is_null(&operands[0]),
            Operation::Compare(comparison) => compared(frame, *comparison, kind(0), kind(1)),
            Operation::IsIn(values) => is_in(frame, values),
            Operation::Least => extreme(&operands, self.len, &node.column, true),
            Operation::Greatest => extreme(&operands, self.len, &node.column, false),
            Operation::Add => arithmetic::added(frame, result),
            Operation::Subtract => arithmetic::subtracted(frame, result, kind(0)),
            Operation::Multiply => arithmetic::multiplied(frame, result),
            Operation::Divide => arithmetic::divided(frame),
            Operation::FloorDivide => arithmetic::floor_divided(frame, result),
            Operation::Modulo => arithmetic::modulo(frame, result),
            Operation::Negate => arithmetic::negated(frame, result),
            Operation::Absolute => numeric::absolute(frame, result),
            Operation::Sign => numeric::sign(frame, result),
            Operation::Floor => numeric::to_whole(frame, kind(0), true),
            Operation::Ceil => numeric::to_whole(frame, kind(0), false),
            Operation::Round(digits) => numeric::rounded(frame, kind(0), *digits),
            Operation::SquareRoot => numeric::of_float(frame, f64::sqrt),
            Operation::Exponential => numeric::of_float(frame, f64::exp),
            Operation::Logarithm => numeric::of_float(frame, f64::ln),
            Operation::Power => numeric::power(frame),
            Operation::Cast { is_strict } => casting::cast(frame, kind(0), result, *is_strict),
            Operation::Lower => texts::cased(frame, self.host, false)?,
            Operation::Upper => texts::cased(frame, self.host, true)?,
            Operation::Length => texts::length(frame, kind(0)),
            Operation::Concat => texts::joined(frame),
            Operation::Substring => texts::part(frame),
            Operation::StartsWith => texts::matches(frame, |text, part| text.starts_with(part)),
            Operation::EndsWith => texts::matches(frame, |text, part| text.ends_with(part)),
            Operation::Contains => texts::matches(frame, |text, part| text.contains(part)),
            Operation::Replace => texts::replaced(frame),
            Operation::Trim(characters) => texts::trimmed(frame, characters),
            Operation::Truncate(unit) => times::truncated(frame, *unit),
            Operation::HourOfDay => times::hour_of_day(frame),
            Operation::DayOfWeek => times::day_of_week(frame, kind(0)),
            Operation::DateOf => times::date_of(frame),
            Operation::Field(index) => nested::field(frame, *index),
            Operation::Element => nested::element(frame),
            Operation::Load(_)
            | Operation::Constant(_)
            | Operation::And
            | Operation::Or
            | Operation::Case
            | Operation::Coalesce
            | Operation::Call { .. } => unreachable!("evaluated by need"),
        })
    }

    /// Three-valued and, or: from left to right, until false, true settles a row.
    fn junction(&mut self, operands: &[usize], is_all: bool, rows: &Rows) -> Result<Value, Failure> {
        let first = self.value(operands[0], rows)?;
        let (mut truths, mut errors) = (first.truths(self.len), first.spread_errors(self.len));
        for &operand in &operands[1..] {
            let open = if is_all {
                !&are_false(&truths)
            } else {
                !&are_true(&truths)
            };
            let open = less(&self.all(rows) & &open, &errors);
            if !open.has_true() {
                break;
            }
            let next = self.value(operand, &Some(open.clone()))?;
            errors = union(errors, within(next.spread_errors(self.len), &open));
            truths = joined(&truths, &next.truths(self.len), is_all);
        }
        Ok(Value {
            array: Arc::new(truths),
            is_scalar: false,
            errors,
        })
    }

    /// The value behind the first condition that is true.
    fn case(&mut self, node: &Node, rows: &Rows) -> Result<Value, Failure> {
        let (mut errors, mut open) = (None, self.all(rows));
        let mut branches: Vec<(BooleanBuffer, Value)> = Vec::new();
        let (rest, pairs) = node.operands.split_last().expect("a case has a value for the rest");
        for pair in pairs.chunks_exact(2) {
            if !open.has_true() {
                break;
            }
            let condition = self.value(pair[0], &Some(open.clone()))?;
            errors = union(errors, within(condition.spread_errors(self.len), &open));
            open = less(open, &errors);
            let taken = &open & &are_true(&condition.truths(self.len));
            if !taken.has_true() {
                continue;
            }
            open = &open & &!&taken;
            let value = self.value(pair[1], &Some(taken.clone()))?;
            errors = union(errors, within(value.spread_errors(self.len), &taken));
            branches.push((taken, value));
        }
        let mut result = match (open.has_true(), branches.pop()) {
            (false, Some((_, last))) => last,
            (_, last) => {
                branches.extend(last);
                let value = self.value(*rest, &Some(open.clone()))?;
                errors = union(errors, within(value.spread_errors(self.len), &open));
                value
            }
        };
        for (taken, value) in branches.into_iter().rev() {
            result = nested::selected(&taken, &value, &result, self.len, &node.column);
        }
        Ok(self.with_errors(result, errors, &node.column))
    }

    /// The first operand that is not NULL.
    fn coalesce(&mut self, node: &Node, rows: &Rows) -> Result<Value, Failure> {
        let (mut errors, mut open) = (None, self.all(rows));
        let mut operands: Vec<(BooleanBuffer, Value)> = Vec::new();
        for &operand in &node.operands {
            if !operands.is_empty() && !open.has_true() {
                break;
            }
            let value = self.value(operand, &Some(open.clone()))?;
            errors = union(errors, within(value.spread_errors(self.len), &open));
            let present = match value.spread_nulls(self.len) {
                Some(nulls) => &open & nulls.inner(),
                None => open.clone(),
            };
            open = less(&open & &!&present, &errors);
            operands.push((present, value));
        }
        let (_, mut result) = operands.pop().expect("coalesce has operands");
        for (present, value) in operands.into_iter().rev() {
            result = nested::selected(&present, &value, &result, self.len, &node.column);
        }
        Ok(self.with_errors(result, errors, &node.column))
    }

    /// A value that was chosen, with the errors of the choice.
    fn with_errors(&self, value: Value, errors: Errors, column: &Column) -> Value {
        let value = match errors {
            Some(_) if value.is_scalar => Value {
                array: super::spread(value, self.len),
                is_scalar: false,
                errors,
            },
            _ => Value { errors, ..value },
        };
        match column.kind {
            Kind::List(_) | Kind::Struct(_) => Value {
                array: nested::retyped(&value.array, column),
                ..value
            },
            _ => value,
        }
    }
}

/// The rows less those with an error.
pub fn without(rows: Rows, errors: Errors) -> Rows {
    match (rows, errors) {
        (None, Some(errors)) => Some(!&errors),
        (rows, errors) => rows.map(|rows| less(rows, &errors)),
    }
}

fn less(rows: BooleanBuffer, errors: &Errors) -> BooleanBuffer {
    match errors {
        Some(errors) => &rows & &!errors,
        None => rows,
    }
}

fn joined(one: &BooleanArray, other: &BooleanArray, is_all: bool) -> BooleanArray {
    let (true_, false_) = match is_all {
        true => (&are_true(one) & &are_true(other), &are_false(one) | &are_false(other)),
        false => (&are_true(one) | &are_true(other), &are_false(one) & &are_false(other)),
    };
    let has_nulls = one.null_count() + other.null_count() > 0;
    let nulls = has_nulls.then(|| NullBuffer::new(&true_ | &false_));
    BooleanArray::new(true_, nulls)
}

fn are_true(truths: &BooleanArray) -> BooleanBuffer {
    match truths.nulls() {
        Some(nulls) => truths.values() & nulls.inner(),
        None => truths.values().clone(),
    }
}

fn are_false(truths: &BooleanArray) -> BooleanBuffer {
    match truths.nulls() {
        Some(nulls) => &!truths.values() & nulls.inner(),
        None => !truths.values(),
    }
}

fn is_null(operand: &Value) -> Value {
    let values = match operand.array.nulls() {
        Some(nulls) => !nulls.inner(),
        None => BooleanBuffer::new_unset(operand.array.len()),
    };
    Value {
        array: Arc::new(BooleanArray::new(values, None)),
        ..operand.clone()
    }
}
