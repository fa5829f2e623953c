//! Hopping and tumbling windows: `lmerge/temporal/windows/grid_group.py`.
//!
//! All groups share the grid. So all windows are in one table, by group and start, and the windows of one start are in
//! one list. What time alone moves is found there: the windows of a start begin, are due by the watermark, and close
//! together. A window that is not closed begins at or behind the output's stable point, so none has to hold it.

use std::collections::BTreeMap;

use ahash::RandomState;
use hashbrown::HashTable;

use super::event::Changes;
use super::groups::Groups;
use super::kept::{KeptEvents, WindowState, plain_groups};
use super::kinds::{Form, Grid, NearStart};
use super::operator::{Rules, Sizes, Time, Windows};
use super::output::{Emitted, Output, overflow, shown_time};
use crate::aggregates::{Module, State, StateTable, Term};
use crate::failure::Failure;
use crate::plain::Plain;
use crate::plain_rows::plain_rows;
use crate::{INF, NEG_INF};

/// A window of a group.
#[derive(Debug)]
struct Window {
    group: u32,
    states: u32,
    start: i64,
    events: i64,
    /// Whether the step has to look at it.
    is_touched: bool,
    /// Whether it is there; else its number can be used again.
    is_used: bool,
    emitted: Emitted,
}

/// No window has this start.
const NOT_FOUND: (i64, u32) = (NEG_INF, u32::MAX);

/// The windows that have begun and are not closed.
#[derive(Debug)]
pub struct GridWindows {
    grid: Grid,
    windows: Vec<Window>,
    unused: Vec<u32>,
    table: HashTable<u32>,
    hashing: RandomState,
    /// Windows by their start. A window that has lost all events stays in its list until the start closes.
    by_start: BTreeMap<i64, Vec<u32>>,
    states: StateTable,
    touched: Vec<u32>,
    kept: KeptEvents,
    /// By group, the window that was found last: its start and its number. Most events are in the window of the one
    /// before.
    found: Vec<(i64, u32)>,
    /// Windows that start before it were due by the watermark.
    due_before: i64,
}

impl GridWindows {
    pub fn new(grid: Grid, module: &Module) -> GridWindows {
        GridWindows {
            grid,
            windows: Vec::new(),
            unused: Vec::new(),
            table: HashTable::new(),
            hashing: RandomState::new(),
            by_start: BTreeMap::new(),
            states: StateTable::new(module),
            touched: Vec::new(),
            kept: KeptEvents::default(),
            found: Vec::new(),
            due_before: NEG_INF,
        }
    }

    fn apply(&mut self, rules: &Rules, begun: i64, groups: &mut Groups, changes: &Changes<'_>) -> Result<(), Failure> {
        let reach = self.grid.start_above(begun);
        let after_begun = begun.saturating_add(1);
        let has_terms = !rules.module.is_row_count();
        let mut terms = Vec::new();
        let mut near = NearStart::default();
        for at in 0..changes.len() {
            let (vs, old, new) = (changes.vs[at], changes.old[at], changes.new[at]);
            if !self.grid.has_first(vs) {
                return Err(without_first_window(&self.grid, rules, changes, at));
            }
            let group = groups.number(changes.keys.as_ref(), at);
            if has_terms {
                changes.terms(at, &mut terms);
            }
            if old >= reach || new >= reach {
                self.kept.change(groups, group, changes, at, &terms, reach);
            }
            let first = near.first_over(&self.grid, old.min(new));
            let until = old.max(new).min(after_begun);
            self.grid.check_count(first, until, rules.windows_max)?;
            let mut start = first;
            while start < until {
                let (was, now) = (vs < old && old > start, vs < new && new > start);
                if now && !was {
                    self.enter(rules, groups, group, start, &terms);
                } else if was && !now {
                    self.leave(rules, group, start, &terms);
                }
                let Some(next) = start.checked_add(self.grid.hop) else {
                    break;
                };
                start = next;
            }
        }
        Ok(())
    }

