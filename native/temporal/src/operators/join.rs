//! Joins of two streams: inner, left, right, full outer, anti. `lmerge/temporal/operators/join.py` has the rules.
//!
//! Rows are numbers of their side's arena, and a pair of events is a pair of numbers. What a step drops is released when
//! its output has been made of these numbers.

use std::sync::Arc;

use hashbrown::HashMap;

use super::join_predicate::JoinPredicate;
use super::join_side::{ByEnd, JoinInput, JoinKeys, JoinSide};
use super::pairs::{MISSING, Pair, PairSide, pair_batch, paired};
use super::skipping::SkippedEvents;
use crate::batch::Batch;
use crate::changes::Change;
use crate::expressions::Expressions;
use crate::failure::Failure;
use crate::operator::{Operator, Progress};
use crate::operators::lifetimes::Alterations;
use crate::plain::Plain;
use crate::{INF, NEG_INF, RowSchema};

/// Pairs that a step compares at most, as in Python.
pub const PAIRS_MAX: u64 = 10_000_000;

/// The parts of the table by side and event: of a row and start, its key and the parts without a match.
type Parts = HashMap<(u32, i64), (u32, Vec<(i64, i64)>), ahash::RandomState>;

/// Which parts of the inputs' events are in the output beside the pairs; an anti-join has no pairs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JoinKind {
    Inner,
    Left,
    Right,
    Full,
    Anti,
}

impl JoinKind {
    pub fn of(name: &str) -> Option<JoinKind> {
        Some(match name {
            "inner" => JoinKind::Inner,
            "left" => JoinKind::Left,
            "right" => JoinKind::Right,
            "full" => JoinKind::Full,
            "anti" => JoinKind::Anti,
            _ => return None,
        })
    }

    fn reports(self) -> [bool; 2] {
        use JoinKind::{Anti, Full, Left, Right};
        [matches!(self, Left | Full | Anti), matches!(self, Right | Full)]
    }
}

/// A join. Its output has the columns of both inputs, or of the left one for an anti-join.
#[derive(Debug)]
pub struct Join {
    progress: Progress,
    schema: Arc<RowSchema>,
    kind: JoinKind,
    predicate: JoinPredicate,
    pairs_max: u64,
    skips: [Option<SkippedEvents>; 2],
    sides: [JoinSide; 2],
    keys: JoinKeys,
    /// The bytes of a row whose columns are missing, by side.
    missing: [Vec<u8>; 2],
    // Of the step that runs:
    compared: u64,
    /// Events whose parts without a match may change, with the parts before.
    before: [Parts; 2],
    changes: Vec<Change<Pair>>,
}

impl Join {
    /// `predicate`: of the columns of both inputs. `schema`: of the output.
    pub fn new(
        name: &str,
        schema: Arc<RowSchema>,
        kind: JoinKind,
        inputs: [JoinInput; 2],
        predicate: Option<Arc<Expressions>>,
        pairs_max: u64,
    ) -> Join {
        let [reports_left, reports_right] = kind.reports();
        let missing = |at: usize, is_needed: bool| {
            let form: &JoinInput = &inputs[at];
            if is_needed {
                form.form.missing().expect("a column can be missing")
            } else {
                Vec::new()
            }
        };
        let skip = |at: usize| SkippedEvents::new(inputs[at].form.clone(), Alterations::default());
        // What ends early can be left out unless parts of the other input's events begin where it ends.
        let skips = [(!reports_right).then(|| skip(0)), (!reports_left).then(|| skip(1))];
        let missing = [
            missing(0, reports_right),
            missing(1, reports_left && kind != JoinKind::Anti),
        ];
        let [left, right] = inputs;
        Join {
            progress: Progress::new(name),
            schema,
            kind,
            predicate: JoinPredicate::new(predicate),
            pairs_max,
            skips,
            sides: [JoinSide::new(left, reports_left), JoinSide::new(right, reports_right)],
            keys: JoinKeys::default(),
            missing,
            compared: 0,
            before: Default::default(),
            changes: Vec::new(),
        }
    }

    // One change.

