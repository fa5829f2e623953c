//! Rows of elements to packs, one for each shard, and back.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::*;
use lmerge_core::columns::{Columns, View};
use lmerge_core::element::{ADJUST, INF, INSERT, NEG_INF, STABLE};
use lmerge_rows::elements::{divided, in_order, packs, rows, shard_of};

use crate::tables::batch;

/// kind, payload, vs, ve, vold, order; a null as in a user's row.
type Row<'a> = (
    Option<&'a str>,
    Option<&'a [u8]>,
    Option<i64>,
    Option<i64>,
    Option<i64>,
    Option<i64>,
);

fn given(rows: &[Row<'_>]) -> StructArray {
    batch(vec![
        ("kind", Arc::new(StringArray::from_iter(rows.iter().map(|row| row.0)))),
        (
            "payload",
            Arc::new(BinaryArray::from_iter(rows.iter().map(|row| row.1))),
        ),
        ("vs", Arc::new(Int64Array::from_iter(rows.iter().map(|row| row.2)))),
        ("ve", Arc::new(Int64Array::from_iter(rows.iter().map(|row| row.3)))),
        ("vold", Arc::new(Int64Array::from_iter(rows.iter().map(|row| row.4)))),
        ("order", Arc::new(Int64Array::from_iter(rows.iter().map(|row| row.5)))),
    ])
}

fn insert<'a>(payload: &'a [u8], vs: i64, order: i64) -> Row<'a> {
    (Some("insert"), Some(payload), Some(vs), None, None, Some(order))
}

fn stable(vc: i64, order: i64) -> Row<'static> {
    (Some("stable"), None, Some(vc), None, None, Some(order))
}

fn listed(view: &View<'_>) -> Vec<(u8, i64, i64, i64, Vec<u8>)> {
    let one = |at| {
        (
            view.kind(at),
            view.vs(at),
            view.ve(at),
            view.vold(at),
            view.payload(at).to_vec(),
        )
    };
    (0..view.len()).map(one).collect()
}

#[test]
fn nulls_become_what_they_mean() {
    let adjust = (Some("adjust"), Some(b"y".as_slice()), Some(2), Some(7), None, Some(2));
    let made = packs(&[given(&[insert(b"x", 1, 1), adjust, stable(5, 3)])], 1, true).unwrap();
    assert!(made.concerns_all);
    assert_eq!(
        listed(&made.shards[0].columns.view()),
        [
            (INSERT, 1, INF, 0, b"x".to_vec()),
            (ADJUST, 2, 7, INF, b"y".to_vec()),
            (STABLE, 5, 0, 0, vec![]),
        ]
    );
    assert_eq!(made.shards[0].bounds(), Some((1, 3)));
}

#[test]
fn an_event_goes_to_its_shard_and_what_concerns_all_to_every_one() {
    let names: Vec<Vec<u8>> = (0..100).map(|i| format!("p{i}").into_bytes()).collect();
    let mut expected: Vec<Row<'_>> = names.iter().zip(0..).map(|(name, i)| insert(name, i, i)).collect();
    expected.push((Some("insert"), Some(b"backwards"), Some(9), Some(8), None, Some(100)));
    expected.push(stable(50, 101));
    let made = packs(&[given(&expected)], 7, true).unwrap();
    for (number, pack) in made.shards.iter().enumerate() {
        let (last, events) = listed(&pack.columns.view())
            .split_last()
            .map(|(l, e)| (l.clone(), e.to_vec()))
            .unwrap();
        assert_eq!(last.0, STABLE);
        let (backwards, events) = events.split_last().unwrap();
        assert_eq!(backwards.4, b"backwards");
        assert!(events.iter().all(|event| shard_of(&event.4, 7) == number));
    }
    let count: usize = made.shards.iter().map(|pack| pack.columns.len()).sum();
    assert_eq!(count, 100 + 7 * 2);
    assert!(!packs(&[given(&expected[..100])], 7, true).unwrap().concerns_all);
}

#[test]
fn the_shard_is_that_of_zlib() {
    // zlib.crc32(b"lmerge") % 7 in Python.
    assert_eq!(shard_of(b"lmerge", 7), 0xe3bf_0ec6_usize % 7);
}

