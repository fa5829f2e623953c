//! The temporal database of one stream (III.A): it checks the rules of a legal stream and keeps the live events.
//!
//! A publisher keeps one for the events that it must publish again after a reconnect
//! (`lmerge/client/publish/live_events.py`), a subscriber keeps one for the events that it has received
//! (`lmerge/core/tdb.py`). Events are a multiset. Each keeps its place in the order of insertion, so that a stream that
//! promises an order keeps it when it is published again.
//!
//! Most batches are never indexed event by event. A batch of inserts and stables waits as it came ([`Tdb::receive`])
//! with its largest end. When that end is frozen, the whole batch is dropped. A stable alone changes nothing of that.
//! Batches are indexed only when an adjust or a small batch of inserts comes, when events are queried, or when more
//! than [`WAITING_ELEMENTS_MAX`] elements wait.

use std::collections::VecDeque;

use crate::columns::{Columns, View};
use crate::element::{ADJUST, INF, INSERT, NEG_INF, STABLE};
use crate::index::{Index, Spill};
use crate::nodes::NIL;
use crate::violation::{Code, Violation};

/// Ends with the numbers of their events, ascending, where a (Vs, payload) has several.
type Ends = Vec<(i64, i64)>;

/// Ends that a cleared list has room for. Few keys ever have more; a larger list is freed.
const ENDS_KEPT: usize = 16;

impl Spill for Ends {
    fn clear(&mut self) {
        Vec::clear(self);
        self.shrink_to(ENDS_KEPT);
    }

    fn held_bytes(&self) -> usize {
        self.capacity() * size_of::<(i64, i64)>()
    }
}

/// A batch that keeps its own bytes.
pub trait Held: std::fmt::Debug + Send + Sync {
    fn view(&self) -> View<'_>;
}

/// A batch that is not in the index yet.
#[derive(Debug)]
struct Waiting {
    batch: Box<dyn Held>,
    elements: usize,
    bytes: usize,
    /// The largest end in it.
    last: i64,
}

/// The most elements that wait unindexed: the time until acks arrive, of a fast stream or of a large batch of Spark. To
/// index them all, when an adjust comes, takes some 50 ms.
const WAITING_ELEMENTS_MAX: usize = 1 << 19;
/// The same in bytes. A batch waits as a whole, so this bounds the memory that one long lifetime in each batch holds.
const WAITING_BYTES_MAX: usize = 32 << 20;
/// A smaller batch is indexed at once, because that costs less than to keep it.
const WAITING_BATCH_MIN: usize = 32;

/// The live events of one stream. In a node, `out` is the end and `common` the number of a single event.
#[derive(Debug)]
pub struct Tdb {
    index: Index<Ends>,
    stable_point: i64,
    /// Events are kept until they are fully frozen here as well.
    trimmed: i64,
    count: usize,
    inserted: i64,
    waiting: VecDeque<Waiting>,
    waiting_elements: usize,
    waiting_bytes: usize,
    popped: Vec<u32>,
}

impl Tdb {
    /// `trimmed`: INF if fully frozen events are dropped at once; otherwise see [`Tdb::trim`].
    pub fn new(stable_point: i64, trimmed: i64) -> Tdb {
        let mut index = Index::new(false);
        index.store.wheel = crate::wheel::Wheel::new(stable_point.min(trimmed));
        Tdb {
            index,
            stable_point,
            trimmed,
            count: 0,
            inserted: 0,
            waiting: VecDeque::new(),
            waiting_elements: 0,
            waiting_bytes: 0,
            popped: Vec::new(),
        }
    }

    pub fn stable_point(&self) -> i64 {
        self.stable_point
    }

    pub fn trimmed(&self) -> i64 {
        self.trimmed
    }

    /// Number of live events. Call `settle` first: waiting batches are not counted.
    pub fn len(&self) -> usize {
        assert!(self.waiting.is_empty(), "settled");
        self.count
    }

