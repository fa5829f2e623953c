//! Where a stream enters a plan as columns: it is checked, gets its stable points, and is cut into batches.
//! `lmerge/temporal/entrance.py`, whose rules these are.
//!
//! What of a batch is late depends on the changes before, but not on the live events. So the changes are decided first,
//! and live events are looked up behind that. An insert that the batch's own stable point freezes is never one of them.

mod segment;
mod state;
mod violations;

use std::ops::Range;
use std::sync::Arc;

use arrow_row::Rows;
use hashbrown::HashMap;

use crate::batch::{Batch, taken};
use crate::failure::Failure;
use crate::open_events::OpenEvents;
use crate::{INF, NEG_INF, RowSchema};

use segment::Segment;

/// When a source is stable: `ProgressRule`.
#[derive(Clone, Copy, Debug)]
pub struct ProgressRule {
    pub delay: i64,
    pub every: i64,
    pub events: i64,
}

/// What happens to a change before the stable point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LatePolicy {
    Drop,
    Move,
    Fail,
}

/// What a source promises of its stream.
#[derive(Clone, Copy, Debug, Default)]
pub struct Promises {
    pub has_points: bool,
    pub insert_only: bool,
    pub ordered: bool,
    pub strictly_ordered: bool,
    pub key: bool,
}

impl Promises {
    /// Whether no insert can break them.
    fn are_of_kinds(self) -> bool {
        !(self.has_points || self.ordered || self.key)
    }
}

/// The lifetime `[vs, ve)` of an event whose row is known.
type Span = (i64, i64);

/// A row by its number, and the lifetime that its source gives it.
type Claimed = (u32, i64, i64);

/// What became of the events of one such lifetime; None: dropped.
type Became = Vec<Option<Span>>;

/// What a change becomes: vs, old and new.
type Times = (i64, i64, i64);

/// Makes checked batches of a source's changes.
#[derive(Debug)]
pub struct StreamEntrance {
    name: String,
    /// The name as Python shows it, for messages.
    shown: String,
    schema: Arc<RowSchema>,
    rule: Option<ProgressRule>,
    late: LatePolicy,
    promises: Promises,
    pub live: OpenEvents,
    pub dropped: u64,
    pub moved: u64,
    stable: i64,
    latest: i64,
    last_start: Option<i64>,
    mark: Option<i64>,
    since_stable: i64,
    /// What the source takes an event for (row, vs, ve), and what it is.
    other: HashMap<Claimed, Became, ahash::RandomState>,
}

impl StreamEntrance {
    /// `shown`: the name as Python shows it.
    pub fn new(
        name: &str,
        shown: &str,
        schema: Arc<RowSchema>,
        rule: Option<ProgressRule>,
        late: LatePolicy,
        promises: Promises,
    ) -> StreamEntrance {
        StreamEntrance {
            name: name.to_owned(),
            shown: shown.to_owned(),
            live: OpenEvents::new(schema.clone()),
            schema,
            rule,
            late,
            promises,
            dropped: 0,
            moved: 0,
            stable: NEG_INF,
            latest: NEG_INF,
            last_start: None,
            mark: None,
            since_stable: 0,
            other: HashMap::default(),
        }
    }

    /// The batches of the changes of `input`. `stables`: those that the source declares, each with the number of
    /// changes before it, in order.
    pub fn take(&mut self, input: &Batch, stables: &[(usize, i64)]) -> Result<Vec<Batch>, Failure> {
        let mut rows = None;
        let mut batches = Vec::new();
        let mut segment = Segment::new(0);
        let mut declared = stables.iter().copied().peekable();
        let mut at = 0;
        loop {
            while let Some((_, stable)) = declared.next_if(|&(place, _)| place == at) {
                if self.rule.is_some() && stable != INF {
                    self.apply(input, &mut segment, &mut rows)?;
                    return Err(Failure::Usage(format!(
                        "source {} declares stable({stable}), and a rule makes its stable points",
                        self.shown
                    )));
                }
                if stable > self.stable {
                    (self.stable, self.since_stable) = (stable, 0);
                    if self.rule.is_none() {
                        let whole = std::mem::replace(&mut segment, Segment::new(at));
                        batches.push(self.closed(input, whole, &mut rows)?);
                    }
                }
            }
            if at == input.len() {
                break;
            }
            let until = declared.peek().map_or(input.len(), |&(place, _)| place);
            let plain = self.plain_inserts(input, at, until);
            if plain > 0 {
                segment.push_all(input, at, plain);
                at += plain;
            } else {
                self.take_change(input, at, &mut segment, &mut rows)?;
                at += 1;
            }
        }
        let last = self.closed(input, segment, &mut rows)?;
        if !(last.is_empty() && last.stable.is_none() && last.mark.is_none()) {
            batches.push(last);
        }
        Ok(batches)
    }

