"""The statements of the paper: one test for each definition, example, table and theorem."""

from __future__ import annotations

import pytest
from core_world import a, emitted, f, m, merge_of

from lmerge.core.adapters import Close, Open, from_open_close, from_signed, to_open_close, to_signed
from lmerge.core.compatible import InputPrefix, incompatibilities
from lmerge.core.elements import INF, Element, Event, Insert, Stable, is_fully_frozen, is_half_frozen
from lmerge.core.merge import Merge
from lmerge.core.properties import Case, choose, parse_properties
from lmerge.core.tdb import Tdb, reconstitute
from lmerge.errors import InputViolation
from lmerge.testing.merges.declared import COPIES_PROMISES, R0_PROMISES, R1_PROMISES, R2_PROMISES
from lmerge.testing.oracle import chattiness

PHY1: list[Element] = [a("B", 8), a("A", 6, 12), m("B", 8, INF, 10), f(11), f(INF)]
PHY2: list[Element] = [a("A", 6, 7), a("B", 8, 15), m("A", 6, 7, 12), m("B", 8, 15, 10), f(INF)]


def test_example_1_the_two_physical_streams_of_table_1_have_its_logical_tdb() -> None:
    """I.A, Example 1, Table I."""
    table = [Event(6, b"A", 12), Event(8, b"B", 10)]
    assert reconstitute(PHY1) == reconstitute(PHY2) == table


def test_example_1_prefixes_need_not_be_equivalent() -> None:
    """I.A: "prefixes of the two physical streams are not always logically equivalent"."""
    assert reconstitute(PHY1[:1]) != reconstitute(PHY2[:1])


@pytest.mark.parametrize("algorithm", ["r3", "r4", "r3-"])
def test_example_1_merged_in_every_interleaving_is_table_1(algorithm: str) -> None:
    """I.B.2: f(11) is not passed on before A and B are adjusted."""
    from itertools import combinations

    for first in combinations(range(len(PHY1) + len(PHY2)), len(PHY1)):
        follow = merge_of(algorithm=algorithm)
        streams = {"1": list(PHY1), "2": list(PHY2)}
        for at in range(len(PHY1) + len(PHY2)):
            name = "1" if at in first else "2"
            follow.publish(name, streams[name].pop(0))
        assert follow.events() == reconstitute(PHY1)


def test_punctuation_f11_first_corrects_what_it_would_freeze() -> None:
    """I.B.2: a(A,6,7) and a(B,8,15) are out; f(11) may follow only their adjusts."""
    follow = merge_of()
    follow.publish("2", a("A", 6, 7), a("B", 8, 15))
    follow.publish("1", *PHY1[:3])
    assert emitted(follow, "1", f(11)) == [m("A", 6, 7, 12), m("B", 8, 15, 10), f(11)]


IN1 = [a("A", 6, 10), None, None, m("A", 6, 10, 15), None, f(16)]
IN2 = [None, a("A", 6, 12), a("B", 7, 14), None, m("A", 6, 12, 15), None]
TABLE_2 = {
    "eager": [[a("A", 6, 10)], [m("A", 6, 10, 12)], [a("B", 7, 14)], [m("A", 6, 12, 15)], [], [f(16)]],
    "final-only": [[], [], [], [], [], [a("A", 6, 15), a("B", 7, 14), f(16)]],
    "lazy": [[a("A", 6, 10)], [], [a("B", 7, 14)], [], [], [m("A", 6, 10, 15), f(16)]],
}


@pytest.mark.parametrize("algorithm", ["r3", "r4"])
@pytest.mark.parametrize("policy", TABLE_2)
def test_example_2_the_outputs_of_table_2(policy: str, algorithm: str) -> None:
    """I.B.6, Example 2, Table II: Out1 is eager, Out2 final-only, Out3 lazy.

    In2 freezes: the table shows f(16) without a column's name, and In1 never delivers B, so f(16) is In2's.
    """
    follow = merge_of(algorithm=algorithm, policy=policy)
    shown = []
    for one, two in zip(IN1[:-1], IN2[:-1], strict=True):
        name, element = ("1", one) if one else ("2", two)
        assert element is not None
        shown.append(emitted(follow, name, element))
    shown.append(emitted(follow, "2", f(16)))
    assert shown == TABLE_2[policy]


