//! The temporal database of a stream in its simplest form. The output is compared with it.

use std::collections::BTreeMap;

use lmerge_core::columns::{Columns, View};
use lmerge_core::element::{ADJUST, Element, Event, INSERT, NEG_INF, STABLE};

/// `insert(payload, vs, ve)`.
pub fn a(payload: &str, vs: i64, ve: i64) -> Element {
    Element {
        kind: INSERT,
        vs,
        ve,
        vold: 0,
        payload: payload.into(),
    }
}

/// `adjust(payload, vs, vold, ve)`.
pub fn m(payload: &str, vs: i64, vold: i64, ve: i64) -> Element {
    Element {
        kind: ADJUST,
        vs,
        ve,
        vold,
        payload: payload.into(),
    }
}

/// `stable(vc)`.
pub fn f(vc: i64) -> Element {
    Element {
        kind: STABLE,
        vs: vc,
        ve: 0,
        vold: 0,
        payload: Vec::new(),
    }
}

pub fn event(payload: &str, vs: i64, ve: i64) -> Event {
    Event {
        vs,
        payload: payload.into(),
        ve,
    }
}

/// `elements` as a batch.
pub fn columns(elements: &[Element]) -> Columns {
    let mut columns = Columns::default();
    for Element {
        kind,
        vs,
        ve,
        vold,
        payload,
    } in elements
    {
        columns.push(*kind, *vs, *ve, *vold, payload);
    }
    columns
}

/// The elements of a batch.
pub fn elements(batch: &View<'_>) -> Vec<Element> {
    let element = |at: usize| Element {
        kind: batch.kind(at),
        vs: batch.vs(at),
        ve: batch.ve(at),
        vold: batch.vold(at),
        payload: batch.payload(at).to_vec(),
    };
    (0..batch.len()).map(element).collect()
}

/// III.A: the multiset of events that a stream describes, with Example 5's rules of a legal stream.
#[derive(Debug, Clone)]
pub struct Tdb {
    pub stable: i64,
    ends: BTreeMap<(i64, Vec<u8>), Vec<i64>>,
}

impl Tdb {
    pub fn new() -> Tdb {
        Tdb {
            stable: NEG_INF,
            ends: BTreeMap::new(),
        }
    }

    /// Apply one element; an error names the rule that it breaks.
    pub fn apply(&mut self, element: &Element) -> Result<(), String> {
        let Element {
            kind,
            vs,
            ve,
            vold,
            payload,
        } = element;
        let refuse = |why: &str| Err(format!("{why}: {element:?} at stable point {}", self.stable));
        if *kind == STABLE {
            if *vs < self.stable {
                return refuse("the stable point goes backwards");
            }
            self.stable = *vs;
            return Ok(());
        }
        if ve < vs {
            return refuse("an end before the start");
        }
        if *kind == INSERT && *vs < self.stable {
            return refuse("an insert below the stable point");
        }
        if *kind == ADJUST && (*vold < self.stable || *ve < self.stable) {
            return refuse("an adjust below the stable point");
        }
        let ends = self.ends.entry((*vs, payload.clone())).or_default();
        if *kind == ADJUST {
            let Some(at) = ends.iter().position(|end| end == vold) else {
                return refuse("an adjust of an unknown event");
            };
            ends.remove(at);
        }
        if ve > vs {
            ends.push(*ve);
            ends.sort_unstable();
        }
        Ok(())
    }

    /// All events, ordered by (vs, payload, ve).
    pub fn events(&self) -> Vec<Event> {
        let of_key = |((vs, payload), ends): (&(i64, Vec<u8>), &Vec<i64>)| {
            let event = |&ve: &i64| Event {
                vs: *vs,
                payload: payload.clone(),
                ve,
            };
            ends.iter().map(event).collect::<Vec<_>>()
        };
        self.ends.iter().flat_map(of_key).collect()
    }

    /// The events that are not fully frozen.
    pub fn live(&self) -> Vec<Event> {
        self.events()
            .into_iter()
            .filter(|event| event.ve >= self.stable)
            .collect()
    }
}

/// The TDB of a stream that must be legal.
pub fn reconstitute(stream: &[Element]) -> Vec<Event> {
    let mut tdb = Tdb::new();
    for element in stream {
        tdb.apply(element).expect("a legal stream");
    }
    tdb.events()
}
