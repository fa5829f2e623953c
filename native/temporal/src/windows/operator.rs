//! The operator of windows: `lmerge/temporal/windows/window_operator.py`.

use std::fmt::Debug;
use std::sync::Arc;

use arrow_array::ArrayRef;
use arrow_buffer::BooleanBuffer;

use super::count::{CountMembers, Counted};
use super::event::{Changes, RowSource};
use super::grid::GridWindows;
use super::groups::Groups;
use super::kinds::{Form, WindowKind};
use super::output::Output;
use super::panes::PaneWindows;
use super::session::{Gap, SessionMembers};
use super::snapshot::SnapshotWindows;
use super::spans::SpanWindows;
use crate::aggregates::{Module, Term};
use crate::batch::{Batch, taken};
use crate::expressions::{Expressions, Rows};
use crate::failure::Failure;
use crate::operator::{Operator, Progress};
use crate::operators::lifetimes::Alterations;
use crate::operators::skipping::SkippedEvents;
use crate::plain::Plain;
use crate::plain_rows::columns_of_plain;
use crate::rows::{RowForm, SharedForm};
use crate::settle::settled;
use crate::{Column, INF, NEG_INF, RowSchema};

/// What an operator of windows is made of.
#[derive(Debug)]
pub struct WindowSpec {
    pub name: String,
    pub input: Arc<RowSchema>,
    pub output: Arc<RowSchema>,
    /// The columns of the group's key: the first expressions.
    pub keys: Vec<Column>,
    /// The keys, then the arguments of the module.
    pub expressions: Arc<Expressions>,
    pub module: Module,
    pub kind: WindowKind,
    pub form: Form,
    /// Whether results are points at the windows' ends.
    pub is_point: bool,
    pub windows_max: i64,
}

/// Where time stands in a step.
#[derive(Clone, Copy, Debug)]
pub struct Time {
    pub stable: i64,
    pub mark: i64,
    /// The latest finite time: where the grid of an event without end stops behind the end of all time (D13).
    pub last_finite: i64,
    /// Whether batches bring the stream's watermark.
    pub is_marked: bool,
    /// Where windows had begun before the step.
    pub before: i64,
    /// The output's stable point before the step.
    pub emitted_stable: i64,
}

impl Time {
    /// The watermark; behind the end of all time the latest finite one.
    pub fn begun(&self) -> i64 {
        if self.mark == INF { self.last_finite } else { self.mark }
    }

    pub fn has_reached(&self, due: i64) -> bool {
        self.stable >= due
    }

    fn moved(&mut self, batch: &Batch) {
        self.before = self.begun();
        let stable = batch.stable.map_or(self.stable, |stable| stable.max(self.stable));
        let mark = match batch.mark {
            Some(mark) => {
                self.is_marked = true;
                Some(mark)
            }
            None if self.is_marked => None,
            None => batch.vs.iter().copied().max(),
        };
        self.mark = self.mark.max(stable).max(mark.unwrap_or(NEG_INF));
        let finite = [Some(self.stable), Some(stable), mark]
            .into_iter()
            .flatten()
            .filter(|&t| t < INF);
        self.last_finite = finite.fold(self.before, i64::max);
        self.stable = stable;
    }
}

/// What is common to all windows of an operator.
#[derive(Debug)]
pub struct Rules {
    pub module: Module,
    pub form: Form,
    pub is_point: bool,
    pub windows_max: i64,
    /// Of the rows that come in.
    pub rows: SharedForm,
    pub output: Arc<RowSchema>,
    keys: usize,
    expressions: Arc<Expressions>,
}

impl Rules {
    /// The lifetime of the results of a window.
    #[inline]
    pub fn lifetime(&self, start: i64, end: i64) -> (i64, i64) {
        if self.is_point { (end - 1, end) } else { (start, end) }
    }

    /// The smallest start of a result of a window; `INF` if it lies beyond every stable point.
    pub fn first_result(&self, start: i64, end: i64) -> i64 {
        match (self.is_point, end) {
            (false, _) => start,
            (true, INF) => INF,
            (true, end) => end - 1,
        }
    }

    /// The keys of rows, and their arguments, which only those in `some` need.
    fn evaluated(&self, columns: &[ArrayRef], count: usize, some: &Rows) -> Result<Vec<ArrayRef>, Failure> {
        let found = self.expressions.evaluate_within(columns, count, self.keys, some);
        found.map_err(|error| error.failure)
    }

    /// The arguments of rows.
    pub fn arguments(&self, columns: &[ArrayRef], count: usize) -> Result<Vec<ArrayRef>, Failure> {
        Ok(self.evaluated(columns, count, &None)?.split_off(self.keys))
    }

    /// The terms of events of a state, by rows and starts, with their rows as bytes.
    pub fn restored_events(&self, rows: &[&Plain], starts: &[i64]) -> Result<Vec<RestoredEvent>, Failure> {
        let columns = columns_of_plain(self.rows.columns(), rows)?;
        let arguments = self.arguments(&columns, rows.len())?;
        let source = RowSource::new(&self.rows, &columns);
        let terms = self.module.terms(&arguments, &mut || source.all());
        let of = |(at, &vs): (usize, &i64)| (source.get(at), terms.iter().map(|column| column.get(at, vs)).collect());
        Ok(starts.iter().enumerate().map(of).collect())
    }
}

