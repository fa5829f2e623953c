//! What windows compute: built-in aggregates, and the first rows by rank. `lmerge/temporal/modules` is the definition.
//!
//! A module has states for each window, one for each distinct accumulator, in a `StateTable`. An event is taken as
//! terms, one for each accumulator. Most states are *linear*: the state of a set of events is the sum of theirs, and a
//! difference of states is one. Windows that share events use that (`windows/snapshot.rs`).

mod difference;
pub mod exact;
mod finish;
pub mod integer;
mod keys;
mod moment;
mod ranked;
mod states;
mod terms;
mod top_k;
mod values;

use std::sync::Arc;

use arrow_array::builder::{Decimal128Builder, Float64Builder, Int64Builder};
use arrow_array::{Array, ArrayRef, ListArray};
use arrow_buffer::{NullBuffer, OffsetBuffer};
use arrow_row::Rows;

pub use difference::Difference;
pub use finish::{Function, Overflow, Value};
pub use keys::Key;
pub use states::{Accumulator, AccumulatorKind, State};
pub use terms::{RankedRow, SharedBytes, Term, TermColumn};
pub use top_k::{RankBy, TopK};

use crate::failure::Failure;
use crate::plain::Plain;
use crate::rows::SharedForm;
use crate::{Column, Kind};
use keys::KeyForm;

/// A call of an aggregate. `argument`: its number among the arguments; None for `count()`. `overflow`: the message for a
/// sum that its type cannot hold, before and behind the window.
#[derive(Clone, Debug)]
pub struct Call {
    pub function: Function,
    pub argument: Option<usize>,
    pub result: Column,
    pub overflow: (String, String),
}

/// What gives the arguments of so many rows, from their columns.
pub type ArgumentsOf<'a> = dyn FnMut(&[ArrayRef], usize) -> Result<Vec<ArrayRef>, Failure> + 'a;

/// A result: the columns behind the group's key.
pub type ResultRow = Box<[Value]>;

/// Several aggregates of a window, or its first rows by rank.
#[derive(Debug)]
pub enum Module {
    Aggregates(Aggregates),
    TopK(TopK),
}

/// A column of results.
#[derive(Debug)]
struct Finish {
    place: usize,
    function: Function,
    argument: Column,
    result: Column,
    keys: KeyForm,
    overflow: (String, String),
}

/// Aggregates whose equal parts are kept once: `AggregateList` in Python.
#[derive(Debug)]
pub struct Aggregates {
    accumulators: Vec<Accumulator>,
    finishes: Vec<Finish>,
}

impl Aggregates {
    /// `arguments`: the columns of arguments. `rows`: the form of the rows that come in.
    pub fn new(calls: Vec<Call>, arguments: &[Column], rows: &SharedForm) -> Aggregates {
        let counted = Column {
            name: String::new(),
            kind: Kind::Int,
            nullable: false,
        };
        let mut kinds: Vec<(AccumulatorKind, usize)> = Vec::new();
        let mut finishes = Vec::new();
        for call in calls {
            let kind = accumulator_of(&call);
            let argument = call.argument.unwrap_or(0);
            let same = |(other, at): &(AccumulatorKind, usize)| {
                std::mem::discriminant(other) == std::mem::discriminant(&kind) && *at == argument
            };
            let place = kinds.iter().position(same).unwrap_or_else(|| {
                kinds.push((kind, argument));
                kinds.len() - 1
            });
            if kind == (AccumulatorKind::Moments { squares: true }) {
                kinds[place].0 = kind;
            }
            let argument = call.argument.map_or(&counted, |at| &arguments[at]).clone();
            finishes.push(Finish {
                place,
                function: call.function,
                keys: KeyForm::new(&argument),
                argument,
                result: call.result,
                overflow: call.overflow,
            });
        }
        let accumulators = kinds
            .into_iter()
            .map(|(kind, at)| Accumulator::new(kind, at, arguments.get(at).unwrap_or(&counted), rows.clone()));
        Aggregates {
            accumulators: accumulators.collect(),
            finishes,
        }
    }

    fn push_result(&self, states: &[State], events: i64, values: &mut Vec<Value>) -> Result<(), (String, String)> {
        for finish in &self.finishes {
            let accumulator = &self.accumulators[finish.place];
            let state = states.get(finish.place).unwrap_or(&State::Nothing);
            let found = finish.function.finished(accumulator, &finish.argument, state, events);
            values.push(found.map_err(|Overflow| finish.overflow.clone())?);
        }
        Ok(())
    }
}

