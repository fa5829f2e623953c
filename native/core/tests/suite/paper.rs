//! The statements of the paper about the algorithms: `tests/core/test_paper.py`.

use lmerge_core::element::{Element, INF};
use lmerge_core::merge::Kind;
use lmerge_core::policy::{LAZY, Policy};

use crate::session::{EAGER, FINAL_ONLY, HALF_FROZEN_ONLY, LEADING_INPUT_ONLY, Session, quorum};
use crate::tdb::{a, event, f, m, reconstitute};

const INDEXED: [Kind; 2] = [Kind::R3, Kind::R4];

fn phy1() -> Vec<Element> {
    vec![a("B", 8, INF), a("A", 6, 12), m("B", 8, INF, 10), f(11), f(INF)]
}

fn phy2() -> Vec<Element> {
    vec![a("A", 6, 7), a("B", 8, 15), m("A", 6, 7, 12), m("B", 8, 15, 10), f(INF)]
}

#[test]
fn example_1_merged_in_every_interleaving_is_table_1() {
    let table = [event("A", 6, 12), event("B", 8, 10)];
    assert_eq!(
        (reconstitute(&phy1()), reconstitute(&phy2())),
        (table.to_vec(), table.to_vec())
    );
    for kind in INDEXED {
        for order in (0_u32..1 << 10).filter(|order| order.count_ones() == 5) {
            let mut session = Session::new(kind, 2);
            let mut streams = [phy1(), phy2()];
            for at in 0..10 {
                let slot = (order >> at & 1) as usize;
                let element = streams[slot].remove(0);
                session.deliver(slot, &[element]);
            }
            assert_eq!(session.events(), table);
        }
    }
}

#[test]
fn f11_first_corrects_what_it_would_freeze() {
    for kind in INDEXED {
        let mut session = Session::new(kind, 2);
        session.deliver(1, &[a("A", 6, 7), a("B", 8, 15)]);
        session.deliver(0, &phy1()[..3]);
        assert_eq!(
            session.deliver(0, &[f(11)]),
            [m("A", 6, 7, 12), m("B", 8, 15, 10), f(11)]
        );
    }
}

#[test]
fn example_2_the_outputs_of_table_2() {
    let delivered = [
        (0, a("A", 6, 10)),
        (1, a("A", 6, 12)),
        (1, a("B", 7, 14)),
        (0, m("A", 6, 10, 15)),
        (1, m("A", 6, 12, 15)),
        (1, f(16)),
    ];
    let eager = [
        vec![a("A", 6, 10)],
        vec![m("A", 6, 10, 12)],
        vec![a("B", 7, 14)],
        vec![m("A", 6, 12, 15)],
        vec![],
        vec![f(16)],
    ];
    let last = vec![a("A", 6, 15), a("B", 7, 14), f(16)];
    let final_only = [vec![], vec![], vec![], vec![], vec![], last];
    let last = vec![m("A", 6, 10, 15), f(16)];
    let lazy = [vec![a("A", 6, 10)], vec![], vec![a("B", 7, 14)], vec![], vec![], last];
    for kind in INDEXED {
        for (policy, expected) in [(EAGER, &eager), (FINAL_ONLY, &final_only), (LAZY, &lazy)] {
            let mut session = Session::with_policy(kind, policy, 2);
            for ((slot, element), shown) in delivered.iter().zip(expected) {
                assert_eq!(
                    session.deliver(*slot, std::slice::from_ref(element)),
                    *shown,
                    "{kind:?}, {policy:?}"
                );
            }
        }
    }
}

#[test]
fn example_5_what_stable_forbids() {
    for kind in INDEXED {
        let refused = [
            (a("A", 9, 20), "insert-below-stable"),
            (m("B", 5, 12, 9), "adjust-below-stable"),
            (m("C", 5, 9, 12), "adjust-below-stable"),
            (m("B", 5, 13, 14), "unknown-event"),
            (a("A", 12, 11), "end-before-start"),
            (m("B", 14, 15, 13), "end-before-start"),
            (f(9), "stable-backwards"),
        ];
        for (element, code) in refused {
            let mut session = Session::new(kind, 1);
            session.deliver(0, &[a("B", 5, 12), f(10)]);
            let (emitted, violation) = session.refuse(0, &[element]);
            assert_eq!((emitted, violation.code.name()), (vec![], code));
        }
    }
}

#[test]
fn example_5_stable_allows_its_own_boundary() {
    for kind in INDEXED {
        let mut session = Session::new(kind, 1);
        session.deliver(
            0,
            &[
                a("B", 5, 10),
                f(10),
                a("A", 10, 11),
                m("B", 5, 10, 12),
                m("B", 5, 12, 10),
                f(INF),
            ],
        );
        assert_eq!(session.events(), [event("B", 5, 10), event("A", 10, 11)]);
    }
}