    /// Take the changes of an input.
    fn take(&mut self, at: usize, batch: &Batch) -> Result<(), Failure> {
        if batch.is_empty() {
            return Ok(());
        }
        let rows = self.sides[at].given.form.encode(&batch.columns);
        let keys = self.sides[at].given.key.keys(&batch.columns, batch.len());
        let times = |index: usize| [batch.vs[index], batch.old[index], batch.new[index]];
        let held: Vec<(u32, Option<u32>)> = (0..keys.count)
            .map(|index| self.hold(at, rows.row(index).data(), keys.present(index)))
            .collect();
        if self.predicate.is_some() {
            let pairs = |index: usize, row: u32, key: u32| {
                let [_, old, new] = times(index);
                let events = self.keys.overlapping(key, 1 - at, old.min(new), old.max(new));
                events.map(move |event| paired(at, row, event.2))
            };
            let changes = held.iter().enumerate();
            let changes = changes.filter_map(|(index, &(row, key))| Some(pairs(index, row, key?)));
            self.predicate.evaluate_ahead(changes, &self.sides);
        }
        for (index, (row, key)) in held.into_iter().enumerate() {
            self.take_change(at, row, key, times(index))?;
        }
        keys.failure.map_or(Ok(()), Err)
    }

    /// The numbers of a row and its key, held for this step.
    fn hold(&mut self, at: usize, row: &[u8], key: Option<&[u8]>) -> (u32, Option<u32>) {
        let row = self.sides[at].rows.hold(row);
        let held = self.keys.hold(key.unwrap_or_default());
        self.sides[at].dropped.push((row, held));
        (row, key.map(|_| held))
    }

    /// Push the changes of pairs, note the events whose unmatched parts may change, and keep the event.
    fn take_change(&mut self, at: usize, row: u32, key: Option<u32>, times: [i64; 3]) -> Result<(), Failure> {
        let [vs, old, new] = times;
        let reports = self.sides[at].reports;
        let Some(key) = key else {
            if reports {
                self.changes.push(Change {
                    row: self.padded(at, row),
                    vs,
                    old,
                    new,
                });
            }
            return Ok(());
        };
        if reports {
            self.note(at, key, row, vs)?;
        }
        let (low, high) = (old.min(new), old.max(new));
        if !self.predicate.is_some() && !self.sides[1 - at].reports && self.kind != JoinKind::Anti {
            self.take_pairs(at, key, row, times)?;
        } else {
            for (ve, start, other) in self.matches(at, key, row, low, high)? {
                if self.sides[1 - at].reports {
                    self.note(1 - at, key, other, start)?;
                }
                if self.kind != JoinKind::Anti {
                    push_pair(&mut self.changes, paired(at, row, other), (start, ve), times);
                }
            }
        }
        self.sides[at].apply(at, &mut self.keys, key, row, times);
        Ok(())
    }

    /// Push the changes of pairs where nothing else depends on them.
    fn take_pairs(&mut self, at: usize, key: u32, row: u32, times: [i64; 3]) -> Result<(), Failure> {
        let [_, old, new] = times;
        let mut compared = self.compared;
        for (ve, start, other) in self.keys.overlapping(key, 1 - at, old.min(new), old.max(new)) {
            compared += 1;
            push_pair(&mut self.changes, paired(at, row, other), (start, ve), times);
        }
        self.compared = compared;
        if compared > self.pairs_max {
            Err(self.too_many())
        } else {
            Ok(())
        }
    }

    /// The events of the other side that match a row and overlap `[start, end)`, by their end.
    fn matches(&mut self, at: usize, key: u32, row: u32, start: i64, end: i64) -> Result<Vec<ByEnd>, Failure> {
        let mut found: Vec<_> = self.keys.overlapping(key, 1 - at, start, end).collect();
        let left = usize::try_from(self.pairs_max - self.compared).unwrap_or(usize::MAX);
        let is_too_many = found.len() > left;
        self.compared += found.len().min(left) as u64;
        if self.predicate.is_some() {
            let rows = &self.sides[1 - at].rows;
            let order = |one: &ByEnd, other: &ByEnd| {
                (one.0, one.1)
                    .cmp(&(other.0, other.1))
                    .then_with(|| rows.get(one.2).cmp(rows.get(other.2)))
            };
            found.sort_unstable_by(order);
            found.truncate(left);
            let pair = |event: &ByEnd| paired(at, row, event.2);
            self.predicate.evaluate(found.iter().map(pair), &self.sides)?;
            found.retain(|event| self.predicate.is_true(pair(event)));
        }
        if is_too_many { Err(self.too_many()) } else { Ok(found) }
    }

