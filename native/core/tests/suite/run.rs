//! Elements that are looked up together: a later one finds the node that an earlier one made.

use lmerge_core::merge::Kind;
use lmerge_core::policy::LAZY;

use crate::session::{ALL, Session};
use crate::tdb::{a, f, m};

#[test]
fn a_second_event_of_a_key_in_one_run_is_found() {
    let mut session = Session::of(Kind::R3, LAZY, ALL, 1, 1);
    let (elements, violation) = session.refuse(0, &[a("A", 1, 5), a("B", 1, 5), a("A", 1, 6)]);
    assert_eq!((violation.index, violation.code.name()), (2, "duplicate-key"));
    assert_eq!(elements, [a("A", 1, 5), a("B", 1, 5)]);
}

#[test]
fn an_adjust_finds_the_event_that_its_own_run_has_inserted() {
    for kind in [Kind::R3, Kind::R4] {
        let mut session = Session::of(kind, LAZY, ALL, 1, 1);
        session.deliver(0, &[a("A", 1, 5), m("A", 1, 5, 9), a("B", 2, 4), m("A", 1, 9, 7), f(8)]);
        let ends: Vec<i64> = session.events().iter().map(|event| event.ve).collect();
        assert_eq!(ends, [7, 4]);
    }
}

#[test]
fn runs_end_at_stables_and_go_on_behind_them() {
    for kind in [Kind::R3, Kind::R4] {
        let mut session = Session::of(kind, LAZY, ALL, 1, 1);
        let mut elements = Vec::new();
        for at in 0..200 {
            elements.push(a(&format!("{at}"), at, at + 3));
            if at % 7 == 0 {
                elements.push(f(at));
            }
        }
        session.deliver(0, &elements);
        assert_eq!(session.events().len(), 200);
    }
}
