//! Hopping windows that overlap: `lmerge/temporal/windows/grid_group.py`.
//!
//! An event is in windows that follow each other. So it is a difference at the first of them and behind the last, and the
//! states of a window are the sum of the differences up to its start. An event costs two differences, however many
//! windows it is in. This is for forms that emit a window once, when it closes: windows close in order, and each group
//! needs the sum for the last window that has closed.

use std::collections::{BTreeMap, BTreeSet};

use ahash::RandomState;
use hashbrown::HashTable;

use super::event::Changes;
use super::grid::without_first_window;
use super::groups::Groups;
use super::kept::{KeptEvents, WindowState, plain_groups};
use super::kinds::{Form, Grid};
use super::operator::{Rules, Sizes, Time, Windows};
use super::output::{Emitted, Output};
use crate::aggregates::{Difference, Module, State, Term};
use crate::failure::Failure;
use crate::plain::Plain;
use crate::{INF, NEG_INF};

/// With fewer windows over each time an event costs less in each of them than as two differences.
const OVERLAP_MIN: i64 = 4;

/// What the window from `start` has more than the one before it, in a group.
#[derive(Debug)]
struct Edge {
    group: u32,
    start: i64,
    events: i64,
    difference: Difference,
    /// Where it is in the list of its start.
    place: u32,
    /// Whether it is there; else its number can be used again.
    is_used: bool,
}

/// The last window of a group that has closed.
#[derive(Clone, Debug)]
struct Sum {
    events: i64,
    states: Box<[State]>,
}

/// Differences between windows that are not closed.
#[derive(Debug)]
pub struct PaneWindows {
    grid: Grid,
    edges: Vec<Edge>,
    unused: Vec<u32>,
    table: HashTable<u32>,
    hashing: RandomState,
    by_start: BTreeMap<i64, Vec<u32>>,
    sums: Vec<Sum>,
    /// The groups whose sums have events.
    with_events: BTreeSet<u32>,
    /// The start of the last window that has closed, if a sum has events.
    closed: i64,
    kept: KeptEvents,
}

impl PaneWindows {
    /// Whether windows are kept as differences: it takes results that are emitted once, and events in many windows.
    pub fn suits(grid: &Grid, form: Form) -> bool {
        !form.is_by_mark() && grid.size / grid.hop >= OVERLAP_MIN
    }

    pub fn new(grid: Grid) -> PaneWindows {
        PaneWindows {
            grid,
            edges: Vec::new(),
            unused: Vec::new(),
            table: HashTable::new(),
            hashing: RandomState::new(),
            by_start: BTreeMap::new(),
            sums: Vec::new(),
            with_events: BTreeSet::new(),
            closed: NEG_INF,
            kept: KeptEvents::default(),
        }
    }

