//! Feedback inside an operator (V.D): events that it leaves out. `lmerge/temporal/operators/skipping.py` has the rules.

use std::collections::BTreeMap;

use hashbrown::HashMap;

use super::lifetimes::Alterations;
use crate::batch::Batch;
use crate::calendar::Calendar;
use crate::failure::Failure;
use crate::plain::Plain;
use crate::plain_rows::{columns_of_plain, plain_rows};
use crate::rows::{RowArena, SharedForm};
use crate::{INF, NEG_INF};

/// An event that is left out: its row, start and end.
type Event = (u32, i64, i64);

/// How many copies, and where they hold the stable point.
#[derive(Debug)]
struct Skipped {
    copies: u32,
    hold: Option<i64>,
}

/// The live events that an input leaves out: results that end before `until` are not needed.
#[derive(Debug)]
pub struct SkippedEvents {
    form: SharedForm,
    alter: Alterations,
    until: i64,
    skipped: u64,
    stable: i64,
    passed_on: i64,
    rows: RowArena,
    events: HashMap<Event, Skipped, ahash::RandomState>,
    calendar: Calendar<Event>,
    /// Starts that hold the stable point, and how many events do there.
    holds: BTreeMap<i64, u32>,
}

impl SkippedEvents {
    /// `form`: of the input's rows. `alter`: what makes the lifetime of a result of that of an event.
    pub fn new(form: SharedForm, alter: Alterations) -> SkippedEvents {
        SkippedEvents {
            form,
            alter,
            until: NEG_INF,
            skipped: 0,
            stable: NEG_INF,
            passed_on: NEG_INF,
            rows: RowArena::default(),
            events: HashMap::default(),
            calendar: Calendar::default(),
            holds: BTreeMap::new(),
        }
    }

    /// The number of events that are left out.
    pub fn live(&self) -> usize {
        self.events.values().map(|event| event.copies as usize).sum()
    }

    /// How often an event was left out.
    pub fn skipped(&self) -> u64 {
        self.skipped
    }

    /// Leave out events whose results end before `until`, from now on.
    pub fn fast_forward(&mut self, until: i64) {
        self.until = self.until.max(until);
        if self.alter.is_empty() {
            return;
        }
        let (alter, until, holds) = (&self.alter, self.until, &mut self.holds);
        for (&(_, vs, ve), event) in &mut self.events {
            if event.hold.is_some() && !can_come(alter, until, vs, ve) {
                release(holds, event.hold.take());
            }
        }
    }

    /// The batch without what is not needed, and with the inserts of what is needed now.
    pub fn take(&mut self, batch: &Batch) -> Batch {
        let mut passed = if self.until > NEG_INF {
            self.passed(batch)
        } else {
            batch.clone()
        };
        passed.stable = batch.stable.and_then(|stable| self.move_stable(stable));
        passed
    }

    pub fn state(&self) -> Plain {
        let mut events: Vec<_> = self
            .events
            .iter()
            .map(|(&event, skipped)| (event, skipped.copies))
            .collect();
        events.sort_by(|(one, _), (other, _)| {
            let rows = || self.rows.get(one.0).cmp(self.rows.get(other.0));
            one.1.cmp(&other.1).then_with(rows).then(one.2.cmp(&other.2))
        });
        let columns = self
            .form
            .decode(events.iter().map(|((row, ..), _)| self.rows.get(*row)));
        let rows = plain_rows(self.form.columns(), &columns, events.len());
        let events = rows.into_iter().zip(events).map(|(row, ((_, vs, ve), copies))| {
            Plain::List(vec![row, Plain::Int(vs), Plain::Int(ve), Plain::Int(copies.into())])
        });
        Plain::map([
            ("until", Plain::Int(self.until)),
            ("stable", Plain::Int(self.stable)),
            ("passed_on", Plain::Int(self.passed_on)),
            ("events", Plain::List(events.collect())),
        ])
    }

    pub fn restore(&mut self, state: &Plain) -> Result<(), Failure> {
        self.until = state.get("until")?.int()?;
        self.stable = state.get("stable")?.int()?;
        self.passed_on = state.get("passed_on")?.int()?;
        let events = state.get("events")?.list()?;
        let events: Vec<&[Plain; 4]> = events.iter().map(Plain::tuple).collect::<Result<_, _>>()?;
        let rows: Vec<&Plain> = events.iter().map(|event| &event[0]).collect();
        let rows = self.form.encode(&columns_of_plain(self.form.columns(), &rows)?);
        for (row, [_, vs, ve, copies]) in rows.iter().zip(events) {
            self.add(row.data(), vs.int()?, ve.int()?, copies.int()? as u32);
        }
        Ok(())
    }

