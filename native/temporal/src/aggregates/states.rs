//! States of accumulators, and what changes them: `accumulators.py`, `moments.py` and `ordered.py` in Python.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_array::ArrayRef;
use arrow_row::Rows;

use super::exact::Scale;
use super::keys::{Key, KeyForm};
use super::moment::Moment;
use super::ranked::Ranked;
use super::terms::{RankedRow, SharedBytes, Term, TermColumn};
use super::values::Values;
use crate::failure::Failure;
use crate::plain::Plain;
use crate::plain_rows::{columns_of_plain, plain_rows};
use crate::rows::SharedForm;
use crate::{Column, Kind};

/// What an accumulator keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccumulatorKind {
    /// The number of events, which each window has already.
    RowCount,
    ValueCount,
    Moments {
        squares: bool,
    },
    Ordered,
    Tally,
    ByStart,
}

/// An accumulator over an argument, whose number is among the columns of arguments.
#[derive(Debug)]
pub struct Accumulator {
    pub kind: AccumulatorKind,
    pub argument: usize,
    pub scale: Scale,
    pub keys: KeyForm,
    is_float: bool,
    is_decimal: bool,
    rows: SharedForm,
}

/// The state of an accumulator.
#[derive(Clone, Debug)]
pub enum State {
    Nothing,
    Count(i64),
    Moment(Moment),
    Values(Values),
    Tally(BTreeMap<Key, i64>),
    Starts(Ranked<(i64, SharedBytes, Key)>),
    Ranked(Ranked<RankedRow>),
}

impl Accumulator {
    /// `rows`: the form of the rows that come in.
    pub fn new(kind: AccumulatorKind, argument: usize, column: &Column, rows: SharedForm) -> Accumulator {
        Accumulator {
            kind,
            argument,
            scale: Scale::of(column),
            keys: KeyForm::new(column),
            is_float: matches!(column.kind, Kind::Float(_)),
            is_decimal: matches!(column.kind, Kind::Decimal(_)),
            rows,
        }
    }

    /// Whether a state can be the difference of two others.
    pub fn is_linear(&self) -> bool {
        use AccumulatorKind::{Moments, RowCount, ValueCount};
        matches!(self.kind, RowCount | ValueCount | Moments { .. })
    }

    pub fn begin(&self) -> State {
        match self.kind {
            AccumulatorKind::RowCount => State::Nothing,
            AccumulatorKind::ValueCount => State::Count(0),
            AccumulatorKind::Moments { .. } => State::Moment(Moment::default()),
            AccumulatorKind::Ordered => State::Values(Values::new(self.keys.are_numbers())),
            AccumulatorKind::Tally => State::Tally(BTreeMap::new()),
            AccumulatorKind::ByStart => State::Starts(Ranked::default()),
        }
    }