    fn too_many(&self) -> Failure {
        let Progress { name, .. } = &self.progress;
        Failure::Limit(format!(
            "{name}: a step compares more than {} pairs (pairs_max)",
            self.pairs_max
        ))
    }

    // Parts without a match.

    fn padded(&self, at: usize, row: u32) -> Pair {
        paired(at, row, MISSING)
    }

    /// Note the unmatched parts of an event before anything of this step changes them.
    fn note(&mut self, at: usize, key: u32, row: u32, vs: i64) -> Result<(), Failure> {
        if !self.before[at].contains_key(&(row, vs)) {
            let parts = self.unmatched(at, key, row, vs)?;
            self.before[at].insert((row, vs), (key, parts));
        }
        Ok(())
    }

    /// The parts of the events of a row and start that no event matches, but for what is final.
    fn unmatched(&mut self, at: usize, key: u32, row: u32, vs: i64) -> Result<Vec<(i64, i64)>, Failure> {
        let Some(parts) = self.sides[at].unmatched.get(&(row, vs)) else {
            return Ok(Vec::new());
        };
        let (mut reach, last) = (parts.covered, parts.ends.iter().copied().max().unwrap_or(NEG_INF));
        let mut matches = self.matches(at, key, row, reach, last)?;
        matches.sort_unstable_by_key(|event| event.1);
        let mut gaps = Vec::new();
        for (ve, start, _) in matches {
            if start > reach {
                gaps.push((reach, start));
            }
            reach = reach.max(ve);
        }
        gaps.push((reach, INF));
        let ends = &self.sides[at].unmatched[&(row, vs)].ends;
        let cut = |&end: &i64| gaps.iter().map(move |&(start, stop)| (start, stop.min(end)));
        Ok(ends.iter().flat_map(cut).filter(|(start, stop)| start < stop).collect())
    }

    /// Push how the unmatched parts of the events that were noted have changed.
    fn push_parts(&mut self) -> Result<(), Failure> {
        for at in 0..2 {
            for ((row, vs), (key, parts)) in std::mem::take(&mut self.before[at]) {
                let after = self.unmatched(at, key, row, vs)?;
                if parts == after {
                    continue;
                }
                let row = self.padded(at, row);
                let removed = parts.into_iter().map(|(vs, old)| Change { row, vs, old, new: vs });
                self.changes.extend(removed);
                self.changes
                    .extend(after.into_iter().map(|(vs, new)| Change { row, vs, old: vs, new }));
            }
        }
        Ok(())
    }

    // Time.

    /// Take the inputs' stables and drop what they free. Returns the output's, or None if neither has moved.
    fn move_stables(&mut self, stables: [Option<i64>; 2]) -> Result<Option<i64>, Failure> {
        if stables == [None, None] {
            return Ok(None);
        }
        for (side, stable) in self.sides.iter_mut().zip(stables) {
            side.stable = stable.map_or(side.stable, |stable| stable.max(side.stable));
        }
        for at in 0..2 {
            let (own, other) = (self.sides[at].stable, self.sides[1 - at].stable);
            // RE <= the other's stable, so nothing that comes there overlaps it; RE < its own, so it cannot change.
            let last = if own == INF { INF } else { own.saturating_sub(1) };
            let dropped = self.sides[at].drop_until(at, &mut self.keys, other.min(last));
            if self.sides[1 - at].reports {
                for (key, event) in dropped {
                    self.cover(at, key, event)?;
                }
            }
        }
        Ok(self.sides.iter().map(|side| side.stable).min())
    }

    /// Leave the end of a dropped event with the events of the other side that it matches.
    fn cover(&mut self, at: usize, key: u32, (ve, vs, row): ByEnd) -> Result<(), Failure> {
        for (_, start, other) in self.matches(at, key, row, vs, ve)? {
            let parts = self.sides[1 - at]
                .unmatched
                .get_mut(&(other, start))
                .expect("an event that is kept has parts");
            parts.covered = parts.covered.max(ve);
        }
        Ok(())
    }

    // The output.

