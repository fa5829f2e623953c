//! Changes of events in columns: the `Delta` of `lmerge/temporal/changes.py`.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, RecordBatch, UInt32Array, new_empty_array};
use arrow_buffer::{OffsetBuffer, ScalarBuffer};
use arrow_schema::DataType;
use arrow_select::concat::concat;
use arrow_select::take::take;

use crate::RowSchema;
use crate::failure::Failure;

/// The most bytes of a text column, and elements of a list column: Arrow counts them with 32 bits.
pub const COLUMN_LENGTH_MAX: usize = i32::MAX as usize;

/// A batch of changes, and the stable point and the watermark behind them; None where they do not move.
///
/// Row `i` of the columns with `vs[i]` is an event whose end moves from `old[i]` to `new[i]`; an end at `vs` is no
/// event. Values are canonical: floats have no -0.0 and one NaN.
#[derive(Clone, Debug)]
pub struct Batch {
    pub schema: Arc<RowSchema>,
    pub columns: Vec<ArrayRef>,
    pub vs: ScalarBuffer<i64>,
    pub old: ScalarBuffer<i64>,
    pub new: ScalarBuffer<i64>,
    pub stable: Option<i64>,
    pub mark: Option<i64>,
}

impl Batch {
    pub fn empty(schema: Arc<RowSchema>) -> Batch {
        let columns = schema
            .columns
            .iter()
            .map(|column| new_empty_array(&column.data_type()))
            .collect();
        let none = || ScalarBuffer::from(Vec::new());
        Batch {
            schema,
            columns,
            vs: none(),
            old: none(),
            new: none(),
            stable: None,
            mark: None,
        }
    }

    /// The number of changes.
    pub fn len(&self) -> usize {
        self.vs.len()
    }

    /// Whether there are no changes. The stable point or the watermark can still move.
    pub fn is_empty(&self) -> bool {
        self.vs.is_empty()
    }

    /// The changes at `indices`, in that order, with the same stable point and watermark.
    pub fn take(&self, indices: &[u32]) -> Batch {
        let times = |from: &ScalarBuffer<i64>| indices.iter().map(|&at| from[at as usize]).collect();
        Batch {
            schema: self.schema.clone(),
            columns: taken(&self.columns, indices),
            vs: times(&self.vs),
            old: times(&self.old),
            new: times(&self.new),
            stable: self.stable,
            mark: self.mark,
        }
    }

    /// `count` changes from the one at `first`, with the same stable point and watermark.
    pub fn slice(&self, first: usize, count: usize) -> Batch {
        Batch {
            schema: self.schema.clone(),
            columns: self.columns.iter().map(|column| column.slice(first, count)).collect(),
            vs: self.vs.slice(first, count),
            old: self.old.slice(first, count),
            new: self.new.slice(first, count),
            ..*self
        }
    }

    /// The rows as a record batch, without times.
    pub fn rows(&self) -> RecordBatch {
        let fields: Vec<_> = self.schema.columns.iter().map(|column| column.field()).collect();
        let schema = Arc::new(arrow_schema::Schema::new(fields));
        RecordBatch::try_new(schema, self.columns.clone()).expect("columns are those of the schema")
    }
}

/// The values of columns at `indices`.
pub fn taken(columns: &[ArrayRef], indices: &[u32]) -> Vec<ArrayRef> {
    let indices = UInt32Array::from(indices.to_vec());
    let of = |column: &ArrayRef| take(column, &indices, None).expect("indices are within the column");
    columns.iter().map(of).collect()
}

/// The changes of several batches one after the other, without stable point and watermark. Err: a column would have more
/// bytes of text, or elements of lists, than `length_max`.
pub fn joined(schema: &Arc<RowSchema>, batches: &[&Batch], length_max: usize) -> Result<Batch, Failure> {
    let column = |at: usize| -> Result<ArrayRef, Failure> {
        let parts: Vec<&dyn Array> = batches.iter().map(|batch| &*batch.columns[at]).collect();
        let mut lengths: Vec<usize> = Vec::new();
        for part in &parts {
            let of_part = lengths_of(*part);
            lengths.resize(of_part.len(), 0);
            lengths.iter_mut().zip(of_part).for_each(|(all, one)| *all += one);
        }
        if lengths.iter().any(|&length| length > length_max) {
            return Err(too_long(&schema.columns[at].name, length_max));
        }
        Ok(concat(&parts).expect("the batches have the same columns"))
    };
    let times = |of: fn(&Batch) -> &[i64]| batches.iter().flat_map(|batch| of(batch)).copied().collect();
    Ok(Batch {
        columns: (0..schema.columns.len()).map(column).collect::<Result<_, _>>()?,
        schema: schema.clone(),
        vs: times(|batch| &batch.vs),
        old: times(|batch| &batch.old),
        new: times(|batch| &batch.new),
        stable: None,
        mark: None,
    })
}

/// How much the offsets of a column count, in it and in the columns inside it, in an order that depends on its type alone.
fn lengths_of(column: &dyn Array) -> Vec<usize> {
    let span = |offsets: &OffsetBuffer<i32>| (offsets[0] as usize, (offsets[offsets.len() - 1] - offsets[0]) as usize);
    match column.data_type() {
        DataType::Utf8 => vec![span(column.as_string::<i32>().offsets()).1],
        DataType::Binary => vec![span(column.as_binary::<i32>().offsets()).1],
        DataType::List(_) => {
            let lists = column.as_list::<i32>();
            let (first, count) = span(lists.offsets());
            let mut lengths = vec![count];
            lengths.extend(lengths_of(&lists.values().slice(first, count)));
            lengths
        }
        DataType::Struct(_) => {
            let fields = column.as_struct().columns().iter();
            fields.flat_map(|field| lengths_of(field)).collect()
        }
        _ => Vec::new(),
    }
}

fn too_long(column: &str, length_max: usize) -> Failure {
    Failure::Limit(format!(
        "the column {column:?} would have more than {length_max} bytes of text or elements of lists in one table, which \
         is the most: take fewer events at once, or fewer columns"
    ))
}
