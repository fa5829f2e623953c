//! What a stable point costs: it does not visit what it does not change (law L9).
//!
//! A group or a key that a step looks at costs it memory for a moment, and its bytes do not depend on the machine.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use lmerge_temporal::operator::Operator;
use lmerge_temporal::operators::edges::Edges;
use lmerge_temporal::operators::join::{Join, JoinKind, PAIRS_MAX};
use lmerge_temporal::operators::join_side::JoinInput;
use lmerge_temporal::windows::WindowKind;

use crate::computed::count_sum_max;
use crate::windowed::{FORMS, by_ends, by_starts, hopping, query};
use crate::world::{Change, batch, first_column, form, schema};

/// The system's allocator, counting the bytes that each thread allocates.
struct Counting;

thread_local! {
    static ASKED: Cell<usize> = const { Cell::new(0) };
}

unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let _ = ASKED.try_with(|asked| asked.set(asked.get() + layout.size()));
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// The end of events, far behind the stable points.
const FAR: i64 = 1 << 40;

/// The bytes that a hundred stables allocate, with an event in each of some groups that they do not change.
fn asked(operator: &mut dyn Operator, groups: i64) -> usize {
    let open: Vec<Change> = (0..groups).map(|key| (vec![Some(key), Some(1)], 0, 0, FAR)).collect();
    let mut step = |changed: &[Change], stable: i64| {
        let inputs = vec![batch(2, changed, Some(stable)); operator.inputs()];
        let before = ASKED.get();
        operator.step(&inputs).unwrap();
        ASKED.get() - before
    };
    step(&open, 10);
    (20..120).map(|stable| step(&[], stable)).sum()
}

fn assert_is_flat(name: &str, make: impl Fn() -> Box<dyn Operator>) {
    let [few, many] = [10, 1_000].map(|groups| asked(&mut *make(), groups));
    assert!(
        many < few + 100,
        "{name}: {few} allocations, and {many} with more groups"
    );
}

#[test]
fn a_stable_point_does_not_visit_the_groups_of_windows() {
    for kind in [
        WindowKind::Snapshots,
        WindowKind::Sessions { gap: 1 },
        by_starts(2),
        by_ends(2),
        hopping(FAR, FAR, 0, None),
        hopping(FAR, FAR / 8, 0, None),
    ] {
        for form in FORMS {
            let make = || query(count_sum_max(), kind.clone(), form).operator();
            assert_is_flat(&format!("{kind:?} {form:?}"), || Box::new(make()));
        }
    }
}

#[test]
fn a_stable_point_does_not_visit_the_keys_of_joins_and_edges() {
    for kind in [JoinKind::Inner, JoinKind::Full, JoinKind::Anti] {
        let columns = if kind == JoinKind::Anti { 2 } else { 4 };
        let input = || JoinInput {
            form: form(2),
            key: first_column(2),
        };
        let inputs = || [input(), input()];
        assert_is_flat(&format!("{kind:?}"), || {
            Box::new(Join::new("it", schema(columns), kind, inputs(), None, PAIRS_MAX))
        });
    }
    assert_is_flat("edges", || {
        Box::new(Edges::new("it", schema(2), first_column(2), false, None))
    });
}