/// An event's row as bytes, and its terms.
pub type RestoredEvent = (crate::aggregates::SharedBytes, Vec<Term>);

/// How many groups and windows there are.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    pub groups: usize,
    pub windows: usize,
}

/// The windows of one kind, of all groups.
pub trait Windows: Debug + Send {
    /// Take the changes of a step, and put what they and the time change into `output`.
    fn step(
        &mut self,
        rules: &Rules,
        time: &mut Time,
        groups: &mut Groups,
        changes: &Changes<'_>,
        output: &mut Output,
    ) -> Result<(), Failure>;

    /// How far the output is stable at a stable point of the input that is finite.
    fn output_stable(&self, rules: &Rules, time: &Time) -> i64;

    /// The state of each group, in the order of their keys.
    fn state(&self, rules: &Rules, time: &Time, groups: &Groups) -> Vec<Plain>;

    /// Take the states of groups; `numbers` are theirs.
    fn restore(
        &mut self,
        rules: &Rules,
        time: &Time,
        groups: &mut Groups,
        states: &[(u32, &Plain)],
    ) -> Result<(), Failure>;

    /// The number of events that are kept.
    fn live(&self) -> usize;

    /// The numbers of groups and of windows.
    fn sizes(&self, rules: &Rules, time: &Time, groups: &Groups) -> Sizes;

    fn check(&self, rules: &Rules, time: &Time);
}

/// Results of windows, by group.
#[derive(Debug)]
pub struct WindowOperator {
    progress: Progress,
    rules: Rules,
    groups: Groups,
    time: Time,
    windows: Box<dyn Windows>,
    /// On a grid: events that end before the first window that is needed.
    skip: Option<SkippedEvents>,
    kind: WindowKind,
    output_form: RowForm,
    key_columns: Vec<Column>,
}

impl WindowOperator {
    pub fn new(spec: WindowSpec) -> WindowOperator {
        let rows: SharedForm = Arc::new(RowForm::new(&spec.input));
        let windows: Box<dyn Windows> = match &spec.kind {
            WindowKind::Hopping(grid) if PaneWindows::suits(grid, spec.form) => {
                Box::new(PaneWindows::new(grid.clone()))
            }
            WindowKind::Hopping(grid) => Box::new(GridWindows::new(grid.clone(), &spec.module)),
            WindowKind::Snapshots => Box::new(SnapshotWindows::default()),
            WindowKind::Count { count, by_ends } => Box::new(SpanWindows::<CountMembers>::new(Counted {
                count: *count,
                by_ends: *by_ends,
            })),
            WindowKind::Sessions { gap } => Box::new(SpanWindows::<SessionMembers>::new(Gap(*gap))),
        };
        let skip = matches!(spec.kind, WindowKind::Hopping(_));
        WindowOperator {
            progress: Progress::new(spec.name),
            groups: Groups::new(&spec.keys),
            time: Time {
                stable: NEG_INF,
                mark: NEG_INF,
                last_finite: NEG_INF,
                is_marked: false,
                before: NEG_INF,
                emitted_stable: NEG_INF,
            },
            windows,
            skip: skip.then(|| SkippedEvents::new(rows.clone(), Alterations::default())),
            kind: spec.kind,
            output_form: RowForm::new(&spec.output),
            rules: Rules {
                module: spec.module,
                form: spec.form,
                is_point: spec.is_point,
                windows_max: spec.windows_max,
                rows,
                output: spec.output,
                keys: spec.keys.len(),
                expressions: spec.expressions,
            },
            key_columns: spec.keys,
        }
    }

    /// The time before which events can end and have no part in what is needed.
    fn skip_until(&self) -> i64 {
        match &self.kind {
            WindowKind::Hopping(grid) if self.progress.fast_forwarded > NEG_INF => {
                let t = self.progress.fast_forwarded;
                grid.first_over(t.saturating_sub(1)).saturating_add(1)
            }
            _ => NEG_INF,
        }
    }
}

/// The changes of events that are in a window, before or behind them; None if all are. The others need no values: those
/// without an end in windows by ends, and those that end before a grid begins, or in a gap of it.
fn placed(kind: &WindowKind, batch: &Batch) -> Rows {
    let is_placed = |vs: i64, end: i64| match kind {
        WindowKind::Count { by_ends: true, .. } => end > vs && end < INF,
        WindowKind::Hopping(grid) => end > vs && (!grid.has_first(vs) || end > grid.first_over(vs)),
        _ => true,
    };
    let is_partial = match kind {
        WindowKind::Count { by_ends, .. } => *by_ends,
        WindowKind::Hopping(grid) => grid.since.is_some() || grid.hop > grid.size,
        _ => false,
    };
    if !is_partial {
        return None;
    }
    let rows = BooleanBuffer::collect_bool(batch.len(), |at| {
        is_placed(batch.vs[at], batch.old[at]) || is_placed(batch.vs[at], batch.new[at])
    });
    Some(rows).filter(|rows| rows.count_set_bits() < batch.len())
}

