//! The first rows of a window by rank, with ties: `lmerge/temporal/modules/top_k.py`.

use std::sync::Arc;

use arrow_array::ArrayRef;
use arrow_array::builder::Int64Builder;
use arrow_row::{RowConverter, Rows, SortField};
use arrow_schema::SortOptions;

use super::ranked::Ranked;
use super::terms::{RankedRow, Term};
use super::{ArgumentsOf, State, Value};
use crate::Column;
use crate::failure::Failure;
use crate::plain::Plain;
use crate::plain_rows::{columns_of_plain, plain_rows};
use crate::rows::SharedForm;

/// What rows are ranked by: an argument. A missing value is last in either direction.
#[derive(Clone, Debug)]
pub struct RankBy {
    pub argument: Column,
    pub descending: bool,
}

/// Rows with `rank() <= k`.
#[derive(Debug)]
pub struct TopK {
    k: usize,
    has_rank: bool,
    ranks: RowConverter,
    rows: SharedForm,
    /// The columns of results.
    kept: Vec<usize>,
}

impl TopK {
    /// `kept`: the columns of results, before the rank.
    pub fn new(k: usize, by: &[RankBy], has_rank: bool, kept: Vec<usize>, rows: SharedForm) -> TopK {
        let field = |by: &RankBy| {
            let options = SortOptions {
                descending: by.descending,
                nulls_first: false,
            };
            SortField::new_with_options(by.argument.data_type(), options)
        };
        let ranks = RowConverter::new(by.iter().map(field).collect()).expect("every type of a schema has an order");
        TopK {
            k,
            has_rank,
            ranks,
            rows,
            kept,
        }
    }

    /// What the rows of a batch are ranked by, from their arguments.
    pub fn ranks(&self, arguments: &[ArrayRef]) -> Rows {
        self.ranks
            .convert_columns(arguments)
            .expect("arguments are of their types")
    }

    /// Append the rows in order of rank, then of rows. Returns their number.
    pub fn push_results(&self, state: &State, values: &mut Vec<Value>) -> usize {
        let mut count = 0;
        let (mut rank, mut last): (usize, Option<&[u8]>) = (0, None);
        for (place, row) in ranked(state).iter().enumerate() {
            if last != Some(row.rank()) {
                (rank, last) = (place + 1, Some(row.rank()));
            }
            if rank > self.k {
                break;
            }
            values.push(Value::Row(row.clone()));
            values.extend(self.has_rank.then_some(Value::Int(rank as i64)));
            count += 1;
        }
        count
    }

    pub fn columns(&self, results: &[&[Value]]) -> Vec<ArrayRef> {
        let rows = results.iter().map(|result| match &result[0] {
            Value::Row(row) => row.row(),
            _ => unreachable!("a result begins with a row"),
        });
        let decoded = self.rows.decode(rows);
        let mut columns: Vec<ArrayRef> = self.kept.iter().map(|&at| decoded[at].clone()).collect();
        if self.has_rank {
            let mut builder = Int64Builder::new();
            results.iter().for_each(|result| match result[1] {
                Value::Int(rank) => builder.append_value(rank),
                _ => unreachable!("a rank is a number"),
            });
            columns.push(Arc::new(builder.finish()));
        }
        columns
    }

    pub fn state(&self, state: &State) -> Plain {
        let rows = ranked(state);
        let columns = self.rows.decode(rows.iter().map(RankedRow::row));
        Plain::List(plain_rows(self.rows.columns(), &columns, rows.len()))
    }

    pub fn restored(&self, plain: &Plain, arguments: &mut ArgumentsOf<'_>) -> Result<State, Failure> {
        let rows: Vec<&Plain> = plain.list()?.iter().collect();
        let columns = columns_of_plain(self.rows.columns(), &rows)?;
        let ranks = self.ranks(&arguments(&columns, rows.len())?);
        let rows = self.rows.encode(&columns);
        let mut kept = Ranked::default();
        for (rank, row) in ranks.iter().zip(rows.iter()) {
            kept.add(RankedRow::new(rank.data(), row.data()));
        }
        Ok(State::Ranked(kept))
    }
}

/// Let a row enter a state, or leave it.
pub fn change(state: &mut State, term: &Term, is_added: bool) {
    if let (State::Ranked(rows), Term::Ranked(row)) = (state, term) {
        if is_added {
            rows.add(row.clone())
        } else {
            rows.remove(row)
        }
    }
}

fn ranked(state: &State) -> &Ranked<RankedRow> {
    match state {
        State::Ranked(rows) => rows,
        _ => unreachable!("the state of ranked rows"),
    }
}
