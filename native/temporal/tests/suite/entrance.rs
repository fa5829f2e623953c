//! The entrance of streams: stable points, late changes, promises and live events.

use std::sync::Arc;

use arrow_array::{ArrayRef, Int64Array};
use lmerge_temporal::batch::Batch;
use lmerge_temporal::entrance::{LatePolicy, ProgressRule, Promises, StreamEntrance};
use lmerge_temporal::failure::Failure;
use lmerge_temporal::{Column, INF, Kind, NEG_INF, RowSchema};

/// A change of row `row`.
type Given = (i64, i64, i64, i64);

fn schema() -> Arc<RowSchema> {
    let (name, kind, nullable) = ("k".to_owned(), Kind::Int, false);
    Arc::new(RowSchema {
        columns: vec![Column { name, kind, nullable }],
    })
}

fn entrance(rule: Option<ProgressRule>, late: LatePolicy, promises: Promises) -> StreamEntrance {
    StreamEntrance::new("s", "'s'", schema(), rule, late, promises)
}

fn rule(delay: i64, every: i64, events: i64) -> Option<ProgressRule> {
    Some(ProgressRule { delay, every, events })
}

fn batch(changes: &[Given]) -> Batch {
    let column: ArrayRef = Arc::new(Int64Array::from_iter_values(changes.iter().map(|change| change.0)));
    Batch {
        schema: schema(),
        columns: vec![column],
        vs: changes.iter().map(|change| change.1).collect(),
        old: changes.iter().map(|change| change.2).collect(),
        new: changes.iter().map(|change| change.3).collect(),
        stable: None,
        mark: None,
    }
}

fn times(batch: &Batch) -> Vec<(i64, i64, i64)> {
    (0..batch.len())
        .map(|at| (batch.vs[at], batch.old[at], batch.new[at]))
        .collect()
}

fn code(found: Result<Vec<Batch>, Failure>) -> (&'static str, Option<&'static str>) {
    match found {
        Err(Failure::Input(violation)) => (violation.code, violation.promise),
        other => panic!("{other:?} is no violation"),
    }
}

#[test]
fn a_declared_stream_is_cut_at_its_stables() {
    let mut entrance = entrance(None, LatePolicy::Fail, Promises::default());
    let input = batch(&[(1, 1, 1, 5), (1, 2, 2, 9), (1, 6, 6, 8)]);
    let found = entrance.take(&input, &[(2, 6), (2, 4), (3, 7)]).expect("legal");
    assert_eq!(found.iter().map(Batch::len).collect::<Vec<_>>(), [2, 1]);
    assert_eq!(
        found.iter().map(|batch| batch.stable).collect::<Vec<_>>(),
        [Some(6), Some(7)]
    );
    assert_eq!(
        found.iter().map(|batch| batch.mark).collect::<Vec<_>>(),
        [Some(2), Some(6)]
    );
    assert_eq!(times(&entrance.live.events()), [(2, 2, 9), (6, 6, 8)]);
    entrance.check();
}

#[test]
fn an_event_that_ends_at_the_stable_point_can_be_adjusted() {
    let mut entrance = entrance(None, LatePolicy::Fail, Promises::default());
    entrance
        .take(&batch(&[(1, 1, 1, 5), (1, 1, 1, 4)]), &[(2, 5)])
        .expect("legal");
    assert_eq!(entrance.live.len(), 1);
    entrance.take(&batch(&[(1, 1, 5, 9)]), &[]).expect("legal");
    assert_eq!(code(entrance.take(&batch(&[(1, 1, 5, 9)]), &[])).0, "unknown-event");
    assert_eq!(code(entrance.take(&batch(&[(1, 1, 9, 4)]), &[])).0, "below-stable");
    entrance.check();
}

#[test]
fn a_rule_makes_stable_points_behind_starts() {
    let stables = |rule, starts: &[i64]| {
        let mut entrance = entrance(rule, LatePolicy::Fail, Promises::default());
        let take = |&t: &i64| entrance.take(&batch(&[(1, t, t, 99)]), &[]).expect("in time")[0].stable;
        starts.iter().map(take).collect::<Vec<_>>()
    };
    let (some, none) = (Some::<i64>, None);
    assert_eq!(
        stables(rule(3, 0, 0), &[5, 9, 7, 12]),
        [some(2), some(6), none, some(9)]
    );
    assert_eq!(stables(rule(0, 2, 0), &[0, 1, 2, 3]), [some(0), none, some(2), none]);
    assert_eq!(stables(rule(0, 0, 2), &[0, 1, 2, 3]), [none, some(1), none, some(3)]);
}

