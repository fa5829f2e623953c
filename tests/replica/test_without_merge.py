"""A plan over its sources without a merge: its results come as they become final, and its sources are closed."""

from __future__ import annotations

import itertools
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from lmerge.errors import InvalidRow
from lmerge.replica import PythonItems, Query, in_order
from lmerge.replica.without_merge import FinalResult, final_results
from lmerge.temporal.plan.stream import Stream, count, source

NUMBERS = source("numbers", {"x": "int"})


def counted(form: str) -> Stream:
    return NUMBERS.group_by("x").tumbling(5).agg(n=count(), form=form)


def row(at: int) -> dict[str, Any]:
    return {"x": 1, "at": at}


@pytest.mark.parametrize("form", ["final", "settled", "watermark", "eager"])
def test_results_come_as_they_become_final(form: str) -> None:
    """Each row is a batch, because a stable point is behind it: the counts of ``eager`` are revised by the second."""
    is_read = False

    def items() -> Iterator[Any]:
        nonlocal is_read
        is_read = True
        yield from (row(1), 2, row(2), 3, row(6), 7, row(11))

    results = final_results(Query({"p": counted(form)}, {"numbers": PythonItems(items=items, time="at")}), None)
    assert not is_read
    assert [*results] == [FinalResult(at, at + 5, {"x": 1, "n": n}) for at, n in ((0, 2), (5, 1), (10, 1))]


def test_sources_that_wait_are_read_together() -> None:
    """Two sources, each of which waits until the other has been read: neither holds the other up."""
    first_is_read, second_is_read = threading.Event(), threading.Event()

    async def first() -> AsyncIterator[dict[str, Any]]:
        yield row(1)
        first_is_read.set()
        assert second_is_read.wait(60)
        yield row(7)

    async def second() -> AsyncIterator[dict[str, Any]]:
        assert first_is_read.wait(60)
        yield row(2)
        second_is_read.set()

    other = source("others", {"x": "int"})
    stream = NUMBERS.union(other).tumbling(5).agg(n=count())
    declared = {
        name: PythonItems(items=items, time="at", is_waiting=True, progress=in_order())
        for name, items in (("numbers", first), ("others", second))
    }
    found = [*final_results(Query({"p": stream}, declared), "p")]
    assert found == [FinalResult(0, 5, {"n": 2}), FinalResult(5, 10, {"n": 1})]


@pytest.mark.parametrize("is_waiting", [False, True])
def test_sources_are_closed_when_no_more_results_are_asked_for(is_waiting: bool) -> None:
    is_closed = threading.Event()

    async def items() -> AsyncIterator[dict[str, Any]]:
        try:
            for at in itertools.count(0, 5):
                yield row(at)
        finally:
            is_closed.set()

    declared = PythonItems(items=items, time="at", is_waiting=is_waiting, progress=in_order())
    results = final_results(Query({"p": counted("final")}, {"numbers": declared}), None)
    assert next(results) == FinalResult(0, 5, {"x": 1, "n": 1})
    results.close()  # type: ignore[attr-defined]  # a generator
    assert is_closed.wait(60)


def test_a_row_that_does_not_fit_ends_the_results_with_its_place() -> None:
    declared = PythonItems(items=[row(1), {"x": "one", "at": 2}], time="at", progress=in_order())
    with pytest.raises(InvalidRow, match=r"source 'numbers'.* item 1: column 'x'"):
        next(final_results(Query({"p": counted("final")}, {"numbers": declared}), None))