impl Operator for WindowOperator {
    fn step(&mut self, inputs: &[Batch]) -> Result<Batch, Failure> {
        let batch = match &mut self.skip {
            Some(skip) => skip.take(&inputs[0]),
            None => inputs[0].clone(),
        };
        self.time.emitted_stable = self.progress.stable;
        self.time.moved(&batch);
        let some = placed(&self.kind, &batch);
        let mut evaluated = if batch.is_empty() {
            Vec::new()
        } else {
            self.rules.evaluated(&batch.columns, batch.len(), &some)?
        };
        let batch = match (&self.kind, some) {
            (WindowKind::Count { .. }, Some(some)) => {
                let kept: Vec<u32> = some.set_indices().map(|at| at as u32).collect();
                evaluated = taken(&evaluated, &kept);
                batch.take(&kept)
            }
            // On a grid an event that is in no window can be kept, as its end may come to lie in one.
            _ => batch,
        };
        let arguments = evaluated.split_off(self.rules.keys.min(evaluated.len()));
        let rows = RowSource::new(&self.rules.rows, &batch.columns);
        let changes = Changes {
            vs: &batch.vs,
            old: &batch.old,
            new: &batch.new,
            keys: if batch.is_empty() {
                None
            } else {
                self.groups.encode(&evaluated)
            },
            terms: if batch.is_empty() {
                Vec::new()
            } else {
                self.rules.module.terms(&arguments, &mut || rows.all())
            },
            rows,
        };
        let mut output = Output::default();
        self.windows
            .step(&self.rules, &mut self.time, &mut self.groups, &changes, &mut output)?;
        output.checked()?;
        let emitted = output.batch(&self.rules.output, &self.groups, &self.rules.module);
        self.groups.drop_idle(|_| {});
        let stable = batch.stable.and_then(|_| match self.time.stable {
            NEG_INF => None,
            INF => Some(INF),
            _ => Some(self.windows.output_stable(&self.rules, &self.time)),
        });
        Ok(Batch {
            stable: self.progress.advance(stable),
            ..settled(emitted, &self.output_form)
        })
    }

    fn fast_forward(&mut self, t: i64) -> Vec<i64> {
        self.progress.fast_forward(t);
        let until = self.skip_until();
        match &mut self.skip {
            Some(skip) => {
                skip.fast_forward(until);
                vec![until]
            }
            None => vec![NEG_INF],
        }
    }

    fn state(&self) -> Plain {
        let Time {
            stable,
            mark,
            last_finite,
            is_marked,
            ..
        } = self.time;
        let times = [stable, mark, last_finite]
            .map(Plain::Int)
            .into_iter()
            .chain([Plain::Bool(is_marked)]);
        self.progress.state().and([
            (
                "skips",
                Plain::List(vec![self.skip.as_ref().map_or(Plain::None, SkippedEvents::state)]),
            ),
            ("times", Plain::List(times.collect())),
            (
                "groups",
                Plain::List(self.windows.state(&self.rules, &self.time, &self.groups)),
            ),
        ])
    }

    fn restore(&mut self, state: &Plain) -> Result<(), Failure> {
        self.progress.restore(state)?;
        if let (Some(skip), [kept]) = (&mut self.skip, state.get("skips")?.tuple::<1>()?) {
            skip.restore(kept)?;
        }
        let [stable, mark, last_finite, is_marked] = state.get("times")?.tuple()?;
        self.time = Time {
            stable: stable.int()?,
            mark: mark.int()?,
            last_finite: last_finite.int()?,
            is_marked: is_marked.int()? != 0,
            before: NEG_INF,
            emitted_stable: self.progress.stable,
        };
        let kept = state.get("groups")?.list()?;
        let keys: Vec<&Plain> = kept.iter().map(|group| group.get("key")).collect::<Result<_, _>>()?;
        let encoded = match keys.is_empty() || self.key_columns.is_empty() {
            true => None,
            false => self.groups.encode(&columns_of_plain(&self.key_columns, &keys)?),
        };
        let states: Vec<(u32, &Plain)> = kept
            .iter()
            .enumerate()
            .map(|(at, group)| (self.groups.number(encoded.as_ref(), at), group))
            .collect();
        self.windows
            .restore(&self.rules, &self.time, &mut self.groups, &states)?;
        self.groups.drop_idle(|_| {});
        Ok(())
    }

    fn live(&self) -> usize {
        self.windows.live() + self.skip.as_ref().map_or(0, SkippedEvents::live)
    }

    fn sizes(&self) -> Vec<(&'static str, usize)> {
        let Sizes { groups, windows } = self.windows.sizes(&self.rules, &self.time, &self.groups);
        vec![("groups", groups), ("windows", windows)]
    }

    fn skipped(&self) -> u64 {
        self.skip.as_ref().map_or(0, SkippedEvents::skipped)
    }

    fn check(&self) {
        if let Some(skip) = &self.skip {
            skip.check();
        }
        self.groups.check();
        self.windows.check(&self.rules, &self.time);
    }
}
