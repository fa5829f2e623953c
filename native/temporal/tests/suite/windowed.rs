//! The judge of windows: what a module gives in the windows of a kind, in each form, by definition.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;

use lmerge_temporal::aggregates::Module;
use lmerge_temporal::windows::{Form, Grid, WindowKind, WindowOperator, WindowSpec};
use lmerge_temporal::{INF, Kind, NEG_INF, RowSchema};

use crate::world::{Case, Event, Row, StreamTable, Table, counted, judge, loaded, schema_of};

pub const FORMS: [Form; 4] = [Form::Final, Form::Settled, Form::Watermark, Form::Eager];

/// The rows of a window's events.
pub type Results = dyn Fn(&[&Event]) -> Vec<Row>;

/// What is computed in a window, of rows whose first column can be the key of their group.
pub struct Computed {
    pub input: Arc<RowSchema>,
    pub rows: Vec<Row>,
    /// The columns that are arguments of the module.
    pub arguments: Vec<usize>,
    pub module: Box<dyn Fn() -> Module>,
    /// The types of results.
    pub output: Vec<Kind>,
    /// The results of events, of which there is at least one.
    pub results: Box<Results>,
}

/// A module in windows of a kind, in a form.
#[derive(Clone)]
pub struct Query {
    pub computed: Rc<Computed>,
    pub kind: WindowKind,
    pub form: Form,
    /// Whether results are points at the ends of windows.
    pub is_point: bool,
    /// Whether the first column is the key of a group.
    pub has_key: bool,
}

/// Results by the first column as a key, with the lifetimes of their windows.
pub fn query(computed: Computed, kind: WindowKind, form: Form) -> Query {
    Query {
        computed: Rc::new(computed),
        kind,
        form,
        is_point: false,
        has_key: true,
    }
}

/// A window `[start, end)`.
type Window = (i64, i64);

pub fn hopping(size: i64, hop: i64, offset: i64, since: Option<i64>) -> WindowKind {
    WindowKind::Hopping(Grid {
        size,
        hop,
        offset,
        since,
        shown: "a grid".to_owned(),
    })
}

pub fn by_starts(count: usize) -> WindowKind {
    WindowKind::Count { count, by_ends: false }
}

pub fn by_ends(count: usize) -> WindowKind {
    WindowKind::Count { count, by_ends: true }
}

impl Query {
    pub fn operator(&self) -> WindowOperator {
        let Computed { input, arguments, .. } = &*self.computed;
        let keys = usize::from(self.has_key);
        let places: Vec<usize> = (0..keys).chain(arguments.iter().copied()).collect();
        let kinds: Vec<Kind> = [Kind::Int]
            .into_iter()
            .take(keys)
            .chain(self.computed.output.clone())
            .collect();
        WindowOperator::new(WindowSpec {
            name: "it".to_owned(),
            input: input.clone(),
            output: schema_of(&kinds),
            keys: input.columns[..keys].to_vec(),
            expressions: Arc::new(loaded(input, &places)),
            module: (self.computed.module)(),
            kind: self.kind.clone(),
            form: self.form,
            is_point: self.is_point,
            windows_max: 1_000,
        })
    }

    /// Compare the operator with the definition after every batch of random streams.
    pub fn judge(&self) {
        judge(&Case {
            schema: self.computed.input.clone(),
            rows: &[&self.computed.rows],
            make: &|| Box::new(self.operator()),
            definition: &|inputs, emitted_stable| self.definition(&inputs[0], emitted_stable),
            seeds: 60,
        });
    }

    /// The results that are due, and the output's stable point, which was `emitted_stable` before the step.
    fn definition(&self, input: &StreamTable, emitted_stable: i64) -> (Table, i64) {
        let mut groups: BTreeMap<Option<i64>, Vec<&Event>> = BTreeMap::new();
        for event in input.each() {
            let key = if self.has_key { event.0[0] } else { None };
            groups.entry(key).or_default().push(event);
        }
        let (mut results, mut held) = (Vec::new(), INF);
        for (key, events) in groups {
            for window in divided(&self.kind, &events, input.latest) {
                let has = |event: &&&Event| is_member(&self.kind, event, window);
                let members: Vec<&Event> = events.iter().filter(has).copied().collect();
                if members.is_empty() {
                    continue;
                }
                if self.is_due(window, input, emitted_stable) && self.is_complete(window) {
                    let (vs, ve) = self.lifetime(window);
                    let row = |found: Row| [vec![key; usize::from(self.has_key)], found].concat();
                    results.extend(
                        (self.computed.results)(&members)
                            .into_iter()
                            .map(|found| (row(found), vs, ve)),
                    );
                }
                if self.holds(window, input, emitted_stable) {
                    held = held.min(self.first_result(window));
                }
            }
        }
        let stable = match (&self.kind, input.stable) {
            (_, NEG_INF | INF) => input.stable,
            (WindowKind::Hopping(grid), stable) => self.stable_of_grid(grid, stable),
            (_, stable) => held.min(stable),
        };
        (counted(results), stable)
    }

