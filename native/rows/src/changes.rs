//! The events of a stream as a sum of changes, in Arrow's columns: `lmerge/spark/source/decided_events.py` settles them.
//!
//! A change adds an event (Vs, payload, Ve) or takes one back: its column `change` is +1 or -1. Changes are in order of
//! (Ve, Vs, payload). Rows that are in order already, as those of most streams, are not sorted, and of sorted parts one
//! after the other the sort only merges the parts.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Array, ArrayRef, BinaryArray, Int64Array, StructArray, UInt8Array};
use arrow_buffer::{OffsetBuffer, ScalarBuffer};
use lmerge_core::columns::View;
use lmerge_core::element::{ADJUST, STABLE};

use crate::elements::{payloads, table};

/// Ve, Vs, payload, change.
type Change<'a> = (i64, i64, &'a [u8], i64);

/// All elements of a batch: kind, vs, ve, vold, payload.
pub fn columns(view: &View<'_>) -> StructArray {
    let ints =
        |of: &dyn Fn(usize) -> i64| -> ArrayRef { Arc::new(Int64Array::from_iter_values((0..view.len()).map(of))) };
    table(vec![
        ("kind", Arc::new(UInt8Array::from(view.kinds().to_vec()))),
        ("vs", ints(&|at| view.vs(at))),
        ("ve", ints(&|at| view.ve(at))),
        ("vold", ints(&|at| view.vold(at))),
        ("payload", payloads(view)),
    ])
}

/// The changes that elements make and those of `parts`, in order. `adds_up`: one for each event, their sum; none where it
/// is 0. None if a part has other columns than `vs`, `ve`, `payload` and `change`, or if the payloads do not fit into one
/// array.
pub fn changes(batches: &[View<'_>], parts: &[StructArray], adds_up: bool) -> Option<StructArray> {
    let parts: Vec<Part<'_>> = parts.iter().map(Part::of).collect::<Option<_>>()?;
    let rows = batches.iter().map(View::len).sum::<usize>() + parts.iter().map(Part::len).sum::<usize>();
    let mut out = Written::of(rows, payload_bytes(batches, &parts)?);
    let mut before: Change<'_> = (i64::MIN, i64::MIN, &[], 0);
    let is_sorted = |change| key(&std::mem::replace(&mut before, change)) <= key(&change);
    if !adds_up && walk(&parts, batches, is_sorted) {
        walk(&parts, batches, |change| {
            out.push(&change);
            true
        });
        return Some(out.batch());
    }
    let mut changes: Vec<Change<'_>> = Vec::with_capacity(rows);
    walk(&parts, batches, |change| {
        changes.push(change);
        true
    });
    changes.sort_by(|before, next| key(before).cmp(&key(next)));
    if adds_up {
        changes.dedup_by(|next, kept| {
            let is_same = key(next) == key(kept);
            kept.3 += if is_same { next.3 } else { 0 };
            is_same
        });
        changes.retain(|change| change.3 != 0);
    }
    changes.iter().for_each(|change| out.push(change));
    Some(out.batch())
}

/// Changes that were written before.
struct Part<'a> {
    vs: &'a Int64Array,
    ve: &'a Int64Array,
    payload: &'a BinaryArray,
    change: &'a Int64Array,
}

impl<'a> Part<'a> {
    fn of(batch: &'a StructArray) -> Option<Part<'a>> {
        let times = |name: &str| batch.column_by_name(name)?.as_primitive_opt::<Int64Type>();
        let has_nulls = batch.columns().iter().any(|column| column.null_count() > 0);
        (!has_nulls).then_some(Part {
            vs: times("vs")?,
            ve: times("ve")?,
            payload: batch.column_by_name("payload")?.as_binary_opt::<i32>()?,
            change: times("change")?,
        })
    }

    fn len(&self) -> usize {
        self.vs.len()
    }
}

/// The bytes of all payloads, twice those of batches with adjusts; None if an array may not hold them.
fn payload_bytes(batches: &[View<'_>], parts: &[Part<'_>]) -> Option<usize> {
    let of_batch = |view: &View<'_>| view.payload_bytes() * if view.kinds().contains(&ADJUST) { 2 } else { 1 };
    let in_parts = parts.iter().map(|part| {
        let offsets = part.payload.value_offsets();
        (offsets[part.len()] - offsets[0]) as usize
    });
    let bytes = batches.iter().map(of_batch).sum::<usize>() + in_parts.sum::<usize>();
    i32::try_from(bytes).ok().map(|_| bytes)
}

/// Give each change to `take`, until it returns false. Returns whether all were taken.
fn walk<'a>(parts: &[Part<'a>], batches: &[View<'a>], mut take: impl FnMut(Change<'a>) -> bool) -> bool {
    for part in parts {
        for at in 0..part.len() {
            let change = (
                part.ve.value(at),
                part.vs.value(at),
                part.payload.value(at),
                part.change.value(at),
            );
            if !take(change) {
                return false;
            }
        }
    }
    for view in batches {
        for at in (0..view.len()).filter(|&at| view.kind(at) != STABLE) {
            let (vs, ve, payload) = (view.vs(at), view.ve(at), view.payload(at));
            if ve > vs && !take((ve, vs, payload, 1)) {
                return false;
            }
            if view.kind(at) == ADJUST && view.vold(at) > vs && !take((view.vold(at), vs, payload, -1)) {
                return false;
            }
        }
    }
    true
}

fn key<'a>(change: &Change<'a>) -> (i64, i64, &'a [u8]) {
    (change.0, change.1, change.2)
}

/// Columns of changes that are being written.
struct Written {
    vs: Vec<i64>,
    ve: Vec<i64>,
    ends: Vec<i32>,
    payloads: Vec<u8>,
    change: Vec<i64>,
}

impl Written {
    fn of(rows: usize, payload_bytes: usize) -> Written {
        let mut ends = Vec::with_capacity(rows + 1);
        ends.push(0);
        Written {
            vs: Vec::with_capacity(rows),
            ve: Vec::with_capacity(rows),
            ends,
            payloads: Vec::with_capacity(payload_bytes),
            change: Vec::with_capacity(rows),
        }
    }

    fn push(&mut self, &(ve, vs, payload, change): &Change<'_>) {
        self.vs.push(vs);
        self.ve.push(ve);
        self.payloads.extend_from_slice(payload);
        self.ends.push(self.payloads.len() as i32);
        self.change.push(change);
    }

    fn batch(self) -> StructArray {
        let ints = |values: Vec<i64>| -> ArrayRef { Arc::new(Int64Array::from(values)) };
        let offsets = OffsetBuffer::new(ScalarBuffer::from(self.ends));
        table(vec![
            ("vs", ints(self.vs)),
            ("ve", ints(self.ve)),
            (
                "payload",
                Arc::new(BinaryArray::new(offsets, self.payloads.into(), None)),
            ),
            ("change", ints(self.change)),
        ])
    }
}
