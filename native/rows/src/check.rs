//! Checks whether payloads are rows, without decoding them. It accepts what `decode` accepts, and floats of 32 bits,
//! which Python's codec accepts too. It allocates nothing, and the work is bounded by the bytes received, whatever
//! counts they contain.

use crate::decimal;
use crate::decode::{DAY_US, DAYS};
use crate::pack::Reader;
use crate::schema::{Column, Kind, Schema};

impl Schema {
    /// Whether `payload` is a row. False also where only Python can decide.
    pub fn takes(&self, payload: &[u8]) -> bool {
        let mut reader = Reader(payload);
        takes_all(&self.columns, &mut reader).is_some() && reader.is_at_end()
    }
}

/// An array of one value for each of the columns.
fn takes_all(columns: &[Column], reader: &mut Reader<'_>) -> Option<()> {
    if reader.array()? != columns.len() {
        return None;
    }
    columns.iter().try_for_each(|column| takes(column, reader))
}

fn takes(column: &Column, reader: &mut Reader<'_>) -> Option<()> {
    if reader.nil() {
        return column.nullable.then_some(());
    }
    match &column.kind {
        Kind::Bool => reader.bool().map(drop),
        Kind::Int => reader.int().map(drop),
        Kind::Float(_) => reader.any_float(),
        Kind::String => reader.string().map(drop),
        Kind::Bytes => reader.bytes().map(drop),
        Kind::Timestamp => DAYS.contains(&reader.int()?.div_euclid(DAY_US)).then_some(()),
        Kind::Date => DAYS.contains(&reader.int()?).then_some(()),
        Kind::Decimal(scale) => decimal::is_canonical(reader.string()?, *scale).then_some(()),
        Kind::List(element) => (0..reader.array()?).try_for_each(|_| takes(element, reader)),
        Kind::Struct(fields) => takes_all(fields, reader),
    }
}
