//! Elements as rows of Arrow, for the merge in Spark: rows to packs, one for each shard, and merged elements to rows.
//!
//! `lmerge/spark/merging/packs.py` is the definition. Rows that are no element, an attach or a detach
//! are refused with `None`; the module in Python then packs the batch.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Int32Type, Int64Type};
use arrow_array::{
    Array, ArrayRef, BinaryArray, Int32Array, Int64Array, PrimitiveArray, StringArray, StructArray, new_null_array,
};
use arrow_buffer::{NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow_schema::{DataType, Field, Fields};
use lmerge_core::columns::{Columns, View};
use lmerge_core::element::{ADJUST, INF, INSERT, NEG_INF, STABLE};

/// The names of the kinds, by their numbers.
const KINDS: [&str; 3] = ["insert", "adjust", "stable"];

/// Elements of one input for one shard.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pack {
    pub columns: Columns,
    /// The order of each element, eight little-endian bytes each, ascending.
    pub orders: Vec<u8>,
}

impl Pack {
    fn push(&mut self, order: i64, (kind, vs, ve, vold): (u8, i64, i64, i64), payload: &[u8]) {
        self.columns.push(kind, vs, ve, vold, payload);
        self.orders.extend_from_slice(&order.to_le_bytes());
    }

    fn order(&self, at: usize) -> i64 {
        i64::from_le_bytes(self.orders.as_chunks().0[at])
    }

    /// The orders of the first and of the last element; None if there is none.
    pub fn bounds(&self) -> Option<(i64, i64)> {
        let last = self.columns.len().checked_sub(1)?;
        Some((self.order(0), self.order(last)))
    }
}

/// The packs of all shards. `concerns_all`: every shard has an element that all shards receive.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Packs {
    pub shards: Vec<Pack>,
    pub concerns_all: bool,
}

impl Packs {
    fn new(shards: usize) -> Packs {
        Packs {
            shards: vec![Pack::default(); shards],
            concerns_all: false,
        }
    }

    fn push(&mut self, order: i64, times: (u8, i64, i64, i64), payload: &[u8]) {
        let (kind, vs, ve, _) = times;
        // An event that ends before it starts ends its input: in all shards, so that no shard goes on without the rest.
        if kind == STABLE || ve < vs {
            self.concerns_all = true;
            self.shards.iter_mut().for_each(|pack| pack.push(order, times, payload));
        } else {
            let shard = shard_of(payload, self.shards.len());
            self.shards[shard].push(order, times, payload);
        }
    }
}

/// The shard of a payload: the same in every process, with or without this crate.
pub fn shard_of(payload: &[u8], shards: usize) -> usize {
    if shards == 1 {
        0
    } else {
        crc32fast::hash(payload) as usize % shards
    }
}

/// The elements of one input, by shard. Elements of one order stay as they came.
///
/// Columns: `kind` (text, or a dictionary of it), `payload` (bytes), `vs`, `ve`, `vold`, and `order` if `has_order`. Otherwise the order is the
/// kind (inserts, adjusts, stables), and stables of one batch come by their times. None if a row is no insert, adjust or stable, or a column has another type.
pub fn packs(batches: &[StructArray], shards: usize, has_order: bool) -> Option<Packs> {
    let batches: Option<Vec<Batch>> = batches.iter().map(|batch| Batch::of(batch, has_order)).collect();
    let batches = batches?;
    let mut packs = Packs::new(shards);
    let mut push = |batch: &Batch, row: usize| batch.push(row, &mut packs);
    if is_ascending(&batches) {
        for batch in &batches {
            (0..batch.len()).for_each(|row| push(batch, row));
        }
    } else {
        let mut rows = Vec::new();
        for (at, batch) in batches.iter().enumerate() {
            rows.extend((0..batch.len()).map(|row| (batch.key(row), at, row)));
        }
        rows.sort_by_key(|&(key, _, _)| key);
        rows.into_iter().for_each(|(_, at, row)| push(&batches[at], row));
    }
    Some(packs)
}

