//! The live events of a stream: what an adjust can name. `lmerge/temporal/open_events.py`.

mod arrivals;

use std::sync::Arc;

use arrow_array::ArrayRef;
use arrow_row::Rows;
use hashbrown::HashMap;

use crate::batch::Batch;
use crate::calendar::Calendar;
use crate::failure::Failure;
use crate::operator::show_time;
use crate::plain::Plain;
use crate::plain_rows::{columns_of_plain, plain_rows};
use crate::rows::{RowArena, RowForm};
use crate::{INF, NEG_INF, RowSchema};

use arrivals::{ARRIVED_MIN, Arrivals, Arrived};

/// A row, by its number in the arena, and a start.
pub type EventKey = (u32, i64);

/// The ends of the live events of one row and start, in ascending order: mostly one.
#[derive(Debug)]
struct Ends {
    first: i64,
    more: Vec<i64>,
    /// The least time at which the calendar has these events.
    due: i64,
}

impl Ends {
    fn len(&self) -> usize {
        1 + self.more.len()
    }

    fn iter(&self) -> impl Iterator<Item = i64> + '_ {
        std::iter::once(self.first).chain(self.more.iter().copied())
    }

    fn add(&mut self, end: i64) {
        let (first, added) = (self.first.min(end), self.first.max(end));
        self.first = first;
        let at = self.more.partition_point(|&other| other <= added);
        self.more.insert(at, added);
    }

    /// Remove one of at least two ends. Whether it was there.
    fn remove(&mut self, end: i64) -> bool {
        if end == self.first {
            self.first = self.more.remove(0);
            return true;
        }
        let found = self.more.binary_search(&end);
        found.map(|at| self.more.remove(at)).is_ok()
    }
}

