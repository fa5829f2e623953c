//! Edge events: each sample of a key becomes an event that lasts until the next one. `lmerge/temporal/operators/edges.py`.

use std::sync::Arc;

use hashbrown::HashMap;

use super::row_keys::KeyOf;
use super::samples::Samples;
use crate::batch::Batch;
use crate::calendar::Calendar;
use crate::changes::{Change, settled};
use crate::failure::Failure;
use crate::operator::{Operator, Progress, plus, show_time};
use crate::plain::Plain;
use crate::plain_rows::plain_rows;
use crate::rows::{RowArena, RowForm};
use crate::{INF, NEG_INF, RowSchema};

/// Samples extended to the next one of their key.
#[derive(Debug)]
pub struct Edges {
    progress: Progress,
    schema: Arc<RowSchema>,
    form: RowForm,
    key: KeyOf,
    refuses_ties: bool,
    lasts: Option<i64>,
    input_stable: i64,
    rows: RowArena,
    keys: RowArena,
    samples: HashMap<u32, Samples, ahash::RandomState>,
    /// Keys by the time at which samples of them can be dropped at the earliest.
    due: Calendar<u32>,
    // Of the step that runs:
    changes: Vec<Change<u32>>,
    dropped_rows: Vec<u32>,
}

impl Edges {
    /// `refuses_ties`: two different samples of one key at one time are an error. `lasts`: how long a sample lasts.
    pub fn new(name: &str, schema: Arc<RowSchema>, key: KeyOf, refuses_ties: bool, lasts: Option<i64>) -> Edges {
        Edges {
            progress: Progress::new(name),
            form: RowForm::new(&schema),
            schema,
            key,
            refuses_ties,
            lasts,
            input_stable: NEG_INF,
            rows: RowArena::default(),
            keys: RowArena::default(),
            samples: HashMap::default(),
            due: Calendar::default(),
            changes: Vec::new(),
            dropped_rows: Vec::new(),
        }
    }

    /// Add or remove a sample, and push how it changes the output: by its own event and the one before it.
    fn take(&mut self, row: &[u8], key: &[u8], vs: i64, is_insert: bool) -> Result<(), Failure> {
        let row = self.rows.hold(row);
        let key = self.hold_key(key);
        let samples = &self.samples[&key];
        let times = [samples.last_before(vs), Some(vs)];
        if is_insert && self.refuses_ties && samples.at(vs).iter().any(|&other| other != row) {
            return Err(self.tie(row, samples.at(vs), vs));
        }
        for t in times.into_iter().flatten() {
            self.push_event(key, t, false);
        }
        let samples = self.samples.get_mut(&key).expect("a key that is held has samples");
        if is_insert {
            samples.add(vs, row);
            self.due.add(vs, key);
        } else {
            samples.remove(vs, row);
            self.dropped_rows.extend([row, row]);
        }
        for t in times.into_iter().flatten() {
            self.push_event(key, t, true);
        }
        if self.samples[&key].is_empty() {
            self.forget_key(key);
        }
        Ok(())
    }

    /// The number of a key; the samples of it are there, and are its hold.
    fn hold_key(&mut self, key: &[u8]) -> u32 {
        let key = self.keys.hold(key);
        if self.samples.contains_key(&key) {
            self.keys.release(key);
        } else {
            self.samples.insert(key, Samples::default());
        }
        key
    }

    fn forget_key(&mut self, key: u32) {
        self.samples.remove(&key);
        self.keys.release(key);
    }

    /// Push that the event of a time comes or goes.
    fn push_event(&mut self, key: u32, t: i64, comes: bool) {
        let samples = &self.samples[&key];
        let Some(row) = samples.holder(t, &self.rows) else {
            return;
        };
        let next = samples.next_after(t);
        let end = self.lasts.map_or(next, |lasts| next.min(plus(t, lasts)));
        if t < end {
            let (old, new) = if comes { (t, end) } else { (end, t) };
            self.changes.push(Change { row, vs: t, old, new });
        }
    }

    fn tie(&self, row: u32, others: &[u32], vs: i64) -> Failure {
        let rows: Vec<u32> = std::iter::once(row).chain(others.iter().copied()).collect();
        let columns = self.form.decode(rows.iter().map(|&row| self.rows.get(row)));
        let Progress { name, .. } = &self.progress;
        let text = format!("{name}: there are two samples of one key at {}: ", show_time(vs));
        Failure::UsageOfRows {
            text,
            rows: plain_rows(self.form.columns(), &columns, rows.len()),
        }
    }