    fn apply(&mut self, rules: &Rules, begun: i64, groups: &mut Groups, changes: &Changes<'_>) -> Result<(), Failure> {
        let reach = self.grid.start_above(begun);
        let after_begun = begun.saturating_add(1);
        let has_terms = !rules.module.is_row_count();
        let mut terms = Vec::new();
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
                self.kept.change(groups, group, changes, at, &[], reach);
            }
            let first = self.grid.first_over(old.min(new));
            let until = old.max(new).min(after_begun);
            self.grid.check_count(first, until, rules.windows_max)?;
            let behind = |end: i64| {
                if end > vs {
                    self.grid.first_from(end)
                } else {
                    self.grid.first_over(vs)
                }
            };
            let (was, now) = (behind(old), behind(new));
            if was != now {
                self.change(rules, groups, group, was, &terms, 1, true);
                self.change(rules, groups, group, now, &terms, -1, false);
            }
        }
        Ok(())
    }

    /// Note that windows begin that start after `before` and not after `begun`: the differences are there already.
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
        self.kept.drop_before(groups, self.grid.start_above(begun));
        Ok(())
    }

    /// Let an event enter the windows from `start` on, or leave them.
    #[inline]
    #[expect(
        clippy::too_many_arguments,
        reason = "the difference of one event, on the path of every event"
    )]
    fn change(
        &mut self,
        rules: &Rules,
        groups: &mut Groups,
        group: u32,
        start: i64,
        terms: &[Term],
        events: i64,
        is_added: bool,
    ) {
        if start == INF {
            return;
        }
        let at = self.edge(groups, group, start);
        let edge = &mut self.edges[at as usize];
        edge.events += events;
        if !terms.is_empty() {
            edge.difference.change(&rules.module, terms, is_added);
        }
        self.drop_zero(groups, at);
    }

    /// Let all that is in the states of a window enter the windows from `start` on, or leave them.
    fn merge(&mut self, rules: &Rules, groups: &mut Groups, group: u32, start: i64, sum: &Sum, is_added: bool) {
        let at = self.edge(groups, group, start);
        let edge = &mut self.edges[at as usize];
        edge.events += if is_added { sum.events } else { -sum.events };
        edge.difference.add(&rules.module, &sum.states, is_added);
        self.drop_zero(groups, at);
    }

    /// The number of the edge of a group at `start`, which is made if it is not there.
    #[inline]
    fn edge(&mut self, groups: &mut Groups, group: u32, start: i64) -> u32 {
        let hash = self.hashing.hash_one((group, start));
        let edges = &self.edges;
        let is_same = |&at: &u32| edges[at as usize].group == group && edges[at as usize].start == start;
        match self.table.find(hash, is_same) {
            Some(&at) => at,
            None => self.open(groups, group, start),
        }
    }

    fn open(&mut self, groups: &mut Groups, group: u32, start: i64) -> u32 {
        let list = self.by_start.entry(start).or_default();
        let edge = Edge {
            group,
            start,
            events: 0,
            difference: Difference::default(),
            place: list.len() as u32,
            is_used: true,
        };
        let at = match self.unused.pop() {
            Some(at) => {
                self.edges[at as usize] = edge;
                at
            }
            None => {
                self.edges.push(edge);
                self.edges.len() as u32 - 1
            }
        };
        list.push(at);
        let (edges, hashing) = (&self.edges, &self.hashing);
        let hash = |&at: &u32| hashing.hash_one((edges[at as usize].group, edges[at as usize].start));
        self.table.insert_unique(hash(&at), at, hash);
        groups.enter(group);
        at
    }

    /// Drop an edge at which nothing changes any more.
    #[inline]
    fn drop_zero(&mut self, groups: &mut Groups, at: u32) {
        let edge = &mut self.edges[at as usize];
        if edge.events != 0 || !edge.difference.is_seen_to_be_zero() {
            return;
        }
        let (start, place) = (edge.start, edge.place);
        let list = self
            .by_start
            .get_mut(&start)
            .expect("an edge is in the list of its start");
        list.swap_remove(place as usize);
        if let Some(&moved) = list.get(place as usize) {
            self.edges[moved as usize].place = place;
        } else if list.is_empty() {
            self.by_start.remove(&start);
        }
        self.close(groups, at);
    }

    /// Let the number of an edge be used again that is in no list.
    fn close(&mut self, groups: &mut Groups, at: u32) {
        let edge = &mut self.edges[at as usize];
        let hash = self.hashing.hash_one((edge.group, edge.start));
        if let Ok(entry) = self.table.find_entry(hash, |&other| other == at) {
            entry.remove();
        }
        edge.is_used = false;
        edge.difference = Difference::default();
        groups.leave(edge.group);
        self.unused.push(at);
    }

    /// Add an edge to the sum of its group, and drop it.
    fn pass(&mut self, rules: &Rules, groups: &mut Groups, at: u32) {
        let edge = &self.edges[at as usize];
        let group = edge.group;
        if group as usize >= self.sums.len() {
            let none = Sum {
                events: 0,
                states: rules.module.begin_all(),
            };
            self.sums.resize(group as usize + 1, none);
        }
        let sum = &mut self.sums[group as usize];
        sum.add(&rules.module, edge);
        if sum.events > 0 && self.with_events.insert(group) {
            groups.enter(group);
        } else if sum.events == 0 && self.with_events.remove(&group) {
            groups.leave(group);
        }
        self.close(groups, at);
    }

    /// The start of the first window that is not closed, if one has events.
    fn next_start(&self) -> Option<i64> {
        if self.with_events.is_empty() {
            self.by_start.first_key_value().map(|(&start, _)| start)
        } else {
            self.closed.checked_add(self.grid.hop)
        }
    }

    /// Close the windows whose ends the stable point has reached, and emit them.
    fn close_due(&mut self, rules: &Rules, time: &Time, groups: &mut Groups, output: &mut Output) {
        let last = match time.stable {
            INF => time.begun(),
            stable => stable.saturating_sub(self.grid.size),
        };
        while let Some(start) = self.next_start()
            && start <= last
        {
            for at in self.by_start.remove(&start).unwrap_or_default() {
                self.pass(rules, groups, at);
            }
            self.closed = start;
            let window = (start, self.grid.end(start));
            for &group in &self.with_events {
                let Sum { events, states } = &self.sums[group as usize];
                output.insert_results(rules, groups, group, window, (*events, states));
            }
        }
    }

    /// Drop everything: the stream has ended.
    fn clear(&mut self, groups: &mut Groups) {
        for at in std::mem::take(&mut self.by_start).into_values().flatten() {
            self.close(groups, at);
        }
        for group in std::mem::take(&mut self.with_events) {
            groups.leave(group);
        }
        self.sums.clear();
        self.kept.clear(groups);
    }

    /// The edges of each group, by start; a group without edges can have open windows.
    fn edges_by_group(&self) -> BTreeMap<u32, Vec<&Edge>> {
        let mut edges: BTreeMap<u32, Vec<&Edge>> = self.with_events.iter().map(|&group| (group, Vec::new())).collect();
        for &at in self.by_start.values().flatten() {
            let edge = &self.edges[at as usize];
            edges.entry(edge.group).or_default().push(edge);
        }
        edges
    }

    /// Visit the windows that have begun and are not closed: group, start, and what is in them.
    fn each_window(&self, rules: &Rules, time: &Time, mut visit: impl FnMut(u32, i64, &Sum)) {
        for (group, edges) in self.edges_by_group() {
            self.each_of_group(rules, time, group, &edges, &mut visit);
        }
    }

    /// `edges`: of the group, by start.
    fn each_of_group(
        &self,
        rules: &Rules,
        time: &Time,
        group: u32,
        edges: &[&Edge],
        visit: &mut impl FnMut(u32, i64, &Sum),
    ) {
        let after_begun = time.begun().saturating_add(1);
        let none = || Sum {
            events: 0,
            states: rules.module.begin_all(),
        };
        let mut sum = self.sums.get(group as usize).cloned().unwrap_or_else(none);
        let mut start = Some(self.grid.first_over(time.stable));
        for place in 0..=edges.len() {
            let until = edges.get(place).map_or(after_begun, |edge| edge.start.min(after_begun));
            while let Some(at) = start
                && sum.events > 0
                && at < until
            {
                visit(group, at, &sum);
                start = at.checked_add(self.grid.hop);
            }
            if let Some(edge) = edges.get(place) {
                sum.add(&rules.module, edge);
                start = Some(edge.start);
            }
        }
    }
}

