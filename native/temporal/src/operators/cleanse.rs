//! Cleanse: an ordered stream of final events, by waiting. `lmerge/temporal/operators/cleanse.py`.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::join_side::ByEnd;
use crate::batch::Batch;
use crate::failure::Failure;
use crate::operator::{Operator, Progress};
use crate::plain::Plain;
use crate::plain_rows::{columns_of_plain, plain_rows};
use crate::rows::{RowArena, RowForm};
use crate::sorted::Sorted;
use crate::{INF, NEG_INF, RowSchema};

/// Final events in order.
#[derive(Debug)]
pub struct Cleanse {
    progress: Progress,
    schema: Arc<RowSchema>,
    form: RowForm,
    input_stable: i64,
    rows: RowArena,
    live: Sorted<ByEnd>,
    /// Starts of live events, and how many have each.
    starts: BTreeMap<i64, u32>,
    /// Events that are final and not released yet, by start: row and end.
    frozen: BTreeMap<i64, Vec<(u32, i64)>>,
    waiting: usize,
    purged: u64,
}

impl Cleanse {
    pub fn new(name: &str, schema: Arc<RowSchema>) -> Cleanse {
        Cleanse {
            progress: Progress::new(name),
            form: RowForm::new(&schema),
            schema,
            input_stable: NEG_INF,
            rows: RowArena::default(),
            live: Sorted::default(),
            starts: BTreeMap::new(),
            frozen: BTreeMap::new(),
            waiting: 0,
            purged: 0,
        }
    }

    fn apply(&mut self, row: &[u8], [vs, old, new]: [i64; 3]) {
        let row = self.rows.hold(row);
        if new > vs {
            self.live.add((new, vs, row));
            self.rows.hold_again(row);
        }
        if old > vs {
            let is_there = self.live.remove(&(old, vs, row));
            debug_assert!(is_there, "the input is legal");
            self.rows.release(row);
        }
        self.rows.release(row);
        if old == vs {
            *self.starts.entry(vs).or_insert(0) += 1;
        } else if new == vs {
            self.forget_start(vs);
        }
    }

    fn forget_start(&mut self, vs: i64) {
        let count = self.starts.get_mut(&vs).expect("a start is counted");
        *count -= 1;
        if *count == 0 {
            self.starts.remove(&vs);
        }
    }

    /// Move the events that have become final out of the live ones.
    fn freeze(&mut self) {
        let mut events = Vec::new();
        if self.input_stable == INF {
            events.extend(self.live.iter());
            self.live = Sorted::default();
        } else {
            self.live.drop_before(&(self.input_stable, i64::MIN, 0), &mut events);
        }
        for (ve, vs, row) in events {
            self.forget_start(vs);
            if ve >= self.progress.fast_forwarded {
                self.frozen.entry(vs).or_default().push((row, ve));
                self.waiting += 1;
            } else {
                self.rows.release(row);
                self.purged += 1;
            }
        }
    }

    /// Remove the final events that start before `free`, in order.
    fn released(&mut self, free: i64) -> Vec<ByEnd> {
        let later = if free == INF {
            BTreeMap::new()
        } else {
            self.frozen.split_off(&free)
        };
        let released = std::mem::replace(&mut self.frozen, later);
        let events = self.in_order(released.iter());
        self.waiting -= events.len();
        events
    }

    /// Events by start, row and end.
    fn in_order<'a>(&self, frozen: impl Iterator<Item = (&'a i64, &'a Vec<(u32, i64)>)>) -> Vec<ByEnd> {
        let mut all = Vec::new();
        for (&vs, events) in frozen {
            let first = all.len();
            all.extend(events.iter().map(|&(row, ve)| (ve, vs, row)));
            let order = |one: &ByEnd, other: &ByEnd| {
                self.rows
                    .get(one.2)
                    .cmp(self.rows.get(other.2))
                    .then(one.0.cmp(&other.0))
            };
            all[first..].sort_unstable_by(order);
        }
        all
    }

    fn plain(&self, events: &[ByEnd]) -> Plain {
        let columns = self.form.decode(events.iter().map(|event| self.rows.get(event.2)));
        let rows = plain_rows(self.form.columns(), &columns, events.len())
            .into_iter()
            .zip(events);
        Plain::List(
            rows.map(|(row, &(ve, vs, _))| Plain::List(vec![row, Plain::Int(vs), Plain::Int(ve)]))
                .collect(),
        )
    }

    /// Events of a list of rows with their times, each with a hold on its row.
    fn events_of(&mut self, events: &Plain) -> Result<Vec<ByEnd>, Failure> {
        let events: Vec<&[Plain; 3]> = events.list()?.iter().map(Plain::tuple).collect::<Result<_, _>>()?;
        let rows: Vec<&Plain> = events.iter().map(|[row, ..]| row).collect();
        let rows = self.form.encode(&columns_of_plain(self.form.columns(), &rows)?);
        let event = |(row, [_, vs, ve]): (arrow_row::Row<'_>, &[Plain; 3])| {
            Ok((ve.int()?, vs.int()?, self.rows.hold(row.data())))
        };
        rows.iter().zip(events).map(event).collect()
    }
}

