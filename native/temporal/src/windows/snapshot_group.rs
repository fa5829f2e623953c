//! The windows of one group of snapshot windows, before and behind its front.

use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Unbounded};

use super::groups::Groups;
use super::kinds::Form;
use super::operator::{Rules, Time};
use super::output::{Emitted, Output, overflow};
use crate::aggregates::{Difference, Module, State, Term};
use crate::failure::Failure;
use crate::plain::Plain;
use crate::{INF, NEG_INF};

/// An edge behind the front: how many events have it, and what changes there.
#[derive(Debug, Default)]
pub(super) struct Edge {
    pub(super) events: u32,
    /// How many more events the window from here has than the one before it.
    pub(super) members: i64,
    pub(super) difference: Difference,
}

/// A window before the front, from an edge to the next one. It can be without members.
#[derive(Debug)]
pub(super) struct Window {
    /// How many events have the edge at its start.
    pub(super) edge: u32,
    pub(super) members: i64,
    pub(super) states: Box<[State]>,
    pub(super) is_touched: bool,
    pub(super) emitted: Emitted,
}

/// The windows and edges of a group.
#[derive(Debug, Default)]
pub(super) struct Group {
    pub(super) windows: BTreeMap<i64, Window>,
    pub(super) edges: BTreeMap<i64, Edge>,
    /// Of the last window before the front.
    pub(super) members: i64,
    pub(super) states: Box<[State]>,
    pub(super) touched: Vec<i64>,
    /// Whether it is listed as touched, and where it holds the output's stable point.
    pub(super) is_touched: bool,
    pub(super) held: Option<i64>,
    pub(super) due_stable: i64,
    pub(super) due_mark: i64,
}

impl Group {
    pub(super) fn is_empty(&self) -> bool {
        self.windows.is_empty() && self.edges.is_empty()
    }

    /// The number of windows with members, with those that are not made.
    pub(super) fn count(&self) -> usize {
        let made = self.windows.values().filter(|window| window.members > 0).count();
        let mut members = self.members;
        let unmade = self.edges.values().filter(|edge| {
            members += edge.members;
            members > 0
        });
        made + unmade.count()
    }

    /// The end of the window from `start`: the next edge.
    pub(super) fn end(&self, start: i64) -> i64 {
        let next = self
            .windows
            .range((Excluded(start), Unbounded))
            .next()
            .map(|(&start, _)| start);
        next.or_else(|| {
            self.edges
                .range((Excluded(start), Unbounded))
                .next()
                .map(|(&edge, _)| edge)
        })
        .unwrap_or(INF)
    }

    /// The last start before the front.
    pub(super) fn front(&self) -> Option<i64> {
        self.windows.last_key_value().map(|(&start, _)| start)
    }

    pub(super) fn touch(&mut self, start: i64) {
        if let Some(window) = self.windows.get_mut(&start)
            && !std::mem::replace(&mut window.is_touched, true)
        {
            self.touched.push(start);
        }
    }

    pub(super) fn touch_before(&mut self, t: i64) {
        if let Some((&start, _)) = self.windows.range(..t).next_back() {
            self.touch(start);
        }
    }

    /// Let an event begin. Behind the front it is a difference at either edge.
    pub(super) fn begin(&mut self, vs: i64, ve: i64, terms: &[Term], module: &Module) {
        if self.front().is_some_and(|front| vs <= front) {
            self.split(vs, module);
            self.split(ve, module);
            self.change(vs, ve, terms, true, module);
            return;
        }
        for (at, is_added) in [(vs, true), (ve, false)] {
            if at == INF {
                continue;
            }
            let edge = self.edges.entry(at).or_default();
            edge.events += 1;
            edge.members += if is_added { 1 } else { -1 };
            edge.difference.change(module, terms, is_added);
        }
        // Where the last window ends; it has a new end only if this is an edge that was not there.
        if !self.windows.is_empty() && self.edges.first_key_value().is_some_and(|(&first, _)| first == vs) {
            self.touch_before(vs);
        }
    }

