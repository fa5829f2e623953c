//! Decodes payloads to a record batch. They come from peers: nothing is trusted, and allocations are bounded by the
//! bytes received.

use std::sync::Arc;

use arrow_array::builder::{
    BinaryBuilder, BooleanBuilder, Date32Builder, Decimal128Builder, Float64Builder, Int64Builder, StringBuilder,
    TimestampMicrosecondBuilder,
};
use arrow_array::{ArrayRef, ListArray, StructArray};
use arrow_buffer::{NullBufferBuilder, OffsetBuffer, ScalarBuffer};

use crate::decimal;
use crate::pack::Reader;
use crate::schema::{Column, Kind, Schema, fields_of};

/// 0001-01-01 and the day after 9999-12-31: the range of Python's dates and datetimes.
pub(crate) const DAYS: std::ops::Range<i64> = -719_162..2_932_897;
pub(crate) const DAY_US: i64 = 86_400_000_000;
/// Arrow's offsets have 32 bits; a payload has more bytes than it has characters or elements.
const BYTES_MAX: usize = i32::MAX as usize;

/// One column while it is decoded.
struct Cells<'a> {
    column: &'a Column,
    values: Values<'a>,
}

enum Values<'a> {
    Bool(BooleanBuilder),
    Int(Int64Builder),
    Float(Float64Builder),
    String(StringBuilder),
    Bytes(BinaryBuilder),
    Timestamp(TimestampMicrosecondBuilder),
    Date(Date32Builder),
    Decimal(Decimal128Builder, u8),
    /// Ends, the lists that are null, elements.
    List(Vec<i32>, NullBufferBuilder, Box<Cells<'a>>),
    Struct(NullBufferBuilder, Vec<Cells<'a>>),
}

impl Schema {
    /// Decode the rows of `payloads`: a struct of the schema's fields, itself never null.
    pub fn decode<'a>(&self, payloads: impl IntoIterator<Item = &'a [u8]>) -> Option<StructArray> {
        let mut cells: Vec<Cells<'_>> = self.columns.iter().map(Cells::new).collect();
        let (mut rows, mut bytes) = (0, 0);
        for payload in payloads {
            (rows, bytes) = (rows + 1, bytes + payload.len());
            let mut reader = Reader(payload);
            if bytes > BYTES_MAX || reader.array()? != cells.len() {
                return None;
            }
            cells.iter_mut().try_for_each(|cells| cells.read(&mut reader))?;
            if !reader.is_at_end() {
                return None;
            }
        }
        let arrays = cells.into_iter().map(Cells::finish).collect();
        StructArray::try_new_with_length(fields_of(&self.columns), arrays, None, rows).ok()
    }
}

impl<'a> Cells<'a> {
    fn new(column: &'a Column) -> Cells<'a> {
        let data_type = || column.data_type();
        let values = match &column.kind {
            Kind::Bool => Values::Bool(BooleanBuilder::new()),
            Kind::Int => Values::Int(Int64Builder::new()),
            Kind::Float(_) => Values::Float(Float64Builder::new()),
            Kind::String => Values::String(StringBuilder::new()),
            Kind::Bytes => Values::Bytes(BinaryBuilder::new()),
            Kind::Timestamp => Values::Timestamp(TimestampMicrosecondBuilder::new().with_data_type(data_type())),
            Kind::Date => Values::Date(Date32Builder::new()),
            Kind::Decimal(scale) => Values::Decimal(Decimal128Builder::new().with_data_type(data_type()), *scale),
            Kind::List(element) => Values::List(vec![0], NullBufferBuilder::new(0), Box::new(Cells::new(element))),
            Kind::Struct(fields) => Values::Struct(NullBufferBuilder::new(0), fields.iter().map(Cells::new).collect()),
        };
        Cells { column, values }
    }

    fn read(&mut self, reader: &mut Reader<'_>) -> Option<()> {
        if reader.nil() {
            self.append_null();
            return self.column.nullable.then_some(());
        }
        match &mut self.values {
            Values::Bool(values) => values.append_value(reader.bool()?),
            Values::Int(values) => values.append_value(reader.int()?),
            Values::Float(values) => values.append_value(reader.float()?),
            Values::String(values) => values.append_value(reader.string()?),
            Values::Bytes(values) => values.append_value(reader.bytes()?),
            Values::Timestamp(values) => {
                let us = reader.int()?;
                DAYS.contains(&us.div_euclid(DAY_US)).then(|| values.append_value(us))?;
            }
            Values::Date(values) => {
                let day = reader.int()?;
                DAYS.contains(&day).then(|| values.append_value(day as i32))?;
            }
            Values::Decimal(values, scale) => values.append_value(decimal::parse(reader.string()?, *scale)?),
            Values::List(ends, nulls, elements) => {
                let len = reader.array()?;
                let end = i32::try_from(len).ok()?.checked_add(*ends.last()?)?;
                (0..len).try_for_each(|_| elements.read(reader))?;
                ends.push(end);
                nulls.append_non_null();
            }
            Values::Struct(nulls, fields) => {
                if reader.array()? != fields.len() {
                    return None;
                }
                fields.iter_mut().try_for_each(|cells| cells.read(reader))?;
                nulls.append_non_null();
            }
        }
        Some(())
    }

    fn append_null(&mut self) {
        match &mut self.values {
            Values::Bool(values) => values.append_null(),
            Values::Int(values) => values.append_null(),
            Values::Float(values) => values.append_null(),
            Values::String(values) => values.append_null(),
            Values::Bytes(values) => values.append_null(),
            Values::Timestamp(values) => values.append_null(),
            Values::Date(values) => values.append_null(),
            Values::Decimal(values, _) => values.append_null(),
            Values::List(ends, nulls, _) => {
                ends.push(ends[ends.len() - 1]);
                nulls.append_null();
            }
            Values::Struct(nulls, fields) => {
                fields.iter_mut().for_each(Cells::append_null);
                nulls.append_null();
            }
        }
    }

    fn finish(self) -> ArrayRef {
        match self.values {
            Values::Bool(mut values) => Arc::new(values.finish()),
            Values::Int(mut values) => Arc::new(values.finish()),
            Values::Float(mut values) => Arc::new(values.finish()),
            Values::String(mut values) => Arc::new(values.finish()),
            Values::Bytes(mut values) => Arc::new(values.finish()),
            Values::Timestamp(mut values) => Arc::new(values.finish()),
            Values::Date(mut values) => Arc::new(values.finish()),
            Values::Decimal(mut values, _) => Arc::new(values.finish()),
            Values::List(ends, mut nulls, elements) => {
                let field = Arc::new(elements.column.field());
                let ends = OffsetBuffer::new(ScalarBuffer::from(ends));
                Arc::new(ListArray::new(field, ends, elements.finish(), nulls.finish()))
            }
            Values::Struct(mut nulls, cells) => {
                let fields = cells.iter().map(|cells| cells.column.field()).collect();
                let arrays = cells.into_iter().map(Cells::finish).collect();
                Arc::new(StructArray::new(fields, arrays, nulls.finish()))
            }
        }
    }
}
