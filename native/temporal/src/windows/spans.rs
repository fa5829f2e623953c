//! Windows whose members are kept because they decide where windows are: count windows and sessions.
//!
//! In a group these windows are in the same order by start and by end. So its first window holds the output's stable
//! point and closes first.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::ops::Bound::{Excluded, Unbounded};
use std::sync::Arc;

use super::event::Changes;
use super::groups::Groups;
use super::kinds::Form;
use super::operator::{Rules, Sizes, Time, Windows};
use super::output::{Emitted, Output, overflow, plain_emitted};
use crate::aggregates::{Module, SharedBytes, State, Term};
use crate::calendar::Calendar;
use crate::failure::Failure;
use crate::plain::Plain;
use crate::plain_rows::plain_rows;
use crate::{INF, NEG_INF};

/// An event that is kept: by its row, with its terms.
#[derive(Clone, Debug)]
pub struct Member {
    pub row: SharedBytes,
    pub vs: i64,
    pub ve: i64,
    pub terms: Arc<[Term]>,
}

/// A window from its key in `Spans` to `end`; `INF` if it has no end yet.
#[derive(Debug)]
pub struct Window {
    pub end: i64,
    pub members: i64,
    pub states: Box<[State]>,
    is_touched: bool,
    emitted: Emitted,
}

/// The windows of a group by start, and what of them has changed.
#[derive(Debug, Default)]
pub struct Spans {
    pub windows: BTreeMap<i64, Window>,
    touched: Vec<i64>,
    /// What was emitted for windows that are gone.
    gone: Vec<Emitted>,
}

/// What decides where the windows of a group are.
pub trait Members: Debug + Send + Default {
    /// The parameters of the kind.
    type Kind: Debug + Send + Copy;

    /// Replace an event as it was by the event as it is, and change the windows. Either can be none.
    fn apply(&mut self, kind: Self::Kind, spans: &mut Spans, module: &Module, old: Option<Member>, new: Option<Member>);

    /// The smallest stable point at which nothing can change a window that ends at `end`.
    fn closes_at(kind: Self::Kind, end: i64) -> i64;

    /// Whether a window that ends at `end` has results.
    fn is_complete(end: i64) -> bool;

    /// Drop the events that no window needs. `first`: the start of the first window, `INF` without one.
    fn prune(&mut self, stable: i64, first: i64);

    fn live(&self) -> usize;

    /// The events that are kept.
    fn kept(&self) -> Vec<&Member>;

    /// Take an event that `kept` has returned into a new group.
    fn keep(&mut self, kind: Self::Kind, event: Member);
}

impl Spans {
    /// Make a window without members.
    pub fn open(&mut self, start: i64, end: i64, module: &Module) {
        let window = Window {
            end,
            members: 0,
            states: module.begin_all(),
            is_touched: false,
            emitted: Emitted::default(),
        };
        self.windows.insert(start, window);
        self.touch(start);
    }

    /// Remove a window, if it is there.
    pub fn remove(&mut self, start: i64) {
        if let Some(window) = self.windows.remove(&start)
            && !window.emitted.is_empty()
        {
            self.gone.push(window.emitted);
        }
    }

    /// Let a window begin earlier or later.
    pub fn restart(&mut self, start: i64, new_start: i64) {
        if let Some(mut window) = self.windows.remove(&start) {
            let emitted = std::mem::take(&mut window.emitted);
            if !emitted.is_empty() {
                self.gone.push(emitted);
            }
            window.is_touched = false;
            self.windows.insert(new_start, window);
            self.touch(new_start);
        }
    }

    pub fn touch(&mut self, start: i64) {
        if let Some(window) = self.windows.get_mut(&start)
            && !std::mem::replace(&mut window.is_touched, true)
        {
            self.touched.push(start);
        }
    }

    /// Let an event enter a window, or leave it.
    pub fn change(&mut self, start: i64, terms: &[Term], is_added: bool, module: &Module) {
        if let Some(window) = self.windows.get_mut(&start) {
            window.members += if is_added { 1 } else { -1 };
            module.change(&mut window.states, terms, is_added);
        }
        self.touch(start);
    }

    /// Compute the states of a window from its members.
    pub fn rebuild<'a>(&mut self, start: i64, members: impl Iterator<Item = &'a Member>, module: &Module) {
        if let Some(window) = self.windows.get_mut(&start) {
            window.members = 0;
            window.states = module.begin_all();
            for member in members {
                window.members += 1;
                module.change(&mut window.states, &member.terms, true);
            }
        }
        self.touch(start);
    }
}

