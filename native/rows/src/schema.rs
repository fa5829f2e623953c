//! The columns of a schema. `lmerge/wire/schema.py` has checked them.

use std::sync::Arc;

use arrow_schema::{DataType, Field, Fields, TimeUnit};

/// The most digits of a decimal, as in SQL engines and in Arrow's 128 bits.
pub const DECIMAL_DIGITS_MAX: u8 = 38;
/// The most digits before or after the point to which floats can be rounded.
pub const ROUND_DIGITS_MAX: i32 = 15;

/// The type of a column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    Bool,
    Int,
    /// Values are rounded to this many digits first.
    Float(Option<i32>),
    String,
    Bytes,
    /// Microseconds since the epoch.
    Timestamp,
    /// Days since the epoch.
    Date,
    /// The number of digits after the point.
    Decimal(u8),
    List(Box<Column>),
    Struct(Vec<Column>),
}

/// One column, an element of a list or a field of a struct.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    pub name: String,
    pub kind: Kind,
    pub nullable: bool,
}

/// Columns in the order of the payload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schema {
    pub columns: Vec<Column>,
}

impl Column {
    /// The column for a type name of `schema.TYPES`. None if there is no such type, or a number is out of its range.
    pub fn parse(
        name: String,
        type_name: &str,
        nullable: bool,
        round_digits: Option<i32>,
        scale: u8,
        mut children: Vec<Column>,
    ) -> Option<Column> {
        let kind = match type_name {
            "bool" => Kind::Bool,
            "int" => Kind::Int,
            "float" if round_digits.is_none_or(|digits| digits.abs() <= ROUND_DIGITS_MAX) => Kind::Float(round_digits),
            "string" => Kind::String,
            "bytes" => Kind::Bytes,
            "timestamp" => Kind::Timestamp,
            "date" => Kind::Date,
            "decimal" if scale <= DECIMAL_DIGITS_MAX => Kind::Decimal(scale),
            "list" if children.len() == 1 => Kind::List(Box::new(children.pop()?)),
            "struct" => Kind::Struct(children),
            _ => return None,
        };
        Some(Column { name, kind, nullable })
    }

    /// The field of the column in the result of `decode`: that of `arrow_schema` in `lmerge/wire/arrow.py`.
    pub fn field(&self) -> Field {
        Field::new(&self.name, self.data_type(), self.nullable)
    }

    pub fn data_type(&self) -> DataType {
        match &self.kind {
            Kind::Bool => DataType::Boolean,
            Kind::Int => DataType::Int64,
            Kind::Float(_) => DataType::Float64,
            Kind::String => DataType::Utf8,
            Kind::Bytes => DataType::Binary,
            Kind::Timestamp => DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
            Kind::Date => DataType::Date32,
            Kind::Decimal(scale) => DataType::Decimal128(DECIMAL_DIGITS_MAX, *scale as i8),
            Kind::List(element) => DataType::List(Arc::new(element.field())),
            Kind::Struct(fields) => DataType::Struct(fields_of(fields)),
        }
    }
}

pub(crate) fn fields_of(columns: &[Column]) -> Fields {
    columns.iter().map(Column::field).collect()
}
