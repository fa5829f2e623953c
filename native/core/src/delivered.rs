//! Keeps what one input has delivered under R0-R2, for a switch after a broken promise. See `lmerge/core/delivered.py`.

use crate::columns::View;
use crate::element::INSERT;

/// Up to this many events are kept without a search for events that can be forgotten.
const KEPT: usize = 1024;

/// Events as (vs, payload, ve), in the order of their delivery.
#[derive(Clone, Debug)]
pub struct Delivered {
    payloads: Vec<u8>,
    /// Vs, Ve and the end of the payload.
    items: Vec<(i64, i64, usize)>,
    forget_at: usize,
}

impl Default for Delivered {
    fn default() -> Delivered {
        Delivered {
            payloads: Vec::new(),
            items: Vec::new(),
            forget_at: KEPT,
        }
    }
}

impl Delivered {
    pub fn len(&self) -> usize {
        self.items.len()
    }

    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    pub fn push(&mut self, vs: i64, payload: &[u8], ve: i64) {
        self.payloads.extend_from_slice(payload);
        self.items.push((vs, ve, self.payloads.len()));
    }

    /// Add the inserts of a batch. Events that end before `below` can be forgotten. Amortised O(elements).
    pub fn add(&mut self, batch: &View<'_>, start: usize, stop: usize, below: i64) {
        for at in start..stop {
            if batch.kind(at) == INSERT && batch.ve(at) > batch.vs(at) {
                self.push(batch.vs(at), batch.payload(at), batch.ve(at));
            }
        }
        if self.len() >= self.forget_at {
            let mut kept = Delivered::default();
            self.since(below)
                .for_each(|(vs, payload, ve)| kept.push(vs, payload, ve));
            kept.forget_at = KEPT.max(2 * kept.len());
            *self = kept;
        }
    }

    /// The events that do not end before `below`, in the order of their delivery.
    pub fn since(&self, below: i64) -> impl Iterator<Item = (i64, &[u8], i64)> {
        let mut start = 0;
        let event = move |&(vs, ve, end): &(i64, i64, usize)| {
            let payload = &self.payloads[start..end];
            start = end;
            (vs, payload, ve)
        };
        self.items.iter().map(event).filter(move |&(_, _, ve)| ve >= below)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::columns::Columns;

    #[test]
    fn what_has_ended_is_forgotten_and_the_rest_is_not() {
        let mut delivered = Delivered::default();
        for vs in 0..10_000 {
            let mut batch = Columns::default();
            batch.insert(vs, if vs % 100 == 0 { i64::MAX } else { vs + 1 }, &vs.to_le_bytes());
            batch.insert(vs, vs, b"no event");
            delivered.add(&batch.view(), 0, 2, vs);
            assert!(delivered.len() <= 2 * KEPT);
        }
        let open = delivered.since(10_002).collect::<Vec<_>>();
        assert_eq!(open.len(), 100);
        assert!(open.iter().all(|&(vs, payload, _)| payload == vs.to_le_bytes()));
    }
}
