//! Keys of rows: what must be equal in events that belong together, as bytes.

use std::sync::Arc;

use arrow_array::{Array, ArrayRef};
use arrow_buffer::NullBuffer;
use arrow_row::Rows;

use crate::expressions::Expressions;
use crate::failure::Failure;
use crate::plain::Plain;
use crate::plain_rows::{columns_of_plain, plain_rows};
use crate::rows::RowForm;

/// What makes a key of a row. Without expressions every key is empty.
#[derive(Debug)]
pub struct KeyOf(Option<(Arc<Expressions>, RowForm)>);

impl KeyOf {
    pub fn new(expressions: Option<Arc<Expressions>>) -> KeyOf {
        KeyOf(expressions.map(|expressions| {
            let columns: Vec<_> = expressions.columns().cloned().collect();
            (expressions, RowForm::of_columns(&columns))
        }))
    }

    /// The keys of rows. Where a key has no value, those of the rows before it, and the failure.
    pub fn keys(&self, columns: &[ArrayRef], count: usize) -> RowKeys {
        let Some((expressions, form)) = &self.0 else {
            return RowKeys {
                rows: None,
                missing: None,
                count,
                failure: None,
            };
        };
        match expressions.evaluate(columns, count) {
            Ok(keys) => {
                let nulls = |nulls: Option<NullBuffer>, key: &ArrayRef| {
                    NullBuffer::union(nulls.as_ref(), key.logical_nulls().as_ref())
                };
                let missing = keys.iter().fold(None, nulls);
                RowKeys {
                    rows: Some(form.encode(&keys)),
                    missing,
                    count,
                    failure: None,
                }
            }
            Err(error) if error.row == 0 => RowKeys {
                rows: None,
                missing: None,
                count: 0,
                failure: Some(error.failure),
            },
            Err(error) => {
                let before: Vec<_> = columns.iter().map(|column| column.slice(0, error.row)).collect();
                let mut keys = self.keys(&before, error.row);
                keys.failure = keys.failure.or(Some(error.failure));
                keys
            }
        }
    }

    /// Keys as plain values.
    pub fn plain<'a>(&self, keys: impl ExactSizeIterator<Item = &'a [u8]>) -> Vec<Plain> {
        let count = keys.len();
        match &self.0 {
            None => vec![Plain::List(Vec::new()); count],
            Some((_, form)) => plain_rows(form.columns(), &form.decode(keys), count),
        }
    }

    /// The keys of plain values.
    pub fn of_plain(&self, keys: &[&Plain]) -> Result<RowKeys, Failure> {
        let rows = match &self.0 {
            None => None,
            Some((_, form)) => Some(form.encode(&columns_of_plain(form.columns(), keys)?)),
        };
        Ok(RowKeys {
            rows,
            missing: None,
            count: keys.len(),
            failure: None,
        })
    }
}

/// The keys of `count` rows. `failure`: why the row behind them has none.
pub struct RowKeys {
    rows: Option<Rows>,
    missing: Option<NullBuffer>,
    pub count: usize,
    pub failure: Option<Failure>,
}

impl RowKeys {
    /// A key, in which values can be missing.
    pub fn any(&self, at: usize) -> &[u8] {
        self.rows.as_ref().map_or(&[], |rows| rows.row(at).data())
    }

    /// A key, or None if a value of it is missing: it is equal to no other, as in SQL.
    pub fn present(&self, at: usize) -> Option<&[u8]> {
        let is_missing = self.missing.as_ref().is_some_and(|missing| missing.is_null(at));
        (!is_missing).then(|| self.any(at))
    }
}