/// A batch divided among shards, all of it with one order. A stable(-inf), which means nothing, is left out.
pub fn divided(view: &View<'_>, shards: usize, order: i64) -> Packs {
    let mut packs = Packs::new(shards);
    let means_nothing = |at| view.kind(at) == STABLE && view.vs(at) == NEG_INF;
    for at in (0..view.len()).filter(|&at| !means_nothing(at)) {
        let times = (view.kind(at), view.vs(at), view.ve(at), view.vold(at));
        packs.push(order, times, view.payload(at));
    }
    packs
}

/// The elements of several packs of one shard by their order. Those of one order stay as they came.
///
/// `has_order`: see [`packs`].
pub fn in_order(packs: &[(View<'_>, &[u8])], has_order: bool) -> Columns {
    let mut places = Vec::new();
    for (pack, (view, orders)) in packs.iter().enumerate() {
        let key = |at| {
            let stable = if has_order || view.kind(at) != STABLE {
                NEG_INF
            } else {
                view.vs(at)
            };
            (i64::from_le_bytes(orders.as_chunks().0[at]), stable)
        };
        places.extend((0..view.len()).map(|at| (key(at), pack, at)));
    }
    places.sort_by_key(|&(key, _, _)| key);
    let mut out = Columns::default();
    for (_, pack, at) in places {
        let view = &packs[pack].0;
        out.push(view.kind(at), view.vs(at), view.ve(at), view.vold(at), view.payload(at));
    }
    out
}

/// Inserts and adjusts as rows: kind, payload, vs, ve, vold, shard, order, ended. `order` counts from `first` on.
/// None if there is a stable.
pub fn rows(view: &View<'_>, shard: i32, first: i64) -> Option<StructArray> {
    let count = view.len();
    if view.kinds().contains(&STABLE) {
        return None;
    }
    let ints = |of: &dyn Fn(usize) -> i64| ScalarBuffer::from_iter((0..count).map(of));
    let is_adjust = NullBuffer::from_iter(view.kinds().iter().map(|&kind| kind == ADJUST));
    let order = (0..count as i64).map(|at| first + at);
    Some(table(vec![
        ("kind", Arc::new(kind_names(view.kinds()))),
        ("payload", payloads(view)),
        ("vs", Arc::new(Int64Array::new(ints(&|at| view.vs(at)), None))),
        ("ve", Arc::new(Int64Array::new(ints(&|at| view.ve(at)), None))),
        (
            "vold",
            Arc::new(Int64Array::new(ints(&|at| view.vold(at)), Some(is_adjust))),
        ),
        (
            "shard",
            Arc::new(Int32Array::from_iter_values((0..count).map(|_| shard))),
        ),
        ("order", Arc::new(Int64Array::from_iter_values(order))),
        ("ended", new_null_array(&DataType::Utf8, count)),
    ]))
}

/// The payloads of all elements.
pub(crate) fn payloads(view: &View<'_>) -> ArrayRef {
    let lengths = (0..view.len()).map(|at| view.payload(at).len());
    let bytes = view.payloads_bytes().to_vec();
    Arc::new(BinaryArray::new(
        OffsetBuffer::from_lengths(lengths),
        bytes.into(),
        None,
    ))
}

/// Columns, of one length, as a record batch.
pub(crate) fn table(columns: Vec<(&str, ArrayRef)>) -> StructArray {
    let field = |(name, array): &(&str, ArrayRef)| Field::new(*name, array.data_type().clone(), true);
    let fields: Fields = columns.iter().map(field).collect();
    StructArray::new(fields, columns.into_iter().map(|(_, array)| array).collect(), None)
}

/// The columns of rows of elements.
struct Batch<'a> {
    kinds: Vec<u8>,
    payload: &'a BinaryArray,
    vs: &'a Int64Array,
    ve: &'a Int64Array,
    vold: &'a Int64Array,
    order: Option<&'a Int64Array>,
}

impl<'a> Batch<'a> {
    fn of(batch: &'a StructArray, has_order: bool) -> Option<Batch<'a>> {
        let ints = |name| batch.column_by_name(name)?.as_primitive_opt::<Int64Type>();
        let vs = ints("vs")?;
        let payload = batch.column_by_name("payload")?.as_binary_opt::<i32>()?;
        let order = if has_order { Some(ints("order")?) } else { None };
        let kinds = kinds(batch.column_by_name("kind")?)?;
        if batch.null_count() + vs.null_count() + order.map_or(0, Array::null_count) > 0 {
            return None;
        }
        let lacks_payload = |(at, &kind): (usize, &u8)| kind != STABLE && payload.is_null(at);
        if payload.null_count() > 0 && kinds.iter().enumerate().any(lacks_payload) {
            return None;
        }
        Some(Batch {
            kinds,
            payload,
            vs,
            ve: ints("ve")?,
            vold: ints("vold")?,
            order,
        })
    }

    fn len(&self) -> usize {
        self.kinds.len()
    }

    fn order(&self, row: usize) -> i64 {
        match self.order {
            Some(orders) => orders.value(row),
            None => i64::from(self.kinds[row]),
        }
    }

    /// What rows are sorted by: the order, and without a column of order the stables by their times.
    fn key(&self, row: usize) -> (i64, i64) {
        let is_stable = self.order.is_none() && self.kinds[row] == STABLE;
        (self.order(row), if is_stable { self.vs.value(row) } else { NEG_INF })
    }

    fn push(&self, row: usize, packs: &mut Packs) {
        let (kind, vs) = (self.kinds[row], self.vs.value(row));
        let order = self.order(row);
        match kind {
            // The row by which another merge reports only that an input has ended.
            STABLE if vs == NEG_INF => {}
            STABLE => packs.push(order, (STABLE, vs, 0, 0), &[]),
            INSERT => packs.push(order, (kind, vs, end(self.ve, row), 0), self.payload.value(row)),
            _ => packs.push(
                order,
                (kind, vs, end(self.ve, row), end(self.vold, row)),
                self.payload.value(row),
            ),
        }
    }
}

/// An end; a null is +inf.
fn end(ends: &PrimitiveArray<Int64Type>, row: usize) -> i64 {
    if ends.is_null(row) { INF } else { ends.value(row) }
}

fn is_ascending(batches: &[Batch<'_>]) -> bool {
    let mut before = (i64::MIN, i64::MIN);
    batches.iter().all(|batch| {
        (0..batch.len()).all(|row| {
            let key = batch.key(row);
            std::mem::replace(&mut before, key) <= key
        })
    })
}

/// The number of each kind in a column of text, which may be a dictionary; None if one has no number.
fn kinds(column: &ArrayRef) -> Option<Vec<u8>> {
    let Some(dictionary) = column.as_dictionary_opt::<Int32Type>() else {
        return numbers(column.as_string_opt::<i32>()?);
    };
    let values = numbers(dictionary.values().as_string_opt::<i32>()?)?;
    if dictionary.keys().null_count() > 0 {
        return None;
    }
    let number = |&key: &i32| values.get(usize::try_from(key).ok()?).copied();
    dictionary.keys().values().iter().map(number).collect()
}

/// The number of each kind; None if one has no number.
fn numbers(names: &StringArray) -> Option<Vec<u8>> {
    if names.null_count() > 0 {
        return None;
    }
    let number = |at| match names.value(at) {
        "insert" => Some(INSERT),
        "adjust" => Some(ADJUST),
        "stable" => Some(STABLE),
        _ => None,
    };
    (0..names.len()).map(number).collect()
}

fn kind_names(kinds: &[u8]) -> StringArray {
    // The names are equally long, so all offsets are known.
    let text: String = kinds.iter().map(|&kind| KINDS[usize::from(kind)]).collect();
    let lengths = kinds.iter().map(|&kind| KINDS[usize::from(kind)].len());
    StringArray::new(OffsetBuffer::from_lengths(lengths), text.into_bytes().into(), None)
}