    /// Let windows begin that start after `before` and not after `begun`, in the events that are there.
    fn begin(&mut self, rules: &Rules, groups: &mut Groups, before: i64, begun: i64) -> Result<(), Failure> {
        let first = self.grid.start_above(before);
        let Some(last) = self.kept.last_end() else {
            return Ok(());
        };
        if first > begun {
            return Ok(());
        }
        let until = last.min(begun.saturating_add(1));
        self.grid.check_count(first, until, rules.windows_max)?;
        let kept = std::mem::take(&mut self.kept);
        let mut start = first;
        while start < until {
            for event in kept.after(start) {
                if event.vs < self.grid.end(start) {
                    for _ in 0..event.copies {
                        self.enter(rules, groups, event.group, start, event.terms);
                    }
                }
            }
            let Some(next) = start.checked_add(self.grid.hop) else {
                break;
            };
            start = next;
        }
        self.kept = kept;
        self.kept.drop_before(groups, self.grid.start_above(begun));
        Ok(())
    }

    #[inline]
    fn enter(&mut self, rules: &Rules, groups: &mut Groups, group: u32, start: i64, terms: &[Term]) {
        let at = match self.found.get(group as usize) {
            Some(&(of, at)) if of == start => at,
            _ => {
                let at = match self.find(group, start) {
                    Some(at) => at,
                    None => self.open(rules, groups, group, start),
                };
                if group as usize >= self.found.len() {
                    self.found.resize(group as usize + 1, NOT_FOUND);
                }
                self.found[group as usize] = (start, at);
                at
            }
        };
        let window = &mut self.windows[at as usize];
        window.events += 1;
        if !terms.is_empty() {
            rules.module.change(self.states.get_mut(window.states), terms, true);
        }
        if rules.form.is_by_mark() {
            touch(window, at, &mut self.touched);
        }
    }

    fn leave(&mut self, rules: &Rules, group: u32, start: i64, terms: &[Term]) {
        let at = self.find(group, start).expect("a window of an event is there");
        let window = &mut self.windows[at as usize];
        window.events -= 1;
        if !terms.is_empty() {
            rules.module.change(self.states.get_mut(window.states), terms, false);
        }
        if rules.form.is_by_mark() || window.events == 0 {
            touch(window, at, &mut self.touched);
        }
    }

    #[inline]
    fn find(&self, group: u32, start: i64) -> Option<u32> {
        let hash = self.hashing.hash_one((group, start));
        let windows = &self.windows;
        let is_same = |&at: &u32| windows[at as usize].group == group && windows[at as usize].start == start;
        self.table.find(hash, is_same).copied()
    }

    fn open(&mut self, rules: &Rules, groups: &mut Groups, group: u32, start: i64) -> u32 {
        let window = Window {
            group,
            states: self.states.begin(&rules.module),
            start,
            events: 0,
            is_touched: false,
            is_used: true,
            emitted: Emitted::default(),
        };
        let at = match self.unused.pop() {
            Some(at) => {
                self.windows[at as usize] = window;
                at
            }
            None => {
                self.windows.push(window);
                self.windows.len() as u32 - 1
            }
        };
        let (windows, hashing) = (&self.windows, &self.hashing);
        let hash = |&at: &u32| hashing.hash_one((windows[at as usize].group, windows[at as usize].start));
        self.table.insert_unique(hash(&at), at, hash);
        self.by_start.entry(start).or_default().push(at);
        groups.enter(group);
        at
    }

    fn close(&mut self, groups: &mut Groups, at: u32) {
        let window = &mut self.windows[at as usize];
        let hash = self.hashing.hash_one((window.group, window.start));
        if let Ok(entry) = self.table.find_entry(hash, |&other| other == at) {
            entry.remove();
        }
        window.is_used = false;
        window.emitted = Emitted::default();
        if let Some(found) = self.found.get_mut(window.group as usize).filter(|found| found.1 == at) {
            *found = NOT_FOUND;
        }
        groups.leave(window.group);
        self.states.end(window.states);
        self.unused.push(at);
    }

