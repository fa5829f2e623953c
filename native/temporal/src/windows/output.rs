//! Results on their way out: rows that are emitted or taken back, and the batch that they make.

use std::sync::Arc;

use arrow_array::ArrayRef;

use super::groups::Groups;
use super::operator::Rules;
use crate::aggregates::{Module, ResultRow, State, Value};
use crate::batch::Batch;
use crate::failure::Failure;
use crate::plain::Plain;
use crate::plain_rows::plain_rows;
use crate::{INF, RowSchema};

/// Results that were emitted for a window and can still change, with the lifetime that they have.
#[derive(Clone, Debug, Default)]
pub struct Emitted {
    pub rows: Vec<ResultRow>,
    pub vs: i64,
    pub ve: i64,
}

impl Emitted {
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }
}

/// The changes of a step, in any order; an event can change several times.
#[derive(Debug, Default)]
pub struct Output {
    groups: Vec<u32>,
    /// Of all rows, one after the other.
    values: Vec<Value>,
    vs: Vec<i64>,
    old: Vec<i64>,
    new: Vec<i64>,
    /// Why the step has failed, with the group's key and the start of the window.
    failed: Option<((Vec<u8>, i64), Failure)>,
}

impl Output {
    /// Return what was found for the window of a group that begins at `start`; nothing, if that has failed.
    pub fn found(&mut self, groups: &Groups, group: u32, start: i64, found: Result<Emitted, Failure>) -> Emitted {
        found.unwrap_or_else(|failure| {
            self.fail(groups, group, start, failure);
            Emitted::default()
        })
    }

    fn fail(&mut self, groups: &Groups, group: u32, start: i64, failure: Failure) {
        let place = (groups.key(group).to_vec(), start);
        if self.failed.as_ref().is_none_or(|(first, _)| place < *first) {
            self.failed = Some((place, failure));
        }
    }

    /// The failure of the first window that has failed: by the order of groups, then by its start. So neither the order
    /// in which events came nor that of a table decides.
    pub fn checked(&mut self) -> Result<(), Failure> {
        self.failed.take().map_or(Ok(()), |(_, failure)| Err(failure))
    }

    pub fn is_empty(&self) -> bool {
        self.vs.is_empty()
    }

    /// Emit a row.
    pub fn insert(&mut self, group: u32, row: &[Value], vs: i64, ve: i64) {
        self.push(group, row, vs, vs, ve);
    }

    /// Emit the results of a window that does not change any more, from the states of its `events`.
    pub fn insert_results(
        &mut self,
        rules: &Rules,
        groups: &Groups,
        group: u32,
        (start, end): (i64, i64),
        (events, states): (i64, &[State]),
    ) {
        if rules.is_point && end == INF {
            return;
        }
        let (vs, ve) = rules.lifetime(start, end);
        match rules.module.push_results(states, events, &mut self.values) {
            Ok(count) => (0..count).for_each(|_| self.push_times(group, vs, vs, ve)),
            Err(text) => self.fail(groups, group, start, overflow(groups, group, (start, end), &text)),
        }
    }

    /// Take back what was emitted for a window.
    pub fn remove_all(&mut self, group: u32, emitted: Emitted) {
        for row in &emitted.rows {
            self.push(group, row, emitted.vs, emitted.ve, emitted.vs);
        }
    }

    /// Emit `rows` for a window of which `before` was emitted. Returns what is emitted now.
    pub fn replace(&mut self, group: u32, before: Emitted, now: Emitted) -> Emitted {
        if before.rows == now.rows && before.vs == now.vs {
            if before.ve != now.ve {
                for row in &now.rows {
                    self.push(group, row, now.vs, before.ve, now.ve);
                }
            }
            return now;
        }
        self.remove_all(group, before);
        for row in &now.rows {
            self.push(group, row, now.vs, now.vs, now.ve);
        }
        now
    }

    fn push(&mut self, group: u32, row: &[Value], vs: i64, old: i64, new: i64) {
        self.values.extend_from_slice(row);
        self.push_times(group, vs, old, new);
    }

    fn push_times(&mut self, group: u32, vs: i64, old: i64, new: i64) {
        self.groups.push(group);
        self.vs.push(vs);
        self.old.push(old);
        self.new.push(new);
    }

    /// The changes as a batch, as they came.
    pub fn batch(self, schema: &Arc<RowSchema>, groups: &Groups, module: &Module) -> Batch {
        if self.is_empty() {
            return Batch::empty(schema.clone());
        }
        let (count, width) = (self.groups.len(), self.values.len() / self.groups.len());
        let rows: Vec<&[Value]> = (0..count).map(|at| &self.values[at * width..][..width]).collect();
        Batch {
            schema: schema.clone(),
            columns: columns_of(groups, module, &self.groups, &rows),
            vs: self.vs.into(),
            old: self.old.into(),
            new: self.new.into(),
            stable: None,
            mark: None,
        }
    }
}

/// The columns of results: the keys of their groups, then what the module returned.
fn columns_of(groups: &Groups, module: &Module, of: &[u32], rows: &[&[Value]]) -> Vec<ArrayRef> {
    let mut columns = groups.columns(of.iter().copied());
    columns.extend(module.columns(rows));
    columns
}

/// What was emitted for the windows of a group, as plain values: `emitted` in a state of Python.
pub fn plain_emitted(
    schema: &RowSchema,
    groups: &Groups,
    module: &Module,
    group: u32,
    emitted: &[(i64, Emitted)],
) -> Plain {
    let rows: Vec<&[Value]> = emitted
        .iter()
        .flat_map(|(_, one)| &one.rows)
        .map(|row| &**row)
        .collect();
    if rows.is_empty() {
        return Plain::List(Vec::new());
    }
    let columns = columns_of(groups, module, &vec![group; rows.len()], &rows);
    let mut plain = plain_rows(&schema.columns, &columns, rows.len()).into_iter();
    let windows = emitted.iter().filter(|(_, one)| !one.is_empty()).map(|(start, one)| {
        let rows = plain.by_ref().take(one.rows.len());
        let events = rows.map(|row| Plain::List(vec![row, Plain::Int(one.vs), Plain::Int(one.ve)]));
        Plain::List(vec![Plain::Int(*start), Plain::List(events.collect())])
    });
    Plain::List(windows.collect())
}

/// The failure of a result that its type cannot hold, in a window of a group.
pub fn overflow(groups: &Groups, group: u32, window: (i64, i64), text: &(String, String)) -> Failure {
    let (before, after) = text;
    let span = format!("[{}, {})", shown_time(window.0), shown_time(window.1));
    if groups.columns_of_keys().is_empty() {
        return Failure::Module(format!("{before}{span}{after}"));
    }
    Failure::Shown {
        is_usage: false,
        before: format!("{before}{span} of group "),
        row: groups.plain(&[group]).remove(0),
        after: after.clone(),
    }
}

/// A time in a message.
pub fn shown_time(t: i64) -> String {
    match t {
        crate::INF => "inf".to_owned(),
        crate::NEG_INF => "-inf".to_owned(),
        t => t.to_string(),
    }
}
