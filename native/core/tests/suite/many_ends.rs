//! R4 where one (Vs, payload) has many events: an element may not cost a copy of all ends of its key.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use lmerge_core::element::Element;
use lmerge_core::merge::Kind;
use lmerge_core::policy::{Closing, Policy};
use lmerge_core::sharded::Sharded;

use crate::session::{EAGER, demands, quorum};
use crate::tdb::{a, columns, m};

/// The system's allocator, counting the bytes that each thread allocates.
struct Counting;

thread_local! {
    static ASKED: Cell<usize> = const { Cell::new(0) };
}

unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ASKED.with(|asked| asked.set(asked.get() + layout.size()));
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// Bytes that a merge allocates: two inputs have `count` different ends each, and one adjusts all of its own.
fn asked(count: i64, policy: Policy) -> usize {
    let mut merge = Sharded::new(Kind::R4, policy, Closing(None), false, 1);
    (0..2).for_each(|slot| merge.attach(slot, slot, demands(Kind::R4), None, false, true));
    let first: Vec<Element> = (0..count).map(|at| a("A", 0, 10_000 + 4 * at)).collect();
    let mut second: Vec<Element> = (0..count).map(|at| a("A", 0, 10_001 + 4 * at)).collect();
    second.extend((0..count).map(|at| m("A", 0, 10_001 + 4 * at, 10_002 + 4 * (count - at))));
    merge.apply(0, &columns(&first).view(), 0).expect("kept promises");
    let batch = columns(&second);
    let before = ASKED.get();
    merge.apply(1, &batch.view(), 0).expect("kept promises");
    ASKED.get() - before
}

#[test]
fn an_element_costs_no_copy_of_all_ends_of_its_key() {
    let adjusts = Policy {
        reflects_adjusts: true,
        ..quorum(1)
    };
    for policy in [EAGER, adjusts] {
        let (some, twice) = (asked(500, policy), asked(1000, policy));
        assert!(twice < 3 * some, "{some} bytes, then {twice}");
    }
}