    /// Touch the windows whose ends the watermark has reached.
    fn touch_due(&mut self, form: Form, mark: i64) {
        let last = self.grid.last_ended(mark);
        if form != Form::Watermark || last < self.due_before {
            return;
        }
        for (start, numbers) in self.by_start.range(self.due_before..=last) {
            for &at in numbers {
                let window = &mut self.windows[at as usize];
                if window.is_used && window.start == *start {
                    touch(window, at, &mut self.touched);
                }
            }
        }
        self.due_before = last.saturating_add(1);
    }

    /// Bring what was emitted for each touched window to what it must be.
    fn refresh(&mut self, rules: &Rules, time: &Time, groups: &mut Groups, output: &mut Output) {
        let mut touched = std::mem::take(&mut self.touched);
        for &at in &touched {
            let window = &mut self.windows[at as usize];
            window.is_touched = false;
            if window.events == 0 {
                output.remove_all(window.group, std::mem::take(&mut window.emitted));
                self.close(groups, at);
                continue;
            }
            let end = self.grid.end(window.start);
            if rules.form == Form::Eager || (rules.form == Form::Watermark && end <= time.mark) {
                let span = (window.start, end);
                let states = self.states.get(window.states);
                let found = results(rules, groups, window.group, span, window.events, states);
                let now = output.found(groups, window.group, window.start, found);
                let before = std::mem::take(&mut window.emitted);
                window.emitted = output.replace(window.group, before, now);
            }
        }
        touched.clear();
        self.touched = touched;
    }

    /// Close the windows whose ends the stable point has reached, and emit them if they were not.
    fn close_due(&mut self, rules: &Rules, time: &Time, groups: &mut Groups, output: &mut Output) {
        while let Some(entry) = self.by_start.first_entry() {
            let start = *entry.key();
            let end = self.grid.end(start);
            if !time.has_reached(end) {
                break;
            }
            let mut closed = entry.remove();
            groups.sort(&mut closed, |at| self.windows[at as usize].group); // most of the order of the output
            for at in closed {
                let window = &self.windows[at as usize];
                if !window.is_used || window.start != start {
                    continue;
                }
                if !rules.form.is_by_mark() {
                    let taken = (window.events, self.states.get(window.states));
                    output.insert_results(rules, groups, window.group, (start, end), taken);
                }
                self.close(groups, at);
            }
        }
    }
}

#[inline]
fn touch(window: &mut Window, at: u32, touched: &mut Vec<u32>) {
    if !window.is_touched {
        window.is_touched = true;
        touched.push(at);
    }
}

/// What a window with `events` emits.
pub fn results(
    rules: &Rules,
    groups: &Groups,
    group: u32,
    (start, end): (i64, i64),
    events: i64,
    states: &[State],
) -> Result<Emitted, Failure> {
    let (vs, ve) = rules.lifetime(start, end);
    if rules.is_point && end == INF {
        return Ok(Emitted::default());
    }
    let found = rules.module.results(states, events);
    let rows = found.map_err(|text| overflow(groups, group, (start, end), &text))?;
    Ok(Emitted { rows, vs, ve })
}

/// The failure of an event that starts at the beginning of all time, on a grid without a first window.
pub fn without_first_window(grid: &Grid, rules: &Rules, changes: &Changes<'_>, at: usize) -> Failure {
    let (old, new) = (shown_time(changes.old[at]), shown_time(changes.new[at]));
    let is_insert = changes.old[at] == changes.vs[at];
    let columns = rules.rows.decode([&*changes.rows.get(at)]);
    let start = shown_time(changes.vs[at]);
    let times = if is_insert {
        format!(", {start}, {new})")
    } else {
        format!(", {start}, {old}, {new})")
    };
    Failure::Shown {
        is_usage: true,
        before: if is_insert { "insert(" } else { "adjust(" }.to_owned(),
        row: plain_rows(rules.rows.columns(), &columns, 1).remove(0),
        after: format!(
            "{times} starts at {start}, where {} has no first window: give the windows since=",
            grid.shown
        ),
    }
}

