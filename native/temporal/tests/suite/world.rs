//! Random legal streams of small rows, the tables that they mean, and the judge of an operator.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int64Type};
use arrow_array::{Array, ArrayRef, Float64Array, Int64Array};
use fastrand::Rng;
use lmerge_temporal::batch::Batch;
use lmerge_temporal::expressions::{CallFailure, Expressions, Host, Lowered, Operation};
use lmerge_temporal::failure::Failure;
use lmerge_temporal::operator::Operator;
use lmerge_temporal::operators::lifetimes::Alterations;
use lmerge_temporal::operators::row_keys::KeyOf;
use lmerge_temporal::operators::span::Span;
use lmerge_temporal::rows::{RowForm, SharedForm};
use lmerge_temporal::{Column, INF, Kind, NEG_INF, RowSchema};

/// A row of integers; None is a missing value. A float is the integer of `of_float`.
pub type Row = Vec<Option<i64>>;

/// A row, its start and its end.
pub type Event = (Row, i64, i64);

/// A row, its start, its end before and its end after.
pub type Change = (Row, i64, i64, i64);

/// A multiset of events.
pub type Table = BTreeMap<Event, i64>;

pub fn schema(columns: usize) -> Arc<RowSchema> {
    schema_of(&vec![Kind::Int; columns])
}

pub fn schema_of(kinds: &[Kind]) -> Arc<RowSchema> {
    let column = |(at, kind): (usize, &Kind)| Column {
        name: format!("c{at}"),
        kind: kind.clone(),
        nullable: true,
    };
    Arc::new(RowSchema {
        columns: kinds.iter().enumerate().map(column).collect(),
    })
}

/// A float as an integer of a row. The order is that of floats, with NaN last.
pub fn of_float(value: f64) -> i64 {
    let bits = value.to_bits() as i64;
    bits ^ (((bits >> 63) as u64) >> 1) as i64
}

pub fn to_float(value: i64) -> f64 {
    f64::from_bits((value ^ (((value >> 63) as u64) >> 1) as i64) as u64)
}

pub fn form(columns: usize) -> SharedForm {
    form_of(&schema(columns))
}

pub fn form_of(schema: &RowSchema) -> SharedForm {
    Arc::new(RowForm::new(schema))
}

/// The first column as a key of rows.
pub fn first_column(columns: usize) -> KeyOf {
    KeyOf::new(Some(Arc::new(columns_of(columns, &[0]))))
}

#[derive(Debug)]
struct NoHost;

impl Host for NoHost {
    fn failure(&self, _columns: &[ArrayRef], _row: usize, _failed: Option<Failure>) -> Failure {
        unreachable!("columns have their values")
    }

    fn call(&self, _function: usize, _arguments: &[ArrayRef], _len: usize) -> Result<ArrayRef, CallFailure> {
        unreachable!("nothing is called")
    }

    fn cased(&self, _texts: &[&str], _to_upper: bool) -> Result<Vec<String>, Failure> {
        unreachable!("nothing has cases")
    }
}

pub fn columns_of(columns: usize, places: &[usize]) -> Expressions {
    loaded(&schema(columns), places)
}

pub fn loaded(schema: &RowSchema, places: &[usize]) -> Expressions {
    let node = |&place: &usize| Lowered {
        operation: Operation::Load(place),
        column: schema.columns[place].clone(),
        operands: Vec::new(),
    };
    Expressions::bind(
        places.iter().map(node).collect(),
        (0..places.len()).collect(),
        Arc::new(NoHost),
    )
    .unwrap()
}

/// A batch of changes of rows with `columns` columns.
pub fn batch(columns: usize, changes: &[Change], stable: Option<i64>) -> Batch {
    batch_of(&schema(columns), changes, stable)
}

pub fn batch_of(schema: &Arc<RowSchema>, changes: &[Change], stable: Option<i64>) -> Batch {
    let column = |(at, column): (usize, &Column)| -> ArrayRef {
        let values = changes.iter().map(|change| change.0[at]);
        match column.kind {
            Kind::Float(_) => Arc::new(values.map(|value| value.map(to_float)).collect::<Float64Array>()),
            _ => Arc::new(values.collect::<Int64Array>()),
        }
    };
    Batch {
        schema: schema.clone(),
        columns: schema.columns.iter().enumerate().map(column).collect(),
        vs: changes.iter().map(|change| change.1).collect(),
        old: changes.iter().map(|change| change.2).collect(),
        new: changes.iter().map(|change| change.3).collect(),
        stable,
        mark: None,
    }
}