    /// An upper bound of the number of live events: all elements of waiting batches count.
    pub fn at_most(&self) -> usize {
        self.count + self.waiting_elements
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Apply a batch, as [`Tdb::apply`] does, but index it later or never.
    pub fn receive(&mut self, batch: Box<dyn Held>) -> Result<(), Box<Violation>> {
        let view = batch.view();
        let Some((last, stable_point)) = self.plain(&view) else {
            return self.apply(&view, 0);
        };
        let (elements, bytes) = (view.len(), view.payload_bytes());
        self.waiting.push_back(Waiting {
            batch,
            elements,
            bytes,
            last,
        });
        self.waiting_elements += elements;
        self.waiting_bytes += bytes;
        self.stable_point = stable_point;
        self.forget();
        while self.waiting_elements > WAITING_ELEMENTS_MAX || self.waiting_bytes > WAITING_BYTES_MAX {
            self.settle_first();
        }
        Ok(())
    }

    /// The largest end and the last stable point of a batch that can wait: inserts and stables, all of them legal.
    fn plain(&self, batch: &View<'_>) -> Option<(i64, i64)> {
        if batch.len() < WAITING_BATCH_MIN {
            return None;
        }
        let (mut last, mut stable_point) = (NEG_INF, self.stable_point);
        for at in 0..batch.len() {
            let vs = batch.vs(at);
            match batch.kind(at) {
                INSERT => {
                    let ve = batch.ve(at);
                    if ve < vs || vs < stable_point {
                        return None;
                    }
                    last = last.max(ve);
                }
                ADJUST => return None,
                _ if vs < stable_point => return None,
                _ => stable_point = vs,
            }
        }
        Some((last, stable_point))
    }

    /// Index all waiting batches.
    pub fn settle(&mut self) {
        while !self.waiting.is_empty() {
            self.settle_first();
        }
    }

    fn settle_first(&mut self) {
        let Some(Waiting {
            batch, elements, bytes, ..
        }) = self.waiting.pop_front()
        else {
            return;
        };
        self.waiting_elements -= elements;
        self.waiting_bytes -= bytes;
        let (view, frozen_to) = (batch.view(), self.frozen_to());
        for at in (0..view.len()).filter(|&at| view.kind(at) == INSERT) {
            self.inserted += 1;
            let (vs, ve) = (view.vs(at), view.ve(at));
            if ve > vs && ve >= frozen_to {
                self.add(vs, view.payload(at), ve, self.inserted);
            }
        }
    }

    /// Apply the elements of `batch` from `start` on. On a violation those before the offender have been applied.
    pub fn apply(&mut self, batch: &View<'_>, start: usize) -> Result<(), Box<Violation>> {
        if batch.kinds()[start..].iter().any(|&kind| kind != STABLE) {
            self.settle();
            self.index.arrange();
        }
        for index in start..batch.len() {
            let vs = batch.vs(index);
            match batch.kind(index) {
                INSERT => {
                    let ve = batch.ve(index);
                    if ve < vs {
                        return Err(Violation::of(Code::EndBeforeStart, 0, batch, index));
                    }
                    if vs < self.stable_point {
                        let below = Violation::of(Code::InsertBelowStable, 0, batch, index);
                        return Err(below.detail(self.stable_point));
                    }
                    self.inserted += 1;
                    if ve > vs {
                        self.add(vs, batch.payload(index), ve, self.inserted);
                    }
                }
                ADJUST => self.adjust(batch, index)?,
                _ => {
                    if vs < self.stable_point {
                        let back = Violation::of(Code::StableBackwards, 0, batch, index);
                        return Err(back.detail(self.stable_point));
                    }
                    self.stable_point = vs;
                    self.forget();
                }
            }
        }
        Ok(())
    }

    /// Add a live event without checks, below the stable point too. Used to restore the events that were live.
    pub fn enter(&mut self, vs: i64, payload: &[u8], ve: i64) {
        self.settle();
        self.inserted += 1;
        self.add(vs, payload, ve, self.inserted);
    }

    /// Drop the events that are fully frozen both at `stable_point` and at this stream's own stable point.
    pub fn trim(&mut self, stable_point: i64) {
        if stable_point > self.trimmed {
            self.trimmed = stable_point;
            self.forget();
        }
    }

    /// The live events in order of insertion, then the stream's stable point if it has one.
    pub fn prelude(&mut self) -> Columns {
        self.settle();
        let mut events = self.numbered();
        events.sort_unstable_by_key(|event| event.0);
        let mut columns = Columns::inserts(events.into_iter().map(|(_, vs, payload, ve)| (vs, payload, ve)));
        if self.stable_point > NEG_INF {
            columns.stable(self.stable_point);
        }
        columns
    }

    /// Inserts of the live events, ordered by (vs, payload, ve).
    pub fn live_events(&mut self) -> Columns {
        self.settle();
        let events = self
            .numbered()
            .into_iter()
            .map(|(_, vs, payload, ve)| (vs, payload, ve));
        let mut events: Vec<_> = events.collect();
        events.sort_unstable();
        Columns::inserts(events)
    }

    /// The ends of the live events with this start and payload, ascending.
    pub fn live_ends(&mut self, vs: i64, payload: &[u8]) -> Vec<i64> {
        self.settle();
        match self.index.find(self.index.hash(vs, payload), vs, payload) {
            NIL => Vec::new(),
            id => self.ends(id).into_iter().map(|(ve, _)| ve).collect(),
        }
    }

    /// Bytes that the live events take, and bytes of their payloads.
    pub fn memory(&self) -> (usize, usize) {
        let payload = self.index.store.arena.payload_bytes() + self.waiting_bytes;
        (self.index.held_bytes() + self.waiting_bytes, payload)
    }

    /// Assert that the live events are live, counted and due at their first end.
    ///
    /// # Panics
    /// If an invariant does not hold.
    pub fn check(&self) {
        assert_eq!(
            self.waiting.iter().map(|batch| batch.elements).sum::<usize>(),
            self.waiting_elements
        );
        assert_eq!(
            self.waiting.iter().map(|batch| batch.bytes).sum::<usize>(),
            self.waiting_bytes
        );
        self.index.store.check();
        let mut count = 0;
        for id in self.index.store.nodes.ids() {
            let ends = self.ends(id);
            let node = self.index.store.nodes.get(id);
            assert!(ends.is_sorted() && ends[0].0 > node.vs, "ends out of order");
            assert!(
                ends[0].0 >= self.frozen_to(),
                "a fully frozen event among the live ones"
            );
            assert_eq!(ends[0].0, node.due, "a node that is not due at its first end");
            count += ends.len();
        }
        assert_eq!(count, self.count, "live events");
    }

    fn frozen_to(&self) -> i64 {
        self.stable_point.min(self.trimmed)
    }

    fn numbered(&self) -> Vec<(i64, i64, &[u8], i64)> {
        let mut events = Vec::with_capacity(self.count);
        for id in self.index.store.nodes.ids() {
            let (vs, payload) = self.index.store.key(id);
            events.extend(self.ends(id).into_iter().map(|(ve, number)| (number, vs, payload, ve)));
        }
        events
    }

    fn ends(&self, id: u32) -> Ends {
        let node = self.index.store.nodes.get(id);
        if node.spill() == NIL {
            vec![(node.out, node.common)]
        } else {
            self.index.spills[node.spill() as usize].clone()
        }
    }

    fn add(&mut self, vs: i64, payload: &[u8], ve: i64, number: i64) {
        self.count += 1;
        let hash = self.index.hash(vs, payload);
        let id = self.index.find(hash, vs, payload);
        if id == NIL {
            let id = self.index.enter_at(hash, vs, payload, ve);
            let node = self.index.store.nodes.get_mut(id);
            (node.out, node.common) = (ve, number);
            return;
        }
        self.add_to(id, ve, number);
    }

    /// Add an event to a node that has events.
    fn add_to(&mut self, id: u32, ve: i64, number: i64) {
        let node = self.index.store.nodes.get(id);
        let (single, due) = ((node.out, node.common), node.due);
        let ends = if node.spill() == NIL {
            let ends = self.index.spill(id);
            ends.push(single);
            ends
        } else {
            &mut self.index.spills[node.spill() as usize]
        };
        let place = ends.partition_point(|&end| end < (ve, number));
        ends.insert(place, (ve, number));
        if ve < due {
            self.index.store.enter(id, ve);
        }
    }

    fn adjust(&mut self, batch: &View<'_>, index: usize) -> Result<(), Box<Violation>> {
        let (vs, ve, vold, payload) = (
            batch.vs(index),
            batch.ve(index),
            batch.vold(index),
            batch.payload(index),
        );
        if ve < vs {
            return Err(Violation::of(Code::EndBeforeStart, 0, batch, index));
        }
        if ve < self.stable_point || vold < self.stable_point {
            return Err(Violation::of(Code::AdjustBelowStable, 0, batch, index).detail(self.stable_point));
        }
        let id = self.index.find(self.index.hash(vs, payload), vs, payload);
        if id == NIL {
            return Err(Violation::of(Code::UnknownEvent, 0, batch, index));
        }
        let ends = self.ends(id);
        let Some(at) = ends.iter().position(|&(end, _)| end == vold) else {
            let known: Vec<i64> = ends.iter().map(|&(end, _)| end).collect();
            return Err(Violation::of(Code::UnknownEvent, 0, batch, index).ends(&known));
        };
        let (_, number) = ends[at];
        if ends.len() > 1 {
            self.keep(
                id,
                ends.into_iter()
                    .enumerate()
                    .filter(|&(other, _)| other != at)
                    .map(|(_, end)| end)
                    .collect(),
            );
            self.count -= 1;
            if ve > vs {
                self.count += 1;
                self.add_to(id, ve, number);
            }
        } else if ve > vs {
            self.index.store.nodes.get_mut(id).out = ve;
            self.index.store.enter(id, ve);
        } else {
            self.count -= 1;
            self.index.drop_node(id);
        }
        Ok(())
    }

    /// Store the ends of a node, at least one. It is due at the first.
    fn keep(&mut self, id: u32, ends: Ends) {
        let node = self.index.store.nodes.get_mut(id);
        let due = ends[0].0;
        if node.due != due {
            self.index.store.enter(id, due);
        }
        self.store_ends(id, ends);
    }

    fn store_ends(&mut self, id: u32, ends: Ends) {
        let spill = self.index.store.nodes.get(id).spill();
        if let [(ve, number)] = ends[..] {
            if spill != NIL {
                self.index.unspill(id);
            }
            let node = self.index.store.nodes.get_mut(id);
            (node.out, node.common) = (ve, number);
        } else {
            self.index.spills[spill as usize] = ends;
        }
    }

    /// Drop the events that are not needed any more. Amortised O(dropped).
    fn forget(&mut self) {
        let frozen_to = self.frozen_to();
        while self.waiting.front().is_some_and(|first| first.last < frozen_to) {
            let first = self.waiting.pop_front().expect("there is a first");
            self.waiting_elements -= first.elements;
            self.waiting_bytes -= first.bytes;
            self.inserted += first.elements as i64;
        }
        let mut popped = std::mem::take(&mut self.popped);
        let store = &mut self.index.store;
        store.wheel.pop_below(&mut store.nodes, frozen_to, &mut popped);
        for id in popped.drain(..) {
            let mut ends = self.ends(id);
            let gone = ends.partition_point(|&(end, _)| end < frozen_to);
            self.count -= gone;
            ends.drain(..gone);
            if ends.is_empty() {
                self.index.drop_node(id);
            } else {
                self.index.store.enter(id, ends[0].0);
                self.store_ends(id, ends);
            }
        }
        self.popped = popped;
        self.index.tidy();
    }
}

impl Default for Tdb {
    fn default() -> Tdb {
        Tdb::new(NEG_INF, INF)
    }
}