    /// The terms of the events of a batch. `rows`: of all columns, encoded when they are first needed.
    pub fn terms(&self, argument: &ArrayRef, rows: impl FnOnce() -> Arc<Rows>) -> TermColumn<'_> {
        match self.kind {
            AccumulatorKind::RowCount => TermColumn::Nothing,
            AccumulatorKind::ValueCount => TermColumn::Present(argument.clone()),
            AccumulatorKind::Moments { .. } if self.is_float => TermColumn::Floats(argument.clone(), &self.scale),
            AccumulatorKind::Moments { .. } if self.is_decimal => TermColumn::Decimals(argument.clone()),
            AccumulatorKind::Moments { .. } => TermColumn::Wholes(argument.clone()),
            AccumulatorKind::Ordered | AccumulatorKind::Tally => TermColumn::Keys(self.keys.keys(argument)),
            AccumulatorKind::ByStart => TermColumn::Events(self.keys.keys(argument), rows()),
        }
    }

    /// Change a state by the term of an event that enters (`is_added`) or leaves.
    #[inline]
    pub fn change(&self, state: &mut State, term: &Term, is_added: bool) {
        match (state, term) {
            (State::Count(count), Term::Present) => *count += if is_added { 1 } else { -1 },
            (State::Moment(moment), Term::Number(number)) => {
                let squares = self.kind == AccumulatorKind::Moments { squares: true };
                moment.count(number, is_added, squares);
            }
            (state, Term::Key(key)) => state.change_key(key, is_added),
            (State::Starts(starts), Term::Event(vs, row, key)) => {
                let event = (*vs, row.clone(), key.clone());
                if is_added {
                    starts.add(event)
                } else {
                    starts.remove(&event)
                }
            }
            (State::Ranked(rows), Term::Ranked(row)) => {
                if is_added {
                    rows.add(row.clone())
                } else {
                    rows.remove(row)
                }
            }
            _ => {}
        }
    }

    /// The state as plain values. `events`: how many the window has.
    pub fn state(&self, state: &State, events: i64) -> Plain {
        match state {
            State::Nothing => Plain::Int(events),
            State::Count(count) => Plain::Int(*count),
            State::Moment(moment) => moment.state(),
            State::Values(values) => Plain::List(values.iter().map(|key| self.keys.plain(&key)).collect()),
            State::Tally(tally) => {
                let pairs = tally
                    .iter()
                    .map(|(key, &count)| Plain::List(vec![self.keys.plain(key), Plain::Int(count)]));
                Plain::List(pairs.collect())
            }
            State::Starts(starts) => {
                let columns = self.rows.decode(starts.iter().map(|(_, row, _)| &**row));
                let rows = plain_rows(self.rows.columns(), &columns, starts.len());
                let pairs = starts
                    .iter()
                    .zip(rows)
                    .map(|((vs, ..), row)| Plain::List(vec![Plain::Int(*vs), row]));
                Plain::List(pairs.collect())
            }
            State::Ranked(_) => unreachable!("ranked rows are no aggregate"),
        }
    }

    /// The state of plain values. `value_of`: the arguments of rows.
    pub fn restored(
        &self,
        plain: &Plain,
        value_of: impl FnOnce(&[ArrayRef], usize) -> Result<ArrayRef, Failure>,
    ) -> Result<State, Failure> {
        Ok(match self.kind {
            AccumulatorKind::RowCount => State::Nothing,
            AccumulatorKind::ValueCount => State::Count(plain.int()?),
            AccumulatorKind::Moments { .. } => State::Moment(Moment::restored(plain)?),
            AccumulatorKind::Ordered => {
                let mut values = Values::new(self.keys.are_numbers());
                for key in self.keys.all_restored(plain.list()?)? {
                    values.add(&key);
                }
                State::Values(values)
            }
            AccumulatorKind::Tally => {
                let pairs: Vec<&[Plain; 2]> = plain.list()?.iter().map(Plain::tuple).collect::<Result<_, _>>()?;
                let values: Vec<Plain> = pairs.iter().map(|pair| pair[0].clone()).collect();
                let mut tally = BTreeMap::new();
                for (key, pair) in self.keys.all_restored(&values)?.into_iter().zip(pairs) {
                    tally.insert(key, pair[1].int()?);
                }
                State::Tally(tally)
            }
            AccumulatorKind::ByStart => {
                let pairs: Vec<&[Plain; 2]> = plain.list()?.iter().map(Plain::tuple).collect::<Result<_, _>>()?;
                let rows: Vec<&Plain> = pairs.iter().map(|pair| &pair[1]).collect();
                let columns = columns_of_plain(self.rows.columns(), &rows)?;
                let keys = self.keys.keys(&value_of(&columns, rows.len())?);
                let rows = self.rows.encode(&columns);
                let mut starts = Ranked::default();
                for (at, pair) in pairs.iter().enumerate() {
                    let key = keys.get(at).ok_or_else(|| pair[1].unexpected("a row with a value"))?;
                    starts.add((pair[0].int()?, rows.row(at).data().into(), key));
                }
                State::Starts(starts)
            }
        })
    }
}

impl State {
    /// Let the key of an event enter, or leave.
    #[inline]
    pub fn change_key(&mut self, key: &Key, is_added: bool) {
        match self {
            State::Values(values) if is_added => values.add(key),
            State::Values(values) => values.remove(key),
            State::Tally(tally) => tallied(tally, key, if is_added { 1 } else { -1 }),
            _ => {}
        }
    }

    /// Add a linear state, or take it away.
    #[inline]
    pub fn merge(&mut self, other: &State, is_added: bool) {
        match (self, other) {
            (State::Count(count), State::Count(other)) => *count += if is_added { *other } else { -other },
            (State::Moment(moment), State::Moment(other)) => moment.merge(other, is_added),
            _ => {}
        }
    }

    pub fn is_zero(&self) -> bool {
        match self {
            State::Count(count) => *count == 0,
            State::Moment(moment) => moment.is_zero(),
            _ => true,
        }
    }

    /// The terms that are in a state that keeps them.
    pub fn each_term(&self, mut each: impl FnMut(Term)) {
        match self {
            State::Values(values) => values.iter().for_each(|key| each(Term::Key(key))),
            State::Tally(tally) => {
                for (key, &count) in tally {
                    (0..count).for_each(|_| each(Term::Key(key.clone())));
                }
            }
            State::Starts(starts) => {
                starts
                    .iter()
                    .for_each(|(vs, row, key)| each(Term::Event(*vs, row.clone(), key.clone())));
            }
            State::Ranked(rows) => rows.iter().for_each(|row| each(Term::Ranked(row.clone()))),
            State::Count(count) => (0..*count).for_each(|_| each(Term::Present)),
            State::Nothing => {}
            State::Moment(_) => {}
        }
    }
}

fn tallied(tally: &mut BTreeMap<Key, i64>, key: &Key, change: i64) {
    let count = tally.entry(key.clone()).or_insert(0);
    *count += change;
    if *count == 0 {
        tally.remove(key);
    }
}