S5: list[Open | Close | Stable] = [Open(b"A", 1), Open(b"B", 2), Open(b"C", 3), Close(b"A", 4), Close(b"B", 5)]
U5 = [Open(b"A", 1), Close(b"A", 4), Open(b"B", 2), Close(b"B", 5), Open(b"C", 3)]
W6: list[Open | Close | Stable] = [
    Open(b"B", 2),
    Close(b"B", 6),
    Open(b"A", 1),
    Open(b"C", 3),
    Close(b"A", 4),
    Close(b"B", 5),
]
EXAMPLE_3 = [Event(1, b"A", 4), Event(2, b"B", 5), Event(3, b"C", INF)]


@pytest.mark.parametrize("stream", [S5, U5, W6], ids=["S[5]", "U[5]", "W[6]"])
def test_example_3_open_and_close_prefixes_are_equivalent(stream: list[Open | Close]) -> None:
    """III.A, Example 3; close(B, 5) in W[6] revises close(B, 6)."""
    assert reconstitute(from_open_close(stream)) == EXAMPLE_3


def test_example_3_a_tdb_as_open_close_and_as_signed_tuples_and_back() -> None:
    """III.A: I-/D-streams and positive/negative tuples are the same under other names."""
    assert reconstitute(from_open_close(to_open_close(EXAMPLE_3))) == EXAMPLE_3
    assert reconstitute(from_signed(to_signed(EXAMPLE_3))) == EXAMPLE_3


def test_example_4_an_open_close_output_is_compatible_if_it_is_a_subset_of_the_inputs() -> None:
    """III.C, Example 4: O[j] is in the union of the inputs; a merge of two halves follows both."""
    follow = merge_of()
    follow.publish("1", *from_open_close(S5[:3]))
    follow.publish("2", *from_open_close(W6[:1]))
    assert follow.events() == reconstitute(from_open_close(S5[:3]))


def test_example_5_adjusts_collapse_into_one_insert() -> None:
    """III.C, Example 5."""
    assert reconstitute([a("A", 6, 20), m("A", 6, 20, 30), m("A", 6, 30, 25)]) == reconstitute([a("A", 6, 25)])


def test_example_5_adjust_to_the_start_removes_the_event() -> None:
    """III.C, Example 5: if Ve = Vs, the event is removed."""
    assert reconstitute([a("A", 6, 20), m("A", 6, 20, 6)]) == []


@pytest.mark.parametrize(
    ("element", "code"),
    [
        (a("A", 9, 20), "insert-below-stable"),
        (m("B", 5, 12, 9), "adjust-below-stable"),
        (m("C", 5, 9, 12), "adjust-below-stable"),
        (m("B", 5, 13, 14), "unknown-event"),
        (a("A", 12, 11), "end-before-start"),
        (f(9), "stable-backwards"),
    ],
)
def test_example_5_what_stable_forbids(element: Element, code: str) -> None:
    """III.C, Example 5: no insert with Vs < Vc, no adjust with Vold < Vc or Ve < Vc."""
    tdb = Tdb()
    for legal in (a("B", 5, 12), f(10)):
        tdb.apply(legal)
    with pytest.raises(InputViolation) as caught:
        tdb.apply(element)
    assert caught.value.code == code


def test_example_5_stable_allows_its_own_boundary() -> None:
    """III.C: the inequalities are strict: Vs = Vc, Vold = Vc and Ve = Vc may still come."""
    tdb = Tdb()
    for element in (a("B", 5, 10), f(10), a("A", 10, 11), m("B", 5, 10, 12), m("B", 5, 12, 10)):
        tdb.apply(element)
    assert tdb.events() == [Event(5, b"B", 10), Event(10, b"A", 11)]


@pytest.mark.parametrize(("vs", "ve", "status"), [(10, 12, "UF"), (9, 10, "HF"), (9, 12, "HF"), (3, 9, "FF")])
def test_freezing_at_10(vs: int, ve: int, status: str) -> None:
    """III.C: HF Vs < Vc <= Ve; FF Ve < Vc; otherwise UF."""
    half, full = is_half_frozen(vs, ve, 10), is_fully_frozen(ve, 10)
    assert (half, full) == (status == "HF", status == "FF")


