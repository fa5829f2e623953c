//! Operations by the names that Python has for them.

use arrow_array::ArrayRef;

use crate::Column;

/// A node as Python hands it over. `operands`: the numbers of earlier nodes.
#[derive(Clone, Debug)]
pub struct Lowered {
    pub operation: Operation,
    pub column: Column,
    pub operands: Vec<usize>,
}

/// What a node computes, with what is not computed for it.
#[derive(Clone, Debug)]
pub enum Operation {
    /// The column at an index.
    Load(usize),
    /// An array of one value.
    Constant(ArrayRef),
    And,
    Or,
    /// Operands: condition, value, ..., and the value for the rest.
    Case,
    Coalesce,
    Not,
    IsNull,
    Compare(Comparison),
    /// The values, an array without NULL.
    IsIn(ArrayRef),
    Least,
    Greatest,
    Add,
    Subtract,
    Multiply,
    Divide,
    FloorDivide,
    Modulo,
    Negate,
    Absolute,
    Sign,
    Floor,
    Ceil,
    /// To that many digits behind the point.
    Round(i32),
    SquareRoot,
    Exponential,
    Logarithm,
    Power,
    Cast {
        is_strict: bool,
    },
    Lower,
    Upper,
    Length,
    Concat,
    Substring,
    StartsWith,
    EndsWith,
    Contains,
    Replace,
    /// The characters that are removed.
    Trim(String),
    /// Down to a multiple of microseconds.
    Truncate(i64),
    HourOfDay,
    DayOfWeek,
    DateOf,
    /// The field at an index.
    Field(usize),
    Element,
    /// The user's function of that number (`Host`). `skips_nulls`: NULL, and no call, where an operand is NULL.
    Call {
        function: usize,
        skips_nulls: bool,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
}

impl Operation {
    /// The operation of a name, for those without anything else. None if there is no such operation.
    pub fn named(name: &str) -> Option<Operation> {
        Some(match name {
            "and" => Operation::And,
            "or" => Operation::Or,
            "case" => Operation::Case,
            "coalesce" => Operation::Coalesce,
            "not" => Operation::Not,
            "is_null" => Operation::IsNull,
            "equal" => Operation::Compare(Comparison::Equal),
            "not_equal" => Operation::Compare(Comparison::NotEqual),
            "less" => Operation::Compare(Comparison::Less),
            "less_equal" => Operation::Compare(Comparison::LessEqual),
            "greater" => Operation::Compare(Comparison::Greater),
            "greater_equal" => Operation::Compare(Comparison::GreaterEqual),
            "least" => Operation::Least,
            "greatest" => Operation::Greatest,
            "add" => Operation::Add,
            "subtract" => Operation::Subtract,
            "multiply" => Operation::Multiply,
            "divide" => Operation::Divide,
            "floor_divide" => Operation::FloorDivide,
            "modulo" => Operation::Modulo,
            "negate" => Operation::Negate,
            "abs" => Operation::Absolute,
            "sign" => Operation::Sign,
            "floor" => Operation::Floor,
            "ceil" => Operation::Ceil,
            "sqrt" => Operation::SquareRoot,
            "exp" => Operation::Exponential,
            "ln" => Operation::Logarithm,
            "power" => Operation::Power,
            "lower" => Operation::Lower,
            "upper" => Operation::Upper,
            "length" => Operation::Length,
            "concat" => Operation::Concat,
            "substring" => Operation::Substring,
            "starts_with" => Operation::StartsWith,
            "ends_with" => Operation::EndsWith,
            "contains" => Operation::Contains,
            "replace" => Operation::Replace,
            "hour_of_day" => Operation::HourOfDay,
            "day_of_week" => Operation::DayOfWeek,
            "date_of" => Operation::DateOf,
            "element" => Operation::Element,
            _ => return None,
        })
    }
}