    /// Take one change of any kind.
    fn take_change(
        &mut self,
        input: &Batch,
        at: usize,
        segment: &mut Segment,
        rows: &mut Option<Rows>,
    ) -> Result<(), Failure> {
        if self.promises.key {
            self.apply(input, segment, rows)?; // a key is one of those before
        }
        match self.decided(input, at, rows) {
            Ok(times) => segment.push(input, at, times),
            Err(failure) => {
                self.apply(input, segment, rows)?;
                return Err(failure);
            }
        }
        self.move_time(input.vs[at]);
        Ok(())
    }

    /// Take that the source has come to `latest` without events that matter.
    pub fn advance(&mut self, latest: i64) -> Result<Vec<Batch>, Failure> {
        let Some(rule) = self.rule else {
            return Ok(Vec::new());
        };
        if latest > self.latest {
            self.latest = latest;
            self.mark = Some(latest);
        }
        let stable = self.latest.saturating_sub(rule.delay);
        if stable > self.stable {
            (self.stable, self.since_stable) = (stable, 0);
        }
        self.take(&Batch::empty(self.schema.clone()), &[])
    }

    /// The watermark: the latest start, or the stable point if that is later.
    pub fn watermark(&self) -> i64 {
        self.latest.max(self.stable)
    }

    /// Panic unless the live events are live and counted.
    pub fn check(&self) {
        self.live.check();
    }

    /// How many changes from `at` to below `until` are inserts that are taken as they are. Time moves with them.
    fn plain_inserts(&mut self, input: &Batch, at: usize, until: usize) -> usize {
        if !self.promises.are_of_kinds() {
            return 0;
        }
        let (vs, old, new) = (&input.vs[at..until], &input.old[at..until], &input.new[at..until]);
        let mut count = 0;
        for ((&vs, &old), &new) in vs.iter().zip(old).zip(new) {
            if old != vs || new <= vs || (self.rule.is_some() && vs < self.stable) {
                break;
            }
            count += 1;
            self.move_time(vs);
        }
        count
    }

    /// What a change becomes, or None if it has no effect.
    fn decided(&mut self, input: &Batch, at: usize, rows: &mut Option<Rows>) -> Result<Option<Times>, Failure> {
        self.check_promises(input, at)?;
        if self.promises.key {
            self.check_key(input, at, rows)?;
        }
        let (vs, old, new) = times_of(input, at);
        let is_insert = old == vs;
        if self.rule.is_none() || new < vs || (is_insert && vs >= self.stable && new > vs) {
            return Ok(Some((vs, old, new)));
        }
        let mut actual = if is_insert { None } else { self.actual(input, at, rows) };
        let is_final = actual.is_some_and(|(_, ve)| ve < self.stable);
        if is_final {
            actual = None; // what is left of it is a past that nothing changes
        }
        let wish = (new > vs).then_some((vs, new));
        let goal = self.nearest(vs, actual, wish);
        if goal != wish || is_final {
            if self.late == LatePolicy::Fail {
                return Err(self.too_late(input, at));
            }
            if goal == actual {
                self.dropped += 1;
            } else {
                self.moved += 1;
            }
            if let Some((vs, ve)) = wish.filter(|wish| goal != Some(*wish) && self.matters(wish.1, goal)) {
                let id = self.live.rows.hold(encoded(&self.live, rows, input, at));
                let others = self.other.entry((id, vs, ve)).or_default();
                if !others.is_empty() {
                    self.live.rows.release(id);
                }
                others.push(goal);
            }
        }
        Ok(change_between(actual, goal))
    }

    /// What became of the event that an adjust names.
    fn actual(&mut self, input: &Batch, at: usize, rows: &mut Option<Rows>) -> Option<Span> {
        let (vs, old, _) = times_of(input, at);
        let claimed = Some((vs, old));
        if self.other.is_empty() {
            return claimed;
        }
        let Some(id) = self.live.rows.find(encoded(&self.live, rows, input, at)) else {
            return claimed;
        };
        let key = (id, vs, old);
        let Some(mut others) = self.other.remove(&key) else {
            return claimed;
        };
        let mut found = claimed;
        while let Some(actual) = others.pop() {
            if self.matters(old, actual) {
                found = actual;
                break;
            }
        }
        if others.is_empty() {
            self.live.rows.release(id);
        } else {
            self.other.insert(key, others);
        }
        found
    }

    /// Whether a revision of an event of the source has to find what it is: until both are fully frozen.
    fn matters(&self, claimed: i64, actual: Option<Span>) -> bool {
        claimed >= self.stable || actual.is_some_and(|(_, ve)| ve >= self.stable)
    }

    /// The event nearest to a wish that is legal, given what is there. `start`: of the wish, if it is one.
    fn nearest(&self, start: i64, actual: Option<Span>, wish: Option<Span>) -> Option<Span> {
        let (stable, moves) = (self.stable, self.late == LatePolicy::Move);
        let Some((vs, ve)) = actual else {
            let (_, end) = wish?;
            if start >= stable {
                return wish;
            }
            return (moves && end > stable).then_some((stable, end));
        };
        let mut end = wish.map_or(vs, |(_, end)| end);
        if end < stable {
            if !moves {
                return Some((vs, ve));
            }
            end = stable;
        }
        (end > vs).then_some((vs, end))
    }

