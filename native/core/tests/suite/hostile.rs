//! Hostile batches in the ordinary test run: the search of `native/fuzz`, but at random instead of guided by coverage.

use fastrand::Rng;
use lmerge_core::columns::{Columns, Raw};
use lmerge_core::policy::LAZY;

use crate::generate::{Kinds, present, reference};
use crate::property::{holds, holds_for};
use crate::tdb::columns;

const RUNS: u64 = 4_000;

#[test]
fn random_bytes_break_nothing() {
    for seed in 0..RUNS {
        let mut random = Rng::with_seed(seed);
        let length = random.usize(0..400);
        let data: Vec<u8> = (0..length).map(|_| random.u8(..)).collect();
        holds_for(&data);
    }
}

#[test]
fn random_bytes_near_zero_break_nothing() {
    for seed in 0..RUNS {
        let mut random = Rng::with_seed(seed);
        let length = random.usize(0..200);
        let data: Vec<u8> = (0..length).map(|_| random.u8(0..4)).collect();
        holds_for(&data);
    }
}

/// One byte changed, inserted, removed, or a column cut off, left out or doubled.
fn mutate(random: &mut Rng, batch: &mut Columns) {
    let columns = [
        &mut batch.kinds,
        &mut batch.vs,
        &mut batch.ve,
        &mut batch.vold,
        &mut batch.ends,
        &mut batch.payloads,
    ];
    let column = random.choice(columns).expect("one of six");
    if column.is_empty() {
        column.push(random.u8(..));
        return;
    }
    let at = random.usize(0..column.len());
    match random.u8(0..8) {
        0 => column.truncate(at),
        1 => column.clear(),
        2 => column.insert(at, random.u8(..)),
        3 => {
            column.remove(at);
        }
        4 => column.extend_from_within(..),
        5 => column[at] = random.u8(..),
        6 => column[at] = column[at].wrapping_add(1),
        _ => column[at] ^= 1 << random.u8(0..8),
    }
}

#[test]
fn real_batches_with_some_bytes_changed_break_nothing() {
    for seed in 0..RUNS {
        let mut random = Rng::with_seed(seed);
        let count = random.usize(1..10);
        let events = reference(
            &mut random,
            count,
            Kinds {
                duplicates: true,
                strict: false,
            },
        );
        let mut batch = columns(&present(&mut random, &events));
        for _ in 0..random.usize(0..4) {
            mutate(&mut random, &mut batch);
        }
        let Columns {
            kinds,
            vs,
            ve,
            vold,
            ends,
            payloads,
        } = &batch;
        holds(
            &Raw {
                kinds,
                vs,
                ve,
                vold,
                ends,
                payloads,
            },
            LAZY,
        );
    }
}