impl Windows for GridWindows {
    fn step(
        &mut self,
        rules: &Rules,
        time: &mut Time,
        groups: &mut Groups,
        changes: &Changes<'_>,
        output: &mut Output,
    ) -> Result<(), Failure> {
        self.begin(rules, groups, time.before, time.begun())?;
        self.apply(rules, time.begun(), groups, changes)?;
        if time.mark == INF {
            let before = time.last_finite;
            time.last_finite = self.kept.last_finite_end().map_or(before, |ve| before.max(ve));
            self.begin(rules, groups, before, time.last_finite)?;
        }
        self.touch_due(rules.form, time.mark);
        self.refresh(rules, time, groups, output);
        self.close_due(rules, time, groups, output);
        if time.stable == INF {
            self.kept.clear(groups);
        }
        Ok(())
    }

    fn output_stable(&self, rules: &Rules, time: &Time) -> i64 {
        self.grid.output_stable(rules.is_point, time.stable)
    }

    fn state(&self, rules: &Rules, _time: &Time, groups: &Groups) -> Vec<Plain> {
        let windows = self
            .windows
            .iter()
            .filter(|window| window.is_used)
            .map(|window| WindowState {
                group: window.group,
                start: window.start,
                events: window.events,
                states: rules.module.state(self.states.get(window.states), window.events),
                emitted: window.emitted.clone(),
            });
        plain_groups(rules, &self.grid, groups, &self.kept, windows)
    }

    fn restore(
        &mut self,
        rules: &Rules,
        time: &Time,
        groups: &mut Groups,
        states: &[(u32, &Plain)],
    ) -> Result<(), Failure> {
        self.kept = KeptEvents::restored(rules, groups, states)?;
        for &(group, state) in states {
            for kept in state.get("windows")?.list()? {
                let [start, end, events, _, states] = kept.tuple()?;
                let at = self.open(rules, groups, group, start.int()?);
                let restored = rules
                    .module
                    .restored(states, &mut |rows, count| rules.arguments(rows, count))?;
                let window = &mut self.windows[at as usize];
                window.events = events.int()?;
                for (state, restored) in self.states.get_mut(window.states).iter_mut().zip(restored) {
                    *state = restored;
                }
                let end = end.int()?;
                if rules.form == Form::Eager || (rules.form == Form::Watermark && end <= time.mark) {
                    window.emitted = results(
                        rules,
                        groups,
                        window.group,
                        (window.start, end),
                        window.events,
                        self.states.get(window.states),
                    )?;
                }
            }
        }
        self.due_before = self.grid.last_ended(time.mark).saturating_add(1);
        Ok(())
    }

    fn live(&self) -> usize {
        self.kept.live()
    }

    fn sizes(&self, _rules: &Rules, _time: &Time, groups: &Groups) -> Sizes {
        let groups = groups.count();
        Sizes {
            groups,
            windows: self.table.len(),
        }
    }

    fn check(&self, _rules: &Rules, time: &Time) {
        assert!(self.touched.is_empty());
        let used = self.windows.iter().filter(|window| window.is_used);
        assert_eq!(used.clone().count(), self.table.len());
        for window in used {
            assert!(window.events > 0, "a window is kept without events");
            assert!(
                !time.has_reached(self.grid.end(window.start)),
                "a window is kept that is closed"
            );
            assert!(self.find(window.group, window.start).is_some());
        }
        self.kept.check(self.grid.start_above(time.begun()));
    }
}