    /// Drop the samples that nothing can change any more: before the stable point those with a next one.
    fn move_stable(&mut self, stable: i64) {
        self.input_stable = self.input_stable.max(stable);
        if stable == INF {
            for (key, samples) in std::mem::take(&mut self.samples) {
                self.dropped_rows.extend(samples.rows());
                self.keys.release(key);
            }
            self.due.clear();
            return;
        }
        let mut due = Vec::new();
        self.due.pop_below(self.input_stable, &mut due);
        for key in due {
            let Some(samples) = self.samples.get_mut(&key) else {
                continue;
            };
            samples.drop_before(self.input_stable, self.lasts, &mut self.dropped_rows);
            let first = samples.first();
            match (first, self.lasts) {
                (None, _) => self.forget_key(key),
                (Some(first), Some(lasts)) if first < self.input_stable => {
                    self.due.add(first.saturating_add(lasts - 1), key);
                }
                _ => {}
            }
        }
    }

    fn output(&mut self, stable: Option<i64>) -> Batch {
        let changes = settled(std::mem::take(&mut self.changes), |&one, &other| match one == other {
            true => std::cmp::Ordering::Equal,
            false => self.rows.get(one).cmp(self.rows.get(other)),
        });
        let out = Batch {
            schema: self.schema.clone(),
            columns: self.form.decode(changes.iter().map(|change| self.rows.get(change.row))),
            vs: changes.iter().map(|change| change.vs).collect(),
            old: changes.iter().map(|change| change.old).collect(),
            new: changes.iter().map(|change| change.new).collect(),
            stable: self.progress.advance(stable),
            mark: None,
        };
        let rows = &mut self.rows;
        self.dropped_rows.drain(..).for_each(|row| rows.release(row));
        out
    }
}

impl Operator for Edges {
    fn step(&mut self, inputs: &[Batch]) -> Result<Batch, Failure> {
        let batch = &inputs[0];
        if !batch.is_empty() {
            let rows = self.form.encode(&batch.columns);
            let keys = self.key.keys(&batch.columns, batch.len());
            for at in 0..keys.count {
                let (vs, old, new) = (batch.vs[at], batch.old[at], batch.new[at]);
                if old == vs || new == vs {
                    self.take(rows.row(at).data(), keys.any(at), vs, old == vs)?;
                }
            }
            keys.failure.map_or(Ok(()), Err)?;
        }
        if let Some(stable) = batch.stable {
            self.move_stable(stable);
        }
        Ok(self.output(batch.stable))
    }

    /// Any sample can be the last one of its key before `t`, unless it lasts only so long.
    fn fast_forward(&mut self, t: i64) -> Vec<i64> {
        let until = self.progress.fast_forward(t);
        let needed = |lasts: i64| (i128::from(until) - i128::from(lasts) + 1).max(NEG_INF.into()) as i64;
        vec![self.lasts.filter(|_| t != NEG_INF).map_or(NEG_INF, needed)]
    }

    fn state(&self) -> Plain {
        let mut kept: Vec<(u32, &Samples)> = self.samples.iter().map(|(&key, samples)| (key, samples)).collect();
        kept.sort_unstable_by_key(|(_, samples)| samples.order(&self.rows));
        let keys = self.key.plain(kept.iter().map(|&(key, _)| self.keys.get(key)));
        let of = |(key, (_, samples)): (Plain, (u32, &Samples))| {
            Plain::List(vec![key, samples.state(&self.form, &self.rows)])
        };
        let samples = Plain::List(keys.into_iter().zip(kept).map(of).collect());
        self.progress
            .state()
            .and([("input_stable", Plain::Int(self.input_stable)), ("samples", samples)])
    }

    fn restore(&mut self, state: &Plain) -> Result<(), Failure> {
        self.progress.restore(state)?;
        self.input_stable = state.get("input_stable")?.int()?;
        let kept = state.get("samples")?.list()?;
        let kept: Vec<&[Plain; 2]> = kept.iter().map(Plain::tuple).collect::<Result<_, _>>()?;
        let keys: Vec<&Plain> = kept.iter().map(|[key, _]| key).collect();
        let keys = self.key.of_plain(&keys)?;
        for (at, [_, samples]) in kept.into_iter().enumerate() {
            let samples = Samples::of_state(samples, &self.form, &mut self.rows)?;
            let key = self.keys.hold(keys.any(at));
            samples.times().for_each(|t| self.due.add(t, key));
            self.samples.insert(key, samples);
        }
        Ok(())
    }

    fn live(&self) -> usize {
        self.samples.values().map(Samples::len).sum()
    }

    fn check(&self) {
        self.due.check();
        self.rows.check();
        self.keys.check();
        assert_eq!(self.keys.len(), self.samples.len());
        for samples in self.samples.values() {
            assert!(!samples.is_empty());
            samples.check(self.input_stable);
        }
    }
}
