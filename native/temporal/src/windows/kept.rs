//! Events in which windows of a grid can still begin, and the state of a grid's groups as plain values.

use std::collections::BTreeMap;

use super::event::Changes;
use super::groups::Groups;
use super::kinds::Grid;
use super::operator::Rules;
use super::output::{Emitted, plain_emitted};
use crate::aggregates::{SharedBytes, Term};
use crate::failure::Failure;
use crate::plain::Plain;
use crate::plain_rows::plain_rows;
use crate::{INF, NEG_INF};

/// An event by end, start, group and row.
type KeptEvent = (i64, i64, u32, SharedBytes);

/// An event that is kept: its group, start, end, copies and terms.
#[derive(Clone, Copy, Debug)]
pub struct Kept<'a> {
    pub group: u32,
    pub vs: i64,
    pub ve: i64,
    pub copies: u32,
    pub terms: &'a [Term],
}

/// The events that end at or behind the next start of the grid.
#[derive(Debug, Default)]
pub struct KeptEvents {
    /// How many copies of an event, and its terms.
    events: BTreeMap<KeptEvent, (u32, Vec<Term>)>,
}

impl KeptEvents {
    /// Keep an event of a batch as it is in place of the event as it was, where it ends at `reach` or later.
    pub fn change(
        &mut self,
        groups: &mut Groups,
        group: u32,
        changes: &Changes<'_>,
        at: usize,
        terms: &[Term],
        reach: i64,
    ) {
        let (vs, old, new) = (changes.vs[at], changes.old[at], changes.new[at]);
        let row = changes.rows.get(at);
        if old > vs && old >= reach {
            let event = (old, vs, group, row.clone());
            let (copies, _) = self
                .events
                .get_mut(&event)
                .expect("an event that reaches further is kept");
            *copies -= 1;
            if *copies == 0 {
                self.events.remove(&event);
            }
            groups.leave(group);
        }
        if new > vs && new >= reach {
            self.add(groups, (new, vs, group, row), terms);
        }
    }

    fn add(&mut self, groups: &mut Groups, event: KeptEvent, terms: &[Term]) {
        groups.enter(event.2);
        self.events.entry(event).or_insert_with(|| (0, terms.to_vec())).0 += 1;
    }

    /// The last end of an event.
    pub fn last_end(&self) -> Option<i64> {
        self.events.last_key_value().map(|(event, _)| event.0)
    }

    /// The last end of an event that has one.
    pub fn last_finite_end(&self) -> Option<i64> {
        let mut finite = self.events.range(..(INF, NEG_INF, 0, SharedBytes::default()));
        finite.next_back().map(|(event, _)| event.0)
    }

    /// The events that end after `t`.
    pub fn after(&self, t: i64) -> impl Iterator<Item = Kept<'_>> {
        let first = (t.saturating_add(1), NEG_INF, 0, SharedBytes::default());
        self.events.range(first..).map(|(event, (copies, terms))| Kept {
            group: event.2,
            vs: event.1,
            ve: event.0,
            copies: *copies,
            terms,
        })
    }

    /// Drop the events that end before `reach`.
    pub fn drop_before(&mut self, groups: &mut Groups, reach: i64) {
        while let Some(entry) = self.events.first_entry()
            && entry.key().0 < reach
        {
            let group = entry.key().2;
            let (copies, _) = entry.remove();
            (0..copies).for_each(|_| groups.leave(group));
        }
    }

    pub fn clear(&mut self, groups: &mut Groups) {
        for ((_, _, group, _), (copies, _)) in std::mem::take(&mut self.events) {
            (0..copies).for_each(|_| groups.leave(group));
        }
    }

    /// The groups of the events.
    pub fn groups(&self) -> impl Iterator<Item = u32> {
        self.events.keys().map(|event| event.2)
    }

    /// The number of events.
    pub fn live(&self) -> usize {
        self.events.values().map(|(copies, _)| *copies as usize).sum()
    }

    /// The events of the states of groups.
    pub fn restored(rules: &Rules, groups: &mut Groups, states: &[(u32, &Plain)]) -> Result<KeptEvents, Failure> {
        let (mut rows, mut starts, mut ends) = (Vec::new(), Vec::new(), Vec::new());
        for &(group, state) in states {
            for event in state.get("events")?.list()? {
                let [row, vs, ve] = event.tuple()?;
                rows.push(row);
                starts.push(vs.int()?);
                ends.push((ve.int()?, group));
            }
        }
        let mut events: Vec<(KeptEvent, (u32, Vec<Term>))> = Vec::with_capacity(rows.len());
        let restored = rules.restored_events(&rows, &starts)?;
        for (((row, terms), vs), (ve, group)) in restored.into_iter().zip(starts).zip(ends) {
            groups.enter(group);
            events.push(((ve, vs, group, row), (1, terms)));
        }
        // A map that is made of events in order is made at once.
        events.sort_unstable_by(|one, other| one.0.cmp(&other.0));
        events.dedup_by(|copy, first| {
            let is_copy = copy.0 == first.0;
            first.1.0 += u32::from(is_copy);
            is_copy
        });
        let events = events.into_iter().collect();
        Ok(KeptEvents { events })
    }

    /// Panic if an event is kept that ends before `reach`.
    pub fn check(&self, reach: i64) {
        assert!(
            self.events.keys().all(|event| event.0 >= reach),
            "an event is kept in which no window can begin"
        );
    }
}