    /// Panic unless what is left out can still change, and the stable point has not passed it.
    pub fn check(&self) {
        self.calendar.check();
        self.rows.check();
        let mut holds = BTreeMap::new();
        for (&(row, vs, ve), event) in &self.events {
            assert!(!self.rows.get(row).is_empty() && event.copies > 0);
            assert!(
                vs < ve && ve >= self.stable,
                "an event that is left out cannot change any more"
            );
            if let Some(hold) = event.hold {
                assert!(
                    hold == vs && vs >= self.passed_on,
                    "an event cannot be inserted any more"
                );
                *holds.entry(hold).or_insert(0) += 1;
            }
        }
        assert_eq!(holds, self.holds);
    }

    /// The changes as they look without what is left out.
    fn passed(&mut self, batch: &Batch) -> Batch {
        let rows = self.form.encode(&batch.columns);
        let mut indices = Vec::with_capacity(batch.len());
        let mut old_ends = Vec::with_capacity(batch.len());
        for at in 0..batch.len() {
            let row = rows.row(at);
            let (vs, old, new) = (batch.vs[at], batch.old[at], batch.new[at]);
            let was = if self.remove(row.data(), vs, old) { vs } else { old };
            if was == vs && new > vs && self.alter.altered(vs, new).1 < self.until {
                self.add(row.data(), vs, new, 1);
                self.skipped += 1;
            } else if was != new {
                indices.push(at as u32);
                old_ends.push(was);
            }
        }
        Batch {
            old: old_ends.into(),
            ..batch.take(&indices)
        }
    }

    fn add(&mut self, row: &[u8], vs: i64, ve: i64, copies: u32) {
        let row = self.rows.hold(row);
        let event = (row, vs, ve);
        if let Some(skipped) = self.events.get_mut(&event) {
            skipped.copies += copies;
            self.rows.release(row);
            return;
        }
        let hold = can_come(&self.alter, self.until, vs, ve).then_some(vs);
        self.events.insert(event, Skipped { copies, hold });
        if ve < INF {
            self.calendar.add(ve, event);
        }
        if hold.is_some() {
            *self.holds.entry(vs).or_insert(0) += 1;
        }
    }

    /// Remove one copy of an event. Returns whether it was left out.
    fn remove(&mut self, row: &[u8], vs: i64, ve: i64) -> bool {
        if self.events.is_empty() {
            return false;
        }
        let Some(row) = self.rows.find(row) else { return false };
        let event = (row, vs, ve);
        let Some(skipped) = self.events.get_mut(&event) else {
            return false;
        };
        skipped.copies -= 1;
        if skipped.copies == 0 {
            self.drop_event(event);
        }
        true
    }

    fn drop_event(&mut self, event: Event) {
        if let Some(skipped) = self.events.remove(&event) {
            release(&mut self.holds, skipped.hold);
            self.rows.release(event.0);
        }
    }

    /// Take a stable of the input. Returns the stable point that can be passed on, None if it does not move.
    fn move_stable(&mut self, stable: i64) -> Option<i64> {
        self.stable = self.stable.max(stable);
        let mut due = Vec::new();
        if stable == INF {
            due.extend(self.events.keys().copied());
            self.calendar.clear();
        } else {
            self.calendar.pop_below(self.stable, &mut due);
        }
        due.into_iter().for_each(|event| self.drop_event(event));
        let free = self
            .holds
            .keys()
            .next()
            .map_or(self.stable, |&first| first.min(self.stable));
        if free <= self.passed_on {
            return None;
        }
        self.passed_on = free;
        Some(free)
    }
}

/// Whether an adjust can make the result needed, with the start that it has now.
fn can_come(alter: &Alterations, until: i64, vs: i64, ve: i64) -> bool {
    if alter.is_empty() {
        return true;
    }
    let (start, _) = alter.altered(vs, ve);
    let (last_start, last_end) = alter.altered(vs, INF);
    start == last_start && last_end >= until
}

fn release(holds: &mut BTreeMap<i64, u32>, hold: Option<i64>) {
    let Some(hold) = hold else { return };
    let count = holds.get_mut(&hold).expect("a hold is counted");
    *count -= 1;
    if *count == 0 {
        holds.remove(&hold);
    }
}