/// A group: its windows, and what decides where they are.
#[derive(Debug)]
struct Group<M> {
    spans: Spans,
    members: M,
    is_touched: bool,
    held: i64,
    due_stable: i64,
    due_mark: i64,
}

impl<M: Members> Group<M> {
    fn new() -> Group<M> {
        Group {
            spans: Spans::default(),
            members: M::default(),
            is_touched: false,
            held: INF,
            due_stable: INF,
            due_mark: INF,
        }
    }

    fn is_empty(&self) -> bool {
        self.spans.windows.is_empty() && self.members.live() == 0
    }
}

/// The groups of windows of one kind.
#[derive(Debug)]
pub struct SpanWindows<M: Members> {
    kind: M::Kind,
    groups: Vec<Group<M>>,
    touched: Vec<u32>,
    by_stable: Calendar<(u32, i64)>,
    by_mark: Calendar<(u32, i64)>,
    held: BTreeMap<i64, u32>,
    live: usize,
}

impl<M: Members> SpanWindows<M> {
    pub fn new(kind: M::Kind) -> SpanWindows<M> {
        SpanWindows {
            kind,
            groups: Vec::new(),
            touched: Vec::new(),
            by_stable: Calendar::default(),
            by_mark: Calendar::default(),
            held: BTreeMap::new(),
            live: 0,
        }
    }

    fn group(&mut self, number: u32) -> &mut Group<M> {
        let at = number as usize;
        if at >= self.groups.len() {
            self.groups.resize_with(at + 1, Group::new);
        }
        &mut self.groups[at]
    }

    fn touch(&mut self, number: u32) {
        if !std::mem::replace(&mut self.groups[number as usize].is_touched, true) {
            self.touched.push(number);
        }
    }

    fn apply(&mut self, rules: &Rules, groups: &mut Groups, changes: &Changes<'_>) {
        let kind = self.kind;
        let mut terms = Vec::new();
        for at in 0..changes.len() {
            let (vs, old, new) = (changes.vs[at], changes.old[at], changes.new[at]);
            let number = groups.number(changes.keys.as_ref(), at);
            changes.terms(at, &mut terms);
            let terms: Arc<[Term]> = terms.as_slice().into();
            let row = changes.rows.get(at);
            let member = |ve: i64| {
                (ve > vs).then(|| Member {
                    row: row.clone(),
                    vs,
                    ve,
                    terms: terms.clone(),
                })
            };
            let group = self.group(number);
            let (was_empty, live) = (group.is_empty(), group.members.live());
            group
                .members
                .apply(kind, &mut group.spans, &rules.module, member(old), member(new));
            let (is_empty, now_live) = (group.is_empty(), group.members.live());
            match (was_empty, is_empty) {
                (true, false) => groups.enter(number),
                (false, true) => groups.leave(number),
                _ => {}
            }
            self.live = self.live + now_live - live;
            self.touch(number);
        }
    }

    fn touch_due(&mut self, time: &Time) {
        if time.stable == INF {
            for number in 0..self.groups.len() as u32 {
                let group = &mut self.groups[number as usize];
                if !group.is_empty() {
                    touch_from(&mut group.spans, NEG_INF);
                    self.touch(number);
                }
            }
        }
        let mut popped = Vec::new();
        self.by_stable.pop_below(time.stable.saturating_add(1), &mut popped);
        for (number, due) in popped.drain(..) {
            if self.groups[number as usize].due_stable == due {
                self.groups[number as usize].due_stable = INF;
                self.touch(number);
            }
        }
        self.by_mark.pop_below(time.mark.saturating_add(1), &mut popped);
        for (number, due) in popped.drain(..) {
            let group = &mut self.groups[number as usize];
            if group.due_mark == due {
                group.due_mark = INF;
                touch_from(&mut group.spans, due);
                self.touch(number);
            }
        }
    }

    fn refresh(&mut self, rules: &Rules, time: &Time, groups: &mut Groups, output: &mut Output) {
        for number in std::mem::take(&mut self.touched) {
            let kind = self.kind;
            let group = &mut self.groups[number as usize];
            group.is_touched = false;
            let (was_there, live) = (!group.is_empty(), group.members.live());
            refreshed::<M>(kind, &mut group.spans, number, rules, time, groups, output);
            if time.stable == INF {
                group.members = M::default();
            } else {
                let first = group.spans.windows.keys().next().copied().unwrap_or(INF);
                group.members.prune(time.stable, first);
            }
            if was_there && group.is_empty() {
                groups.leave(number);
            }
            self.live = self.live + group.members.live() - live;
            self.wait(number, rules, time);
        }
    }