fn accumulator_of(call: &Call) -> AccumulatorKind {
    match call.function {
        Function::Count if call.argument.is_none() => AccumulatorKind::RowCount,
        Function::Count => AccumulatorKind::ValueCount,
        Function::DistinctCount | Function::Mode => AccumulatorKind::Tally,
        Function::Sum | Function::Avg => AccumulatorKind::Moments { squares: false },
        Function::Spread { .. } => AccumulatorKind::Moments { squares: true },
        Function::First | Function::Last => AccumulatorKind::ByStart,
        _ => AccumulatorKind::Ordered,
    }
}

impl Module {
    /// The number of states of a window.
    pub fn stride(&self) -> usize {
        match self {
            Module::Aggregates(list) => list.accumulators.len(),
            Module::TopK(_) => 1,
        }
    }

    /// Whether a state can be the difference of two others.
    pub fn is_linear(&self, place: usize) -> bool {
        match self {
            Module::Aggregates(list) => list.accumulators[place].is_linear(),
            Module::TopK(_) => false,
        }
    }

    /// Whether a window's number of events is all that it needs.
    pub fn is_row_count(&self) -> bool {
        match self {
            Module::Aggregates(list) => list
                .accumulators
                .iter()
                .all(|one| one.kind == AccumulatorKind::RowCount),
            Module::TopK(_) => false,
        }
    }

    pub fn begin(&self, place: usize) -> State {
        match self {
            Module::Aggregates(list) => list.accumulators[place].begin(),
            Module::TopK(_) => State::Ranked(Default::default()),
        }
    }

    /// The states of no events. Windows that need their number of events alone have none.
    pub fn begin_all(&self) -> Box<[State]> {
        let stride = if self.is_row_count() { 0 } else { self.stride() };
        (0..stride).map(|place| self.begin(place)).collect()
    }

    /// Let a term enter one of the states, or leave it.
    pub fn change_one(&self, place: usize, state: &mut State, term: &Term, is_added: bool) {
        match self {
            Module::Aggregates(list) => list.accumulators[place].change(state, term, is_added),
            Module::TopK(_) => top_k::change(state, term, is_added),
        }
    }

    /// The terms of a batch, for each accumulator. `rows`: all columns of the rows, encoded if they are needed.
    pub fn terms(&self, arguments: &[ArrayRef], rows: &mut dyn FnMut() -> Arc<Rows>) -> Vec<TermColumn<'_>> {
        match self {
            Module::Aggregates(list) => {
                let none: ArrayRef = Arc::new(arrow_array::NullArray::new(0));
                list.accumulators
                    .iter()
                    .map(|one| one.terms(arguments.get(one.argument).unwrap_or(&none), &mut *rows))
                    .collect()
            }
            Module::TopK(top) => vec![TermColumn::Ranked(top.ranks(arguments), rows())],
        }
    }

    /// Let an event enter a window, or leave it.
    #[inline]
    pub fn change(&self, states: &mut [State], terms: &[Term], is_added: bool) {
        match self {
            Module::Aggregates(list) => {
                for ((one, state), term) in list.accumulators.iter().zip(states).zip(terms) {
                    one.change(state, term, is_added);
                }
            }
            Module::TopK(_) => top_k::change(&mut states[0], &terms[0], is_added),
        }
    }

    /// Append the values of the results of a window with `events`, row by row. Returns the number of rows. Err: the
    /// message for one that its type cannot hold (`Call::overflow`).
    pub fn push_results(
        &self,
        states: &[State],
        events: i64,
        values: &mut Vec<Value>,
    ) -> Result<usize, (String, String)> {
        match self {
            Module::Aggregates(list) => list.push_result(states, events, values).map(|()| 1),
            Module::TopK(top) => Ok(top.push_results(&states[0], values)),
        }
    }

    /// The results of a window with `events`. Raises as `push_results`.
    pub fn results(&self, states: &[State], events: i64) -> Result<Vec<ResultRow>, (String, String)> {
        let mut values = Vec::new();
        Ok(match self.push_results(states, events, &mut values)? {
            0 => Vec::new(),
            1 => vec![values.into()],
            rows => values.chunks_exact(values.len() / rows).map(Box::from).collect(),
        })
    }

    /// The columns of results, behind those of the group's key.
    pub fn columns(&self, results: &[&[Value]]) -> Vec<ArrayRef> {
        match self {
            Module::Aggregates(list) => {
                let of = |(at, finish): (usize, &Finish)| finish.column(results.iter().map(|row| &row[at]));
                list.finishes.iter().enumerate().map(of).collect()
            }
            Module::TopK(top) => top.columns(results),
        }
    }

    pub fn state(&self, states: &[State], events: i64) -> Plain {
        match self {
            Module::Aggregates(list) => {
                let state =
                    |(at, one): (usize, &Accumulator)| one.state(states.get(at).unwrap_or(&State::Nothing), events);
                Plain::List(list.accumulators.iter().enumerate().map(state).collect())
            }
            Module::TopK(top) => top.state(&states[0]),
        }
    }

    /// The states of plain values. `arguments`: of rows, by expression.
    pub fn restored(&self, plain: &Plain, arguments: &mut ArgumentsOf<'_>) -> Result<Vec<State>, Failure> {
        match self {
            Module::Aggregates(list) => {
                let kept = plain.list()?;
                if kept.len() != list.accumulators.len() {
                    return Err(plain.unexpected("the states of a window"));
                }
                let pairs = list.accumulators.iter().zip(kept);
                pairs
                    .map(|(one, plain)| {
                        one.restored(plain, |rows, count| Ok(arguments(rows, count)?[one.argument].clone()))
                    })
                    .collect()
            }
            Module::TopK(top) => Ok(vec![top.restored(plain, arguments)?]),
        }
    }
}

