//! The changes of a batch as windows take them: times, groups, terms for aggregates, and rows where they are kept.

use std::cell::{Cell, OnceCell};
use std::sync::Arc;

use arrow_array::ArrayRef;
use arrow_row::Rows;

use crate::aggregates::{SharedBytes, Term, TermColumn};
use crate::rows::RowForm;

/// With more rows than this that are needed one by one, all of a batch are encoded.
const SINGLE_ROWS_MAX: usize = 32;

/// The rows of a batch as bytes, encoded when they are needed.
#[derive(Debug)]
pub struct RowSource<'a> {
    form: &'a RowForm,
    columns: &'a [ArrayRef],
    all: OnceCell<Arc<Rows>>,
    singles: Cell<usize>,
}

impl<'a> RowSource<'a> {
    pub fn new(form: &'a RowForm, columns: &'a [ArrayRef]) -> RowSource<'a> {
        RowSource {
            form,
            columns,
            all: OnceCell::new(),
            singles: Cell::new(0),
        }
    }

    pub fn all(&self) -> Arc<Rows> {
        self.all
            .get_or_init(|| Arc::new(self.form.encode(self.columns)))
            .clone()
    }

    pub fn get(&self, at: usize) -> SharedBytes {
        if self.all.get().is_none() && self.singles.get() < SINGLE_ROWS_MAX {
            self.singles.set(self.singles.get() + 1);
            let row: Vec<ArrayRef> = self.columns.iter().map(|column| column.slice(at, 1)).collect();
            return self.form.encode(&row).row(0).data().into();
        }
        self.all().row(at).data().into()
    }
}

/// The changes of a batch.
#[derive(Debug)]
pub struct Changes<'a> {
    pub vs: &'a [i64],
    pub old: &'a [i64],
    pub new: &'a [i64],
    pub keys: Option<Rows>,
    pub terms: Vec<TermColumn<'a>>,
    pub rows: RowSource<'a>,
}

impl Changes<'_> {
    pub fn len(&self) -> usize {
        self.vs.len()
    }

    pub fn is_empty(&self) -> bool {
        self.vs.is_empty()
    }

    /// The terms of an event, in `terms`.
    #[inline]
    pub fn terms(&self, at: usize, terms: &mut Vec<Term>) {
        terms.clear();
        terms.extend(self.terms.iter().map(|column| column.get(at, self.vs[at])));
    }
}
