//! The calendar and the sorted sets, against plain ones; rows as bytes; decimals as text; the limit of a table.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_array::{ArrayRef, StringArray};
use fastrand::Rng;
use lmerge_temporal::batch::Batch;
use lmerge_temporal::calendar::Calendar;
use lmerge_temporal::failure::Failure;
use lmerge_temporal::history::ResultTable;
use lmerge_temporal::plain_rows::{parsed_decimal, shown_decimal};
use lmerge_temporal::rows::RowArena;
use lmerge_temporal::sorted::Sorted;
use lmerge_temporal::{Column, INF, Kind, NEG_INF, RowSchema};

#[test]
fn a_calendar_gives_what_is_due_and_nothing_else() {
    for seed in 0..200 {
        let rng = &mut Rng::with_seed(seed);
        let (mut calendar, mut plain, mut now) = (Calendar::default(), Vec::new(), NEG_INF);
        for entry in 0..300_u32 {
            let span = 1 << rng.u32(1..60);
            if rng.u8(0..8) > 0 {
                let due = rng.i64(-span..span).max(now);
                calendar.add(due, entry);
                plain.push((due, entry));
                continue;
            }
            now = [rng.i64(-span..span), now.saturating_add(rng.i64(0..300)), INF]
                [rng.usize(0..3).min(seed as usize % 3)]
            .max(now);
            let mut popped = Vec::new();
            calendar.pop_below(now, &mut popped);
            calendar.check();
            popped.sort_unstable();
            let mut due: Vec<u32> = plain
                .iter()
                .filter(|(due, _)| *due < now)
                .map(|(_, entry)| *entry)
                .collect();
            due.sort_unstable();
            assert_eq!(popped, due);
            plain.retain(|(due, _)| *due >= now);
            assert_eq!(calendar.len(), plain.len());
        }
    }
}

#[test]
fn a_sorted_set_is_a_sorted_list() {
    for seed in 0..40 {
        let rng = &mut Rng::with_seed(seed);
        let (mut sorted, mut plain) = (Sorted::default(), Vec::new());
        for _ in 0..2000 {
            let entry = rng.u32(0..500);
            match rng.u8(0..8) {
                0..5 => {
                    sorted.add(entry);
                    plain.push(entry);
                    plain.sort_unstable();
                }
                5 | 6 => {
                    let at = plain.iter().position(|&other| other == entry);
                    assert_eq!(sorted.remove(&entry), at.is_some());
                    at.map(|at| plain.remove(at));
                }
                _ if rng.u8(0..30) == 0 => {
                    let mut dropped = Vec::new();
                    sorted.drop_before(&entry, &mut dropped);
                    let count = plain.partition_point(|&other| other < entry);
                    assert_eq!(dropped, plain.drain(..count).collect::<Vec<_>>());
                }
                _ => assert!(
                    sorted
                        .from(entry)
                        .eq(plain.iter().copied().filter(|&other| other >= entry))
                ),
            }
        }
        sorted.check();
        assert!(sorted.iter().eq(plain.iter().copied()));
        assert_eq!(
            (sorted.first(), sorted.last()),
            (plain.first().copied(), plain.last().copied())
        );
    }
}

#[test]
fn an_arena_keeps_a_row_while_it_is_held() {
    let rng = &mut Rng::with_seed(7);
    let (mut arena, mut held) = (RowArena::default(), BTreeMap::new());
    for _ in 0..5000 {
        let row = vec![rng.u8(0..40); rng.usize(0..30)];
        match held.get_mut(&row) {
            Some((id, count)) if rng.u8(0..3) > 0 => {
                assert_eq!(arena.find(&row), Some(*id));
                arena.release(*id);
                *count -= 1;
                if *count == 0 {
                    held.remove(&row);
                    assert_eq!(arena.find(&row), None);
                }
            }
            _ => {
                let id = arena.hold(&row);
                let entry = held.entry(row).or_insert((id, 0));
                assert_eq!(entry.0, id);
                entry.1 += 1;
            }
        }
    }
    arena.check();
    assert_eq!(arena.len(), held.len());
    assert!(held.iter().all(|(row, (id, _))| arena.get(*id) == row));
}

#[test]
fn decimals_are_shown_as_python_shows_them() {
    for (unscaled, scale, text) in [
        (150, 2, "1.50"),
        (-1, 2, "-0.01"),
        (0, 2, "0.00"),
        (0, 7, "0E-7"),
        (1, 7, "1E-7"),
        (-123, 9, "-1.23E-7"),
        (1, 6, "0.000001"),
        (7, 0, "7"),
    ] {
        assert_eq!(shown_decimal(unscaled, scale), text);
        assert_eq!(parsed_decimal(text, scale), Some(unscaled));
    }
    assert_eq!(parsed_decimal("1.005", 2), None);
    assert_eq!(parsed_decimal("1E+2", 1), Some(1000));
    assert_eq!(parsed_decimal("x", 1), None);
}

fn texts(schema: &Arc<RowSchema>, rows: &[&str], is_insert: bool) -> Batch {
    let at = |t: i64| vec![t; rows.len()].into();
    Batch {
        columns: vec![Arc::new(StringArray::from(rows.to_vec())) as ArrayRef],
        vs: at(1),
        old: at(if is_insert { 1 } else { 2 }),
        new: at(if is_insert { 2 } else { 1 }),
        ..Batch::empty(schema.clone())
    }
}

#[test]
fn a_table_with_a_column_that_is_too_long_is_named() {
    let schema = Arc::new(RowSchema {
        columns: vec![Column {
            name: "text".to_owned(),
            kind: Kind::String,
            nullable: false,
        }],
    });
    let mut table = ResultTable::new(schema.clone(), 12);
    table.apply(&texts(&schema, &["a", "bcd"], true)).unwrap();
    table.apply(&texts(&schema, &["bcd"], false)).unwrap();
    assert_eq!(table.events().unwrap().len(), 1);
    table.apply(&texts(&schema, &["efghi", "jklmno"], true)).unwrap();
    assert_eq!(table.events().unwrap().len(), 3, "twelve bytes are not too many");
    table.apply(&texts(&schema, &["p"], true)).unwrap();
    let Err(Failure::Limit(text)) = table.events() else {
        panic!("thirteen bytes are");
    };
    assert!(
        text.starts_with("the column \"text\" would have more than 12 bytes"),
        "{text}"
    );
}