impl Finish {
    fn column<'a>(&self, values: impl Iterator<Item = &'a Value>) -> ArrayRef {
        match (&self.function, &self.result.kind) {
            (Function::Collect, _) => lists(&self.keys, &self.argument, values),
            (Function::Count | Function::DistinctCount, _) | (Function::Sum, Kind::Int) => {
                let mut builder = Int64Builder::new();
                values.for_each(|value| match value {
                    Value::Int(value) => builder.append_value(*value),
                    _ => builder.append_null(),
                });
                Arc::new(builder.finish())
            }
            (Function::Sum, Kind::Decimal(_)) => {
                let mut builder = Decimal128Builder::new().with_data_type(self.result.data_type());
                values.for_each(|value| match value {
                    Value::Digits(digits) => builder.append_value(*digits),
                    _ => builder.append_null(),
                });
                Arc::new(builder.finish())
            }
            (Function::Sum | Function::Avg | Function::Spread { .. } | Function::PercentileCont(..), _) => {
                let mut builder = Float64Builder::new();
                values.for_each(|value| match value {
                    Value::Float(bits) => builder.append_value(f64::from_bits(*bits)),
                    _ => builder.append_null(),
                });
                Arc::new(builder.finish())
            }
            _ => self.keys.array(values.map(|value| match value {
                Value::Key(key) => Some(key),
                _ => None,
            })),
        }
    }
}

/// A column of lists, whose elements are named `element` and are not missing.
fn lists<'a>(keys: &KeyForm, argument: &Column, values: impl Iterator<Item = &'a Value>) -> ArrayRef {
    let (mut lengths, mut all, mut present) = (Vec::new(), Vec::new(), Vec::new());
    for value in values {
        let found: &[Key] = match value {
            Value::Keys(keys) => keys,
            _ => &[],
        };
        lengths.push(found.len());
        all.extend(found.iter().map(Some));
        present.push(matches!(value, Value::Keys(_)));
    }
    let element = Column {
        name: "element".to_owned(),
        nullable: false,
        kind: argument.kind.clone(),
    };
    let array = keys.array(all.into_iter());
    debug_assert_eq!(array.null_count(), 0);
    let nulls = NullBuffer::from(present);
    let nulls = (nulls.null_count() > 0).then_some(nulls);
    Arc::new(ListArray::new(
        Arc::new(element.field()),
        OffsetBuffer::from_lengths(lengths),
        array,
        nulls,
    ))
}

/// States of windows, by number. A number is free again when its window is gone.
#[derive(Debug)]
pub struct StateTable {
    stride: usize,
    states: Vec<State>,
    unused: Vec<u32>,
    count: u32,
}

impl StateTable {
    pub fn new(module: &Module) -> StateTable {
        // Windows that need their number of events alone have no states.
        let stride = if module.is_row_count() { 0 } else { module.stride() };
        StateTable {
            stride,
            states: Vec::new(),
            unused: Vec::new(),
            count: 0,
        }
    }

    /// A number with the states of no events.
    pub fn begin(&mut self, module: &Module) -> u32 {
        if let Some(at) = self.unused.pop() {
            for (place, state) in self.get_mut(at).iter_mut().enumerate() {
                *state = module.begin(place);
            }
            return at;
        }
        self.states.extend((0..self.stride).map(|place| module.begin(place)));
        self.count += 1;
        self.count - 1
    }

    #[inline]
    pub fn get(&self, at: u32) -> &[State] {
        let first = at as usize * self.stride;
        &self.states[first..first + self.stride]
    }

    #[inline]
    pub fn get_mut(&mut self, at: u32) -> &mut [State] {
        let first = at as usize * self.stride;
        &mut self.states[first..first + self.stride]
    }

    /// Let a number be used again. Its states keep nothing.
    pub fn end(&mut self, at: u32) {
        self.get_mut(at).fill(State::Nothing);
        self.unused.push(at);
    }
}