    /// Let the first window of a group hold the output's stable point, and note when to look at the group again.
    fn wait(&mut self, number: u32, rules: &Rules, time: &Time) {
        let kind = self.kind;
        let group = &mut self.groups[number as usize];
        let windows = &group.spans.windows;
        let first = windows.first_key_value();
        let held = first.map_or(INF, |(&start, window)| rules.first_result(start, window.end));
        let stable = first.map_or(INF, |(_, window)| M::closes_at(kind, window.end));
        let mark = match rules.form {
            Form::Eager => windows
                .range((Excluded(time.mark), Unbounded))
                .next()
                .map_or(INF, |(&start, _)| start),
            Form::Watermark => {
                let ahead = windows.values().rev().take_while(|window| window.end > time.mark);
                ahead.last().map_or(INF, |window| window.end)
            }
            _ => INF,
        };
        let before = std::mem::replace(&mut group.held, held);
        if stable != group.due_stable && stable < INF {
            self.by_stable.add(stable, (number, stable));
        }
        if mark != group.due_mark && mark < INF {
            self.by_mark.add(mark, (number, mark));
        }
        (group.due_stable, group.due_mark) = (stable, mark);
        if before != held {
            if before < INF {
                let count = self.held.get_mut(&before).expect("what is held is counted");
                *count -= 1;
                if *count == 0 {
                    self.held.remove(&before);
                }
            }
            if held < INF {
                *self.held.entry(held).or_insert(0) += 1;
            }
        }
    }
}

/// Touch the windows that the watermark has reached with `due`: one that begins there, and those that end there.
fn touch_from(spans: &mut Spans, due: i64) {
    let starts: Vec<i64> = spans
        .windows
        .iter()
        .rev()
        .take_while(|(start, window)| **start >= due || window.end >= due)
        .map(|(&start, _)| start)
        .collect();
    starts.into_iter().for_each(|start| spans.touch(start));
}

/// Bring what was emitted for touched windows to what it must be, and close the first windows.
fn refreshed<M: Members>(
    kind: M::Kind,
    spans: &mut Spans,
    number: u32,
    rules: &Rules,
    time: &Time,
    groups: &Groups,
    output: &mut Output,
) {
    for emitted in spans.gone.drain(..) {
        output.remove_all(number, emitted);
    }
    let results = |start: i64, window: &Window| {
        if window.members == 0 || !M::is_complete(window.end) || (rules.is_point && window.end == INF) {
            return Ok(Emitted::default());
        }
        let found = rules.module.results(&window.states, window.members);
        let rows = found.map_err(|text| overflow(groups, number, (start, window.end), &text))?;
        let (vs, ve) = rules.lifetime(start, window.end);
        Ok(Emitted { rows, vs, ve })
    };
    spans.touched.sort_unstable();
    for start in std::mem::take(&mut spans.touched) {
        let Some(window) = spans.windows.get_mut(&start) else {
            continue;
        };
        if !std::mem::replace(&mut window.is_touched, false) || !rules.form.is_by_mark() {
            continue;
        }
        let must = match rules.form {
            Form::Eager => start <= time.mark,
            _ => window.end <= time.mark || rules.first_result(start, window.end) < time.emitted_stable,
        };
        let now = if must {
            output.found(groups, number, start, results(start, window))
        } else {
            Emitted::default()
        };
        let before = std::mem::take(&mut window.emitted);
        window.emitted = output.replace(number, before, now);
    }
    while let Some(first) = spans.windows.first_entry()
        && (time.stable == INF || time.has_reached(M::closes_at(kind, first.get().end)))
    {
        let (start, window) = first.remove_entry();
        if !rules.form.is_by_mark() {
            let now = output.found(groups, number, start, results(start, &window));
            now.rows
                .into_iter()
                .for_each(|row| output.insert(number, &row, now.vs, now.ve));
        }
    }
}