    /// An event can still come into the first window that ends behind the stable point.
    fn stable_of_grid(&self, grid: &Grid, stable: i64) -> i64 {
        let mut start = grid.offset
            + grid.hop
                * (-100..)
                    .find(|at| grid.offset + grid.hop * at + grid.size > stable)
                    .unwrap();
        if let Some(since) = grid.since {
            start = start.max(
                (0..)
                    .map(|at| since + at)
                    .find(|t| (t - grid.offset).rem_euclid(grid.hop) == 0)
                    .unwrap(),
            );
        }
        if self.is_point { start + grid.size - 1 } else { start }
    }

    fn lifetime(&self, (start, end): Window) -> Window {
        if self.is_point { (end - 1, end) } else { (start, end) }
    }

    fn first_result(&self, window: Window) -> i64 {
        if self.is_point && window.1 == INF {
            INF
        } else {
            self.lifetime(window).0
        }
    }

    /// A count window without its last point, and a point that has no time, have no results.
    fn is_complete(&self, (_, end): Window) -> bool {
        end < INF || !(self.is_point || matches!(self.kind, WindowKind::Count { .. }))
    }

    /// Whether nothing can change a window at a stable point.
    fn is_closed(&self, (_, end): Window, stable: i64) -> bool {
        stable == INF
            || match self.kind {
                // Another event within the gap, or an edge that still moves.
                WindowKind::Sessions { gap } => end < INF && end + gap < stable,
                WindowKind::Snapshots => end < stable,
                WindowKind::Hopping(_) | WindowKind::Count { .. } => end <= stable,
            }
    }

    /// Whether a window that has results is emitted.
    fn is_due(&self, window: Window, input: &StreamTable, emitted_stable: i64) -> bool {
        let is_grid = matches!(self.kind, WindowKind::Hopping(_));
        let mark = if input.stable == INF { INF } else { input.latest };
        self.is_closed(window, input.stable)
            || match self.form {
                Form::Final => false,
                Form::Settled => matches!(self.kind, WindowKind::Snapshots) && window.0 < input.stable,
                // What the output's stable point has passed stays.
                Form::Watermark => window.1 <= mark || (!is_grid && self.first_result(window) < emitted_stable),
                Form::Eager => window.0 <= mark,
            }
    }

    /// Whether the output's stable point cannot pass the results of a window.
    fn holds(&self, window: Window, input: &StreamTable, emitted_stable: i64) -> bool {
        match self.kind {
            WindowKind::Snapshots => !self.is_due(window, input, emitted_stable),
            _ => !self.is_closed(window, input.stable),
        }
    }
}

/// The windows of the events of a group, with and without members. `latest`: the latest finite time.
fn divided(kind: &WindowKind, events: &[&Event], latest: i64) -> Vec<Window> {
    match *kind {
        WindowKind::Hopping(ref grid) => {
            let starts = (-100..)
                .map(|at| grid.offset + grid.hop * at)
                .take_while(|start| *start <= latest);
            let starts = starts.filter(|start| grid.since.is_none_or(|since| *start >= since));
            starts.map(|start| (start, start + grid.size)).collect()
        }
        WindowKind::Snapshots => {
            let edges: BTreeSet<i64> = events.iter().flat_map(|event| [event.1, event.2]).collect();
            let ends = edges.iter().skip(1).copied();
            edges.iter().copied().zip(ends).collect()
        }
        WindowKind::Count { count, .. } => {
            let points: BTreeSet<i64> = events
                .iter()
                .map(|event| point(kind, event))
                .filter(|&t| t < INF)
                .collect();
            let points: Vec<i64> = points.into_iter().collect();
            let end = |at: usize| points.get(at + count - 1).map_or(INF, |last| last + 1);
            points.iter().enumerate().map(|(at, &start)| (start, end(at))).collect()
        }
        WindowKind::Sessions { gap } => {
            let mut lifetimes: Vec<Window> = events.iter().map(|event| (event.1, event.2)).collect();
            lifetimes.sort_unstable();
            let mut found: Vec<Window> = Vec::new();
            for (vs, ve) in lifetimes {
                match found.last_mut() {
                    Some(last) if last.1 == INF || vs - last.1 <= gap => last.1 = last.1.max(ve),
                    _ => found.push((vs, ve)),
                }
            }
            found
        }
    }
}

/// The point of an event that count windows count.
fn point(kind: &WindowKind, event: &Event) -> i64 {
    match kind {
        WindowKind::Count { by_ends: true, .. } => event.2,
        _ => event.1,
    }
}

fn is_member(kind: &WindowKind, event: &Event, (start, end): Window) -> bool {
    match kind {
        WindowKind::Count { .. } => (start..end).contains(&point(kind, event)),
        _ => event.1 < end && event.2 > start,
    }
}
