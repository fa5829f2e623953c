//! Snapshot windows: `lmerge/temporal/windows/snapshot_group.py`.
//!
//! An event does not visit the windows that it overlaps. It is a difference at its start and at its end: the states of a
//! window are the sum of the differences at all edges up to its start. So an event costs two edges, however many windows
//! it overlaps. Each group has a *front* (`snapshot_group`): windows before it are made, with states of their own, because
//! results were emitted for them or can be. Behind it are only edges. The front moves with the time at which the form
//! emits.

use std::collections::BTreeMap;

use super::event::Changes;
use super::groups::Groups;
use super::operator::{Rules, Sizes, Time, Windows};
use super::output::{Emitted, Output, plain_emitted};
use super::snapshot_group::{Group, dues, held, is_closed, must, plain_edges, plain_windows, refreshed};
use crate::INF;
use crate::aggregates::Module;
use crate::calendar::Calendar;
use crate::failure::Failure;
use crate::plain::Plain;

/// The groups of snapshot windows.
#[derive(Debug, Default)]
pub struct SnapshotWindows {
    groups: Vec<Group>,
    touched: Vec<u32>,
    by_stable: Calendar<(u32, i64)>,
    by_mark: Calendar<(u32, i64)>,
    held: BTreeMap<i64, u32>,
    popped: Vec<(u32, i64)>,
}

impl SnapshotWindows {
    fn touch(&mut self, group: u32) {
        let found = &mut self.groups[group as usize];
        if !std::mem::replace(&mut found.is_touched, true) {
            self.touched.push(group);
        }
    }

    fn group(&mut self, module: &Module, group: u32) -> &mut Group {
        let at = group as usize;
        if at >= self.groups.len() {
            self.groups.resize_with(at + 1, Group::default);
        }
        let found = &mut self.groups[at];
        if found.is_empty() {
            found.members = 0;
            found.states = module.begin_all();
            found.due_stable = INF;
            found.due_mark = INF;
        }
        found
    }

    fn apply(&mut self, rules: &Rules, groups: &mut Groups, changes: &Changes<'_>, output: &mut Output) {
        let module = &rules.module;
        let mut terms = Vec::new();
        for at in 0..changes.len() {
            let (vs, old, new) = (changes.vs[at], changes.old[at], changes.new[at]);
            let number = groups.number(changes.keys.as_ref(), at);
            changes.terms(at, &mut terms);
            let group = self.group(module, number);
            let was_empty = group.is_empty();
            let (is_new, is_removed) = (old == vs, new == vs);
            if is_new {
                group.begin(vs, new, &terms, module);
            } else {
                if !is_removed {
                    group.split(new, module);
                }
                group.change(old.min(new), old.max(new), &terms, new > old, module);
                if is_removed {
                    group.join(vs, number, output);
                }
                group.join(old, number, output);
            }
            match (was_empty, group.is_empty()) {
                (true, false) => groups.enter(number),
                (false, true) => groups.leave(number),
                _ => {}
            }
            self.touch(number);
        }
    }

    /// Touch the groups that time moves.
    fn touch_due(&mut self, time: &Time) {
        let mut popped = std::mem::take(&mut self.popped);
        if time.stable == INF {
            for number in 0..self.groups.len() as u32 {
                let group = &mut self.groups[number as usize];
                if !group.is_empty() {
                    let starts: Vec<i64> = group.windows.keys().copied().collect();
                    starts.into_iter().for_each(|start| group.touch(start));
                    self.touch(number);
                }
            }
        }
        self.by_stable.pop_below(time.stable.saturating_add(1), &mut popped);
        for (group, due) in popped.drain(..) {
            if self.groups[group as usize].due_stable == due {
                self.groups[group as usize].due_stable = INF;
                self.touch(group);
            }
        }
        self.by_mark.pop_below(time.mark.saturating_add(1), &mut popped);
        for (group, due) in popped.drain(..) {
            if self.groups[group as usize].due_mark == due {
                self.groups[group as usize].due_mark = INF;
                self.touch(group);
            }
        }
        self.popped = popped;
    }

    fn refresh(&mut self, rules: &Rules, time: &Time, groups: &mut Groups, output: &mut Output) {
        let mut touched = std::mem::take(&mut self.touched);
        for &number in &touched {
            let group = &mut self.groups[number as usize];
            group.is_touched = false;
            let was_there = !group.is_empty();
            refreshed(group, number, rules, time, groups, output);
            if was_there && group.is_empty() {
                groups.leave(number);
            }
            self.wait(number, rules, time);
        }
        touched.clear();
        self.touched = touched;
    }

