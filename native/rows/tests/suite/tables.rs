//! Helpers for the other modules: schemas and batches.

use std::sync::Arc;

use arrow_array::{Array, ArrayRef, StructArray};
use arrow_schema::Field;
use lmerge_rows::schema::{Column, Kind, Schema};

pub fn column(name: &str, kind: Kind) -> Column {
    Column {
        name: name.to_string(),
        kind,
        nullable: false,
    }
}

pub fn nullable(name: &str, kind: Kind) -> Column {
    Column {
        nullable: true,
        ..column(name, kind)
    }
}

/// A schema of one column, `x`.
pub fn of(kind: Kind) -> Schema {
    Schema {
        columns: vec![column("x", kind)],
    }
}

pub fn of_nullable(kind: Kind) -> Schema {
    Schema {
        columns: vec![nullable("x", kind)],
    }
}

pub fn batch(columns: Vec<(&str, ArrayRef)>) -> StructArray {
    let field = |(name, array): (&str, ArrayRef)| (Arc::new(Field::new(name, array.data_type().clone(), true)), array);
    StructArray::from(columns.into_iter().map(field).collect::<Vec<_>>())
}

/// A batch of one column, `x`.
pub fn x(array: impl Array + 'static) -> StructArray {
    batch(vec![("x", Arc::new(array))])
}

/// The payloads of a batch, each without the head of its array.
pub fn cells(schema: &Schema, batch: &StructArray) -> Option<Vec<Vec<u8>>> {
    let payloads = schema.payloads(std::slice::from_ref(batch), &[])?;
    Some(payloads.iter().map(|payload| payload[1..].to_vec()).collect())
}