    /// Move time behind a change that has this start.
    #[inline]
    fn move_time(&mut self, vs: i64) {
        if vs > self.latest {
            self.latest = vs;
            self.mark = Some(vs);
        }
        let Some(rule) = self.rule else { return };
        self.since_stable += 1;
        let stable = self.latest.saturating_sub(rule.delay);
        if self.since_stable < rule.events || stable <= self.stable {
            return;
        }
        let moved = i128::from(stable) - i128::from(self.stable);
        if rule.every > 0 && self.stable != NEG_INF && moved < i128::from(rule.every) {
            return;
        }
        (self.stable, self.since_stable) = (stable, 0);
    }

    /// Let the live events take a segment, and return it as a batch, with the stable point if it has moved.
    fn closed(&mut self, input: &Batch, mut segment: Segment, rows: &mut Option<Rows>) -> Result<Batch, Failure> {
        let last = self.apply(input, &mut segment, rows)?;
        let mut batch = segment.batch(input);
        batch.stable = (self.stable > self.live.stable).then_some(self.stable);
        if let Some(stable) = batch.stable {
            self.move_stable(stable, last);
        }
        batch.mark = self.mark.take();
        Ok(batch)
    }

    /// Let the live events take the changes of a segment. Returns the latest finite end of those that are frozen with
    /// it, and are not entered.
    fn apply(&mut self, input: &Batch, segment: &mut Segment, rows: &mut Option<Rows>) -> Result<i64, Failure> {
        let count = segment.len();
        let changes = std::mem::replace(&mut segment.applied, count)..count;
        let segment = &*segment;
        let is_insert = |at| {
            let (_, (vs, old, _)) = segment.get(input, at);
            vs == old
        };
        if !self.promises.key && changes.clone().all(is_insert) {
            return self.apply_inserts(input, segment, changes);
        }
        self.live.enter_all();
        for at in changes {
            let (place, (vs, old, new)) = segment.get(input, at);
            let row = encoded(&self.live, rows, input, place as usize);
            let breach = self.live.misplaced(vs, old, new);
            if let Some(breach) = breach.or_else(|| self.live.apply(row, vs, old, new)) {
                return Err(self.violation(breach, input, place as usize, (vs, old, new)));
            }
        }
        Ok(NEG_INF)
    }

    /// Let the live events take inserts, and forget those that the stable point freezes at once.
    fn apply_inserts(&mut self, input: &Batch, segment: &Segment, changes: Range<usize>) -> Result<i64, Failure> {
        let mut last = NEG_INF;
        let (mut places, mut spans) = (Vec::new(), Vec::new());
        for at in changes {
            let (place, (vs, old, new)) = segment.get(input, at);
            if (new < vs || vs < self.live.stable)
                && let Some(breach) = self.live.misplaced(vs, old, new)
            {
                return Err(self.violation(breach, input, place as usize, (vs, old, new)));
            }
            if new >= self.stable {
                if new > vs {
                    places.push(place);
                    spans.push((vs, new));
                }
            } else if new > vs {
                last = last.max(new);
            }
        }
        if !places.is_empty() {
            self.live.insert_all(taken(&input.columns, &places), spans);
        }
        Ok(last)
    }

    fn move_stable(&mut self, stable: i64, last: i64) {
        if stable == INF {
            // Windows of events without an end stop at the last finite time that the source has had (D13).
            let last = last.max(self.live.last_finite_end());
            if last > self.latest {
                self.latest = last;
                self.mark = Some(last);
            }
        }
        self.live.move_stable(stable);
        let stable = self.stable;
        let live = &mut self.live;
        self.other.retain(|&(row, _, claimed), actuals| {
            actuals.retain(|actual| claimed >= stable || actual.is_some_and(|(_, ve)| ve >= stable));
            if actuals.is_empty() {
                live.rows.release(row);
            }
            !actuals.is_empty()
        });
    }
}

fn times_of(batch: &Batch, at: usize) -> Times {
    (batch.vs[at], batch.old[at], batch.new[at])
}

/// The bytes of a row of the input. `rows`: all of them, once one is needed.
fn encoded<'a>(live: &OpenEvents, rows: &'a mut Option<Rows>, input: &Batch, at: usize) -> &'a [u8] {
    rows.get_or_insert_with(|| live.form.encode(&input.columns))
        .row(at)
        .data()
}

/// The times of the change that makes one event another of the same row and start, or None if they are equal.
fn change_between(before: Option<Span>, after: Option<Span>) -> Option<Times> {
    if before == after {
        return None;
    }
    let (vs, _) = after.or(before)?;
    let end = |event: Option<Span>| event.map_or(vs, |(_, ve)| ve);
    Some((vs, end(before), end(after)))
}