    /// Let a group hold the output's stable point, and note when to look at it again.
    fn wait(&mut self, number: u32, rules: &Rules, time: &Time) {
        let group = &mut self.groups[number as usize];
        let held = held(group, rules);
        if held != group.held {
            if let Some(before) = std::mem::replace(&mut group.held, held) {
                let count = self.held.get_mut(&before).expect("what is held is counted");
                *count -= 1;
                if *count == 0 {
                    self.held.remove(&before);
                }
            }
            if let Some(held) = held {
                *self.held.entry(held).or_insert(0) += 1;
            }
        }
        let (stable, mark) = dues(group, rules.form, time);
        if stable != group.due_stable {
            group.due_stable = stable;
            if stable < INF {
                self.by_stable.add(stable, (number, stable));
            }
        }
        if mark != group.due_mark {
            group.due_mark = mark;
            if mark < INF {
                self.by_mark.add(mark, (number, mark));
            }
        }
    }
}

impl Windows for SnapshotWindows {
    fn step(
        &mut self,
        rules: &Rules,
        time: &mut Time,
        groups: &mut Groups,
        changes: &Changes<'_>,
        output: &mut Output,
    ) -> Result<(), Failure> {
        self.apply(rules, groups, changes, output);
        self.touch_due(time);
        self.refresh(rules, time, groups, output);
        Ok(())
    }

    fn output_stable(&self, _rules: &Rules, time: &Time) -> i64 {
        self.held
            .keys()
            .next()
            .map_or(time.stable, |&held| held.min(time.stable))
    }

    fn state(&self, rules: &Rules, time: &Time, groups: &Groups) -> Vec<Plain> {
        let mut numbers: Vec<u32> = (0..self.groups.len() as u32)
            .filter(|&at| !self.groups[at as usize].is_empty())
            .collect();
        numbers.sort_by_key(|&at| groups.key(at));
        let keys = groups.plain(&numbers);
        let states = numbers.iter().zip(keys).map(|(&at, key)| {
            let group = &self.groups[at as usize];
            let emitted: Vec<(i64, Emitted)> = group
                .windows
                .iter()
                .map(|(&start, window)| (start, window.emitted.clone()))
                .collect();
            Plain::map([
                ("key", key),
                ("events", Plain::List(Vec::new())),
                ("edges", plain_edges(group, time)),
                ("windows", plain_windows(group, &rules.module)),
                (
                    "emitted",
                    plain_emitted(&rules.output, groups, &rules.module, at, &emitted),
                ),
                ("due", Plain::None),
            ])
        });
        states.collect()
    }

    fn restore(
        &mut self,
        rules: &Rules,
        time: &Time,
        groups: &mut Groups,
        states: &[(u32, &Plain)],
    ) -> Result<(), Failure> {
        for &(number, state) in states {
            let group = self.group(&rules.module, number);
            for edge in state.get("edges")?.list()? {
                let [at, events] = edge.tuple()?;
                group.edges.entry(at.int()?).or_default().events = events.int()? as u32;
            }
            let module = &rules.module;
            for window in state.get("windows")?.list()? {
                let [start, end, members, _, states] = window.tuple()?;
                let (start, end, members) = (start.int()?, end.int()?, members.int()?);
                let states = module.restored(states, &mut |rows, count| rules.arguments(rows, count))?;
                let edge = group.edges.entry(start).or_default();
                edge.members += members;
                edge.difference.add(module, &states, true);
                if end < INF {
                    let edge = group.edges.entry(end).or_default();
                    edge.members -= members;
                    edge.difference.add(module, &states, false);
                }
            }
            groups.enter(number);
            // What is emitted again is what was emitted.
            let mut output = Output::default();
            refreshed(group, number, rules, time, groups, &mut output);
            output.checked()?;
            self.wait(number, rules, time);
        }
        Ok(())
    }

    fn live(&self) -> usize {
        0
    }

    fn sizes(&self, _rules: &Rules, _time: &Time, groups: &Groups) -> Sizes {
        let windows = self.groups.iter().map(Group::count);
        let groups = groups.count();
        Sizes {
            groups,
            windows: windows.sum(),
        }
    }

    fn check(&self, rules: &Rules, time: &Time) {
        assert!(self.touched.is_empty());
        let mut counted: BTreeMap<i64, u32> = BTreeMap::new();
        for group in &self.groups {
            assert!(group.touched.is_empty() && !group.is_touched);
            if let Some(held) = group.held {
                *counted.entry(held).or_insert(0) += 1;
            }
            if let Some((&start, window)) = group.windows.last_key_value() {
                assert!(
                    window.members == group.members,
                    "the window at {start} has other members than the front"
                );
                assert!(group.edges.keys().next().is_none_or(|&edge| edge > start));
            }
            for (&start, window) in &group.windows {
                let end = group.end(start);
                assert!(window.members >= 0 && (window.members == 0 || !is_closed(end, time)));
                assert!(window.emitted.is_empty() || must(rules.form, start, end, time));
            }
        }
        assert_eq!(counted, self.held);
    }
}