    /// Make an edge, or count one more event that has it.
    pub(super) fn split(&mut self, edge: i64, module: &Module) {
        if edge == INF {
            return;
        }
        if self.front().is_none_or(|front| edge > front) {
            let is_new = !self.edges.contains_key(&edge);
            self.edges.entry(edge).or_default().events += 1;
            if is_new && self.edges.first_key_value().is_some_and(|(&first, _)| first == edge) {
                self.touch_before(edge);
            }
            return;
        }
        if let Some(window) = self.windows.get_mut(&edge) {
            window.edge += 1;
            return;
        }
        let left = self.windows.range(..edge).next_back();
        let (members, states) = left.map_or_else(
            || (0, module.begin_all()),
            |(_, left)| (left.members, left.states.clone()),
        );
        let window = Window {
            edge: 1,
            members,
            states,
            is_touched: false,
            emitted: Emitted::default(),
        };
        self.windows.insert(edge, window);
        self.touch(edge);
        self.touch_before(edge);
    }

    /// Count one event less that has an edge. Without any the windows beside it are one.
    pub(super) fn join(&mut self, edge: i64, group: u32, output: &mut Output) {
        if edge == INF {
            return;
        }
        if let Some(found) = self.edges.get_mut(&edge) {
            found.events -= 1;
            if found.events == 0 {
                found.difference.settle();
                debug_assert!(found.members == 0 && found.difference.is_zero());
                let is_first = self.edges.first_key_value().is_some_and(|(&first, _)| first == edge);
                self.edges.remove(&edge);
                if is_first {
                    self.touch_before(edge);
                }
            }
            return;
        }
        let window = self.windows.get_mut(&edge).expect("an event has its edges");
        window.edge -= 1;
        if window.edge == 0 {
            let window = self.windows.remove(&edge).expect("it was there");
            output.remove_all(group, window.emitted);
            self.touch_before(edge);
        }
    }

    /// Let an event enter the windows of `[low, high)`, or leave them. Both are edges.
    pub(super) fn change(&mut self, low: i64, high: i64, terms: &[Term], is_added: bool, module: &Module) {
        let sign = if is_added { 1 } else { -1 };
        let front = self.front();
        if front.is_some_and(|front| low <= front) {
            for (start, window) in self.windows.range_mut(low..high) {
                window.members += sign;
                module.change(&mut window.states, terms, is_added);
                if !std::mem::replace(&mut window.is_touched, true) {
                    self.touched.push(*start);
                }
            }
            if front.is_some_and(|front| high <= front) {
                return;
            }
            self.members += sign;
            module.change(&mut self.states, terms, is_added);
        } else if let Some(edge) = self.edges.get_mut(&low) {
            edge.members += sign;
            edge.difference.change(module, terms, is_added);
        }
        if high < INF
            && let Some(edge) = self.edges.get_mut(&high)
        {
            edge.members -= sign;
            edge.difference.change(module, terms, !is_added);
        }
    }

    /// The start and the end of the first window behind the front. None without one.
    pub(super) fn next(&self) -> Option<(i64, i64)> {
        let mut edges = self.edges.keys();
        let start = *edges.next()?;
        Some((start, edges.next().copied().unwrap_or(INF)))
    }

    /// Add the first difference behind the front to the states; return the edge.
    pub(super) fn pass(&mut self, module: &Module) -> u32 {
        let (_, edge) = self.edges.pop_first().expect("there is an edge behind the front");
        self.members += edge.members;
        edge.difference.add_to(module, &mut self.states);
        edge.events
    }

    /// The start of the first window from `t` on that has members, with those that are not made.
    pub(super) fn first_with_members(&self, t: i64) -> Option<i64> {
        let made = self
            .windows
            .range(t..)
            .find(|(_, window)| window.members > 0)
            .map(|(&start, _)| start);
        made.or_else(|| {
            let mut members = self.members;
            self.edges.iter().find_map(|(&start, edge)| {
                members += edge.members;
                (members > 0 && start >= t).then_some(start)
            })
        })
    }
}

