//! Count windows: `lmerge/temporal/windows/count_group.py`.

use std::collections::BTreeMap;

use super::spans::{Member, Members, Spans};
use crate::INF;
use crate::aggregates::Module;

/// How many distinct starts, or ends, a window spans.
#[derive(Clone, Copy, Debug)]
pub struct Counted {
    pub count: usize,
    pub by_ends: bool,
}

/// The events of a group by the point that is counted.
#[derive(Debug, Default)]
pub struct CountMembers {
    points: BTreeMap<i64, Vec<Member>>,
    live: usize,
}

impl Counted {
    fn point(self, event: &Member) -> i64 {
        if self.by_ends { event.ve } else { event.vs }
    }
}

impl CountMembers {
    fn put(&mut self, kind: Counted, spans: &mut Spans, module: &Module, event: Member) {
        let point = kind.point(&event);
        if point == INF {
            return;
        }
        self.live += 1;
        if let Some(events) = self.points.get_mut(&point) {
            let terms = event.terms.clone();
            events.push(event);
            for start in self.over(kind, point) {
                spans.change(start, &terms, true, module);
            }
            return;
        }
        self.points.insert(point, vec![event]);
        spans.open(point, INF, module);
        self.restructure(kind, spans, module, point);
    }

    fn take(&mut self, kind: Counted, spans: &mut Spans, module: &Module, event: &Member) {
        let point = kind.point(event);
        if point == INF {
            return;
        }
        let events = self.points.get_mut(&point).expect("an event is kept by its point");
        let at = events
            .iter()
            .position(|other| is_same(other, event))
            .expect("an event is kept");
        events.swap_remove(at);
        self.live -= 1;
        if !events.is_empty() {
            for start in self.over(kind, point) {
                spans.change(start, &event.terms, false, module);
            }
            return;
        }
        self.points.remove(&point);
        spans.remove(point);
        self.restructure(kind, spans, module, point);
    }

    /// Give the windows that reach `point` their ends and states anew: those of up to N - 1 points before it, and its
    /// own. A window beyond reach keeps its events: between it and `point` lie N others.
    fn restructure(&self, kind: Counted, spans: &mut Spans, module: &Module, point: i64) {
        for start in self.over(kind, point) {
            let last = self.points.range(start..).nth(kind.count - 1).map(|(&last, _)| last);
            let end = last.map_or(INF, |last| last + 1);
            // One that has closed is not there: its points are before the stable point.
            if let Some(window) = spans.windows.get_mut(&start) {
                window.end = end;
                let members = self.points.range(start..end).flat_map(|(_, events)| events);
                spans.rebuild(start, members, module);
            }
        }
    }

    /// The points from which windows go over `point`, complete or not.
    fn over(&self, kind: Counted, point: i64) -> Vec<i64> {
        self.points
            .range(..=point)
            .rev()
            .take(kind.count)
            .map(|(&start, _)| start)
            .collect()
    }
}

fn is_same(one: &Member, other: &Member) -> bool {
    one.vs == other.vs && one.ve == other.ve && one.row == other.row
}

impl Members for CountMembers {
    type Kind = Counted;

    fn apply(&mut self, kind: Counted, spans: &mut Spans, module: &Module, old: Option<Member>, new: Option<Member>) {
        match (old, new) {
            // The start is counted, and stays; the modules that run here do not read the end.
            (Some(old), Some(new)) if !kind.by_ends => {
                let events = self.points.get_mut(&old.vs);
                if let Some(event) = events.and_then(|events| events.iter_mut().find(|other| is_same(other, &old))) {
                    event.ve = new.ve;
                }
            }
            (old, new) => {
                if let Some(old) = old {
                    self.take(kind, spans, module, &old);
                }
                if let Some(new) = new {
                    self.put(kind, spans, module, new);
                }
            }
        }
    }

    fn closes_at(_: Counted, end: i64) -> i64 {
        end
    }

    fn is_complete(end: i64) -> bool {
        end < INF
    }

    fn prune(&mut self, stable: i64, first: i64) {
        while let Some(entry) = self.points.first_entry()
            && *entry.key() < first.min(stable)
        {
            self.live -= entry.remove().len();
        }
    }

    fn live(&self) -> usize {
        self.live
    }

    fn kept(&self) -> Vec<&Member> {
        self.points.values().flatten().collect()
    }

    fn keep(&mut self, kind: Counted, event: Member) {
        self.live += 1;
        self.points.entry(kind.point(&event)).or_default().push(event);
    }
}