/// A window as a state has it: its group and start, how many events it has, and the states of the module.
#[derive(Debug)]
pub struct WindowState {
    pub group: u32,
    pub start: i64,
    pub events: i64,
    pub states: Plain,
    pub emitted: Emitted,
}

/// What a group has in it: windows, and events by start, row, end and copies.
#[derive(Debug, Default)]
struct GroupState<'a> {
    group: u32,
    windows: Vec<WindowState>,
    events: Vec<(i64, &'a SharedBytes, i64, u32)>,
}

/// The states of the groups of a grid, in the order of their keys.
pub fn plain_groups(
    rules: &Rules,
    grid: &Grid,
    groups: &Groups,
    kept: &KeptEvents,
    windows: impl Iterator<Item = WindowState>,
) -> Vec<Plain> {
    let mut found: BTreeMap<&[u8], GroupState<'_>> = BTreeMap::new();
    for window in windows {
        let state = found.entry(groups.key(window.group)).or_default();
        state.group = window.group;
        state.windows.push(window);
    }
    for (event, (copies, _)) in &kept.events {
        let state = found.entry(groups.key(event.2)).or_default();
        state.group = event.2;
        state.events.push((event.1, &event.3, event.0, *copies));
    }
    let numbers: Vec<u32> = found.values().map(|state| state.group).collect();
    let keys = groups.plain(&numbers);
    found
        .into_values()
        .zip(keys)
        .map(|(state, key)| plain_group(rules, grid, groups, state, key))
        .collect()
}

fn plain_group(rules: &Rules, grid: &Grid, groups: &Groups, mut state: GroupState<'_>, key: Plain) -> Plain {
    state.windows.sort_unstable_by_key(|window| window.start);
    state.events.sort_unstable();
    let columns = rules.rows.decode(state.events.iter().map(|(_, row, ..)| &***row));
    let rows = plain_rows(rules.rows.columns(), &columns, state.events.len());
    let events = state.events.iter().zip(rows).flat_map(|((vs, _, ve, copies), row)| {
        let event = Plain::List(vec![row, Plain::Int(*vs), Plain::Int(*ve)]);
        std::iter::repeat_n(event, *copies as usize)
    });
    let (mut windows, mut emitted) = (Vec::new(), Vec::new());
    for window in state.windows {
        windows.push(Plain::List(vec![
            Plain::Int(window.start),
            Plain::Int(grid.end(window.start)),
            Plain::Int(window.events),
            Plain::None,
            window.states,
        ]));
        emitted.push((window.start, window.emitted));
    }
    Plain::map([
        ("key", key),
        ("events", Plain::List(events.collect())),
        ("edges", Plain::List(Vec::new())),
        ("windows", Plain::List(windows)),
        (
            "emitted",
            plain_emitted(&rules.output, groups, &rules.module, state.group, &emitted),
        ),
        ("due", Plain::None),
    ])
}