#[test]
fn example_5_adjust_to_the_start_removes_the_event() {
    for kind in INDEXED {
        let mut session = Session::new(kind, 1);
        session.deliver(0, &[a("A", 6, 20), m("A", 6, 20, 6), a("B", 6, 6)]);
        assert_eq!(session.deliver(0, &[f(7)]), [m("A", 6, 20, 6), f(7)]);
        assert_eq!((session.events(), session.merge.node_count()), (vec![], 0));
    }
}

#[test]
fn freezing_has_its_boundaries_where_the_paper_draws_them() {
    for kind in INDEXED {
        let mut session = Session::new(kind, 2);
        let delivered = [a("UF", 10, 12), a("HF", 9, 10), a("HF also", 9, 12), a("FF", 3, 9)];
        session.deliver(0, &delivered);
        session.deliver(0, &[f(10)]);
        assert_eq!(session.merge.node_count(), 3, "Ve < Vc: fully frozen and gone");
        // Half frozen, Vs < Vc <= Ve: the end may move, to Vc as well; unfrozen, Vs >= Vc: it may go.
        session.deliver(1, &delivered);
        session.deliver(1, &[m("HF", 9, 10, 11), m("HF also", 9, 12, 11), m("UF", 10, 12, 10)]);
        assert_eq!(
            session.deliver(1, &[f(11)]),
            [m("HF", 9, 10, 11), m("UF", 10, 12, 10), f(11)]
        );
        assert_eq!(session.merge.node_count(), 2, "an end at Vc itself is not frozen");
        assert_eq!(session.deliver(1, &[f(12)]), [m("HF also", 9, 12, 11), f(12)]);
        assert_eq!(session.merge.node_count(), 0);
    }
}

#[test]
fn algorithm_r0_outputs_what_raises_max_vs() {
    let mut session = Session::new(Kind::R0, 2);
    assert_eq!(
        session.deliver(0, &[a("A", 1, 2), a("B", 2, 3)]),
        [a("A", 1, 2), a("B", 2, 3)]
    );
    assert_eq!(
        session.deliver(1, &[a("A", 1, 2), a("B", 2, 3), a("C", 3, 4)]),
        [a("C", 3, 4)]
    );
    assert_eq!(session.deliver(0, &[f(3)]), [f(3)]);
    assert_eq!(session.deliver(1, &[f(2), f(3)]), []);
}

#[test]
fn algorithm_r1_counts_equal_vs() {
    let mut session = Session::new(Kind::R1, 2);
    assert_eq!(
        session.deliver(0, &[a("x", 5, 9), a("y", 5, 9)]),
        [a("x", 5, 9), a("y", 5, 9)]
    );
    assert_eq!(session.deliver(1, &[a("x", 5, 9)]), []);
    assert_eq!(session.deliver(1, &[a("y", 5, 9), a("z", 5, 9)]), [a("z", 5, 9)]);
    assert_eq!(
        session.deliver(0, &[a("z", 5, 9), a("z", 5, 9)]),
        [a("z", 5, 9)],
        "equal elements are counted too"
    );
}

#[test]
fn algorithm_r2_hashes_equal_vs() {
    let mut session = Session::new(Kind::R2, 2);
    assert_eq!(
        session.deliver(0, &[a("x", 5, 9), a("y", 5, 9)]),
        [a("x", 5, 9), a("y", 5, 9)]
    );
    assert_eq!(
        session.deliver(1, &[a("z", 5, 9), a("y", 5, 9), a("x", 5, 9)]),
        [a("z", 5, 9)]
    );
}

#[test]
fn algorithms_r0_to_r2_emit_nothing_below_max_stable() {
    for kind in [Kind::R0, Kind::R1, Kind::R2] {
        let mut session = Session::new(kind, 2);
        session.deliver(0, &[a("A", 1, 9), f(10)]);
        assert_eq!(session.deliver(1, &[a("B", 2, 9), a("C", 10, 12)]), [a("C", 10, 12)]);
        assert_eq!(session.late(1), 1);
    }
}

#[test]
fn algorithm_r3_line_6_a_late_insert_whose_node_has_gone_is_ignored() {
    for kind in INDEXED {
        let mut session = Session::new(kind, 2);
        session.deliver(0, &[a("A", 2, 5), f(10)]);
        assert_eq!(session.deliver(1, &[a("A", 2, 5), m("A", 2, 5, 7)]), []);
        assert_eq!(session.late(1), 2);
    }
}