/// Whether nothing can change a window that ends at `end`: at the stable point itself its edge can still move.
pub(super) fn is_closed(end: i64, time: &Time) -> bool {
    end < time.stable || time.stable == INF
}

/// Whether the window `[start, end)` must be emitted, if it has members.
pub(super) fn must(form: Form, start: i64, end: i64, time: &Time) -> bool {
    match form {
        Form::Final => is_closed(end, time),
        Form::Settled => start < time.stable || is_closed(end, time),
        // What the output's stable point has passed was emitted, and a revision cannot take it back (D9).
        Form::Watermark => end <= time.mark || start < time.emitted_stable,
        Form::Eager => start <= time.mark,
    }
}

/// Bring what was emitted to what it must be, drop what is closed, and move the front.
pub(super) fn refreshed(
    group: &mut Group,
    number: u32,
    rules: &Rules,
    time: &Time,
    groups: &Groups,
    output: &mut Output,
) {
    refresh_touched(group, number, rules, time, groups, output);
    drop_closed(group, time);
    move_front(group, number, rules, time, groups, output);
    drop_rest(group, time);
}

fn refresh_touched(group: &mut Group, number: u32, rules: &Rules, time: &Time, groups: &Groups, output: &mut Output) {
    // Of the windows that are made only the last one can end behind the watermark, and be due by it alone.
    if rules.form == Form::Watermark
        && let Some((&start, last)) = group.windows.last_key_value()
        && last.emitted.is_empty()
    {
        group.touch(start);
    }
    let mut touched = std::mem::take(&mut group.touched);
    touched.sort_unstable();
    for &start in &touched {
        let end = group.end(start);
        let Some(window) = group.windows.get_mut(&start) else {
            continue;
        };
        if !std::mem::replace(&mut window.is_touched, false) {
            continue;
        }
        let now = if window.members > 0 && must(rules.form, start, end, time) {
            output.found(
                groups,
                number,
                start,
                results(rules, groups, number, (start, end), window.members, &window.states),
            )
        } else {
            Emitted::default()
        };
        let before = std::mem::take(&mut window.emitted);
        window.emitted = output.replace(number, before, now);
    }
    touched.clear();
    group.touched = touched;
}

/// Emit the windows behind the front that must be, and make those of them that are not closed.
fn move_front(group: &mut Group, number: u32, rules: &Rules, time: &Time, groups: &Groups, output: &mut Output) {
    while let Some((start, end)) = group.next()
        && must(rules.form, start, end, time)
    {
        let edge = group.pass(&rules.module);
        let now = if group.members > 0 {
            output.found(
                groups,
                number,
                start,
                results(rules, groups, number, (start, end), group.members, &group.states),
            )
        } else {
            Emitted::default()
        };
        // The windows before one that is closed are closed too, and have been dropped.
        if is_closed(end, time) {
            now.rows
                .into_iter()
                .for_each(|row| output.insert(number, &row, start, end));
            continue;
        }
        let window = Window {
            edge,
            members: group.members,
            states: group.states.clone(),
            is_touched: false,
            emitted: output.replace(number, Emitted::default(), now),
        };
        group.windows.insert(start, window);
    }
}

fn results(
    rules: &Rules,
    groups: &Groups,
    number: u32,
    (start, end): (i64, i64),
    members: i64,
    states: &[State],
) -> Result<Emitted, Failure> {
    let found = rules.module.results(states, members);
    let rows = found.map_err(|text| overflow(groups, number, (start, end), &text))?;
    Ok(Emitted {
        rows,
        vs: start,
        ve: end,
    })
}

/// Drop the windows that are closed.
fn drop_closed(group: &mut Group, time: &Time) {
    while let Some((&start, window)) = group.windows.first_key_value() {
        let is_without = window.members == 0 && start < time.stable;
        if !is_without && !is_closed(group.end(start), time) {
            break;
        }
        group.windows.pop_first();
    }
}