def tdb_of(last: int, *events: tuple[str, int, int]) -> Tdb:
    """Return a TDB with these events, stable at ``last``."""
    tdb = Tdb()
    for payload, vs, ve in events:
        tdb.apply(a(payload, vs, ve))
    tdb.apply(f(last))
    return tdb


I1 = tdb_of(14, ("A", 2, 16), ("B", 3, 10), ("C", 4, 18), ("D", 15, 20))
I2 = tdb_of(11, ("A", 2, 12), ("B", 3, 10), ("C", 4, 18), ("E", 17, 21))
O1 = tdb_of(11, ("A", 2, INF), ("B", 3, 10), ("C", 4, 18))
O2 = tdb_of(14, ("A", 2, 16), ("B", 3, 10), ("C", 4, 18), ("D", 15, 20), ("E", 17, 21))
O3 = tdb_of(13, ("A", 2, 12), ("C", 4, 18), ("D", 15, 20))
INPUTS = [InputPrefix("I1", I1), InputPrefix("I2", I2)]


def test_section_3d_o1_and_o2_are_compatible_with_i1_and_i2() -> None:
    """III.D, the tables. O1 prints C with Ve 8 and the mark HF; with last 11 only an end of at least 11 is HF, so the
    end is read as 18, what both inputs have."""
    assert incompatibilities(O1, INPUTS) == []
    assert incompatibilities(O2, INPUTS) == []


def test_section_3d_o3_is_not_compatible_for_the_two_reasons_given() -> None:
    """III.D: <A,2,12> is frozen against I1; <B,3,10> cannot be added any more."""
    problems = incompatibilities(O3, INPUTS)
    assert any("C2: A [2, 12)" in problem for problem in problems)
    assert any("C3: (B, Vs 3)" in problem for problem in problems)


def test_c1_the_output_is_never_ahead_of_every_input() -> None:
    """III.D, C1."""
    assert incompatibilities(tdb_of(15, ("A", 2, 16), ("B", 3, 10), ("C", 4, 18)), INPUTS)


def test_c2_at_most_one_event_per_key() -> None:
    """III.D, C2."""
    double = tdb_of(0, ("A", 2, 16), ("A", 2, 17))
    assert any(p.startswith("C2: the output has 2 events") for p in incompatibilities(double, INPUTS))


def test_c2_an_unfrozen_event_needs_no_support() -> None:
    """III.D, C2, first bullet: it can be removed."""
    assert not incompatibilities(tdb_of(2, ("Z", 2, 16)), INPUTS)


def test_c2_a_half_frozen_event_needs_an_input_that_is_not_behind() -> None:
    """III.D, C2, second bullet, read as L <= L_m (see the head of lmerge.core.compatible).

    The input's event is half frozen at 5 and can still end at 6; an output stable at 8 could not follow.
    """
    behind = [InputPrefix("x", tdb_of(5, ("A", 2, 9))), InputPrefix("y", tdb_of(8))]
    assert any(p.startswith("C2") for p in incompatibilities(tdb_of(8, ("A", 2, 9)), behind))
    ahead = [InputPrefix("x", tdb_of(8, ("A", 2, 9)))]
    assert not incompatibilities(tdb_of(5, ("A", 2, 9)), ahead)


def test_c3_a_half_frozen_event_must_be_there() -> None:
    """III.D, C3 case 2."""
    assert any(p.startswith("C3") for p in incompatibilities(tdb_of(14, ("B", 3, 10), ("C", 4, 18)), INPUTS))


def test_r4_form_of_compatibility_counts_frozen_and_half_frozen_events() -> None:
    """III.D, last paragraph."""
    prefixes = [InputPrefix("x", tdb_of(10, ("A", 2, 5), ("A", 2, 5), ("A", 2, 12)))]
    assert not incompatibilities(tdb_of(10, ("A", 2, 5), ("A", 2, 5), ("A", 2, 30)), prefixes, multiset=True)
    assert incompatibilities(tdb_of(10, ("A", 2, 5), ("A", 2, 30)), prefixes, multiset=True)
    assert incompatibilities(tdb_of(10, ("A", 2, 5), ("A", 2, 5)), prefixes, multiset=True)


