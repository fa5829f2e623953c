//! The entrance of streams: stable points, late changes, promises and live events.

use std::sync::Arc;

use arrow_array::{ArrayRef, Int64Array};
use fastrand::Rng;
use lmerge_temporal::batch::Batch;
use lmerge_temporal::entrance::{LatePolicy, ProgressRule, Promises, StreamEntrance};
use lmerge_temporal::failure::Failure;
use lmerge_temporal::{Column, INF, Kind, NEG_INF, RowSchema};

use crate::world::{StreamTable, changes, counted};

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
fn of_two_ends_of_an_event_the_one_at_the_stable_point_is_not_frozen() {
    // The adjust enters the events that came as columns: from there on their ends are in one node.
    let mut entrance = entrance(None, LatePolicy::Fail, Promises::default());
    let both = batch(&[(1, 1, 1, 4), (1, 1, 1, 6)]);
    entrance.take(&both, &[]).expect("legal");
    entrance.take(&batch(&[(1, 1, 6, 5)]), &[(1, 5)]).expect("legal");
    assert_eq!(entrance.live.len(), 1);
    entrance.take(&batch(&[(1, 1, 5, 9)]), &[]).expect("legal");
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
fn a_change_at_the_stable_point_is_in_time() {
    let new = |late| entrance(rule(0, 0, 0), late, Promises::default());
    let begun = batch(&[(1, 5, 5, 20), (1, 9, 9, 12)]);
    for late in [LatePolicy::Drop, LatePolicy::Move, LatePolicy::Fail] {
        let mut entrance = new(late);
        entrance.take(&begun, &[]).expect("in time");
        let found = entrance
            .take(&batch(&[(1, 5, 20, 9), (1, 9, 12, 9), (1, 9, 9, 10)]), &[])
            .expect("at the stable point, and not before it");
        assert_eq!(times(&found[0]), [(5, 20, 9), (9, 12, 9), (9, 9, 10)]);
        assert_eq!((entrance.dropped, entrance.moved), (0, 0));
    }
    for change in [(1, 8, 8, 11), (1, 5, 20, 8), (1, 5, 20, 5)] {
        let mut refusing = new(LatePolicy::Fail);
        refusing.take(&begun, &[]).expect("in time");
        assert_eq!(code(refusing.take(&batch(&[change]), &[])), ("late", None));
    }
    let mut moving = new(LatePolicy::Move);
    moving.take(&begun, &[]).expect("in time");
    let ended = moving.take(&batch(&[(1, 3, 3, 9)]), &[]).expect("a policy covers it");
    assert!(
        ended.iter().all(Batch::is_empty),
        "nothing is left of it at the stable point"
    );
    assert_eq!((moving.dropped, moving.moved), (1, 0));
}

/// A lifetime; None without one.
type Span = Option<(i64, i64)>;

/// The lifetime nearest to what a source wants of an event that has `actual`, at a stable point.
fn nearest(late: LatePolicy, stable: i64, vs: i64, actual: Span, new: i64) -> Span {
    let moves = late == LatePolicy::Move;
    match actual.filter(|(_, ve)| *ve >= stable) {
        // There is none, or it is past: what is wanted from the stable point on begins there.
        None if vs >= stable => (new > vs).then_some((vs, new)),
        None => (moves && new > stable).then_some((stable, new)),
        Some((start, _)) if new == vs && start >= stable => None,
        Some((start, ve)) if new < stable && !moves => Some((start, ve)),
        Some((start, _)) => {
            Some((start, if new == vs { start } else { new }.max(stable))).filter(|span| span.1 > start)
        }
    }
}

/// Each event has a row of its own, and its source adjusts it by what it has claimed.
#[test]
fn what_is_late_becomes_the_nearest_that_is_legal() {
    for seed in 0..600 {
        let rng = &mut Rng::with_seed(seed);
        let late = [LatePolicy::Drop, LatePolicy::Move][rng.usize(0..2)];
        let delay = rng.i64(0..4);
        let mut entrance = entrance(rule(delay, 0, 0), late, Promises::default());
        // By row: what the source has claimed, what it is, and what is past of it.
        let mut events: Vec<(i64, i64, Span)> = Vec::new();
        let (mut output, mut past, mut latest) = (StreamTable::new(), Vec::new(), NEG_INF);
        for _ in 0..rng.usize(2..30) {
            let stable = if latest == NEG_INF { NEG_INF } else { latest - delay };
            let (row, vs, old, new) = if events.is_empty() || rng.bool() {
                let vs = rng.i64(0..20);
                events.push((vs, vs, None));
                (events.len() - 1, vs, vs, vs + rng.i64(1..9))
            } else {
                let row = rng.usize(0..events.len());
                let (vs, claimed, _) = events[row];
                (row, vs, claimed, vs + rng.i64(0..9))
            };
            if new == old || (old == vs && events[row].2.is_some()) {
                continue;
            }
            let actual = events[row].2;
            let goal = nearest(late, stable, vs, actual, new);
            past.extend(actual.filter(|(_, ve)| *ve < stable).map(|span| (row, span)));
            events[row] = (vs, new, goal);
            latest = latest.max(vs);
            for batch in entrance
                .take(&batch(&[(row as i64, vs, old, new)]), &[])
                .expect("a policy covers it")
            {
                output.apply(&changes(&batch), batch.stable);
            }
            entrance.check();
        }
        let there = events
            .iter()
            .enumerate()
            .filter_map(|(row, event)| Some((row, event.2?)));
        let there = there
            .chain(past)
            .map(|(row, (vs, ve))| (vec![Some(row as i64)], vs, ve));
        assert_eq!(output.events, counted(there), "seed {seed}");
    }
}

#[test]
fn a_point_event_lasts_one_unit_of_time() {
    let points = Promises {
        has_points: true,
        ..Promises::default()
    };
    for end in [3, 6, INF] {
        let found = entrance(None, LatePolicy::Fail, points).take(&batch(&[(1, 4, 4, end)]), &[]);
        assert_eq!(code(found), ("no-point", None), "[4, {end})");
    }
    let mut entrance = entrance(None, LatePolicy::Fail, points);
    entrance.take(&batch(&[(1, 4, 4, 5)]), &[]).expect("a point");
    entrance.take(&batch(&[(1, 4, 5, 4)]), &[]).expect("its removal");
    assert_eq!(entrance.live.len(), 0);
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

/// Many inserts at once are kept as columns; one by one they are entered at once.
#[test]
fn live_events_do_not_depend_on_how_many_come_at_once() {
    let new = || entrance(rule(9, 0, 0), LatePolicy::Move, Promises::default());
    for seed in 0..300 {
        let mut rng = Rng::with_seed(seed);
        let (mut whole, mut single) = (new(), new());
        let mut now = 0;
        for _ in 0..6 {
            let mut given: Vec<Given> = Vec::new();
            for _ in 0..rng.usize(1..200) {
                now += rng.i64(0..2);
                let vs = now - rng.i64(0..9);
                let end = if rng.u8(0..9) == 0 { INF } else { vs + rng.i64(1..40) };
                given.push((rng.i64(0..4), vs, vs, end));
            }
            // The last one that lasts is revised before the others of its batch are due.
            if rng.bool() && given[given.len() - 1].3 == INF {
                let (row, vs, _, _) = given[given.len() - 1];
                given.push((row, vs, INF, now + 20));
            }
            whole.take(&batch(&given), &[]).expect("in time");
            for change in given {
                single.take(&batch(&[change]), &[]).expect("in time");
            }
            whole.check();
            assert_eq!(whole.live.len(), single.live.len(), "seed {seed}");
            if rng.bool() {
                assert_eq!(whole.state(), single.state(), "seed {seed}");
            }
        }
        let events = |entrance: &mut StreamEntrance| {
            let events = entrance.live.events();
            (times(&events), events.columns)
        };
        assert_eq!(events(&mut whole), events(&mut single), "seed {seed}");
    }
}

/// All are named in turn, so each was kept, and none twice.
#[test]
fn events_that_came_as_columns_can_be_adjusted() {
    let mut entrance = entrance(None, LatePolicy::Fail, Promises::default());
    let given: Vec<Given> = (0..200).map(|at| (at % 3, at, at, at + 50)).collect();
    entrance.take(&batch(&given), &[(200, 130)]).expect("legal");
    assert_eq!(entrance.live.len(), 120);
    assert_eq!(
        code(entrance.take(&batch(&[(79 % 3, 79, 129, 140)]), &[])).0,
        "below-stable"
    );
    for &(row, vs, _, end) in &given[80..] {
        entrance.take(&batch(&[(row, vs, end, 500)]), &[]).expect("it is there");
        assert_eq!(
            code(entrance.take(&batch(&[(row, vs, end, 500)]), &[])).0,
            "unknown-event"
        );
    }
    assert_eq!(entrance.live.len(), 120);
    entrance.check();
}