/// Why a change is not legal: a code, what was promised and what came.
pub type Breach = (&'static str, String, String);

/// Events that are not fully frozen, a multiset.
#[derive(Debug)]
pub struct OpenEvents {
    pub stable: i64,
    pub form: RowForm,
    pub rows: RowArena,
    schema: Arc<RowSchema>,
    nodes: HashMap<EventKey, Ends, ahash::RandomState>,
    calendar: Calendar<EventKey>,
    /// How many events are entered.
    count: usize,
    /// Events that are not entered one by one.
    arrivals: Arrivals,
}

impl OpenEvents {
    pub fn new(schema: Arc<RowSchema>) -> OpenEvents {
        OpenEvents {
            stable: NEG_INF,
            form: RowForm::new(&schema),
            rows: RowArena::default(),
            schema,
            nodes: HashMap::default(),
            calendar: Calendar::default(),
            count: 0,
            arrivals: Arrivals::default(),
        }
    }

    pub fn len(&self) -> usize {
        self.count + self.arrivals.live(self.stable)
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether there is a live event with this row and start. All are entered (`enter_all`).
    pub fn has(&self, row: &[u8], vs: i64) -> bool {
        debug_assert!(self.arrivals.is_empty());
        self.rows
            .find(row)
            .is_some_and(|row| self.nodes.contains_key(&(row, vs)))
    }

    /// The latest finite end of a live event.
    pub fn last_finite_end(&self) -> i64 {
        let ends = self.nodes.values().flat_map(Ends::iter);
        let entered = ends.filter(|&end| end < INF).max();
        entered.max(self.arrivals.last_finite_end()).unwrap_or(NEG_INF)
    }

    /// Why a change of these times is not legal, whatever events there are.
    pub fn misplaced(&self, vs: i64, old: i64, new: i64) -> Option<Breach> {
        if new < vs {
            return Some((
                "end-before-start",
                "Ve >= Vs".to_owned(),
                format!("it ends at {}", show_time(new)),
            ));
        }
        let sync = old.min(new);
        if sync < self.stable {
            let promised = format!("no change before its own stable({})", show_time(self.stable));
            return Some(("below-stable", promised, format!("it changes the table at {sync}")));
        }
        None
    }

    /// Take inserts that are not misplaced. `spans`: start and end of each row of the columns.
    pub fn insert_all(&mut self, columns: Vec<ArrayRef>, spans: Vec<(i64, i64)>) {
        let arrived = Arrived { columns, spans };
        if arrived.spans.len() < ARRIVED_MIN {
            self.enter(&arrived);
        } else {
            self.arrivals.push(arrived);
        }
    }

    /// Enter every event one by one, so that each can be found.
    pub fn enter_all(&mut self) {
        for arrived in self.arrivals.drain() {
            self.enter(&arrived);
        }
    }

    /// Take a change that is not misplaced. Returns why it is not legal, and has changed nothing then.
    pub fn apply(&mut self, row: &[u8], vs: i64, old: i64, new: i64) -> Option<Breach> {
        if old > vs {
            self.enter_all();
            let breach = self.remove(row, vs, old);
            if breach.is_some() {
                return breach;
            }
        }
        if new > vs {
            self.add(row, vs, new);
        }
        None
    }

    /// Take a stable: events that end before it are dropped.
    pub fn move_stable(&mut self, stable: i64) {
        self.stable = self.stable.max(stable);
        let stable = self.stable;
        if stable == INF {
            self.arrivals.drain();
            self.calendar.clear();
            self.count = 0;
            let rows = &mut self.rows;
            self.nodes.drain().for_each(|((row, _), _)| rows.release(row));
            return;
        }
        for arrived in self.arrivals.pop_below(stable) {
            self.enter(&arrived);
        }
        let mut due = Vec::new();
        self.calendar.pop_below(stable, &mut due);
        for key in due {
            // It can have another row's number by now, or have been entered again; both do no harm.
            let Some(ends) = self.nodes.get_mut(&key).filter(|ends| ends.due < stable) else {
                continue;
            };
            let frozen = ends.iter().take_while(|&end| end < stable).count();
            self.count -= frozen;
            if frozen == ends.len() {
                self.nodes.remove(&key);
                self.rows.release(key.0);
                continue;
            }
            if frozen > 0 {
                ends.first = ends.more[frozen - 1];
                ends.more.drain(..frozen);
            }
            ends.due = ends.first;
            self.calendar.add(ends.due, key);
        }
    }

    /// The events by start, row and end, as inserts.
    pub fn events(&mut self) -> Batch {
        self.enter_all();
        let kept = self.ordered();
        let each = kept
            .iter()
            .flat_map(|&(key, ends)| ends.iter().map(move |end| (key, end)));
        let events: Vec<(EventKey, i64)> = each.collect();
        let vs: arrow_buffer::ScalarBuffer<i64> = events.iter().map(|&((_, vs), _)| vs).collect();
        Batch {
            schema: self.schema.clone(),
            columns: self.form.decode(events.iter().map(|&((row, _), _)| self.rows.get(row))),
            old: vs.clone(),
            vs,
            new: events.iter().map(|&(_, end)| end).collect(),
            stable: None,
            mark: None,
        }
    }

    pub fn state(&mut self) -> Plain {
        self.enter_all();
        let kept = self.ordered();
        let columns = self.form.decode(kept.iter().map(|&((row, _), _)| self.rows.get(row)));
        let rows = plain_rows(self.form.columns(), &columns, kept.len());
        let event = |(row, ((_, vs), ends)): (Plain, (EventKey, &Ends))| {
            Plain::List(vec![row, Plain::Int(vs), Plain::ints(ends.iter())])
        };
        let events = rows.into_iter().zip(kept).map(event).collect();
        Plain::map([("stable", Plain::Int(self.stable)), ("events", Plain::List(events))])
    }

    pub fn restore(&mut self, state: &Plain) -> Result<(), Failure> {
        self.stable = state.get("stable")?.int()?;
        let kept = state.get("events")?.list()?;
        let kept: Vec<&[Plain; 3]> = kept.iter().map(Plain::tuple).collect::<Result<_, _>>()?;
        let rows = self.encoded(&kept.iter().map(|[row, _, _]| row).collect::<Vec<_>>())?;
        self.rows.reserve(kept.len());
        self.nodes.reserve(kept.len());
        for (row, [_, vs, ends]) in rows.iter().zip(kept) {
            for end in ends.list()? {
                self.add(row.data(), vs.int()?, end.int()?);
            }
        }
        Ok(())
    }

    /// Rows of plain values as bytes.
    pub fn encoded(&self, rows: &[&Plain]) -> Result<Rows, Failure> {
        Ok(self.form.encode(&columns_of_plain(self.form.columns(), rows)?))
    }

    /// Panic unless live events are live, counted and in the calendar.
    pub fn check(&self) {
        self.arrivals.check(self.stable);
        self.calendar.check();
        self.rows.check();
        assert_eq!(self.count, self.nodes.values().map(Ends::len).sum::<usize>());
        for ends in self.nodes.values() {
            assert!(ends.first >= self.stable && ends.due <= ends.first);
            assert!(ends.iter().is_sorted());
        }
    }

    fn ordered(&self) -> Vec<(EventKey, &Ends)> {
        let mut kept: Vec<_> = self.nodes.iter().map(|(&key, ends)| (key, ends)).collect();
        kept.sort_unstable_by(|((row, vs), _), ((other, at), _)| {
            vs.cmp(at).then_with(|| self.rows.get(*row).cmp(self.rows.get(*other)))
        });
        kept
    }

    /// Enter what is live of a batch.
    fn enter(&mut self, arrived: &Arrived) {
        let rows = self.form.encode(&arrived.columns);
        for (row, &(vs, end)) in rows.iter().zip(&arrived.spans) {
            if end >= self.stable {
                self.add(row.data(), vs, end);
            }
        }
    }

    fn add(&mut self, row: &[u8], vs: i64, end: i64) {
        self.count += 1;
        let id = self.rows.hold(row);
        let key = (id, vs);
        match self.nodes.entry(key) {
            hashbrown::hash_map::Entry::Vacant(place) => {
                place.insert(Ends {
                    first: end,
                    more: Vec::new(),
                    due: end,
                });
                self.calendar.add(end, key);
            }
            hashbrown::hash_map::Entry::Occupied(mut place) => {
                let ends = place.get_mut();
                ends.add(end);
                if end < ends.due {
                    ends.due = end;
                    self.calendar.add(end, key);
                }
                self.rows.release(id);
            }
        }
    }

    fn remove(&mut self, row: &[u8], vs: i64, end: i64) -> Option<Breach> {
        let key = self.rows.find(row).map(|row| (row, vs));
        let Some((key, ends)) = key.and_then(|key| Some((key, self.nodes.get_mut(&key)?))) else {
            return Some(unknown_event("no event"));
        };
        let is_last = ends.more.is_empty();
        let is_there = if is_last { ends.first == end } else { ends.remove(end) };
        if !is_there {
            let shown: Vec<_> = ends.iter().map(show_time).collect();
            return Some(unknown_event(&shown.join(", ")));
        }
        self.count -= 1;
        if is_last {
            self.nodes.remove(&key);
            self.rows.release(key.0);
        }
        None
    }
}

fn unknown_event(ends: &str) -> Breach {
    let came = format!("for this row and Vs it has the ends: {ends}");
    ("unknown-event", "to adjust only events that it has".to_owned(), came)
}
