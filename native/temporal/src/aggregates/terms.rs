//! What aggregates get of an event: one term for each accumulator, taken from the columns of a batch.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Decimal128Type, Float64Type, Int64Type};
use arrow_array::{Array, ArrayRef};
use arrow_row::Rows;

use super::exact::Scale;
use super::keys::{Key, Keys};
use super::moment::Number;

/// Bytes of a row that states share.
pub type SharedBytes = Arc<[u8]>;

/// A row behind what it is ranked by, in one piece. The bytes of a rank end where the rank does, so pieces are ordered
/// by rank, then by row.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RankedRow {
    bytes: SharedBytes,
    rank: u32,
}

impl RankedRow {
    pub fn new(rank: &[u8], row: &[u8]) -> RankedRow {
        let mut bytes = Vec::with_capacity(rank.len() + row.len());
        bytes.extend_from_slice(rank);
        bytes.extend_from_slice(row);
        RankedRow {
            bytes: bytes.into(),
            rank: rank.len() as u32,
        }
    }

    /// What the row is ranked by.
    pub fn rank(&self) -> &[u8] {
        &self.bytes[..self.rank as usize]
    }

    pub fn row(&self) -> &[u8] {
        &self.bytes[self.rank as usize..]
    }
}

/// What one accumulator gets of one event.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Term {
    /// The argument is missing, or the accumulator has no argument.
    Nothing,
    /// The argument is there.
    Present,
    Number(Number),
    Key(Key),
    /// The event by start and row, and its argument.
    Event(i64, SharedBytes, Key),
    /// The row behind what it is ranked by.
    Ranked(RankedRow),
}

/// The terms of an accumulator for a batch.
#[derive(Debug)]
pub enum TermColumn<'a> {
    Nothing,
    Present(ArrayRef),
    Wholes(ArrayRef),
    Decimals(ArrayRef),
    Floats(ArrayRef, &'a Scale),
    Keys(Keys),
    Events(Keys, Arc<Rows>),
    Ranked(Rows, Arc<Rows>),
}

impl TermColumn<'_> {
    /// The term of the event at `at`, which starts at `vs`.
    #[inline]
    pub fn get(&self, at: usize, vs: i64) -> Term {
        match self {
            TermColumn::Nothing => Term::Nothing,
            TermColumn::Present(array) if array.is_null(at) => Term::Nothing,
            TermColumn::Wholes(array) if array.is_null(at) => Term::Nothing,
            TermColumn::Decimals(array) | TermColumn::Floats(array, _) if array.is_null(at) => Term::Nothing,
            TermColumn::Present(_) => Term::Present,
            TermColumn::Wholes(array) => {
                Term::Number(Number::Whole(array.as_primitive::<Int64Type>().value(at).into()))
            }
            TermColumn::Decimals(array) => {
                Term::Number(Number::Whole(array.as_primitive::<Decimal128Type>().value(at)))
            }
            TermColumn::Floats(array, scale) => {
                Term::Number(number_of(array.as_primitive::<Float64Type>().value(at), scale))
            }
            TermColumn::Keys(keys) => keys.get(at).map_or(Term::Nothing, Term::Key),
            TermColumn::Events(keys, rows) => keys
                .get(at)
                .map_or(Term::Nothing, |key| Term::Event(vs, rows.row(at).data().into(), key)),
            TermColumn::Ranked(ranks, rows) => Term::Ranked(RankedRow::new(ranks.row(at).data(), rows.row(at).data())),
        }
    }
}

fn number_of(value: f64, scale: &Scale) -> Number {
    if value.is_finite() {
        Number::Scaled(scale.of_float(value))
    } else if value.is_nan() {
        Number::Nan
    } else if value > 0.0 {
        Number::PlusInf
    } else {
        Number::MinusInf
    }
}
