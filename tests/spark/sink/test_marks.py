"""Starts, ends and aborts: a function of the set of marks, and how its changes are published."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lmerge.core.batch import BatchBuilder
from lmerge.core.elements import INF, Adjust, Element, Event, Insert, Stable
from lmerge.core.tdb import Tdb
from lmerge.spark.sink.intervals import ABORT, END, START, VOID, WHOLE, Mark, changes, marks_of, read_marks, with_marks


def s(t: int, payload: bytes = b"p") -> Mark:
    return (t, START, payload)


def e(t: int) -> Mark:
    return (t, END, b"")


@pytest.mark.parametrize(
    ("marks", "intervals"),
    [
        ([s(1)], [(1, INF)]),
        ([s(1), e(5)], [(1, 5)]),
        ([s(1), s(3), e(5)], [(1, 5)]),
        ([s(1), e(2), s(3), e(5)], [(1, 2), (3, 5)]),
        ([e(5)], []),
        ([e(1), s(2)], [(2, INF)]),
        ([s(1), e(5), s(5), e(9)], [(1, 5), (5, 9)]),
        ([s(5), e(5)], []),
        ([s(1), (5, ABORT, b"")], []),
        ([s(1), e(4), (5, ABORT, b"")], [(1, 4)]),
        ([s(1), (1, VOID, b"")], []),
        ([s(1), (3, VOID, b""), s(3), e(5)], [(1, 5)]),
        ([s(1), e(5), e(7)], [(1, 5)]),
    ],
)
def test_marks_make_intervals(marks: list[Mark], intervals: list[tuple[int, int]]) -> None:
    assert [found[:2] for found in read_marks(sorted(marks)).intervals] == intervals


def test_of_two_payloads_that_start_at_once_the_one_with_its_end_counts() -> None:
    marks = sorted([s(1, b"a"), *marks_of(1, 9, b"z")])
    assert read_marks(marks).intervals == [(1, 9, b"z")]
    assert read_marks(sorted([s(1, b"b"), s(1, b"a")])).intervals == [(1, INF, b"a")]


@pytest.mark.parametrize(
    ("row", "marks"),
    [
        ((1, None, False), [(1, START, b"p")]),
        ((1, INF, False), [(1, START, b"p")]),
        ((None, 5, False), [(5, END, b"")]),
        ((None, 5, True), [(5, ABORT, b"")]),
        ((1, 5, False), [(1, WHOLE, b"p"), (5, END, b"")]),
        ((1, 1, False), [(1, VOID, b"")]),
        ((None, None, False), []),
    ],
)
def test_rows_make_marks(row: tuple[int | None, int | None, bool], marks: list[Mark]) -> None:
    assert marks_of(row[0], row[1], b"p", aborts=row[2]) == marks


@pytest.mark.parametrize(
    ("marks", "stable", "cut", "unmatched"),
    [
        ([s(1), e(5)], 5, 0, 0),  # Ve == S is not frozen
        ([s(1), e(5)], 6, 2, 0),
        ([s(1), e(5), s(7)], 9, 2, 0),
        ([s(1), s(3), e(5)], 4, 0, 0),
        ([e(5)], 6, 1, 1),
        ([e(5), s(5)], 6, 2, 0),
        ([e(5), s(5)], 5, 0, 0),
        ([s(1), e(5), e(7)], 8, 3, 1),
        ([s(1), (3, VOID, b"")], 9, 0, 0),
    ],
)
def test_what_is_frozen_is_forgotten(marks: list[Mark], stable: int, cut: int, unmatched: int) -> None:
    assert read_marks(sorted(marks), stable)[1:] == (cut, unmatched)


@pytest.mark.parametrize(
    ("marks", "row", "stable", "is_late"),
    [
        ([], [s(1)], 2, True),
        ([], [s(2)], 2, False),
        ([s(1)], [s(1)], 5, False),  # the key has it already
        ([s(1)], [e(4)], 5, True),
        ([s(1)], [e(5)], 5, False),
        ([s(1)], [(7, ABORT, b"")], 5, True),  # it cannot be taken back
        ([s(5)], [(7, ABORT, b"")], 5, False),
        ([s(1), (8, ABORT, b"")], [e(7)], 5, True),  # it would begin now
        ([s(1)], marks_of(1, 7, b"p"), 5, False),
        ([s(1)], marks_of(1, 7, b"other"), 5, True),
    ],
)
def test_a_mark_that_cannot_be_published_any_more_is_late(
    marks: list[Mark], row: list[Mark], stable: int, is_late: bool
) -> None:
    assert (with_marks(sorted(marks), row, stable) is None) == is_late


def test_changes_are_published_once() -> None:
    def changed(before: list[Mark], after: list[Mark]) -> list[Element]:
        builder = BatchBuilder()
        builder.rows += changes(read_marks(sorted(before)).intervals, read_marks(sorted(after)).intervals)
        return list(builder.build().elements())

    assert changed([], [s(1), e(5)]) == [Insert(b"p", 1, 5)]
    assert changed([s(1)], [s(1), e(5)]) == [Adjust(b"p", 1, INF, 5)]
    assert changed([s(1)], [s(1), (5, ABORT, b"")]) == [Adjust(b"p", 1, INF, 1)]
    assert changed([s(1), e(5), s(3)], [s(1), e(2), s(3), e(5)]) == [Adjust(b"p", 1, 5, 2), Insert(b"p", 3, 5)]
    assert changed([s(1), e(5)], [s(1), e(5)]) == []


ROWS = st.lists(
    st.sampled_from(
        [
            marks_of(vs, ve, payload, aborts=aborts)
            for vs in (None, 0, 1, 2, 3)
            for ve in (None, 1, 2, 3, 4)
            for payload in (b"p", b"q")
            for aborts in (False, True)
            if (vs is not None or ve is not None) and (vs is None or ve is None or vs <= ve)
        ]
    ),
    max_size=5,
)


@settings(deadline=None)
@given(ROWS)
def test_the_order_of_rows_makes_no_difference(rows: list[list[Mark]]) -> None:
    found = set()
    for order in list(permutations(rows))[:120]:
        marks: Sequence[Mark] = []
        for row in order:
            marks = with_marks(marks, row, -1) or []
        found.add(tuple(read_marks(marks).intervals))
    assert len(found) <= 1


@settings(deadline=None)
@given(st.integers(0, 2**32))
def test_what_is_published_is_legal_and_forgetting_changes_nothing(seed: int) -> None:
    """Rows come in any order while the stable point moves. A twin that forgets nothing publishes the same."""
    random = Random(seed)
    tdb, stable = Tdb(), 0
    marks: Sequence[Mark] = []
    all_marks: Sequence[Mark] = []
    for _ in range(30):
        vs = random.choice((None, stable + random.randint(-4, 12)))
        ve = random.choice((None, max(vs or 0, stable + random.randint(-4, 12))))
        if vs is None and ve is None:
            continue
        row = marks_of(vs, ve, random.choice((b"p", b"q")), aborts=random.random() < 0.2)
        both = with_marks(marks, row, stable)
        if both is not None:
            builder = BatchBuilder()
            builder.rows += changes(read_marks(marks).intervals, read_marks(both).intervals)
            tdb.apply_batch(builder.build())
            twin = with_marks(all_marks, row, stable)
            assert twin is not None
            all_marks = twin
            marks = both
        if random.random() < 0.3:
            stable += random.randint(0, 5)
            tdb.apply(Stable(stable))
            marks = marks[read_marks(marks, stable).cut :]
    assert tdb.events() == sorted(Event(vs, payload, ve) for vs, ve, payload in read_marks(all_marks).intervals)
    tdb.apply(Stable(stable + 1000))
    assert {kind for _, kind, _ in marks[read_marks(marks, stable + 1000).cut :]} <= {VOID, WHOLE, START}
