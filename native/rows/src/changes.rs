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
use arrow_schema::{Field, Fields};
use lmerge_core::columns::View;
use lmerge_core::element::{ADJUST, STABLE};

/// Ve, Vs, payload, change.
type Change<'a> = (i64, i64, &'a [u8], i64);

/// All elements of a batch: kind, vs, ve, vold, payload.
pub fn columns(view: &View<'_>) -> StructArray {
    let ints =
        |of: &dyn Fn(usize) -> i64| -> ArrayRef { Arc::new(Int64Array::from_iter_values((0..view.len()).map(of))) };
    let lengths = (0..view.len()).map(|at| view.payload(at).len());
    let payloads = view.payloads_bytes().to_vec();
    batch(vec![
        ("kind", Arc::new(UInt8Array::from(view.kinds().to_vec()))),
        ("vs", ints(&|at| view.vs(at))),
        ("ve", ints(&|at| view.ve(at))),
        ("vold", ints(&|at| view.vold(at))),
        (
            "payload",
            Arc::new(BinaryArray::new(
                OffsetBuffer::from_lengths(lengths),
                payloads.into(),
                None,
            )),
        ),
    ])
}

/// The changes that elements make and those of `parts`, in order. `adds_up`: one for each event, their sum; none where it
/// is 0. None if a part has other columns than `vs`, `ve`, `payload` and `change`, or if the payloads do not fit into one
/// array.
pub fn changes(batches: &[View<'_>], parts: &[StructArray], adds_up: bool) -> Option<StructArray> {
    let rows = batches.iter().map(View::len).sum::<usize>() + parts.iter().map(Array::len).sum::<usize>();
    let mut changes: Vec<Change<'_>> = Vec::with_capacity(rows);
    for part in parts {
        let times = |name: &str| part.column_by_name(name)?.as_primitive_opt::<Int64Type>();
        let (vs, ve, change) = (times("vs")?, times("ve")?, times("change")?);
        let payload = part.column_by_name("payload")?.as_binary_opt::<i32>()?;
        if part.columns().iter().any(|column| column.null_count() > 0) {
            return None;
        }
        changes.extend((0..part.len()).map(|at| (ve.value(at), vs.value(at), payload.value(at), change.value(at))));
    }
    for view in batches {
        for at in (0..view.len()).filter(|&at| view.kind(at) != STABLE) {
            let (vs, ve, vold, payload) = (view.vs(at), view.ve(at), view.vold(at), view.payload(at));
            if ve > vs {
                changes.push((ve, vs, payload, 1));
            }
            if view.kind(at) == ADJUST && vold > vs {
                changes.push((vold, vs, payload, -1));
            }
        }
    }
    if !changes.is_sorted_by(|before, next| key(before) <= key(next)) {
        changes.sort_by(|before, next| key(before).cmp(&key(next)));
    }
    if adds_up {
        changes.dedup_by(|next, kept| {
            let is_same = key(next) == key(kept);
            kept.3 += if is_same { next.3 } else { 0 };
            is_same
        });
        changes.retain(|change| change.3 != 0);
    }
    written(&changes)
}

fn key<'a>(change: &Change<'a>) -> (i64, i64, &'a [u8]) {
    (change.0, change.1, change.2)
}

fn written(changes: &[Change<'_>]) -> Option<StructArray> {
    let bytes: usize = changes.iter().map(|change| change.2.len()).sum();
    i32::try_from(bytes).ok()?;
    let mut payloads = Vec::with_capacity(bytes);
    let mut ends = Vec::with_capacity(changes.len() + 1);
    ends.push(0);
    for change in changes {
        payloads.extend_from_slice(change.2);
        ends.push(payloads.len() as i32);
    }
    let ints = |of: &dyn Fn(&Change<'_>) -> i64| -> ArrayRef {
        Arc::new(Int64Array::from_iter_values(changes.iter().map(of)))
    };
    Some(batch(vec![
        ("vs", ints(&|change| change.1)),
        ("ve", ints(&|change| change.0)),
        (
            "payload",
            Arc::new(BinaryArray::new(
                OffsetBuffer::new(ScalarBuffer::from(ends)),
                payloads.into(),
                None,
            )),
        ),
        ("change", ints(&|change| change.3)),
    ]))
}

fn batch(columns: Vec<(&str, ArrayRef)>) -> StructArray {
    let field = |(name, array): &(&str, ArrayRef)| Field::new(*name, array.data_type().clone(), true);
    let fields: Fields = columns.iter().map(field).collect();
    StructArray::new(fields, columns.into_iter().map(|(_, array)| array).collect(), None)
}