pub fn changes(batch: &Batch) -> Vec<Change> {
    let value = |column: &ArrayRef, at: usize| {
        let found = || match column.as_primitive_opt::<Float64Type>() {
            Some(floats) => of_float(floats.value(at)),
            None => column.as_primitive::<Int64Type>().value(at),
        };
        (!column.is_null(at)).then(found)
    };
    let row = |at: usize| batch.columns.iter().map(|column| value(column, at)).collect();
    (0..batch.len())
        .map(|at| (row(at), batch.vs[at], batch.old[at], batch.new[at]))
        .collect()
}

/// Random batches of a legal stream: disorder, revisions, removals, duplicates, ends at infinity, and stables that meet
/// the next change exactly. Some streams end.
pub fn random_stream(rng: &mut Rng, rows: &[Row]) -> Vec<(Vec<Change>, Option<i64>)> {
    let (mut live, mut stable): (Vec<Event>, i64) = (Vec::new(), NEG_INF);
    let mut batches = Vec::new();
    let mut batch = Vec::new();
    for _ in 0..rng.usize(4..24) {
        match rng.u8(0..10) {
            0..5 => {
                let vs = rng.i64(-8..16).max(stable);
                let ve = if rng.u8(0..10) == 0 {
                    INF
                } else {
                    vs + [1, 1, 2, 3, 5, 9][rng.usize(0..6)]
                };
                let row = rows[rng.usize(0..rows.len())].clone();
                live.push((row.clone(), vs, ve));
                batch.push((row, vs, vs, ve));
            }
            5..8 => {
                let Some(at) = (0..live.len()).find(|&at| live[at].2 >= stable && rng.bool()) else {
                    continue;
                };
                let (row, vs, ve) = live.swap_remove(at);
                let first = vs.max(stable);
                let new = [first, first + 1, first + rng.i64(0..8), INF][rng.usize(0..4)];
                if new > vs {
                    live.push((row.clone(), vs, new));
                }
                if new != ve {
                    batch.push((row, vs, ve, new));
                }
            }
            _ => {
                let mut times = vec![rng.i64(-8..20)];
                times.extend(live.iter().flat_map(|event| [event.1, event.2]).filter(|&t| t < INF));
                let t = times[rng.usize(0..times.len())];
                if t > stable {
                    stable = t;
                    batches.push((std::mem::take(&mut batch), Some(t)));
                }
            }
        }
        if rng.bool() && !batch.is_empty() {
            batches.push((std::mem::take(&mut batch), None));
        }
    }
    let end = rng.bool().then_some(INF);
    batches.push((batch, end));
    batches
}

/// The table of a stream, and its stable point. Panics at a change that is not legal.
#[derive(Clone)]
pub struct StreamTable {
    pub events: Table,
    pub stable: i64,
    /// The latest finite time that has come: a start or a stable point, and behind the end of all time an end.
    pub latest: i64,
}

impl StreamTable {
    pub fn new() -> StreamTable {
        StreamTable {
            events: Table::new(),
            stable: NEG_INF,
            latest: NEG_INF,
        }
    }

    pub fn apply(&mut self, changes: &[Change], stable: Option<i64>) {
        let times = changes.iter().map(|change| change.1).chain(stable);
        self.latest = times.filter(|&t| t < INF).fold(self.latest, i64::max);
        for (row, vs, old, new) in changes {
            assert_ne!(old, new, "a change changes nothing");
            assert!(
                *old.min(new) >= self.stable.max(*vs),
                "a change lies below the stable point {}",
                self.stable
            );
            if old > vs {
                let event = (row.clone(), *vs, *old);
                let count = self
                    .events
                    .get_mut(&event)
                    .expect("a change of an event that is not there");
                *count -= 1;
                if *count == 0 {
                    self.events.remove(&event);
                }
            }
            if new > vs {
                *self.events.entry((row.clone(), *vs, *new)).or_insert(0) += 1;
            }
        }
        if let Some(stable) = stable {
            assert!(stable > self.stable, "a stable that does not move");
            self.stable = stable;
        }
        if stable == Some(INF) {
            let ends = self.events.keys().map(|event| event.2).filter(|&ve| ve < INF);
            self.latest = ends.fold(self.latest, i64::max);
        }
    }

    /// Each event as often as it is there.
    pub fn each(&self) -> impl Iterator<Item = &Event> {
        self.events
            .iter()
            .flat_map(|(event, &count)| std::iter::repeat_n(event, count as usize))
    }
}

/// The table and the stable point of an output, for the tables of the inputs and the stable point of the output before
/// the step.
pub type Definition<'a> = dyn Fn(&[StreamTable], i64) -> (Table, i64) + 'a;

/// An operator with the definition of its output.
pub struct Case<'a> {
    /// Of each input.
    pub schema: Arc<RowSchema>,
    pub rows: &'a [&'a [Row]],
    pub make: &'a dyn Fn() -> Box<dyn Operator>,
    pub definition: &'a Definition<'a>,
    /// The number of streams.
    pub seeds: u64,
}

