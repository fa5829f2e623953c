"""A module of each of the eight kinds, over a column of int; what they must compute is in the tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar

from lmerge.temporal.changes import Lifetime
from lmerge.temporal.modules.arguments import column_argument
from lmerge.temporal.modules.kinds import (
    Aggregate,
    AggregateModule,
    IncrementalAggregate,
    IncrementalOperator,
    IncrementalTimedAggregate,
    IncrementalTimedOperator,
    Mergeable,
    Operator,
    OperatorModule,
    TimedAggregate,
    TimedOperator,
)
from lmerge.temporal.modules.properties import Properties, Stamped, TimedRow, Window
from lmerge.temporal.windows.kinds import WindowDescriptor
from lmerge.wire.schema import Schema, SchemaLike, parse_schema

NUMBERS: Schema = parse_schema({"n": "int"})
LONGEST = 100
"""Counted of an event without an end."""


class Spread(Aggregate[int, int]):
    """The largest less the smallest."""

    inputs: ClassVar[SchemaLike] = {"value": "int"}
    result = "int"

    def compute(self, rows: Sequence[int]) -> int:
        return max(rows) - min(rows)


class Total(IncrementalAggregate[int, list[int], int], Mergeable[int, list[int]]):
    """The sum, times ``factor``. The state is a count and a sum."""

    inputs: ClassVar[SchemaLike] = {"value": "int"}
    result = "int"

    def __init__(self, factor: int = 1) -> None:
        self.factor = factor
        self.calls: list[str] = []

    def begin(self) -> list[int]:
        return [0, 0]

    def add(self, state: list[int], rows: Sequence[int]) -> list[int]:
        self.calls.append(f"add {list(rows)}")
        return [state[0] + len(rows), state[1] + sum(rows)]

    def remove(self, state: list[int], rows: Sequence[int]) -> list[int]:
        self.calls.append(f"remove {list(rows)}")
        return [state[0] - len(rows), state[1] - sum(rows)]

    def merge(self, state: list[int], other: list[int]) -> list[int]:
        return [state[0] + other[0], state[1] + other[1]]

    def compute(self, state: list[int]) -> int:
        return state[1] * self.factor


class Weighted(TimedAggregate[int, float]):
    """The sum of value times duration, by the length of the window."""

    inputs: ClassVar[SchemaLike] = {"value": "int"}
    result = "float"

    def compute(self, rows: Sequence[TimedRow[int]], window: Window) -> float:
        return sum(one.row * min(one.end - one.start, LONGEST) for one in rows) / min(
            window.end - window.start, LONGEST
        )


class WeightedTotal(IncrementalTimedAggregate[int, int, float]):
    """The same, from a sum that is kept."""

    inputs: ClassVar[SchemaLike] = {"value": "int"}
    result = "float"

    def begin(self) -> int:
        return 0

    def add(self, state: int, rows: Sequence[TimedRow[int]]) -> int:
        return state + sum(one.row * min(one.end - one.start, LONGEST) for one in rows)

    def remove(self, state: int, rows: Sequence[TimedRow[int]]) -> int:
        return state - sum(one.row * min(one.end - one.start, LONGEST) for one in rows)

    def compute(self, state: int, window: Window) -> float:
        return state / min(window.end - window.start, LONGEST)


class Distinct(Operator[tuple[int]]):
    """Each row once. It takes the rows of any stream."""

    properties = Properties(per_group=("n",), filter_commutes=("n",), insert_only=True)

    def results_schema(self, inputs: Schema) -> Schema:
        return inputs

    def compute(self, rows: Sequence[tuple[int]]) -> list[tuple[int]]:
        return list(dict.fromkeys(rows))


class CountsByValue(IncrementalOperator[int, dict[str, int]], Mergeable[int, dict[str, int]]):
    """Each value with how often it occurs. The state is counts by text."""

    inputs: ClassVar[SchemaLike] = {"value": "int"}
    results: ClassVar[SchemaLike] = {"value": "int", "count": "int"}

    def begin(self) -> dict[str, int]:
        return {}

    def add(self, state: dict[str, int], rows: Sequence[int]) -> dict[str, int]:
        for row in rows:
            state[str(row)] = state.get(str(row), 0) + 1
        return state

    def remove(self, state: dict[str, int], rows: Sequence[int]) -> dict[str, int]:
        for row in rows:
            state[str(row)] -= 1
        return state

    def merge(self, state: dict[str, int], other: dict[str, int]) -> dict[str, int]:
        for value, count in other.items():
            state[value] = state.get(value, 0) + count
        return state

    def compute(self, state: dict[str, int]) -> Iterator[dict[str, int]]:
        for value, count in state.items():
            if count:
                yield {"value": int(value), "count": count}


class Ranked(TimedOperator[int]):
    """Each row from its start, or the window's, with its place among those that start earlier."""

    inputs: ClassVar[SchemaLike] = {"value": "int"}
    results: ClassVar[SchemaLike] = {"value": "int", "place": "int"}
    properties = Properties(reads=("start", "window"))

    def compute(self, rows: Sequence[TimedRow[int]], window: Window) -> Iterator[Stamped]:
        for one in rows:
            place = sum(other.start < one.start for other in rows)
            yield Stamped((one.row, place), max(one.start, window.start), window.end)