#[test]
fn algorithm_r3_violation_case_1_an_event_the_freezing_input_lacks_is_removed() {
    for kind in INDEXED {
        let mut session = Session::new(kind, 2);
        session.deliver(0, &[a("A", 2, 20)]);
        assert_eq!(session.deliver(1, &[f(3)]), [m("A", 2, 20, 2), f(3)]);
    }
}

#[test]
fn algorithm_r3_violation_case_2_the_output_would_freeze_what_the_input_has_not() {
    for kind in INDEXED {
        let mut session = Session::new(kind, 2);
        session.deliver(0, &[a("A", 2, 7)]);
        session.deliver(1, &[a("A", 2, 12)]);
        assert_eq!(session.deliver(1, &[f(8)]), [m("A", 2, 7, 12), f(8)]);
    }
}

#[test]
fn algorithm_r3_violation_case_3_the_input_freezes_what_the_output_has_not() {
    for kind in INDEXED {
        let mut session = Session::new(kind, 2);
        session.deliver(0, &[a("A", 2, 12)]);
        session.deliver(1, &[a("A", 2, 7)]);
        assert_eq!(session.deliver(1, &[f(8)]), [m("A", 2, 12, 7), f(8)]);
    }
}

#[test]
fn algorithm_r3_an_open_difference_is_left_alone() {
    for kind in INDEXED {
        let mut session = Session::new(kind, 2);
        session.deliver(0, &[a("A", 2, 12)]);
        session.deliver(1, &[a("A", 2, 15)]);
        assert_eq!(session.deliver(1, &[f(8), f(12)]), [f(8), f(12)]);
        assert_eq!(session.deliver(1, &[f(13)]), [m("A", 2, 12, 15), f(13)]);
    }
}

#[test]
fn a_witness_decides_the_end_of_a_half_frozen_event_that_the_freezing_input_lacks() {
    for kind in INDEXED {
        let mut session = Session::new(kind, 3);
        session.deliver(0, &[a("A", 2, 9), f(5)]);
        session.deliver(1, &[a("A", 2, 7), f(4)]);
        assert_eq!(
            session.deliver(2, &[f(8)]),
            [f(8)],
            "of those that have it, the first is further"
        );
        assert_eq!(session.deliver(2, &[f(10)]), [f(10)]);
        let mut session = Session::new(kind, 3);
        session.deliver(0, &[a("A", 2, 9), f(4)]);
        session.deliver(1, &[a("A", 2, 7), f(5)]);
        assert_eq!(
            session.deliver(2, &[f(8)]),
            [m("A", 2, 9, 7), f(8)],
            "now the second is"
        );
    }
}

#[test]
fn a_half_frozen_event_that_no_input_contradicts_stays() {
    for kind in INDEXED {
        let mut session = Session::new(kind, 2);
        session.deliver(0, &[a("A", 2, 9), f(5)]);
        session.leave(0);
        assert_eq!(session.deliver(1, &[f(7), f(20)]), [f(7), f(20)]);
        assert_eq!(
            (session.events(), session.merge.node_count()),
            (vec![event("A", 2, 9)], 0)
        );
    }
}

#[test]
fn algorithm_r4_never_shows_more_than_the_input_with_most() {
    let mut session = Session::new(Kind::R4, 2);
    assert_eq!(
        session.deliver(0, &[a("A", 2, 9), a("A", 2, 9)]),
        [a("A", 2, 9), a("A", 2, 9)]
    );
    assert_eq!(session.deliver(1, &[a("A", 2, 9), a("A", 2, 9)]), []);
    assert_eq!(session.deliver(1, &[a("A", 2, 7)]), [a("A", 2, 7)]);
}

#[test]
fn algorithm_r4_adjust_output_count_when_a_vs_becomes_half_frozen() {
    let mut session = Session::new(Kind::R4, 2);
    session.deliver(0, &[a("A", 2, 9), a("A", 2, 12), a("A", 2, 15)]);
    session.deliver(1, &[a("A", 2, 9)]);
    assert_eq!(session.deliver(1, &[f(3)]), [m("A", 2, 15, 2), m("A", 2, 12, 2), f(3)]);
    let mut held = Session::with_policy(Kind::R4, HALF_FROZEN_ONLY, 1);
    assert_eq!(held.deliver(0, &[a("A", 2, 9), a("A", 2, 12)]), []);
    assert_eq!(held.deliver(0, &[f(3)]), [a("A", 2, 9), a("A", 2, 12), f(3)]);
}