/// Who learns which events are not needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Feedback {
    Nobody,
    Operator,
    /// What is before the operator, too: it leaves out what the operator does not need.
    Upstream,
}

/// Run the operator over random streams, with restored twins; without feedback, then with it.
pub fn judge(case: &Case<'_>) {
    for seed in 0..case.seeds {
        for feedback in [Feedback::Nobody, Feedback::Operator, Feedback::Upstream] {
            run(case, &mut Rng::with_seed(seed), feedback);
        }
    }
}

fn run(case: &Case<'_>, rng: &mut Rng, feedback: Feedback) {
    let mut operator = (case.make)();
    let mut inputs: Vec<StreamTable> = case.rows.iter().map(|_| StreamTable::new()).collect();
    let pass = |_| Span::new("before it", case.schema.clone(), Alterations::default(), Vec::new());
    let mut upstream: Vec<Span> = (0..inputs.len()).map(pass).collect();
    let mut streams: Vec<_> = case
        .rows
        .iter()
        .map(|rows| random_stream(rng, rows).into_iter().peekable())
        .collect();
    let (mut output, mut needed) = (StreamTable::new(), NEG_INF);
    while streams.iter_mut().any(|stream| stream.peek().is_some()) {
        let mut taken = Vec::new();
        for (at, stream) in streams.iter_mut().enumerate() {
            let (changes, stable) = if rng.bool() {
                stream.next().unwrap_or_default()
            } else {
                Default::default()
            };
            let before = inputs[at].latest;
            inputs[at].apply(&changes, stable);
            // Without marks the watermark is that of the changes, of which feedback leaves some out.
            let mark = Some(inputs[at].latest).filter(|&latest| feedback != Feedback::Nobody && latest > before);
            let mut input = batch_of(&case.schema, &changes, stable);
            if feedback == Feedback::Upstream {
                input = upstream[at].step(&[input]).unwrap();
            }
            taken.push(Batch { mark, ..input });
        }
        if rng.u8(0..4) == 0 {
            let mut twin = (case.make)();
            twin.restore(&operator.state()).unwrap();
            // As text: NaN is not equal to itself.
            assert_eq!(format!("{:?}", twin.state()), format!("{:?}", operator.state()));
            operator = twin;
        }
        let emitted_stable = output.stable;
        let found = operator.step(&taken).unwrap();
        operator.check();
        let emitted = changes(&found);
        assert!(is_in_order(&emitted), "the output is not in order: {emitted:?}");
        output.apply(&emitted, found.stable);
        let (table, stable) = (case.definition)(&inputs, emitted_stable);
        if feedback == Feedback::Nobody {
            assert_eq!(output.events, table);
            let is_moved = taken.iter().any(|batch| batch.stable.is_some());
            assert_eq!(output.stable, if is_moved { stable } else { emitted_stable });
            continue;
        }
        let wanted = |table: &Table| -> Table {
            let wanted = table.iter().filter(|(event, _)| event.2 >= needed);
            wanted.map(|(event, &count)| (event.clone(), count)).collect()
        };
        assert_eq!(wanted(&output.events), wanted(&table));
        if rng.u8(0..4) == 0 {
            needed = needed.max(rng.i64(-4..14));
            let asked = operator.fast_forward(needed);
            operator.check();
            if feedback == Feedback::Upstream {
                for (before, t) in upstream.iter_mut().zip(asked) {
                    before.fast_forward(t);
                }
            }
        }
    }
    if inputs.iter().all(|input| input.stable == INF) {
        assert_eq!(operator.live(), 0, "events are left behind the end");
        let sizes = operator.sizes();
        assert!(
            sizes.iter().all(|(_, size)| *size == 0),
            "left behind the end: {sizes:?}"
        );
    }
}

/// Whether adjusts come first, then inserts, each by start, row and ends; None behind all values.
fn is_in_order(changes: &[Change]) -> bool {
    changes.is_sorted_by_key(|(row, vs, old, new)| {
        let row: Vec<(bool, i64)> = row.iter().map(|value| (value.is_none(), value.unwrap_or(0))).collect();
        (old == vs, *vs, row, *old, *new)
    })
}

/// The least stable point of the inputs.
pub fn least(inputs: &[StreamTable]) -> i64 {
    inputs.iter().map(|input| input.stable).min().unwrap()
}

pub fn counted(events: impl IntoIterator<Item = Event>) -> Table {
    let mut table = Table::new();
    for event in events.into_iter().filter(|event| event.1 < event.2) {
        *table.entry(event).or_insert(0) += 1;
    }
    table
}
