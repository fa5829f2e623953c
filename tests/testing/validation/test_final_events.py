"""Streams compared up to their common stable point."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from random import Random

import pytest

from lmerge.core.elements import INF, NEG_INF, Adjust, Element, Event, Insert, Stable
from lmerge.core.tdb import Tdb
from lmerge.testing.streams.merge_inputs import MIXED, joining, present, reference
from lmerge.testing.validation.element_table import stream_of
from lmerge.testing.validation.final_events import (
    DIFFERENCES_SHOWN,
    EventDifference,
    TableComparison,
    compared,
    events_of,
)

A, B = b"A", b"B"


def differences(one: Sequence[Element], other: Sequence[Element], join_at: int = NEG_INF) -> TableComparison:
    (comparison,) = compared([stream_of(one, "one"), replace(stream_of(other, "other"), join_at=join_at)])
    return comparison


def difference_by_definition(one: Sequence[Event], other: Sequence[Event], at: int) -> int:
    """Return how many events, each with its end or without one, two tables have differently often below ``at``."""
    counts = [
        Counter((event.vs, event.payload, event.ve if event.ve < at else None) for event in table if event.vs < at)
        for table in (one, other)
    ]
    return sum(counts[0][key] != counts[1][key] for key in counts[0] | counts[1])


def cut(random: Random, stream: Sequence[Element]) -> list[Element]:
    return list(stream[: random.randint(len(stream) // 3, len(stream))])


def test_streams_of_one_table_agree_wherever_they_are_cut() -> None:
    random = Random(1)
    compared_at = set()
    for _ in range(20):
        events = reference(random, 30, duplicates=True)
        one, other = cut(random, present(random, events)), cut(random, present(random, events))
        comparison = differences(one, other)
        assert (comparison.count, comparison.differences) == (0, [])
        compared_at.add(comparison.at)
    assert len(compared_at) > 10


def test_streams_of_two_tables_differ_as_by_definition() -> None:
    random = Random(2)
    different = 0
    for _ in range(45):
        events = reference(random, 20, duplicates=True)
        changed = list(events)
        at = random.randrange(len(events))
        act = random.choice(("drop", "double", "end", "start"))
        event = changed.pop(at)
        if act == "double":
            changed += [event, event]
        elif act == "end":
            changed.append(event._replace(ve=event.ve - 1 if event.ve > event.vs + 1 else event.ve + 1))
        elif act == "start":
            changed.append(event._replace(vs=event.vs - 1))
        one, other = cut(random, present(random, events)), cut(random, present(random, sorted(changed)))
        tables = [Tdb(), Tdb()]
        for table, stream in zip(tables, (one, other), strict=True):
            for element in stream:
                table.apply(element)
        point = min(table.stable_point for table in tables)
        comparison = differences(one, other)
        assert comparison.at == point
        assert comparison.count == difference_by_definition(tables[0].events(), tables[1].events(), point)
        different += comparison.count > 0
    assert 5 < different < 45


@pytest.mark.parametrize(
    ("one", "other", "at", "expected"),
    [
        ([Insert(A, 1, 4), Stable(5)], [Insert(A, 1, 3), Stable(5)], 5, [(1, A, 3, 0, 1), (1, A, 4, 1, 0)]),
        ([Insert(A, 1, 5), Stable(5)], [Insert(A, 1, 6), Stable(5)], 5, []),
        ([Insert(A, 1, 4), Stable(5)], [Insert(A, 1, 5), Stable(5)], 5, [(1, A, 4, 1, 0), (1, A, None, 0, 1)]),
        ([Insert(A, 5, 7), Stable(5)], [Stable(5)], 5, []),
        ([Insert(A, 4, 7), Stable(5)], [Stable(5)], 5, [(4, A, None, 1, 0)]),
        ([Insert(A, 1, 7), Stable(9)], [Insert(A, 1, 8), Stable(5)], 5, []),
        ([Insert(A, 1, 3)] * 2 + [Stable(5)], [Insert(A, 1, 3), Stable(5)], 5, [(1, A, 3, 2, 1)]),
        ([Insert(A, 1, INF), Stable(INF)], [Insert(A, 1, INF), Stable(INF)], INF, []),
        ([Insert(A, 1, INF), Stable(INF)], [Insert(A, 1, 9), Stable(INF)], INF, [(1, A, 9, 0, 1), (1, A, None, 1, 0)]),
        ([Insert(A, 1, 3)], [Stable(5)], NEG_INF, []),
        ([], [], NEG_INF, []),
    ],
)
def test_what_is_decided_at_the_common_stable_point_is_compared(
    one: list[Element], other: list[Element], at: int, expected: list[tuple[int, bytes, int | None, int, int]]
) -> None:
    comparison = differences(one, other)
    assert comparison.at == at
    assert comparison.differences == [EventDifference(*row) for row in expected]
    assert comparison.count == len(expected)
    assert comparison.is_empty is (at == NEG_INF)


def test_each_stream_is_compared_with_the_first() -> None:
    streams: list[list[Element]] = [
        [Insert(A, 1, 2), Stable(9)],
        [Insert(A, 1, 2), Stable(9)],
        [Insert(B, 1, 2), Stable(7)],
        [Stable(1)],
    ]
    named = [stream_of(stream, f"s{at}") for at, stream in enumerate(streams)]
    found = [(comparison.one, comparison.other, comparison.at, comparison.count) for comparison in compared(named)]
    assert found == [("s0", "s1", 9, 0), ("s0", "s2", 7, 2), ("s0", "s3", 1, 0)]


def test_of_many_differences_the_first_are_kept_and_all_are_counted() -> None:
    comparison = differences([*(Insert(A, at, at + 1) for at in range(50)), Stable(INF)], [Stable(INF)])
    assert comparison.count == 50
    assert [difference.vs for difference in comparison.differences] == list(range(DIFFERENCES_SHOWN))


def test_a_stream_that_joined_late_may_lack_what_ends_before_and_nothing_else() -> None:
    random = Random(3)
    for _ in range(20):
        events = reference(random, 30, duplicates=True)
        join_at = random.randint(1, 40)
        one = present(random, events, replace(MIXED, invented=0.0))
        late = joining(present(random, events, replace(MIXED, invented=0.0)), join_at, events)
        comparison = differences(cut(random, one), cut(random, late), join_at)
        assert comparison.count == 0, (join_at, comparison)


def test_before_join_at_nothing_is_compared() -> None:
    """At stable(4) the event of A seems to go on. It ends at 7, so the stream that joins at 10 need not have it."""
    one: list[Element] = [Insert(A, 1, INF), Stable(4)]
    assert differences(one, [Stable(4)]).count == 1
    early = differences(one, [Stable(4)], 10)
    assert (early.count, early.at, early.since, early.is_empty) == (0, 4, 10, True)
    whole: list[Element] = [*one, Adjust(A, 1, INF, 7), Insert(B, 2, 10), Stable(10)]
    assert differences(whole, [Stable(9)], 10).is_empty
    at_last = differences(whole, [Stable(10)], 10)
    assert (at_last.count, at_last.is_empty) == (1, False)
    assert differences(whole, [Insert(B, 2, 30), Stable(10)], 10).count == 0


def test_events_are_those_of_the_table_in_order() -> None:
    stream = stream_of([Insert(B, 2, 5), Insert(A, 1, 9), Insert(A, 1, 9), Adjust(A, 1, 9, 1), Insert(A, 3, 3)])
    assert events_of(stream) == [Event(1, A, 9), Event(2, B, 5)]