    /// The batch of the changes of the step, without a stable point.
    fn output(&mut self) -> Batch {
        let changes = std::mem::take(&mut self.changes);
        let side = |at: usize| {
            let JoinSide { given, rows, .. } = &self.sides[at];
            PairSide {
                form: &given.form,
                rows,
                missing: &self.missing[at],
            }
        };
        let sides = [side(0), side(1)];
        let shown = if self.kind == JoinKind::Anti {
            &sides[..1]
        } else {
            &sides[..]
        };
        pair_batch(self.schema.clone(), shown, changes)
    }
}

impl Operator for Join {
    fn inputs(&self) -> usize {
        2
    }

    fn step(&mut self, inputs: &[Batch]) -> Result<Batch, Failure> {
        let mut stables = [None; 2];
        let mut taken = [None, None];
        for at in 0..2 {
            let batch = match &mut self.skips[at] {
                Some(skip) => skip.take(&inputs[at]),
                None => inputs[at].clone(),
            };
            stables[at] = batch.stable;
            taken[at] = Some(batch);
        }
        self.compared = 0;
        self.predicate.clear();
        for (at, batch) in taken.iter().flatten().enumerate() {
            self.take(at, batch)?;
        }
        self.push_parts()?;
        let stable = self.move_stables(stables)?;
        let out = self.output();
        for side in &mut self.sides {
            side.release(&mut self.keys);
        }
        Ok(Batch {
            stable: self.progress.advance(stable),
            ..out
        })
    }

    fn fast_forward(&mut self, t: i64) -> Vec<i64> {
        let until = self.progress.fast_forward(t);
        let needed = |at: usize| {
            if self.skips[at].is_some() {
                return until;
            }
            let other = &self.sides[1 - at];
            let first = other.stable.min(other.first_start());
            // The time before which an event must end so that it does not reach behind `first`.
            let unmatched = if first == INF || first == NEG_INF {
                first
            } else {
                first + 1
            };
            if self.sides[at].reports {
                unmatched.min(until)
            } else {
                unmatched
            }
        };
        let needed = vec![needed(0), needed(1)];
        self.skips
            .iter_mut()
            .flatten()
            .for_each(|skip| skip.fast_forward(until));
        needed
    }

    fn state(&self) -> Plain {
        let skips = self
            .skips
            .iter()
            .map(|skip| skip.as_ref().map_or(Plain::None, SkippedEvents::state))
            .collect();
        let sides = self
            .sides
            .iter()
            .enumerate()
            .map(|(at, side)| side.state(at, &self.keys))
            .collect();
        self.progress
            .state()
            .and([("skips", Plain::List(skips)), ("sides", Plain::List(sides))])
    }

    fn restore(&mut self, state: &Plain) -> Result<(), Failure> {
        self.progress.restore(state)?;
        let (skips, sides) = (state.get("skips")?.tuple::<2>()?, state.get("sides")?.tuple::<2>()?);
        for at in 0..2 {
            if let Some(skip) = &mut self.skips[at] {
                skip.restore(&skips[at])?;
            }
            self.sides[at].restore(at, &mut self.keys, &sides[at])?;
        }
        Ok(())
    }

    fn live(&self) -> usize {
        let skipped: usize = self.skips.iter().flatten().map(SkippedEvents::live).sum();
        skipped + self.sides.iter().map(|side| side.live).sum::<usize>()
    }

    fn skipped(&self) -> u64 {
        self.skips.iter().flatten().map(SkippedEvents::skipped).sum()
    }

    fn check(&self) {
        self.skips.iter().flatten().for_each(SkippedEvents::check);
        self.keys.keys.check();
        for (at, side) in self.sides.iter().enumerate() {
            side.check(at, &self.keys);
            assert!(side.stable == INF || self.progress.stable <= side.stable);
            assert!(self.before[at].is_empty());
        }
        let held = self.sides.iter().any(|side| side.live > 0);
        assert!(held || self.keys.keys.is_empty(), "a key without events is kept");
    }
}

/// Push how the part in which both events are valid changes.
#[inline]
fn push_pair(changes: &mut Vec<Change<Pair>>, row: Pair, (start, ve): (i64, i64), [vs, old, new]: [i64; 3]) {
    let vs = vs.max(start);
    let (old, new) = (vs.max(old.min(ve)), vs.max(new.min(ve)));
    if old != new {
        changes.push(Change { row, vs, old, new });
    }
}