/// Drop windows and edges before the stable point from which on there are none.
fn drop_rest(group: &mut Group, time: &Time) {
    if time.stable == INF {
        *group = Group {
            held: group.held,
            due_stable: group.due_stable,
            due_mark: group.due_mark,
            ..Group::default()
        };
        return;
    }
    drop_closed(group, time);
    // The last edge of all has no window behind it.
    if group.windows.is_empty()
        && group.edges.len() == 1
        && let Some((&start, edge)) = group.edges.first_key_value()
        && start < time.stable
        && group.members + edge.members == 0
    {
        group.edges.clear();
    }
}

/// Where a group holds the output's stable point. Forms that emit what has begun do not hold it.
pub(super) fn held(group: &Group, rules: &Rules) -> Option<i64> {
    match rules.form {
        Form::Final => group.first_with_members(NEG_INF),
        Form::Watermark => {
            // The first window that is not emitted.
            let unmade = group.edges.keys().next().copied();
            let unemitted = group
                .windows
                .iter()
                .rev()
                .take_while(|(_, window)| window.emitted.is_empty());
            let first = unemitted.last().map(|(&start, _)| start).or(unmade)?;
            group.first_with_members(first)
        }
        Form::Settled | Form::Eager => None,
    }
}

/// The next stable point and the next watermark at which time alone moves a group.
pub(super) fn dues(group: &Group, form: Form, time: &Time) -> (i64, i64) {
    let after = |edge: i64| if edge == INF { INF } else { edge + 1 };
    let closing = match group.windows.first_key_value() {
        Some((&start, window)) if window.members == 0 => after(start),
        Some((&start, _)) => after(group.end(start)),
        None if form == Form::Final => group.next().map_or(INF, |(start, end)| match end {
            INF => after(start),
            end => after(end),
        }),
        None => INF,
    };
    let first_edge = group.edges.keys().next().copied().unwrap_or(INF);
    let (stable, mark) = match form {
        Form::Final => (closing, INF),
        Form::Settled => (closing.min(after(first_edge)), INF),
        Form::Eager => (closing.min(after(first_edge)), first_edge),
        Form::Watermark => {
            // Windows that are made begin before the watermark; the next edge behind it ends the last one.
            let next = group.edges.range((Excluded(time.mark), Unbounded)).next();
            (closing.min(after(first_edge)), next.map_or(INF, |(&edge, _)| edge))
        }
    };
    let ahead = |due: i64, now: i64| if due > now { due } else { INF };
    (ahead(stable, time.stable), ahead(mark, time.mark))
}

/// The edges from the stable point on, each with how many events have it.
pub(super) fn plain_edges(group: &Group, time: &Time) -> Plain {
    let made = group.windows.iter().map(|(&at, window)| (at, window.edge));
    let behind = group.edges.iter().map(|(&at, edge)| (at, edge.events));
    let edges = made.chain(behind).filter(|(at, _)| *at >= time.stable);
    Plain::List(edges.map(|(at, events)| Plain::ints([at, events.into()])).collect())
}

pub(super) fn plain_windows(group: &Group, module: &Module) -> Plain {
    let mut found = Vec::new();
    let mut push = |start: i64, members: i64, states: &[State]| {
        if members > 0 {
            let states = module.state(states, members);
            let end = Plain::Int(group.end(start));
            found.push(Plain::List(vec![
                Plain::Int(start),
                end,
                Plain::Int(members),
                Plain::None,
                states,
            ]));
        }
    };
    for (&start, window) in &group.windows {
        push(start, window.members, &window.states);
    }
    let (mut members, mut states) = (group.members, group.states.clone());
    for (&start, edge) in &group.edges {
        members += edge.members;
        edge.difference.add_to(module, &mut states);
        push(start, members, &states);
    }
    Plain::List(found)
}
