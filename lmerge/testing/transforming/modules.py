"""Modules for trees of any columns: one of each kind that differs in what of the time it reads.

They are registered when this is imported: a process that runs the plan of such a tree imports this too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Final

from lmerge.core.elements import INF
from lmerge.temporal.modules.kinds import (
    IncrementalAggregate,
    IncrementalOperator,
    IncrementalTimedAggregate,
    Mergeable,
    Operator,
    TimedOperator,
)
from lmerge.temporal.modules.properties import Properties, Stamped, TimedRow, Window
from lmerge.temporal.modules.registry import MODULES
from lmerge.wire.schema import Schema, SchemaLike

HELD: Final = 5
"""How far behind its window a result of ``HeldOn`` ends."""
LONGEST: Final = 1_000_000
"""What an event without an end lasts for, so that sums of durations stay exact."""
PRIME: Final = 1_000_003
FURTHEST: Final = 1_000_000
"""The largest time in a row, and without its sign the smallest, so that arithmetic on the row stays in 64 bits."""


class EachOnce(Operator[tuple[Any, ...]]):
    """Each row once."""

    properties = Properties(insert_only=True)

    def results_schema(self, inputs: Schema) -> Schema:
        """Return the columns of the rows."""
        return inputs

    def compute(self, rows: Sequence[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
        """Return the rows that differ from the one before."""
        return [row for at, row in enumerate(rows) if not at or repr(rows[at - 1]) != repr(row)]


class StartedSoFar(TimedOperator[tuple[Any, ...]]):
    """How many events have started so far, from each start in the window to the next one."""

    results: ClassVar[SchemaLike] = {"seen": "int"}
    properties = Properties(reads=("start", "window"), time_bound=True)

    def compute(self, rows: Sequence[TimedRow[tuple[Any, ...]]], window: Window) -> Iterator[Stamped]:
        """Yield a number for each distinct start."""
        starts = [max(one.start, window.start) for one in rows]
        found = list(_so_far(starts))
        ends = [start for start, _ in found[1:]]
        for (start, seen), end in zip(found, [*ends, window.end], strict=True):
            yield Stamped((seen,), start, end)


class StartedBefore(TimedOperator[tuple[Any, ...]]):
    """As ``StartedSoFar``, but an event that starts before the window counts from there: no window may emit that."""

    results: ClassVar[SchemaLike] = {"seen": "int"}
    properties = Properties(reads=("start", "window"))

    def compute(self, rows: Sequence[TimedRow[tuple[Any, ...]]], window: Window) -> Iterator[Stamped]:
        """Yield a number for each distinct start, from there to the end of the window."""
        for start, seen in _so_far([one.start for one in rows]):
            yield Stamped((seen,), start, window.end)


class HeldOn(TimedOperator[tuple[Any, ...]]):
    """How many events have started so far, from each start in the window to ``HELD`` behind the window's end."""

    results: ClassVar[SchemaLike] = {"seen": "int"}
    properties = Properties(reads=("start", "window"))

    def compute(self, rows: Sequence[TimedRow[tuple[Any, ...]]], window: Window) -> Iterator[Stamped]:
        """Yield a number for each distinct start: its result outlives the window."""
        for start, seen in _so_far([max(one.start, window.start) for one in rows]):
            yield Stamped((seen,), start, min(INF, window.end + HELD))


class CountedRows(IncrementalOperator[tuple[Any, ...], int], Mergeable[tuple[Any, ...], int]):
    """How many rows a window has, by states that are merged: on a grid its windows share panes."""

    results: ClassVar[SchemaLike] = {"rows": "int"}

    def begin(self) -> int:
        """Return the state of no rows."""
        return 0

    def add(self, state: int, rows: Sequence[tuple[Any, ...]]) -> int:
        """Return the number with more rows."""
        return state + len(rows)

    def remove(self, state: int, rows: Sequence[tuple[Any, ...]]) -> int:
        """Return the number with fewer rows."""
        return state - len(rows)

    def merge(self, state: int, other: int) -> int:
        """Return the number of both."""
        return state + other

    def compute(self, state: int) -> list[tuple[int]]:
        """Return the number as a row."""
        return [(state,)]


