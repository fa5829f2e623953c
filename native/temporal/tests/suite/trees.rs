//! Trees of expressions, written by the names of operations, and what they give for columns.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Decimal128Type, Float64Type, Int64Type};
use arrow_array::{ArrayRef, Decimal128Array, Float64Array, Int64Array, StringArray};
use lmerge_temporal::expressions::{CallFailure, Expressions, Host, Lowered, Operation, RowError};
use lmerge_temporal::failure::Failure;
use lmerge_temporal::{Column, Kind};

/// A host whose errors name the row, and whose upper case is marked.
#[derive(Debug)]
pub struct Marking;

impl Host for Marking {
    fn failure(&self, _: &[ArrayRef], row: usize, _: Option<Failure>) -> Failure {
        Failure::Module(format!("row {row}"))
    }

    fn call(&self, _: usize, _: &[ArrayRef], _: usize) -> Result<ArrayRef, CallFailure> {
        unreachable!("nothing is called")
    }

    fn cased(&self, texts: &[&str], _: bool) -> Result<Vec<String>, Failure> {
        Ok(texts.iter().map(|text| format!("<{text}>")).collect())
    }
}

/// A tree, written by the names of operations.
pub struct Tree {
    operation: Operation,
    kind: Kind,
    operands: Vec<Tree>,
}

pub fn load(index: usize, kind: Kind) -> Tree {
    Tree {
        operation: Operation::Load(index),
        kind,
        operands: Vec::new(),
    }
}

pub fn constant(array: ArrayRef, kind: Kind) -> Tree {
    Tree {
        operation: Operation::Constant(array),
        kind,
        operands: Vec::new(),
    }
}

pub fn int(value: i64) -> Tree {
    constant(Arc::new(Int64Array::from(vec![value])), Kind::Int)
}

pub fn text(value: &str) -> Tree {
    constant(Arc::new(StringArray::from(vec![value])), Kind::String)
}

pub fn of(name: &str, kind: Kind, operands: impl Into<Vec<Tree>>) -> Tree {
    let operation = Operation::named(name).expect("an operation");
    Tree {
        operation,
        kind,
        operands: operands.into(),
    }
}

pub fn with(operation: Operation, kind: Kind, operand: Tree) -> Tree {
    Tree {
        operation,
        kind,
        operands: vec![operand],
    }
}

pub fn cast(kind: Kind, operand: Tree) -> Tree {
    with(Operation::Cast { is_strict: true }, kind, operand)
}

pub fn cast_or_null(kind: Kind, operand: Tree) -> Tree {
    with(Operation::Cast { is_strict: false }, kind, operand)
}

fn lower(tree: Tree, nodes: &mut Vec<Lowered>) -> usize {
    let operands = tree.operands.into_iter().map(|operand| lower(operand, nodes)).collect();
    let column = Column {
        name: String::new(),
        kind: tree.kind,
        nullable: true,
    };
    nodes.push(Lowered {
        operation: tree.operation,
        column,
        operands,
    });
    nodes.len() - 1
}

pub fn bound(tree: Tree) -> Expressions {
    let mut nodes = Vec::new();
    let root = lower(tree, &mut nodes);
    Expressions::bind(nodes, vec![root], Arc::new(Marking)).expect("nodes behind their operands")
}

pub fn evaluated(tree: Tree, columns: &[ArrayRef]) -> Result<ArrayRef, RowError> {
    let len = columns.first().map_or(1, |column| column.len());
    Ok(bound(tree).evaluate(columns, len)?.remove(0))
}

pub fn ints(tree: Tree, columns: &[ArrayRef]) -> Vec<Option<i64>> {
    evaluated(tree, columns)
        .expect("values")
        .as_primitive::<Int64Type>()
        .iter()
        .collect()
}

pub fn floats(tree: Tree, columns: &[ArrayRef]) -> Vec<Option<f64>> {
    evaluated(tree, columns)
        .expect("values")
        .as_primitive::<Float64Type>()
        .iter()
        .collect()
}

pub fn decimals(tree: Tree, columns: &[ArrayRef]) -> Vec<Option<i128>> {
    evaluated(tree, columns)
        .expect("values")
        .as_primitive::<Decimal128Type>()
        .iter()
        .collect()
}

pub fn truths(tree: Tree, columns: &[ArrayRef]) -> Vec<Option<bool>> {
    evaluated(tree, columns).expect("values").as_boolean().iter().collect()
}

pub fn texts(tree: Tree, columns: &[ArrayRef]) -> Vec<Option<String>> {
    let found = evaluated(tree, columns).expect("values");
    found
        .as_string::<i32>()
        .iter()
        .map(|text| text.map(str::to_owned))
        .collect()
}

pub fn row_of_error(tree: Tree, columns: &[ArrayRef]) -> usize {
    evaluated(tree, columns).expect_err("a row with an error").row
}

pub fn int_column(values: impl Into<Vec<Option<i64>>>) -> ArrayRef {
    Arc::new(Int64Array::from(values.into()))
}

pub fn float_column(values: impl Into<Vec<f64>>) -> ArrayRef {
    Arc::new(Float64Array::from(values.into()))
}

pub fn text_column<const N: usize>(values: [&str; N]) -> ArrayRef {
    Arc::new(StringArray::from(values.to_vec()))
}

pub fn decimal_column(scale: u8, values: impl Into<Vec<i128>>) -> ArrayRef {
    let array = Decimal128Array::from(values.into());
    Arc::new(array.with_data_type(Kind::Decimal(scale).of("").data_type()))
}

pub trait OfKind {
    fn of(self, name: &str) -> Column;
}

impl OfKind for Kind {
    fn of(self, name: &str) -> Column {
        Column {
            name: name.to_owned(),
            kind: self,
            nullable: true,
        }
    }
}