impl Operator for Cleanse {
    fn step(&mut self, inputs: &[Batch]) -> Result<Batch, Failure> {
        let batch = &inputs[0];
        if !batch.is_empty() {
            let rows = self.form.encode(&batch.columns);
            for (at, row) in rows.iter().enumerate() {
                self.apply(row.data(), [batch.vs[at], batch.old[at], batch.new[at]]);
            }
        }
        let Some(stable) = batch.stable else {
            return Ok(Batch::empty(self.schema.clone()));
        };
        self.input_stable = self.input_stable.max(stable);
        self.freeze();
        let free = self
            .starts
            .keys()
            .next()
            .map_or(self.input_stable, |&first| first.min(self.input_stable));
        let events = self.released(free);
        let starts: Vec<i64> = events.iter().map(|event| event.1).collect();
        let out = Batch {
            schema: self.schema.clone(),
            columns: self.form.decode(events.iter().map(|event| self.rows.get(event.2))),
            old: starts.clone().into(),
            vs: starts.into(),
            new: events.iter().map(|event| event.0).collect(),
            stable: self.progress.advance(Some(free)),
            mark: None,
        };
        events.into_iter().for_each(|(_, _, row)| self.rows.release(row));
        Ok(out)
    }

    fn fast_forward(&mut self, t: i64) -> Vec<i64> {
        let needed = self.progress.fast_forward(t);
        let (rows, waiting, purged) = (&mut self.rows, &mut self.waiting, &mut self.purged);
        self.frozen.retain(|_, events| {
            events.retain(|&(row, ve)| {
                let is_needed = ve >= needed;
                if !is_needed {
                    rows.release(row);
                    *waiting -= 1;
                    *purged += 1;
                }
                is_needed
            });
            !events.is_empty()
        });
        vec![needed]
    }

    fn purged(&self) -> u64 {
        self.purged
    }

    fn state(&self) -> Plain {
        let mut live: Vec<ByEnd> = self.live.iter().collect();
        let order = |one: &ByEnd, other: &ByEnd| {
            let rows = || self.rows.get(one.2).cmp(self.rows.get(other.2));
            (one.0, one.1).cmp(&(other.0, other.1)).then_with(rows)
        };
        live.sort_unstable_by(order);
        self.progress.state().and([
            ("input_stable", Plain::Int(self.input_stable)),
            ("live", self.plain(&live)),
            ("frozen", self.plain(&self.in_order(self.frozen.iter()))),
        ])
    }

    fn restore(&mut self, state: &Plain) -> Result<(), Failure> {
        self.progress.restore(state)?;
        self.input_stable = state.get("input_stable")?.int()?;
        for event in self.events_of(state.get("live")?)? {
            *self.starts.entry(event.1).or_insert(0) += 1;
            self.live.add(event);
        }
        for (ve, vs, row) in self.events_of(state.get("frozen")?)? {
            self.frozen.entry(vs).or_default().push((row, ve));
            self.waiting += 1;
        }
        Ok(())
    }

    fn live(&self) -> usize {
        self.live.len() + self.waiting
    }

    fn check(&self) {
        self.rows.check();
        self.live.check();
        let mut starts = BTreeMap::new();
        for (ve, vs, _) in self.live.iter() {
            assert!(ve >= self.input_stable, "an event is final and waits to be");
            *starts.entry(vs).or_insert(0) += 1;
        }
        assert_eq!(starts, self.starts);
        assert_eq!(self.waiting, self.frozen.values().map(Vec::len).sum::<usize>());
        for (&vs, events) in &self.frozen {
            assert!(vs >= self.progress.stable && !events.is_empty());
            assert!(
                events
                    .iter()
                    .all(|&(_, ve)| self.input_stable == INF || ve < self.input_stable)
            );
        }
    }
}
