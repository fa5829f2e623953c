"""The rules in SQL against the core and against a definition, which judge element by element, on corrupted streams."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise, permutations, product
from random import Random

import pytest
from validation_world import broken_rules, corrupted, found, judged, tie_faults

from lmerge.core import violations
from lmerge.core.batch import Batch
from lmerge.core.elements import INF, NEG_INF, Adjust, Element, Event, Insert, Stable
from lmerge.core.engines.selection import PYTHON
from lmerge.core.merge import Merge
from lmerge.core.merge_config import MergeConfig
from lmerge.core.properties import PROPERTY_NAMES
from lmerge.core.tdb import Tdb
from lmerge.errors import InputViolation
from lmerge.testing.streams.merge_inputs import ordered, present, reference
from lmerge.testing.validation.element_table import stream_of
from lmerge.testing.validation.final_events import events_of
from lmerge.testing.validation.report import RecordedVerdict, validated
from lmerge.testing.validation.rules import FAULTS_SHOWN, RULES

A, B = b"A", b"B"
LEGALITY = {"end-before-start", "insert-below-stable", "adjust-below-stable", "stable-backwards", "unknown-event"}


def random_streams(seed: int, count: int, *, faults: int) -> list[list[Element]]:
    """Return streams of one small table each: half of multisets in disorder, half in order and without adjusts."""
    random = Random(seed)
    streams = []
    for number in range(count):
        events = reference(random, 25, payloads=2, duplicates=number % 4 == 0)
        stream = ordered(random, events, ties="shuffled") if number % 2 else present(random, events)
        streams.append(corrupted(random, stream, random.randint(1, 3)) if faults else stream)
    return streams


def verdicts_of(streams: Sequence[Sequence[Element]], *promises: str) -> list[RecordedVerdict]:
    return validated([stream_of(stream, promises=frozenset(promises)) for stream in streams])


def violation_of(stream: Sequence[Element]) -> InputViolation | None:
    """Return the first fault of a stream by the core."""
    table = Tdb()
    try:
        table.apply_batch(Batch.of(stream))
    except InputViolation as violation:
        return violation
    return None


def test_legal_streams_have_no_fault() -> None:
    streams = random_streams(1, 60, faults=0)
    for stream, verdict in zip(streams, verdicts_of(streams), strict=True):
        assert violation_of(stream) is None
        assert (verdict.is_legal, verdict.faults) == (True, [])


def test_the_first_fault_is_the_one_that_the_core_finds_with_the_same_message() -> None:
    streams = random_streams(2, 300, faults=3)
    codes = set()
    for stream, verdict in zip(streams, verdicts_of(streams), strict=True):
        violation = violation_of(stream)
        if violation is None:
            assert verdict.is_legal
            continue
        first = verdict.faults[0]
        assert (first.place, first.code) == (violation.index + 1, violation.code)
        assert (first.element, first.promised, first.came) == (violation.element, violation.promised, violation.came)
        codes.add(first.code)
    assert codes == LEGALITY


def test_every_fault_is_one_by_definition_and_none_is_left_out() -> None:
    """V5 (6.3): the verifier is SQL over a table of elements."""
    promises = ("insert-only", "ordered", "key")
    streams = random_streams(3, 200, faults=3)
    codes = set()
    for stream, verdict in zip(streams, verdicts_of(streams, *promises), strict=True):
        expected = broken_rules(stream, promises)
        assert verdict.fault_count == len(expected)
        assert (
            sorted(found(verdict.faults))[: FAULTS_SHOWN // 2]
            == sorted((broken.place, broken.code) for broken in expected)[: FAULTS_SHOWN // 2]
        )
        came = {fault.place: fault.came for fault in verdict.faults if fault.code == "unknown-event"}
        for broken in expected:
            if broken.code == "unknown-event" and broken.place in came:
                known = violations.known_live_ends(list(broken.ends))
                assert came[broken.place] == f"for this payload and Vs it has {known}"
        codes |= {broken.code for broken in expected}
    assert codes == LEGALITY | {"adjust-not-promised", "out-of-order", "duplicate-key"}


@pytest.mark.parametrize("promises", [("insert-only", "strictly-ordered"), ("insert-only", "ordered"), ("key",)])
def test_what_a_merge_ends_an_input_for_is_a_fault_here_with_the_same_message(promises: tuple[str, ...]) -> None:
    """A merge judges only what its algorithm needs, so it can miss an earlier fault."""
    streams = random_streams(4, 120, faults=3)
    ended = 0
    for stream, verdict in zip(streams, verdicts_of(streams, *promises), strict=True):
        merge = Merge(MergeConfig(engine=PYTHON))
        merge.attach("stream", promises)
        detached = merge.apply("stream", Batch.of(stream)).detached
        for violation in [one.violation for one in detached if one.violation is not None]:
            same = [f for f in verdict.faults if (f.place, f.code) == (violation.index + 1, violation.code)]
            if len(verdict.faults) < FAULTS_SHOWN or same:
                assert [(f.element, f.promised) for f in same] == [(violation.element, violation.promised)]
                ended += 1
    assert ended > 60


@pytest.mark.parametrize(
    ("stream", "promises", "expected"),
    [
        ([Insert(A, 5, 4)], (), [(1, "end-before-start")]),
        ([Insert(A, 5, 5)], (), []),
        ([Insert(A, 5, 9), Adjust(A, 5, 9, 4)], (), [(2, "end-before-start")]),
        ([Insert(A, 5, 9), Adjust(A, 5, 9, 5)], (), []),
        ([Stable(5), Insert(A, 5, 9)], (), []),
        ([Stable(5), Insert(A, 4, 9)], (), [(2, "insert-below-stable")]),
        ([Insert(A, 1, 9), Stable(5), Adjust(A, 1, 9, 5)], (), []),
        ([Insert(A, 1, 9), Stable(5), Adjust(A, 1, 9, 4)], (), [(3, "adjust-below-stable")]),
        ([Insert(A, 1, 5), Stable(5), Adjust(A, 1, 5, 7)], (), []),
        ([Insert(A, 1, 4), Stable(5), Adjust(A, 1, 4, 7)], (), [(3, "adjust-below-stable")]),
        ([Stable(5), Stable(5)], (), []),
        ([Stable(5), Stable(4)], (), [(2, "stable-backwards")]),
        ([Stable(INF), Stable(INF), Insert(A, INF, INF)], (), []),
        ([Stable(INF), Insert(A, INF - 1, INF)], (), [(2, "insert-below-stable")]),
        ([Stable(NEG_INF), Insert(A, NEG_INF, INF)], (), []),
        ([Adjust(A, 1, 5, 6)], (), [(1, "unknown-event")]),
        ([Adjust(A, 1, 5, 5)], (), [(1, "unknown-event")]),
        ([Insert(A, 1, 1), Adjust(A, 1, 1, 6)], (), [(2, "unknown-event")]),
        ([Adjust(A, 1, 5, 6), Insert(A, 1, 5)], (), [(1, "unknown-event")]),
        ([Insert(A, 1, 5), Adjust(A, 1, 5, 5), Adjust(A, 1, 5, 6)], (), []),
        ([Insert(A, 1, 5), Adjust(A, 1, 5, 6), Adjust(A, 1, 5, 6)], (), [(3, "unknown-event")]),
        ([Insert(A, 1, 5), Adjust(B, 1, 5, 6)], (), [(2, "unknown-event")]),
        ([Insert(A, 1, 5), Adjust(A, 2, 5, 6)], (), [(2, "unknown-event")]),
        ([Insert(A, 1, 5), Insert(A, 1, 5), Adjust(A, 1, 5, 1), Adjust(A, 1, 5, 1)], (), []),
        ([Insert(A, 1, 5), Adjust(A, 1, 5, 6)], ("insert-only",), [(2, "adjust-not-promised")]),
        ([Insert(A, 2, 5), Insert(B, 2, 5), Insert(A, 1, 5)], ("ordered",), [(3, "out-of-order")]),
        ([Insert(A, 2, 5), Insert(A, 3, 5), Insert(B, 3, 5)], ("strictly-ordered",), [(3, "out-of-order")]),
        ([Insert(A, 1, 5), Insert(A, 1, 6)], ("key",), [(2, "duplicate-key")]),
        ([Insert(A, 1, 5), Insert(A, 1, 1), Insert(B, 1, 5), Insert(A, 2, 5)], ("key",), []),
        ([Insert(A, 1, 5), Adjust(A, 1, 5, 1), Insert(A, 1, 6)], ("key",), []),
        ([Insert(A, 1, 5), Insert(A, 1, 6)], (), []),
    ],
)
def test_each_rule_holds_to_the_unit(
    stream: list[Element], promises: tuple[str, ...], expected: list[tuple[int, str]]
) -> None:
    """P1 (6.3): at the stable point itself everything is allowed; one unit before it is not."""
    assert found(judged(stream, *promises).faults) == expected
    assert [(broken.place, broken.code) for broken in broken_rules(stream, promises)] == expected


def test_every_short_stream_has_the_faults_of_the_definition() -> None:
    alphabet: list[Element] = [
        Insert(A, 1, 3), Insert(A, 1, 2), Adjust(A, 1, 3, 2), Adjust(A, 1, 2, 3), Adjust(A, 1, 2, 1), Stable(2)
    ]  # fmt: skip
    streams = [list(stream) for stream in product(alphabet, repeat=3)]
    for stream, verdict in zip(streams, verdicts_of(streams, "key"), strict=True):
        assert found(verdict.faults) == [(broken.place, broken.code) for broken in broken_rules(stream, ("key",))]


def test_a_fault_names_the_stable_that_was_ignored() -> None:
    verdict = judged([Stable(3), Stable(5), Insert(B, 5, 9), Stable(5), Insert(A, 4, 9), Stable(2)])
    assert [(fault.place, fault.because) for fault in verdict.faults] == [(5, 2), (6, 2)]
    assert verdict.faults[0].promised == "no insert below its own stable(5)"
    assert judged([Adjust(A, 1, 5, 6)]).faults[0].because is None


def test_after_an_unknown_event_the_event_ends_where_the_adjust_put_it() -> None:
    verdict = judged([Adjust(A, 1, 5, 7), Adjust(A, 1, 7, 8), Adjust(A, 1, 5, 9), Insert(A, 1, 5)])
    assert found(verdict.faults) == [(1, "unknown-event"), (3, "unknown-event")]
    assert [fault.came[-len("ends [8]") :] for fault in verdict.faults] == ["ve event", "ends [8]"]
    assert verdict.events == 3
    stream = stream_of([Adjust(A, 1, 5, 7), Insert(A, 1, 5)])
    assert events_of(stream) == [Event(1, A, 5), Event(1, A, 7)]


def test_an_unknown_event_is_explained_by_the_live_ones() -> None:
    """As the core does: each as often as it is there, and without those that are frozen."""
    stream: list[Element] = [
        Insert(A, 1, 4),
        Insert(A, 1, 9),
        Insert(A, 1, 9),
        Insert(A, 1, 5),
        Stable(5),
        Adjust(A, 1, 7, 8),
    ]
    violation = violation_of(stream)
    assert violation is not None
    (fault,) = judged(stream).faults
    assert fault.came == violation.came == "for this payload and Vs it has ends [5, 9, 9]"
    assert judged([Insert(A, 1, 4), Stable(5), Adjust(A, 1, 7, 8)]).faults[0].came.endswith(" it has no live event")


def test_of_many_faults_the_first_are_kept_and_all_are_counted() -> None:
    stream: list[Element] = [Stable(50), *(Insert(A, at, 60) for at in range(45)), *(Adjust(B, 1, 60, 70),) * 3]
    verdict = judged(stream, "insert-only")
    assert verdict.fault_count == 45 + 1 + 2 + 3
    assert found(verdict.faults) == [(place, "insert-below-stable") for place in range(2, FAULTS_SHOWN + 2)]


def test_promises_are_judged_by_name_and_those_that_are_implied_too() -> None:
    verdict = judged([Insert(A, 1, 5), Insert(A, 1, 6)], "strictly-ordered")
    assert verdict.promises == {
        "ordered": True, "strictly-ordered": False, "deterministic-ties": True, "key": False
    }  # fmt: skip
    assert found(verdict.faults) == [(2, "out-of-order"), (2, "duplicate-key")]
    assert verdict.faults[0].came == "Vs is 1 after 1"


def test_rules_are_judged_only_for_the_streams_that_promise_them() -> None:
    stream: list[Element] = [Insert(A, 2, 5), Insert(A, 1, 5), Adjust(A, 1, 5, 6), Insert(A, 1, 7)]
    names = [frozenset[str](), *(frozenset({name}) for name in PROPERTY_NAMES)]
    verdicts = validated([stream_of(stream, promises=name) for name in names])
    counts = {min(name, default=""): verdict.fault_count for name, verdict in zip(names, verdicts, strict=True)}
    # strictly-ordered implies key: two elements out of order, one duplicate
    assert counts == {
        "": 0, "insert-only": 1, "ordered": 2, "strictly-ordered": 3, "deterministic-ties": 0, "key": 1
    }  # fmt: skip


def test_every_code_is_tested_here() -> None:
    tested = LEGALITY | {"adjust-not-promised", "out-of-order", "duplicate-key", "ties-differ"}
    assert {rule.code for rule in RULES} == tested


# The order of equal Vs.


def test_another_order_of_equal_starts_is_found_pair_by_pair() -> None:
    abc: list[Element] = [Insert(payload, 1, 5) for payload in (A, B, b"C")]
    orders = [list(order) for order in permutations(abc)]
    streams: list[list[Element]] = [*orders, [abc[2], Stable(1)], [abc[0], abc[2]]]
    verdicts = verdicts_of(streams, "deterministic-ties")
    places = [(at, fault.place) for at, verdict in enumerate(verdicts) for fault in verdict.faults]
    assert sorted(places) == tie_faults(streams)
    assert (1, 2) in places
    assert {fault.code for verdict in verdicts for fault in verdict.faults} == {"ties-differ"}
    assert not verdicts[1].promises["deterministic-ties"]


def test_an_element_that_was_missed_is_no_other_order() -> None:
    one = [Insert(A, 1, 5), Insert(B, 1, 5), Insert(b"C", 1, 5), Insert(A, 2, 5)]
    for kept in range(16):
        other = [element for at, element in enumerate(one) if kept >> at & 1]
        assert all(verdict.is_legal for verdict in verdicts_of([one, other], "deterministic-ties"))


def test_elements_that_come_twice_are_no_evidence_of_an_order() -> None:
    a, b = Insert(A, 1, 5), Insert(B, 1, 5)
    for one, other in ([a, b, a], [b, a]), ([b, a], [a, b, a]), ([a, a, b], [b, a]):
        assert all(verdict.is_legal for verdict in verdicts_of([one, other], "deterministic-ties"))


def test_starts_that_differ_and_events_that_are_none_have_no_order() -> None:
    one = [Insert(A, 1, 5), Insert(B, 2, 5), Insert(A, 3, 3), Insert(B, 3, 3)]
    other = [Insert(B, 2, 5), Insert(A, 1, 5), Insert(B, 3, 3), Insert(A, 3, 3)]
    assert all(verdict.is_legal for verdict in verdicts_of([one, other], "deterministic-ties"))


def test_only_streams_that_promise_an_order_are_compared() -> None:
    one = stream_of([Insert(A, 1, 5), Insert(B, 1, 5)], promises=frozenset({"deterministic-ties"}))
    other = stream_of([Insert(B, 1, 5), Insert(A, 1, 5)])
    assert all(verdict.is_legal for verdict in [*validated([one, other]), *validated([other, one])])
    assert found(validated([one, stream_of([Insert(B, 1, 5), Insert(A, 1, 5)], promises=one.promises)])[1].faults) == [
        (1, "ties-differ")
    ]


def test_another_order_under_an_implied_promise_is_found() -> None:
    one, other = [Insert(A, 1, 5), Insert(B, 1, 5)], [Insert(B, 1, 5), Insert(A, 1, 5)]
    verdicts = verdicts_of([one, other], "strictly-ordered")
    assert [found(verdict.faults) for verdict in verdicts] == [
        [(2, "out-of-order")],
        [(1, "ties-differ"), (2, "out-of-order")],
    ]


def test_random_orders_have_the_faults_of_the_definition() -> None:
    random = Random(5)
    for _ in range(12):
        events = reference(random, 12, step_max=1, duplicates=random.random() < 0.3)
        streams = [ordered(random, events, ties="shuffled") for _ in range(3)]
        streams = [[e for e in stream if random.random() < 0.9] for stream in streams]
        verdicts = verdicts_of(streams, "deterministic-ties")
        places = [(at, fault.place) for at, verdict in enumerate(verdicts) for fault in verdict.faults]
        assert sorted(places) == tie_faults(streams)


def test_a_verdict_counts_elements_and_events() -> None:
    random = Random(6)
    streams = random_streams(6, 40, faults=0)
    streams = [stream[: random.randint(0, len(stream))] for stream in streams]
    for stream, verdict in zip(streams, verdicts_of(streams), strict=True):
        kinds = [type(element) for element in stream]
        assert (verdict.inserts, verdict.adjusts, verdict.stables) == tuple(map(kinds.count, (Insert, Adjust, Stable)))
        table = Tdb()
        table.apply_batch(Batch.of(stream))
        assert verdict.events == len(table.events())
        assert verdict.stable_point == table.stable_point
        assert verdict.is_closed == (table.stable_point == INF)
        assert events_of(stream_of(stream)) == table.events()


def test_places_are_those_of_the_stream_in_order() -> None:
    verdict = judged([Stable(9), Adjust(A, 1, 10, 12), Insert(A, 1, 5), Stable(1), Insert(A, 8, 5)])
    places = [fault.place for fault in verdict.faults]
    assert places == [2, 3, 4, 5]
    assert all(before <= after for before, after in pairwise(places))