def test_algorithm_r0_outputs_what_raises_max_vs() -> None:
    """IV.A."""
    follow = merge_of(promises=R0_PROMISES)
    assert follow.merge.algorithm == "r0"
    assert emitted(follow, "1", a("A", 1, 2), a("B", 2, 3)) == [a("A", 1, 2), a("B", 2, 3)]
    assert emitted(follow, "2", a("A", 1, 2), a("B", 2, 3), a("C", 3, 4)) == [a("C", 3, 4)]
    assert emitted(follow, "1", f(3)) == [f(3)]
    assert emitted(follow, "2", f(2), f(3)) == []


def test_algorithm_r1_counts_equal_vs() -> None:
    """IV.B."""
    follow = merge_of(promises=R1_PROMISES)
    assert follow.merge.algorithm == "r1"
    assert emitted(follow, "1", a("x", 5, 9), a("y", 5, 9)) == [a("x", 5, 9), a("y", 5, 9)]
    assert emitted(follow, "2", a("x", 5, 9)) == []
    assert emitted(follow, "2", a("y", 5, 9), a("z", 5, 9)) == [a("z", 5, 9)]
    assert emitted(follow, "1", a("z", 5, 9), a("z", 5, 9)) == [a("z", 5, 9)], "equal elements are counted too"


def test_algorithm_r2_hashes_equal_vs() -> None:
    """IV.C: equal Vs in different orders."""
    follow = merge_of(promises=R2_PROMISES)
    assert follow.merge.algorithm == "r2"
    assert emitted(follow, "1", a("x", 5, 9), a("y", 5, 9)) == [a("x", 5, 9), a("y", 5, 9)]
    assert emitted(follow, "2", a("z", 5, 9), a("y", 5, 9), a("x", 5, 9)) == [a("z", 5, 9)]


def test_algorithm_r3_line_6_a_late_insert_whose_node_has_gone_is_ignored() -> None:
    """IV.D line 6."""
    follow = merge_of()
    follow.publish("1", a("A", 2, 5), f(10))
    assert emitted(follow, "2", a("A", 2, 5)) == []
    assert follow.merge.inputs()[1].late == 1


def test_algorithm_r3_violation_case_1_an_event_the_freezing_input_lacks_is_removed() -> None:
    """IV.D, first kind of violation."""
    follow = merge_of()
    follow.compatible = False
    follow.publish("1", a("A", 2, 20))
    assert emitted(follow, "2", f(3)) == [m("A", 2, 20, 2), f(3)]


def test_algorithm_r3_violation_case_2_the_output_would_freeze_what_the_input_has_not() -> None:
    """IV.D, second kind."""
    follow = merge_of()
    follow.publish("1", a("A", 2, 7))
    follow.publish("2", a("A", 2, 12))
    assert emitted(follow, "2", f(8)) == [m("A", 2, 7, 12), f(8)]


def test_algorithm_r3_violation_case_3_the_input_freezes_what_the_output_has_not() -> None:
    """IV.D, third kind."""
    follow = merge_of()
    follow.publish("1", a("A", 2, 12))
    follow.publish("2", a("A", 2, 7))
    assert emitted(follow, "2", f(8)) == [m("A", 2, 12, 7), f(8)]


def test_algorithm_r3_an_open_difference_is_left_alone() -> None:
    """IV.D lines 22-23: neither end is below t, so no element is needed."""
    follow = merge_of()
    follow.publish("1", a("A", 2, 12))
    follow.publish("2", a("A", 2, 15))
    assert emitted(follow, "2", f(8)) == [f(8)]


def test_algorithm_r4_never_shows_more_than_the_input_with_most() -> None:
    """IV.E, first invariant."""
    follow = merge_of(algorithm="r4", promises=())
    assert emitted(follow, "1", a("A", 2, 9), a("A", 2, 9)) == [a("A", 2, 9), a("A", 2, 9)]
    assert emitted(follow, "2", a("A", 2, 9), a("A", 2, 9)) == []
    assert emitted(follow, "2", a("A", 2, 7)) == [a("A", 2, 7)]


