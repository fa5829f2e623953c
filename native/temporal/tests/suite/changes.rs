//! The smallest changes, and the order of an output.

use fastrand::Rng;
use lmerge_temporal::changes::{Change, settled};
use lmerge_temporal::settle;

use crate::world::{batch, changes, form};

/// Random changes of few rows, most of them to the same events.
fn random_changes(rng: &mut Rng) -> Vec<(Vec<Option<i64>>, i64, i64, i64)> {
    let one = |rng: &mut Rng| {
        let (row, vs) = (
            vec![Some(rng.i64(0..2)), [None, Some(3)][rng.usize(0..2)]],
            rng.i64(0..3),
        );
        (row, vs, vs + rng.i64(0..3), vs + rng.i64(0..3))
    };
    (0..rng.usize(0..12)).map(|_| one(rng)).collect()
}

#[test]
fn columns_and_single_changes_are_settled_in_the_same_way() {
    for seed in 0..2000 {
        let all = random_changes(&mut Rng::with_seed(seed));
        let batch = batch(2, &all, None);
        let form = form(2);
        let rows = form.encode(&batch.columns);
        let single = all
            .iter()
            .zip(0..)
            .map(|(&(_, vs, old, new), row)| Change { row, vs, old, new })
            .collect();
        let expected = settled(single, |&one: &usize, &other| rows.row(one).cmp(&rows.row(other)));
        let expected: Vec<_> = expected
            .into_iter()
            .map(|one| (all[one.row].0.clone(), one.vs, one.old, one.new))
            .collect();
        assert_eq!(changes(&settle::settled(batch, &form)), expected);
    }
}

#[test]
fn inserts_of_one_row_and_start_are_in_the_order_of_their_ends() {
    let row = vec![Some(0), Some(3)];
    let inserts = |ends: [i64; 2]| ends.map(|end| (row.clone(), 1, 1, end)).to_vec();
    let found = settle::settled(batch(2, &inserts([6, 4]), None), &form(2));
    assert_eq!(changes(&found), inserts([4, 6]));
}

#[test]
fn what_cancels_is_not_emitted() {
    let change = |old, new| Change {
        row: 0,
        vs: 1,
        old,
        new,
    };
    let order = |one: &i32, other: &i32| one.cmp(other);
    assert_eq!(settled(vec![change(1, 5), change(5, 1)], order), []);
    assert_eq!(settled(vec![change(5, 1), change(1, 7)], order), [change(5, 7)]);
    assert_eq!(
        settled(vec![change(1, 9), change(1, 7), change(4, 1)], order),
        [change(4, 7), change(1, 9)]
    );
    assert_eq!(
        settled(vec![change(5, 1), change(5, 7)], order),
        [change(5, 1), change(5, 7)]
    );
}
