//! Changes of events in columns: the `Delta` of `lmerge/temporal/changes.py`.

use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch, UInt32Array, new_empty_array};
use arrow_buffer::ScalarBuffer;
use arrow_select::take::take;

use crate::RowSchema;

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