def test_algorithm_r4_adjust_output_count_when_a_vs_becomes_half_frozen() -> None:
    """IV.E, second invariant, both directions: events are cancelled, or inserted."""
    follow = merge_of(algorithm="r4", promises=())
    follow.compatible = False
    follow.publish("1", a("A", 2, 9), a("A", 2, 12), a("A", 2, 15))
    follow.publish("2", a("A", 2, 9))
    assert emitted(follow, "2", f(3)) == [m("A", 2, 15, 2), m("A", 2, 12, 2), f(3)]
    held = merge_of(algorithm="r4", policy="half-frozen-only", promises=())
    held.publish("1", a("A", 2, 9), a("A", 2, 12))
    assert emitted(held, "1", f(3)) == [a("A", 2, 9), a("A", 2, 12), f(3)]


def test_algorithm_r4_adjust_output_when_an_end_becomes_fully_frozen() -> None:
    """IV.E, third invariant, cases (1) and (2)."""
    follow = merge_of(algorithm="r4", promises=())
    follow.publish("1", a("A", 2, 7), a("A", 2, 30))
    follow.publish("2", a("A", 2, 20), a("A", 2, 8))
    assert emitted(follow, "2", f(10)) == [m("A", 2, 7, 8), f(10)]
    assert emitted(follow, "2", f(21)) == [m("A", 2, 30, 20), f(21)]


@pytest.mark.parametrize(
    ("promises", "case"),
    [
        (R0_PROMISES, Case.R0),
        (R1_PROMISES, Case.R1),
        (R2_PROMISES, Case.R2),
        (("key",), Case.R3),
        ((), Case.R4),
        (COPIES_PROMISES, Case.R2),
        (("ordered", "key"), Case.R3),
    ],
)
def test_iv_g_the_case_follows_from_the_promises(promises: tuple[str, ...], case: Case) -> None:
    """III.C, IV.G.1."""
    assert choose({"a": parse_properties(promises)}).case is case


def test_iv_g_the_weakest_promise_decides_and_the_reason_names_it() -> None:
    """IV.G: properties of all inputs."""
    choice = choose({"a": parse_properties(R0_PROMISES), "b": parse_properties(("key",))})
    assert choice.case is Case.R3
    assert "'b'" in choice.reason
    assert "'a'" not in choice.reason


def test_v_a_half_frozen_only_never_removes() -> None:
    """V.A: "we never fully remove an element that we place on the output"."""
    follow = merge_of(policy="half-frozen-only")
    assert emitted(follow, "1", a("A", 2, 9), m("A", 2, 9, 2), a("B", 3, 9)) == []
    assert emitted(follow, "1", f(4)) == [a("B", 3, 9), f(4)]


def test_v_a_leading_input_only() -> None:
    """V.A: an insert is shown only if the input with the largest stable point delivers it."""
    follow = merge_of(policy="leading-input-only")
    follow.publish("2", f(0))
    assert emitted(follow, "1", a("A", 2, 9)) == []
    assert emitted(follow, "2", a("B", 2, 9), a("A", 2, 9)) == [a("B", 2, 9), a("A", 2, 9)]


def test_v_a_quorum_waits_for_k_inputs() -> None:
    """V.A: "wait until some fraction of the input streams have produced an element"."""
    follow = merge_of(inputs=3, policy="quorum:2")
    assert emitted(follow, "1", a("A", 2, 9)) == []
    assert emitted(follow, "2", a("A", 2, 9)) == [a("A", 2, 9)]
    assert emitted(follow, "3", a("A", 2, 9)) == []


def test_v_a_lag_saves_an_adjust() -> None:
    """III.D, V.A: "lagging a bit behind the maximum would avoid some adjust() elements"."""

    def run(policy: str) -> list[Element]:
        follow = merge_of(policy=policy)
        follow.publish("1", a("A", 2, 8))
        follow.publish("2", a("A", 2, 9), f(9))
        follow.publish("2", m("A", 2, 9, 12), m("A", 2, 12, 9))
        return follow.elements

    assert m("A", 2, 8, 9) in run("lazy")
    assert m("A", 2, 8, 9) not in run("lazy+lag:5")


