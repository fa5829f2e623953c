//! The changes of elements, in order, beside a sum that is made one element after the other.

use std::collections::BTreeMap;

use arrow_array::cast::AsArray;
use arrow_array::types::{Int64Type, UInt8Type};
use arrow_array::*;
use lmerge_core::columns::Columns;
use lmerge_core::element::{ADJUST, INF, STABLE};
use lmerge_rows::changes::{changes, columns};

use crate::tables::batch;

/// Ve, Vs, payload.
type Key = (i64, i64, Vec<u8>);

fn drawn(random: &mut fastrand::Rng, elements: usize) -> Columns {
    let mut drawn = Columns::default();
    for _ in 0..elements {
        let (vs, length) = (random.i64(0..20), random.i64(0..5));
        let payload = vec![b'x'; random.usize(0..4)];
        match random.u8(0..10) {
            0 => drawn.stable(vs),
            1..4 => drawn.adjust(vs, vs + length, vs + random.i64(0..5), &payload),
            4 => drawn.insert(vs, INF, &payload),
            _ => drawn.insert(vs, vs + length, &payload),
        }
    }
    drawn
}

fn listed(table: &StructArray) -> Vec<(Key, i64)> {
    let ints = |name| table.column_by_name(name).unwrap().as_primitive::<Int64Type>();
    let payload = table.column_by_name("payload").unwrap().as_binary::<i32>();
    (0..table.len())
        .map(|at| {
            let key = (ints("ve").value(at), ints("vs").value(at), payload.value(at).to_vec());
            (key, ints("change").value(at))
        })
        .collect()
}

fn summed(rows: impl IntoIterator<Item = (Key, i64)>) -> BTreeMap<Key, i64> {
    let mut sums = BTreeMap::new();
    for (key, change) in rows {
        *sums.entry(key).or_insert(0) += change;
    }
    sums.retain(|_, sum| *sum != 0);
    sums
}

fn expected(elements: &Columns) -> Vec<(Key, i64)> {
    let view = elements.view();
    let mut rows = Vec::new();
    for at in (0..view.len()).filter(|&at| view.kind(at) != STABLE) {
        let (vs, payload) = (view.vs(at), view.payload(at).to_vec());
        rows.push(((view.ve(at), vs, payload.clone()), 1));
        if view.kind(at) == ADJUST {
            rows.push(((view.vold(at), vs, payload), -1));
        }
    }
    rows.retain(|((end, vs, _), _)| end > vs);
    rows
}

#[test]
fn the_changes_of_drawn_batches_are_in_order_and_add_up() {
    for seed in 0..300 {
        let mut random = fastrand::Rng::with_seed(seed);
        let elements: Vec<Columns> = (0..random.usize(0..4)).map(|_| drawn(&mut random, 30)).collect();
        let views: Vec<_> = elements.iter().map(Columns::view).collect();
        let mut all: Vec<_> = elements.iter().flat_map(expected).collect();
        all.sort();
        let together = listed(&changes(&views, &[], false).unwrap());
        assert!(together.is_sorted_by_key(|(key, _)| key.clone()));
        let mut found = together.clone();
        found.sort();
        assert_eq!(found, all);

        let parts: Vec<_> = views
            .iter()
            .map(|view| changes(&[*view], &[], false).unwrap())
            .collect();
        assert_eq!(
            listed(&changes(&views[..1.min(views.len())], &parts[1.min(parts.len())..], false).unwrap()).len(),
            all.len()
        );
        let sums = listed(&changes(&[], &parts, true).unwrap());
        assert!(sums.iter().map(|(key, _)| key).eq(summed(all).keys()));
        assert_eq!(
            summed(sums.clone()).len(),
            sums.len(),
            "one row for each event, none that is 0"
        );
        assert_eq!(summed(sums), summed(together));
    }
}

#[test]
fn the_columns_of_a_part_of_a_batch() {
    let mut elements = Columns::default();
    elements.insert(1, 5, b"A");
    elements.adjust(2, 5, 7, b"BB");
    elements.stable(3);
    let table = columns(&elements.view().slice(1, 3));
    let ints = |name| {
        table
            .column_by_name(name)
            .unwrap()
            .as_primitive::<Int64Type>()
            .values()
            .to_vec()
    };
    let kinds = table.column_by_name("kind").unwrap().as_primitive::<UInt8Type>();
    assert_eq!(kinds.values().to_vec(), [ADJUST, STABLE]);
    assert_eq!(
        (ints("vs"), ints("ve"), ints("vold")),
        (vec![2, 3], vec![7, 0], vec![5, 0])
    );
    let payloads = table.column_by_name("payload").unwrap().as_binary::<i32>();
    assert_eq!(payloads.iter().flatten().collect::<Vec<_>>(), [&b"BB"[..], b""]);
    assert_eq!(columns(&Columns::default().view()).len(), 0);
}

#[test]
fn rows_of_other_columns_are_refused() {
    let times: ArrayRef = std::sync::Arc::new(Int64Array::from(vec![1]));
    assert!(changes(&[], &[batch(vec![("vs", times)])], false).is_none());
}