#[test]
fn late_changes_are_dropped_moved_or_refused() {
    let input = batch(&[(1, 9, 9, 20), (1, 3, 3, 12), (1, 3, 3, 7), (1, 3, 12, 15)]);
    let mut moving = entrance(rule(0, 0, 0), LatePolicy::Move, Promises::default());
    let found = moving.take(&input, &[]).expect("a policy covers it");
    assert_eq!(times(&found[0]), [(9, 9, 20), (9, 9, 12), (9, 12, 15)]);
    assert_eq!((moving.dropped, moving.moved), (1, 2));
    let mut dropping = entrance(rule(0, 0, 0), LatePolicy::Drop, Promises::default());
    let found = dropping.take(&input, &[]).expect("a policy covers it");
    assert_eq!(times(&found[0]), [(9, 9, 20)]);
    assert_eq!((dropping.dropped, dropping.moved), (3, 0));
    let mut refusing = entrance(rule(0, 0, 0), LatePolicy::Fail, Promises::default());
    assert_eq!(code(refusing.take(&input, &[])), ("late", None));
}

#[test]
fn promises_are_checked() {
    let promised =
        |promises, changes: &[Given]| code(entrance(None, LatePolicy::Fail, promises).take(&batch(changes), &[]));
    let ordered = Promises {
        ordered: true,
        ..Promises::default()
    };
    let strictly_ordered = Promises {
        strictly_ordered: true,
        ..ordered
    };
    let key = Promises {
        key: true,
        ..Promises::default()
    };
    let points = Promises {
        has_points: true,
        ..Promises::default()
    };
    let insert_only = Promises {
        insert_only: true,
        ..Promises::default()
    };
    let twice = [(1, 4, 4, 9), (1, 4, 4, 8)];
    assert_eq!(
        promised(ordered, &[(1, 4, 4, 9), (1, 3, 3, 8)]),
        ("out-of-order", Some("ordered"))
    );
    assert_eq!(
        promised(strictly_ordered, &twice),
        ("out-of-order", Some("strictly-ordered"))
    );
    assert_eq!(promised(key, &twice), ("duplicate-key", Some("key")));
    assert_eq!(promised(points, &twice), ("no-point", None));
    let adjusted = [(1, 4, 4, 9), (1, 4, 9, 8)];
    assert_eq!(
        promised(insert_only, &adjusted),
        ("adjust-not-promised", Some("insert-only"))
    );
}

#[test]
fn at_the_end_the_watermark_is_the_last_finite_time() {
    let mut entrance = entrance(None, LatePolicy::Fail, Promises::default());
    let found = entrance
        .take(&batch(&[(1, 1, 1, 5), (2, 2, 2, INF)]), &[(2, INF)])
        .expect("legal");
    assert_eq!((found[0].stable, found[0].mark), (Some(INF), Some(5)));
    assert_eq!(entrance.live.len(), 0);
    entrance.check();
}

#[test]
fn a_restored_entrance_goes_on() {
    let new = || entrance(rule(0, 0, 0), LatePolicy::Move, Promises::default());
    let (mut one, mut other) = (new(), new());
    one.take(&batch(&[(1, 9, 9, 20), (1, 3, 3, 12), (1, 3, 3, 12)]), &[])
        .expect("a policy covers it");
    other.restore(&one.state()).expect("a state");
    assert_eq!(one.state(), other.state());
    assert!(one.watermark() > NEG_INF);
    for entrance in [&mut one, &mut other] {
        let found = entrance
            .take(&batch(&[(1, 3, 12, 10), (1, 3, 12, 11)]), &[])
            .expect("in time");
        assert_eq!(times(&found[0]), [(9, 12, 10), (9, 12, 11)]);
        entrance.check();
    }
    assert_eq!(one.state(), other.state());
}
