//! Session windows: `lmerge/temporal/windows/session_group.py`.

use std::collections::BTreeMap;

use super::spans::{Member, Members, Spans};
use crate::NEG_INF;
use crate::aggregates::{Module, SharedBytes};
use crate::operator::plus;

/// The most time between two events of a session.
#[derive(Clone, Copy, Debug)]
pub struct Gap(pub i64);

/// The events of a group by end, start and row, each with its copies.
#[derive(Debug, Default)]
pub struct SessionMembers {
    events: BTreeMap<(i64, i64, SharedBytes), Vec<Member>>,
    live: usize,
}

impl SessionMembers {
    fn put(&mut self, event: Member) {
        self.live += 1;
        self.events
            .entry((event.ve, event.vs, event.row.clone()))
            .or_default()
            .push(event);
    }

    fn take(&mut self, event: &Member) {
        let key = (event.ve, event.vs, event.row.clone());
        let copies = self.events.get_mut(&key).expect("an event of a session is kept");
        copies.pop();
        if copies.is_empty() {
            self.events.remove(&key);
        }
        self.live -= 1;
    }

    /// The events whose lifetimes overlap `[start, end)`.
    fn overlapping(&self, start: i64, end: i64) -> impl Iterator<Item = &Member> {
        let ended_later = self
            .events
            .range((start.saturating_add(1), NEG_INF, SharedBytes::default())..);
        ended_later
            .filter(move |((_, vs, _), _)| *vs < end)
            .flat_map(|(_, copies)| copies)
    }
}

/// The sessions at most the gap away from `[vs, ve)`, in order.
fn near(spans: &Spans, Gap(gap): Gap, vs: i64, ve: i64) -> Vec<i64> {
    let mut found: Vec<i64> = spans
        .windows
        .range(..=ve.saturating_add(gap))
        .rev()
        .take_while(|(_, window)| window.end >= vs.saturating_sub(gap))
        .map(|(&start, _)| start)
        .collect();
    found.reverse();
    found
}

/// The sessions of events, as starts and ends.
fn sessions<'a>(events: impl Iterator<Item = &'a Member>, Gap(gap): Gap) -> Vec<(i64, i64)> {
    let mut lifetimes: Vec<(i64, i64)> = events.map(|event| (event.vs, event.ve)).collect();
    lifetimes.sort_unstable();
    let mut found: Vec<(i64, i64)> = Vec::new();
    for (vs, ve) in lifetimes {
        match found.last_mut() {
            Some((_, end)) if vs <= end.saturating_add(gap) => *end = ve.max(*end),
            _ => found.push((vs, ve)),
        }
    }
    found
}

impl Members for SessionMembers {
    type Kind = Gap;

    fn apply(&mut self, kind: Gap, spans: &mut Spans, module: &Module, old: Option<Member>, new: Option<Member>) {
        let event = old.as_ref().or(new.as_ref()).expect("a change has an event").clone();
        let vs = event.vs;
        let (old_end, new_end) = (
            old.as_ref().map_or(vs, |event| event.ve),
            new.as_ref().map_or(vs, |event| event.ve),
        );
        let near = near(spans, kind, vs, old_end.max(new_end));
        let (is_new, is_removed) = (old.is_none(), new.is_none());
        if let Some(old) = &old {
            self.take(old);
        }
        if let Some(new) = new {
            self.put(new);
        }
        let within = |spans: &mut Spans, start: i64, new_start: i64, end: i64| {
            if new_start != start {
                spans.restart(start, new_start);
            }
            if let Some(window) = spans.windows.get_mut(&new_start) {
                window.end = end;
            }
            match (is_new, is_removed) {
                (true, _) => spans.change(new_start, &event.terms, true, module),
                (_, true) => spans.change(new_start, &event.terms, false, module),
                _ => spans.touch(new_start),
            }
        };
        match near[..] {
            [] if new_end > old_end => {
                spans.open(vs, new_end, module);
                spans.change(vs, &event.terms, true, module);
            }
            [start] if new_end > old_end => {
                let end = new_end.max(spans.windows[&start].end);
                within(spans, start, vs.min(start), end);
            }
            _ => {
                let (low, last) = (near[0], near[near.len() - 1]);
                let high = spans.windows[&last].end.max(new_end);
                let found = sessions(self.overlapping(low.min(vs), high), kind);
                if let ([start], [(new_start, end)]) = (&near[..], &found[..])
                    && start == new_start
                {
                    within(spans, *start, *start, *end);
                    return;
                }
                for start in near {
                    spans.remove(start);
                }
                for (start, end) in found {
                    spans.open(start, end, module);
                    spans.rebuild(start, self.overlapping(start, end), module);
                }
            }
        }
    }

    fn closes_at(Gap(gap): Gap, end: i64) -> i64 {
        plus(plus(end, gap), 1)
    }

    fn is_complete(_: i64) -> bool {
        true
    }

    fn prune(&mut self, stable: i64, first: i64) {
        let until = stable.saturating_sub(1).min(first);
        while let Some(entry) = self.events.first_entry()
            && entry.key().0 <= until
        {
            self.live -= entry.remove().len();
        }
    }

    fn live(&self) -> usize {
        self.live
    }

    fn kept(&self) -> Vec<&Member> {
        self.events.values().flatten().collect()
    }

    fn keep(&mut self, _: Gap, event: Member) {
        self.put(event);
    }
}