def test_v_b_a_leaving_input_is_no_longer_considered() -> None:
    """V.B: events that only it supported are removed at the next stable."""
    follow = merge_of()
    follow.compatible = False
    follow.publish("1", a("A", 2, 9))
    follow.detach("1")
    assert emitted(follow, "2", f(5)) == [m("A", 2, 9, 2), f(5)]


def test_v_b_a_joining_input_has_joined_when_max_stable_reaches_its_time() -> None:
    """V.B."""
    follow = merge_of(1)
    follow.attach("2", ("key",), join_at=10)
    assert follow.merge.status("2").state == "joining"
    assert follow.publish("1", f(9)).joined == ()
    assert follow.publish("1", f(10)).joined == ("2",)
    assert follow.merge.status("2").state == "joined"


@pytest.mark.parametrize("promises", [R0_PROMISES, R1_PROMISES, R2_PROMISES])
def test_v_c_r0_to_r2_output_an_element_missing_on_one_input(promises: tuple[str, ...]) -> None:
    """V.C: if another input delivers it before that input delivers a higher Vs."""
    follow = merge_of(promises=promises)
    follow.compatible = False
    assert emitted(follow, "1", a("A", 1, 9)) == [a("A", 1, 9)]
    assert emitted(follow, "2", a("B", 2, 9), a("C", 3, 9)) == [a("B", 2, 9), a("C", 3, 9)]
    assert emitted(follow, "1", a("D", 4, 9)) == [a("D", 4, 9)]


def test_v_c_r1_keeps_an_element_that_the_other_missed_inside_a_slot() -> None:
    """V.C for R1: the listing's counters alone would drop y and double z."""
    follow = merge_of(promises=R1_PROMISES)
    follow.compatible = False
    follow.publish("1", a("x", 5, 9), a("z", 5, 9))
    assert emitted(follow, "2", a("x", 5, 9), a("y", 5, 9), a("z", 5, 9)) == [a("y", 5, 9)]


@pytest.mark.parametrize("algorithm", ["r3", "r4"])
def test_v_c_r3_and_r4_output_it_if_the_freezing_input_has_it(algorithm: str) -> None:
    """V.C: "as long as the stream that increases MaxStable beyond e.Vs produces element e"."""
    follow = merge_of(algorithm=algorithm)
    follow.compatible = False
    follow.publish("1", a("A", 2, 9))
    follow.publish("1", f(5))
    follow.publish("2", f(7))
    assert follow.events() == [Event(2, b"A", 9)], "a half-frozen event stays, whichever input lacks it later"
    follow.publish("2", f(INF))
    follow.publish("1", f(INF))
    assert follow.events() == [Event(2, b"A", 9)]


def test_theorem_1_as_printed_is_refuted_and_the_bound_that_holds_holds() -> None:
    """V.A, Theorem 1, and law 8: adjusts received count as well."""
    stream: list[Element] = [a("A", 0, 5), m("A", 0, 5, 20), f(6), m("A", 0, 20, 40), f(21)]
    follow = merge_of(1)
    follow.publish("1", *stream)
    inserts, adjusts, stables = chattiness(follow.elements)
    assert inserts + adjusts == 3 > 1, "more than the one insert received"
    assert inserts <= 1
    assert inserts + adjusts <= 3
    assert stables <= 2


def test_mutual_consistency_a_late_stream_may_skip_a_prefix() -> None:
    """III.B: "an input stream that starts late has a consistent prefix that was skipped over"."""
    merge = Merge()
    merge.attach("1", ("key",))
    from lmerge.core.batch import Batch

    merge.apply("1", Batch.of([Insert(b"A", 1, 3), Insert(b"B", 2, 30), Stable(10)]))
    merge.attach("2", ("key",), join_at=10)
    merge.detach("1")
    outcome = merge.apply("2", Batch.of([Insert(b"B", 2, 30), Stable(40)]))
    assert list(outcome.batch.elements()) == [Stable(40)]