#[test]
fn algorithm_r4_adjust_output_when_an_end_becomes_fully_frozen() {
    let mut session = Session::new(Kind::R4, 2);
    session.deliver(0, &[a("A", 2, 7), a("A", 2, 30)]);
    session.deliver(1, &[a("A", 2, 20), a("A", 2, 8)]);
    assert_eq!(session.deliver(1, &[f(10)]), [m("A", 2, 7, 8), f(10)]);
    assert_eq!(session.deliver(1, &[f(21)]), [m("A", 2, 30, 20), f(21)]);
}

#[test]
fn half_frozen_only_never_removes() {
    for kind in INDEXED {
        let mut session = Session::with_policy(kind, HALF_FROZEN_ONLY, 2);
        assert_eq!(session.deliver(0, &[a("A", 2, 9), m("A", 2, 9, 2), a("B", 3, 9)]), []);
        assert_eq!(session.deliver(0, &[f(4)]), [a("B", 3, 9), f(4)]);
    }
}

#[test]
fn leading_input_only_waits_for_the_leading_input() {
    for kind in INDEXED {
        let mut session = Session::with_policy(kind, LEADING_INPUT_ONLY, 2);
        session.deliver(1, &[f(0)]);
        assert_eq!(session.deliver(0, &[a("A", 2, 9)]), []);
        assert_eq!(
            session.deliver(1, &[a("B", 2, 9), a("A", 2, 9)]),
            [a("B", 2, 9), a("A", 2, 9)]
        );
    }
}

#[test]
fn a_quorum_waits_for_k_inputs() {
    for kind in INDEXED {
        let mut session = Session::with_policy(kind, quorum(2), 3);
        assert_eq!(session.deliver(0, &[a("A", 2, 9)]), []);
        assert_eq!(session.deliver(1, &[a("A", 2, 9)]), [a("A", 2, 9)]);
        assert_eq!(session.deliver(2, &[a("A", 2, 9)]), []);
    }
}

#[test]
fn a_lag_saves_an_adjust() {
    for kind in INDEXED {
        for (lag, is_emitted) in [(0, true), (5, false)] {
            let mut session = Session::with_policy(kind, Policy { lag, ..LAZY }, 2);
            session.deliver(0, &[a("A", 2, 8)]);
            session.deliver(1, &[a("A", 2, 9), f(9), m("A", 2, 9, 12), m("A", 2, 12, 9)]);
            assert_eq!(session.emitted.contains(&m("A", 2, 8, 9)), is_emitted);
        }
    }
}

#[test]
fn final_only_shows_what_never_ends_at_the_end() {
    for kind in INDEXED {
        let mut session = Session::with_policy(kind, FINAL_ONLY, 1);
        assert_eq!(
            session.deliver(0, &[a("A", 2, INF), a("B", 3, 9), f(10)]),
            [a("B", 3, 9), f(2)]
        );
        assert_eq!(session.deliver(0, &[f(INF)]), [a("A", 2, INF), f(INF)]);
    }
}

#[test]
fn a_leaving_input_is_no_longer_considered() {
    for kind in INDEXED {
        let mut session = Session::new(kind, 2);
        session.deliver(0, &[a("A", 2, 9)]);
        session.leave(0);
        assert_eq!(session.deliver(1, &[f(5)]), [m("A", 2, 9, 2), f(5)]);
    }
}

#[test]
fn r0_to_r2_output_an_element_missing_on_one_input() {
    for kind in [Kind::R0, Kind::R1, Kind::R2] {
        let mut session = Session::new(kind, 2);
        assert_eq!(session.deliver(0, &[a("A", 1, 9)]), [a("A", 1, 9)]);
        assert_eq!(
            session.deliver(1, &[a("B", 2, 9), a("C", 3, 9)]),
            [a("B", 2, 9), a("C", 3, 9)]
        );
        assert_eq!(session.deliver(0, &[a("D", 4, 9)]), [a("D", 4, 9)]);
    }
}

#[test]
fn r1_keeps_an_element_that_the_other_missed_inside_a_slot() {
    let mut session = Session::new(Kind::R1, 2);
    session.deliver(0, &[a("x", 5, 9), a("z", 5, 9)]);
    assert_eq!(
        session.deliver(1, &[a("x", 5, 9), a("y", 5, 9), a("z", 5, 9)]),
        [a("y", 5, 9)]
    );
}

#[test]
fn theorem_1_with_the_bound_that_holds() {
    for kind in INDEXED {
        let mut session = Session::new(kind, 1);
        let delivered = [a("A", 0, 5), m("A", 0, 5, 20), f(6), m("A", 0, 20, 40), f(21)];
        assert_eq!(
            session.deliver(0, &delivered),
            [a("A", 0, 5), m("A", 0, 5, 20), f(6), m("A", 0, 20, 40), f(21)]
        );
    }
}