#[test]
fn rows_come_by_their_order_and_equals_as_they_came() {
    let expected = [
        insert(b"d", 4, 9),
        insert(b"a", 1, 2),
        insert(b"b", 2, 2),
        insert(b"c", 3, 2),
    ];
    let parts = [given(&expected[..2]), given(&expected[2..])];
    let made = packs(&parts, 1, true).unwrap();
    let names: Vec<Vec<u8>> = listed(&made.shards[0].columns.view())
        .into_iter()
        .map(|one| one.4)
        .collect();
    assert_eq!(names, [b"a", b"b", b"c", b"d"]);
    assert_eq!(made.shards[0].bounds(), Some((2, 9)));
}

#[test]
fn without_an_order_kinds_come_in_turn_and_stables_by_time() {
    let adjust = (Some("adjust"), Some(b"x".as_slice()), Some(1), Some(7), Some(9), None);
    let made = packs(
        &[given(&[stable(8, 0), adjust, stable(3, 0), insert(b"x", 1, 0)])],
        1,
        false,
    )
    .unwrap();
    let kinds: Vec<(u8, i64)> = listed(&made.shards[0].columns.view())
        .iter()
        .map(|one| (one.0, one.1))
        .collect();
    assert_eq!(kinds, [(INSERT, 1), (ADJUST, 1), (STABLE, 3), (STABLE, 8)]);
    let both = [(made.shards[0].columns.view(), made.shards[0].orders.as_slice()); 2];
    let kinds: Vec<(u8, i64)> = listed(&in_order(&both, false).view())
        .iter()
        .map(|one| (one.0, one.1))
        .collect();
    assert_eq!(kinds[4..], [(STABLE, 3), (STABLE, 3), (STABLE, 8), (STABLE, 8)]);
}

#[test]
fn what_needs_a_reason_is_left_to_python() {
    let payload = Some(b"x".as_slice());
    let wrong: [Row<'_>; 6] = [
        (Some("attach"), None, None, None, None, Some(1)),
        (None, payload, Some(1), None, None, Some(1)),
        (Some("insert"), payload, None, None, None, Some(1)),
        (Some("insert"), None, Some(1), None, None, Some(1)),
        (Some("insert"), payload, Some(1), None, None, None),
        (Some("stable"), None, None, None, None, Some(1)),
    ];
    for row in wrong {
        assert_eq!(packs(&[given(&[insert(b"y", 1, 0), row])], 2, true), None, "{row:?}");
    }
}

#[test]
fn a_stable_that_means_nothing_is_left_out() {
    let made = packs(&[given(&[stable(NEG_INF, 0)])], 2, true).unwrap();
    assert!(!made.concerns_all);
    assert_eq!(made.shards[0].bounds(), None);
    let mut columns = Columns::default();
    columns.stable(NEG_INF);
    columns.insert(3, 9, b"x");
    let made = divided(&columns.view(), 1, 42);
    assert_eq!(made.shards[0].bounds(), Some((42, 42)));
    assert_eq!(
        listed(&made.shards[0].columns.view()),
        [(INSERT, 3, 9, 0, b"x".to_vec())]
    );
}

#[test]
fn packs_that_overlap_are_sorted_by_their_orders() {
    let one = packs(&[given(&[insert(b"a", 1, 1), insert(b"c", 3, 3)])], 1, true).unwrap();
    let two = packs(&[given(&[insert(b"b", 2, 2), insert(b"d", 4, 3)])], 1, true).unwrap();
    let both: Vec<_> = [&one, &two]
        .map(|made| (made.shards[0].columns.view(), made.shards[0].orders.as_slice()))
        .into();
    let names: Vec<Vec<u8>> = listed(&in_order(&both, true).view())
        .into_iter()
        .map(|one| one.4)
        .collect();
    assert_eq!(names, [b"a", b"b", b"c", b"d"]);
}

#[test]
fn merged_elements_become_rows() {
    let mut columns = Columns::default();
    columns.insert(1, INF, b"x");
    columns.adjust(1, INF, 5, b"x");
    let made = rows(&columns.view(), 3, 100).unwrap();
    let ints = |name| made.column_by_name(name).unwrap().as_primitive::<Int64Type>().clone();
    assert_eq!(ints("order").values().to_vec(), [100, 101]);
    assert!(ints("vold").is_null(0));
    assert_eq!(ints("vold").value(1), INF);
    let kinds = made.column_by_name("kind").unwrap().as_string::<i32>().clone();
    assert_eq!((kinds.value(0), kinds.value(1)), ("insert", "adjust"));
    let payloads = made.column_by_name("payload").unwrap().as_binary::<i32>().clone();
    assert_eq!(payloads.value(1), b"x");
    columns.stable(9);
    assert!(rows(&columns.view(), 3, 100).is_none());
}