class LastStarted(TimedOperator[tuple[Any, ...]]):
    """When the first event of a window starts and the last one ends, in lifetimes as they are clipped."""

    results: ClassVar[SchemaLike] = {"first": "int", "last": "int"}
    properties = Properties(reads=("start", "end"))

    def compute(self, rows: Sequence[TimedRow[tuple[Any, ...]]], window: Window) -> list[tuple[int, int]]:
        """Return the smallest start and the largest end, no further than ``FURTHEST`` from 0."""
        return [(max(min(one.start for one in rows), -FURTHEST), min(max(one.end for one in rows), FURTHEST))]


class CoveredTime(IncrementalTimedAggregate[Any, int, int]):
    """The sum of the durations of events, as the window has clipped them; one lasts ``LONGEST`` at most."""

    inputs: ClassVar[SchemaLike] = {"value": "int"}
    result = "int"
    properties = Properties(reads=("start", "end"))

    def begin(self) -> int:
        """Return the sum of no events."""
        return 0

    def add(self, state: int, rows: Sequence[TimedRow[Any]]) -> int:
        """Return the sum with further events."""
        return state + sum(min(one.end - one.start, LONGEST) for one in rows)

    def remove(self, state: int, rows: Sequence[TimedRow[Any]]) -> int:
        """Return the sum without some events."""
        return state - sum(min(one.end - one.start, LONGEST) for one in rows)

    def compute(self, state: int, window: Window) -> int:
        """Return the sum."""
        return state


class SumByLength(IncrementalTimedAggregate[Any, int, int]):
    """The sum of whole numbers, and the length of the window, modulo a prime. Of the lifetimes it reads nothing."""

    inputs: ClassVar[SchemaLike] = {"value": "int"}
    result = "int"
    properties = Properties(reads=("window",))

    def begin(self) -> int:
        """Return the sum of no rows."""
        return 0

    def add(self, state: int, rows: Sequence[TimedRow[Any]]) -> int:
        """Return the sum with further rows."""
        return int(state + sum(one.row for one in rows)) % PRIME

    def remove(self, state: int, rows: Sequence[TimedRow[Any]]) -> int:
        """Return the sum without some rows."""
        return int(state - sum(one.row for one in rows)) % PRIME

    def compute(self, state: int, window: Window) -> int:
        """Return the sum with the length."""
        return (state + window.end - window.start) % PRIME


class Checksum(IncrementalAggregate[Any, int, int], Mergeable[Any, int]):
    """The sum of whole numbers modulo a prime: it can be merged, and stays in 64 bits whatever the numbers are."""

    inputs: ClassVar[SchemaLike] = {"value": "int"}
    result = "int"

    def begin(self) -> int:
        """Return the sum of no rows."""
        return 0

    def add(self, state: int, rows: Sequence[Any]) -> int:
        """Return the sum with further rows."""
        return int(state + sum(rows)) % PRIME

    def remove(self, state: int, rows: Sequence[Any]) -> int:
        """Return the sum without some rows."""
        return int(state - sum(rows)) % PRIME

    def merge(self, state: int, other: int) -> int:
        """Return the sum of both."""
        return (state + other) % PRIME

    def compute(self, state: int) -> int:
        """Return the sum."""
        return state


def _so_far(starts: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield each distinct start in order, and how many starts there are up to it."""
    for start in sorted(set(starts)):
        yield start, sum(one <= start for one in starts)


EACH_ONCE: Final = MODULES.named(EachOnce)
STARTED_SO_FAR: Final = MODULES.named(StartedSoFar)
STARTED_BEFORE: Final = MODULES.named(StartedBefore)
HELD_ON: Final = MODULES.named(HeldOn)
COUNTED_ROWS: Final = MODULES.named(CountedRows)
LAST_STARTED: Final = MODULES.named(LastStarted)
COVERED_TIME: Final = MODULES.named(CoveredTime)
SUM_BY_LENGTH: Final = MODULES.named(SumByLength)
CHECKSUM: Final = MODULES.named(Checksum)