class Latest(IncrementalTimedOperator[int, list[list[int]]]):
    """The rows with the largest end, not stamped. The state is pairs of end and row."""

    inputs: ClassVar[SchemaLike] = {"value": "int"}
    results: ClassVar[SchemaLike] = {"value": "int"}
    properties = Properties(reads=("end",))

    def begin(self) -> list[list[int]]:
        return []

    def add(self, state: list[list[int]], rows: Sequence[TimedRow[int]]) -> list[list[int]]:
        return sorted(state + [[one.end, one.row] for one in rows])

    def remove(self, state: list[list[int]], rows: Sequence[TimedRow[int]]) -> list[list[int]]:
        for one in rows:
            state.remove([one.end, one.row])
        return state

    def compute(self, state: list[list[int]], window: Window) -> list[tuple[int]]:
        return [(row,) for end, row in state if end == state[-1][0]]


def values(events: Sequence[Lifetime]) -> list[int]:
    return [event.row[0] for event in events]


def duration(event: Lifetime) -> int:
    return event.row[0] * min(event.ve - event.vs, LONGEST)  # type: ignore[no-any-return]  # an int


DEFINED: dict[type[AggregateModule | OperatorModule], Callable[[list[Lifetime], WindowDescriptor], list[Any]]] = {
    Spread: lambda events, window: [(max(values(events)) - min(values(events)),)],
    Total: lambda events, window: [(sum(values(events)),)],
    Weighted: lambda events, window: [(sum(map(duration, events)) / min(window.end - window.start, LONGEST),)],
    WeightedTotal: lambda events, window: [(sum(map(duration, events)) / min(window.end - window.start, LONGEST),)],
    Distinct: lambda events, window: [(value,) for value in set(values(events))],
    CountsByValue: lambda events, window: [(value, values(events).count(value)) for value in set(values(events))],
    Ranked: lambda events, window: [
        Lifetime((one.row[0], sum(other.vs < one.vs for other in events)), max(one.vs, window.start), window.end)
        for one in events
    ],
    Latest: lambda events, window: [
        Lifetime(one.row, *window[:2]) for one in events if one.ve == max(other.ve for other in events)
    ],
}
"""What each kind must compute from events of one value."""


def events_of(*events: tuple[int, int, int]) -> list[Lifetime]:
    """Return events of value, start and end."""
    return [Lifetime((value,), vs, ve) for value, vs, ve in events]


ARGUMENT = column_argument(NUMBERS, "n", "test")


class RunningCount(TimedOperator[int]):
    """How many events have started, from each start to the next one."""

    inputs: ClassVar[SchemaLike] = {"value": "int"}
    results: ClassVar[SchemaLike] = {"count": "int"}
    properties = Properties(reads=("start", "window"), time_bound=True)

    def compute(self, rows: Sequence[TimedRow[int]], window: Window) -> Iterator[Stamped]:
        starts = sorted({max(one.start, window.start) for one in rows})
        for start, end in zip(starts, [*starts[1:], window.end]):
            yield Stamped((sum(one.start <= start for one in rows),), start, end)
