//! The output of a step from columns: the changes that `changes::settled` returns, at the cost of what is out of order.
//!
//! Changes are compared by their starts first. Only rows of equal starts are compared by their columns. So a batch of
//! inserts whose starts increase is passed on as it is.

use std::cmp::Ordering;

use arrow_array::ArrayRef;
use arrow_ord::ord::{DynComparator, make_comparator};
use arrow_row::Rows;
use arrow_schema::SortOptions;

use crate::batch::{Batch, taken};
use crate::changes::matched_ends;
use crate::rows::RowForm;
use crate::{Column, Kind};

/// The batch in which no event changes twice, in the order of an output. `form`: of its rows.
pub fn settled(batch: Batch, form: &RowForm) -> Batch {
    let is_by_start = batch.vs.is_sorted();
    let mut rows = None;
    if is_by_start && are_inserts(&batch) && is_by_row(&batch, form, &mut rows) {
        return batch;
    }
    let mut order: Vec<(i64, u32)> = batch.vs.iter().copied().zip(0..).collect();
    if !is_by_start {
        order.sort(); // by start, then as they came; adaptive
    }
    let mut out = Settled::default();
    for ties in order.chunk_by_mut(|one, other| one.0 == other.0) {
        if let [(_, only)] = ties {
            out.push_if_changed(*only, &batch);
            continue;
        }
        let rows = rows.get_or_insert_with(|| RowOrder::new(form, &batch.columns));
        ties.sort_unstable_by(|one, other| rows.compare(one.1, other.1).then(one.1.cmp(&other.1)));
        for event in ties.chunk_by(|one, other| rows.compare(one.1, other.1) == Ordering::Equal) {
            out.push_event(event, &batch);
        }
    }
    out.batch(batch)
}

/// Whether rows of equal starts increase.
fn is_by_row(batch: &Batch, form: &RowForm, rows: &mut Option<RowOrder>) -> bool {
    (1..batch.len()).all(|at| {
        let (one, other) = (at as u32 - 1, at as u32);
        batch.vs[at - 1] < batch.vs[at] || {
            let rows = rows.get_or_insert_with(|| RowOrder::new(form, &batch.columns));
            rows.compare(one, other).is_lt()
        }
    })
}

/// Whether every change is an insert that is not empty.
fn are_inserts(batch: &Batch) -> bool {
    (batch.old.ptr_eq(&batch.vs) || batch.old == batch.vs)
        && batch.new.iter().zip(batch.vs.iter()).all(|(new, vs)| new > vs)
}

/// Changes of a batch by number, with the ends that they get.
#[derive(Default)]
struct Settled {
    adjusts: Vec<(u32, i64, i64)>,
    inserts: Vec<(u32, i64, i64)>,
    old: Vec<i64>,
    new: Vec<i64>,
}

impl Settled {
    fn push(&mut self, at: u32, vs: i64, old: i64, new: i64) {
        let half = if old == vs {
            &mut self.inserts
        } else {
            &mut self.adjusts
        };
        half.push((at, old, new));
    }

    fn push_if_changed(&mut self, at: u32, batch: &Batch) {
        let index = at as usize;
        let (old, new) = (batch.old[index], batch.new[index]);
        if old != new {
            self.push(at, batch.vs[index], old, new);
        }
    }

    /// Push the changes of one row and start.
    fn push_event(&mut self, event: &[(i64, u32)], batch: &Batch) {
        let (vs, at) = event[0];
        if event.len() == 1 {
            return self.push_if_changed(at, batch);
        }
        let ends = event
            .iter()
            .map(|&(_, at)| (batch.old[at as usize], batch.new[at as usize]));
        let (mut old, mut new) = (std::mem::take(&mut self.old), std::mem::take(&mut self.new));
        matched_ends(vs, ends, &mut old, &mut new, |old, new| self.push(at, vs, old, new));
        (self.old, self.new) = (old, new);
    }

    fn batch(mut self, batch: Batch) -> Batch {
        self.adjusts.append(&mut self.inserts);
        let changes = self.adjusts;
        let is_in_order = changes.len() == batch.len() && changes.iter().zip(0..).all(|(change, at)| change.0 == at);
        let indices: Vec<u32> = changes.iter().map(|change| change.0).collect();
        Batch {
            columns: if is_in_order {
                batch.columns
            } else {
                taken(&batch.columns, &indices)
            },
            vs: indices.iter().map(|&at| batch.vs[at as usize]).collect(),
            old: changes.iter().map(|change| change.1).collect(),
            new: changes.iter().map(|change| change.2).collect(),
            ..batch
        }
    }
}

/// The order of the rows of columns. Flat columns are compared where they lie; nested ones are encoded.
pub enum RowOrder {
    Columns(Vec<DynComparator>),
    Encoded(Rows),
}

impl RowOrder {
    pub fn new(form: &RowForm, columns: &[ArrayRef]) -> RowOrder {
        if form.columns().iter().any(is_nested) {
            return RowOrder::Encoded(form.encode(columns));
        }
        let options = SortOptions {
            descending: false,
            nulls_first: false,
        };
        let of = |column| make_comparator(column, column, options).expect("every type of a schema has an order");
        RowOrder::Columns(columns.iter().map(|column| of(&**column)).collect())
    }

    pub fn compare(&self, one: u32, other: u32) -> Ordering {
        let (one, other) = (one as usize, other as usize);
        match self {
            RowOrder::Encoded(rows) => rows.row(one).cmp(&rows.row(other)),
            RowOrder::Columns(columns) => {
                let differing = columns
                    .iter()
                    .map(|compare| compare(one, other))
                    .find(|order| order.is_ne());
                differing.unwrap_or(Ordering::Equal)
            }
        }
    }
}

fn is_nested(column: &Column) -> bool {
    matches!(column.kind, Kind::List(_) | Kind::Struct(_))
}