impl Sum {
    fn add(&mut self, module: &Module, edge: &Edge) {
        self.events += edge.events;
        edge.difference.add_to(module, &mut self.states);
    }
}

impl Windows for PaneWindows {
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
        self.close_due(rules, time, groups, output);
        if time.stable == INF {
            self.clear(groups);
        }
        Ok(())
    }

    fn output_stable(&self, rules: &Rules, time: &Time) -> i64 {
        self.grid.output_stable(rules.is_point, time.stable)
    }

    fn state(&self, rules: &Rules, time: &Time, groups: &Groups) -> Vec<Plain> {
        let mut windows = Vec::new();
        self.each_window(rules, time, |group, start, sum| {
            windows.push(WindowState {
                group,
                start,
                events: sum.events,
                states: rules.module.state(&sum.states, sum.events),
                emitted: Emitted::default(),
            });
        });
        plain_groups(rules, &self.grid, groups, &self.kept, windows.into_iter())
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
            for window in state.get("windows")?.list()? {
                let [start, _, events, _, states] = window.tuple()?;
                let restored = rules
                    .module
                    .restored(states, &mut |rows, count| rules.arguments(rows, count))?;
                let sum = Sum {
                    events: events.int()?,
                    states: restored.into(),
                };
                self.merge(rules, groups, group, start.int()?, &sum, true);
                if let Some(next) = start.int()?.checked_add(self.grid.hop) {
                    self.merge(rules, groups, group, next, &sum, false);
                }
            }
        }
        // The windows that have not begun are those of the events that are kept.
        let reach = self.grid.start_above(time.begun());
        let kept = std::mem::take(&mut self.kept);
        for event in kept.after(reach) {
            let first = self.grid.first_over(event.vs).max(reach);
            let behind = self.grid.first_from(event.ve);
            if first < behind {
                for _ in 0..event.copies {
                    self.change(rules, groups, event.group, first, event.terms, 1, true);
                    self.change(rules, groups, event.group, behind, event.terms, -1, false);
                }
            }
        }
        self.kept = kept;
        Ok(())
    }

    fn live(&self) -> usize {
        self.kept.live()
    }

    fn sizes(&self, rules: &Rules, time: &Time, _groups: &Groups) -> Sizes {
        // A group whose windows have closed is kept until the edge behind them is passed.
        let mut groups: BTreeSet<u32> = self.kept.groups().collect();
        let mut windows = 0;
        self.each_window(rules, time, |group, _, _| {
            groups.insert(group);
            windows += 1;
        });
        Sizes {
            groups: groups.len(),
            windows,
        }
    }

    fn check(&self, rules: &Rules, time: &Time) {
        let listed = self.by_start.iter().flat_map(|(start, list)| {
            assert!(!list.is_empty());
            list.iter().enumerate().map(move |(place, &at)| (*start, place, at))
        });
        let mut count = 0;
        for (start, place, at) in listed {
            let edge = &self.edges[at as usize];
            assert!(edge.is_used && edge.start == start && edge.place as usize == place);
            assert!(
                edge.events != 0 || !edge.difference.is_zero(),
                "an edge is kept at which nothing changes"
            );
            assert!(
                !time.has_reached(self.grid.end(start)),
                "an edge is kept that is closed"
            );
            count += 1;
        }
        assert_eq!(count, self.table.len());
        assert_eq!(count, self.edges.iter().filter(|edge| edge.is_used).count());
        for (group, sum) in self.sums.iter().enumerate() {
            assert_eq!(self.with_events.contains(&(group as u32)), sum.events > 0);
            assert!(sum.events > 0 || sum.states.iter().all(State::is_zero));
            assert!(sum.events >= 0 && sum.states.len() == rules.module.begin_all().len());
        }
        self.kept.check(self.grid.start_above(time.begun()));
    }
}
