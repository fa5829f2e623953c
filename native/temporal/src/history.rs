//! History: a table of events as the batches of a source, and the batches of a result as a table of events.

use std::cmp::Ordering;
use std::sync::Arc;

use crate::batch::{Batch, joined};
use crate::failure::Failure;
use crate::rows::RowForm;
use crate::{INF, RowSchema};

/// Changes that wait until the table takes them all at once: sorting them costs less than a look-up of each.
const WAITING_MIN: usize = 1 << 20;

/// Inserts in the order of their starts, `count` a batch, each with the stable point that the next one allows. The last
/// has that of a source that ends, and the last finite time (D13).
pub fn in_order(inserts: &Batch, count: usize) -> Vec<Batch> {
    let starts = &inserts.vs;
    let sorted;
    let inserts = if starts.is_sorted() {
        inserts
    } else {
        let mut places: Vec<u32> = (0..inserts.len() as u32).collect();
        places.sort_by_key(|&place| starts[place as usize]);
        sorted = inserts.take(&places);
        &sorted
    };
    let ends = inserts.new.iter().copied().filter(|&end| end < INF);
    let finite = ends.max();
    let cut = |first: usize| {
        let batch = inserts.slice(first, count.min(inserts.len() - first));
        let (latest, next) = (batch.vs.last().copied(), first + batch.len());
        let is_last = next == inserts.len();
        Batch {
            stable: Some(if is_last { INF } else { inserts.vs[next] }),
            mark: if is_last { latest.max(finite) } else { latest },
            ..batch
        }
    };
    let firsts = (0..inserts.len().max(1)).step_by(count);
    firsts.map(cut).collect()
}

/// The table of a result: what its batches add up to.
#[derive(Debug)]
pub struct ResultTable {
    schema: Arc<RowSchema>,
    form: RowForm,
    events: Batch,
    waiting: Vec<Batch>,
    /// Changes that wait.
    count: usize,
    length_max: usize,
}

impl ResultTable {
    /// `length_max`: the most bytes of a text column, and elements of a list column.
    pub fn new(schema: Arc<RowSchema>, length_max: usize) -> ResultTable {
        ResultTable {
            form: RowForm::new(&schema),
            events: Batch::empty(schema.clone()),
            schema,
            waiting: Vec::new(),
            count: 0,
            length_max,
        }
    }

    /// Take a batch. Err: the table would be too long; it stays as it was, with the batch waiting.
    pub fn apply(&mut self, batch: &Batch) -> Result<(), Failure> {
        if batch.is_empty() {
            return Ok(());
        }
        self.count += batch.len();
        self.waiting.push(batch.clone());
        // The work is that of the changes, up to a factor, and the memory that of the table.
        if self.count > WAITING_MIN.max(2 * self.events.len()) {
            self.settle()?;
        }
        Ok(())
    }

    /// The events as inserts, by start, row and end. Err: they and what has changed are too long for one table.
    pub fn events(&mut self) -> Result<&Batch, Failure> {
        self.settle()?;
        Ok(&self.events)
    }

    fn settle(&mut self) -> Result<(), Failure> {
        if self.waiting.is_empty() {
            return Ok(());
        }
        let parts: Vec<&Batch> = self.waiting.iter().chain([&self.events]).collect();
        let all = joined(&self.schema, &parts, self.length_max)?;
        (self.waiting, self.count, self.events) = (Vec::new(), 0, Batch::empty(self.schema.clone()));
        let rows = self.form.encode(&all.columns);
        let mut ends: Vec<(u32, i64, bool)> = Vec::with_capacity(all.len()); // a change, an end, and whether it is new
        for at in 0..all.len() {
            let (vs, old, new) = (all.vs[at], all.old[at], all.new[at]);
            ends.extend((old > vs).then_some((at as u32, old, false)));
            ends.extend((new > vs).then_some((at as u32, new, true)));
        }
        let by_event = |one: &(u32, i64, bool), other: &(u32, i64, bool)| -> Ordering {
            let (left, right) = (one.0 as usize, other.0 as usize);
            let by_start = all.vs[left].cmp(&all.vs[right]);
            by_start
                .then_with(|| rows.row(left).cmp(&rows.row(right)))
                .then_with(|| one.1.cmp(&other.1))
        };
        ends.sort_by(by_event);
        let (mut places, mut kept) = (Vec::new(), Vec::new());
        for event in ends.chunk_by(|one, other| by_event(one, other) == Ordering::Equal) {
            let came = event.iter().filter(|(_, _, is_new)| *is_new).count();
            let count = (2 * came).saturating_sub(event.len());
            places.resize(places.len() + count, event[0].0);
            kept.resize(kept.len() + count, event[0].1);
        }
        let found = all.take(&places);
        self.events = Batch {
            old: found.vs.clone(),
            new: kept.into(),
            ..found
        };
        Ok(())
    }
}