impl<M: Members> Windows for SpanWindows<M> {
    fn step(
        &mut self,
        rules: &Rules,
        time: &mut Time,
        groups: &mut Groups,
        changes: &Changes<'_>,
        output: &mut Output,
    ) -> Result<(), Failure> {
        self.apply(rules, groups, changes);
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

    fn state(&self, rules: &Rules, _time: &Time, groups: &Groups) -> Vec<Plain> {
        let mut numbers: Vec<u32> = (0..self.groups.len() as u32)
            .filter(|&at| !self.groups[at as usize].is_empty())
            .collect();
        numbers.sort_by_key(|&at| groups.key(at));
        let keys = groups.plain(&numbers);
        let states = numbers.iter().zip(keys).map(|(&at, key)| {
            let Group { spans, members, .. } = &self.groups[at as usize];
            let windows = spans.windows.iter().map(|(&start, window)| {
                let states = rules.module.state(&window.states, window.members);
                let (end, members) = (Plain::Int(window.end), Plain::Int(window.members));
                Plain::List(vec![Plain::Int(start), end, members, Plain::None, states])
            });
            let emitted: Vec<(i64, Emitted)> = spans
                .windows
                .iter()
                .map(|(&start, window)| (start, window.emitted.clone()))
                .collect();
            Plain::map([
                ("key", key),
                ("events", plain_events(rules, members.kept())),
                ("edges", Plain::List(Vec::new())),
                ("windows", Plain::List(windows.collect())),
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
        let kind = self.kind;
        for &(number, state) in states {
            let events: Vec<&[Plain; 3]> = state
                .get("events")?
                .list()?
                .iter()
                .map(Plain::tuple)
                .collect::<Result<_, _>>()?;
            let rows: Vec<&Plain> = events.iter().map(|event| &event[0]).collect();
            let starts: Vec<i64> = events.iter().map(|event| event[1].int()).collect::<Result<_, _>>()?;
            let restored = rules.restored_events(&rows, &starts)?;
            let group = self.group(number);
            for (((row, terms), event), vs) in restored.into_iter().zip(&events).zip(starts) {
                group.members.keep(
                    kind,
                    Member {
                        row,
                        vs,
                        ve: event[2].int()?,
                        terms: terms.into(),
                    },
                );
            }
            for kept in state.get("windows")?.list()? {
                let [start, end, members, _, states] = kept.tuple()?;
                let restored = rules
                    .module
                    .restored(states, &mut |rows, count| rules.arguments(rows, count))?;
                group.spans.open(start.int()?, end.int()?, &rules.module);
                if let Some(window) = group.spans.windows.get_mut(&start.int()?) {
                    window.members = members.int()?;
                    for (state, restored) in window.states.iter_mut().zip(restored) {
                        *state = restored;
                    }
                }
            }
            // What is emitted again is what was emitted.
            let mut output = Output::default();
            refreshed::<M>(kind, &mut group.spans, number, rules, time, groups, &mut output);
            output.checked()?;
            let live = group.members.live();
            groups.enter(number);
            self.live += live;
            self.wait(number, rules, time);
        }
        Ok(())
    }

    fn live(&self) -> usize {
        self.live
    }

    fn sizes(&self, _rules: &Rules, _time: &Time, groups: &Groups) -> Sizes {
        let windows = self.groups.iter().map(|group| group.spans.windows.len());
        let groups = groups.count();
        Sizes {
            groups,
            windows: windows.sum(),
        }
    }

    fn check(&self, _rules: &Rules, time: &Time) {
        assert!(self.touched.is_empty());
        let mut held: BTreeMap<i64, u32> = BTreeMap::new();
        for group in &self.groups {
            assert!(group.spans.touched.is_empty() && group.spans.gone.is_empty() && !group.is_touched);
            if group.held < INF {
                *held.entry(group.held).or_insert(0) += 1;
            }
            assert!(group.spans.windows.values().is_sorted_by_key(|window| window.end));
            for (start, window) in &group.spans.windows {
                assert!(window.members > 0, "the window at {start} is kept without members");
                assert!(!time.has_reached(M::closes_at(self.kind, window.end)));
            }
        }
        assert_eq!(held, self.held);
        assert_eq!(
            self.live,
            self.groups.iter().map(|group| group.members.live()).sum::<usize>()
        );
    }
}

/// Events as plain values, by start, row and end.
fn plain_events(rules: &Rules, mut events: Vec<&Member>) -> Plain {
    events.sort_by(|one, other| (one.vs, &one.row, one.ve).cmp(&(other.vs, &other.row, other.ve)));
    let columns = rules.rows.decode(events.iter().map(|event| &*event.row));
    let rows = plain_rows(rules.rows.columns(), &columns, events.len());
    let plain = rows
        .into_iter()
        .zip(events)
        .map(|(row, event)| Plain::List(vec![row, Plain::Int(event.vs), Plain::Int(event.ve)]));
    Plain::List(plain.collect())
}
