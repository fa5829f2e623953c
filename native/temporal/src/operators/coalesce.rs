//! Coalesce: equal rows whose lifetimes overlap or meet become one event. `lmerge/temporal/operators/coalesce.py`.

use std::sync::Arc;

use hashbrown::HashMap;

use super::presence::RowPresence;
use crate::batch::Batch;
use crate::calendar::Calendar;
use crate::changes::{Change, settled};
use crate::failure::Failure;
use crate::operator::{Operator, Progress};
use crate::plain::Plain;
use crate::plain_rows::{columns_of_plain, plain_rows};
use crate::rows::{RowArena, RowForm};
use crate::{INF, NEG_INF, RowSchema};

/// Rows while they are present.
#[derive(Debug)]
pub struct Coalesce {
    progress: Progress,
    schema: Arc<RowSchema>,
    form: RowForm,
    input_stable: i64,
    rows: RowArena,
    presences: HashMap<u32, RowPresence, ahash::RandomState>,
    /// Rows by the times at which their presence changes: behind such a time, that change is final.
    due: Calendar<u32>,
}

impl Coalesce {
    pub fn new(name: &str, schema: Arc<RowSchema>) -> Coalesce {
        Coalesce {
            progress: Progress::new(name),
            form: RowForm::new(&schema),
            schema,
            input_stable: NEG_INF,
            rows: RowArena::default(),
            presences: HashMap::default(),
            due: Calendar::default(),
        }
    }

    fn presence(&mut self, row: &[u8]) -> u32 {
        let id = self.rows.hold(row);
        if self.presences.contains_key(&id) {
            self.rows.release(id);
        } else {
            self.presences.insert(id, RowPresence::default());
        }
        id
    }

    /// Drop what is final. Returns the rows of which nothing is left.
    fn move_stable(&mut self, stable: i64) -> Vec<u32> {
        self.input_stable = self.input_stable.max(stable);
        if stable == INF {
            self.due.clear();
            return self.presences.drain().map(|(row, _)| row).collect();
        }
        let mut due = Vec::new();
        self.due.pop_below(self.input_stable, &mut due);
        let stable = self.input_stable;
        let presences = &mut self.presences;
        due.retain(|row| {
            let is_final = presences
                .get_mut(row)
                .is_some_and(|presence| presence.forget_before(stable));
            is_final && presences.remove(row).is_some()
        });
        due
    }
}

impl Operator for Coalesce {
    fn step(&mut self, inputs: &[Batch]) -> Result<Batch, Failure> {
        let batch = &inputs[0];
        let rows = self.form.encode(&batch.columns);
        let mut changes = Vec::new();
        let mut dropped = Vec::new();
        for at in 0..batch.len() {
            let (old, new) = (batch.old[at], batch.new[at]);
            let row = self.presence(rows.row(at).data());
            let presence = self.presences.get_mut(&row).expect("it is there now");
            let (low, high) = (old.min(new), old.max(new));
            let copies = if new > old { 1 } else { -1 };
            presence.change(low, high, copies, |vs, old, new| {
                changes.push(Change { row, vs, old, new })
            });
            self.due.add(low, row);
            self.due.add(high, row);
            if presence.is_empty() {
                self.presences.remove(&row);
                dropped.push(row);
            }
        }
        if let Some(stable) = batch.stable {
            dropped.extend(self.move_stable(stable));
        }
        let changes = settled(changes, |&one, &other| match one == other {
            true => std::cmp::Ordering::Equal,
            false => self.rows.get(one).cmp(self.rows.get(other)),
        });
        let out = Batch {
            schema: self.schema.clone(),
            columns: self.form.decode(changes.iter().map(|change| self.rows.get(change.row))),
            vs: changes.iter().map(|change| change.vs).collect(),
            old: changes.iter().map(|change| change.old).collect(),
            new: changes.iter().map(|change| change.new).collect(),
            stable: self.progress.advance(batch.stable),
            mark: None,
        };
        dropped.into_iter().for_each(|row| self.rows.release(row));
        Ok(out)
    }

    /// An event that ends before `t` can be where a run begins that goes on behind `t`.
    fn fast_forward(&mut self, t: i64) -> Vec<i64> {
        self.progress.fast_forward(t);
        vec![NEG_INF]
    }

    fn state(&self) -> Plain {
        let mut kept: Vec<_> = self
            .presences
            .iter()
            .map(|(&row, presence)| (self.rows.get(row), presence))
            .collect();
        kept.sort_unstable_by_key(|(row, _)| *row);
        let columns = self.form.decode(kept.iter().map(|(row, _)| *row));
        let rows = plain_rows(self.form.columns(), &columns, kept.len());
        let rows = rows
            .into_iter()
            .zip(kept)
            .map(|(row, (_, presence))| Plain::List(vec![row, presence.state()]));
        let input_stable = Plain::Int(self.input_stable);
        self.progress
            .state()
            .and([("input_stable", input_stable), ("rows", Plain::List(rows.collect()))])
    }

    fn restore(&mut self, state: &Plain) -> Result<(), Failure> {
        self.progress.restore(state)?;
        self.input_stable = state.get("input_stable")?.int()?;
        let kept = state.get("rows")?.list()?;
        let kept: Vec<&[Plain; 2]> = kept.iter().map(Plain::tuple).collect::<Result<_, _>>()?;
        let rows: Vec<&Plain> = kept.iter().map(|[row, _]| row).collect();
        let rows = self.form.encode(&columns_of_plain(self.form.columns(), &rows)?);
        for (row, [_, presence]) in rows.iter().zip(kept) {
            let presence = RowPresence::of_state(presence)?;
            let row = self.rows.hold(row.data());
            presence.times().for_each(|t| self.due.add(t, row));
            self.presences.insert(row, presence);
        }
        Ok(())
    }

    fn live(&self) -> usize {
        self.presences.values().map(RowPresence::len).sum()
    }

    fn check(&self) {
        self.due.check();
        self.rows.check();
        assert_eq!(self.rows.len(), self.presences.len());
        for presence in self.presences.values() {
            assert!(!presence.is_empty());
            presence.check();
        }
    }
}
