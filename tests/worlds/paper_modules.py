"""Modules of the paper's tests, registered for all tests that import this: by name, as query writers call them."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from typing import ClassVar

from plan_modules import StartedSoFar

from lmerge.temporal.modules.functions import aggregate_function
from lmerge.temporal.modules.kinds import IncrementalAggregate, TimedAggregate, TimedOperator
from lmerge.temporal.modules.properties import Properties, Stamped, TimedRow, Window
from lmerge.temporal.plan.stream import method_of
from lmerge.testing.example_modules import FollowedBy, MyAverage, MyTimeWeightedAverage
from lmerge.wire.schema import SchemaLike

LONGEST = 1000


class LifetimesSeen(TimedOperator[str]):
    """Gives each row with its lifetime as columns, as the window shows it."""

    inputs: ClassVar[SchemaLike] = {"name": "string"}
    results: ClassVar[SchemaLike] = {"name": "string", "start": "int", "end": "int"}

    def compute(self, rows: Sequence[TimedRow[str]], window: Window) -> Iterator[tuple[str, int, int]]:
        for one in rows:
            yield one.row, one.start, one.end


class TotalDuration(TimedAggregate[str, int]):
    """The sum of durations."""

    inputs: ClassVar[SchemaLike] = {"name": "string"}
    result = "int"
    properties = Properties(reads=("start", "end"))

    def compute(self, rows: Sequence[TimedRow[str]], window: Window) -> int:
        return sum(min(one.end, LONGEST) - one.start for one in rows)


class Stretched(TimedOperator[str]):
    """Stamps each row ``before`` the window to ``after`` it."""

    inputs: ClassVar[SchemaLike] = {"name": "string"}
    results: ClassVar[SchemaLike] = {"name": "string"}
    properties = Properties(reads=("window",))

    def __init__(self, before: int = 0, after: int = 0) -> None:
        self._before, self._after = before, after

    def compute(self, rows: Sequence[TimedRow[str]], window: Window) -> Iterator[Stamped]:
        for one in rows:
            yield Stamped((one.row,), window.start - self._before, window.end + self._after)


class NotTimeBound(TimedOperator[str]):
    """Declares that it is time-bound, and counts from the window's start on."""

    inputs: ClassVar[SchemaLike] = {"name": "string"}
    results: ClassVar[SchemaLike] = {"n": "int"}
    properties = Properties(reads=("start", "window"), time_bound=True)

    def compute(self, rows: Sequence[TimedRow[str]], window: Window) -> Iterator[Stamped]:
        yield Stamped((len(rows),), window.start, window.end)


class SumOfAll(IncrementalAggregate[int, int, int]):
    """A sum that notes how its state was changed."""

    inputs: ClassVar[SchemaLike] = {"value": "int"}
    result = "int"
    calls: ClassVar[list[str]] = []

    def begin(self) -> int:
        return 0

    def add(self, state: int, rows: Sequence[int]) -> int:
        self.calls.append(f"add {list(rows)}")
        return state + sum(rows)

    def remove(self, state: int, rows: Sequence[int]) -> int:
        self.calls.append(f"remove {list(rows)}")
        return state - sum(rows)

    def compute(self, state: int) -> int:
        return state


@aggregate_function(name="plain_median")
def plain_median(values: list[float]) -> float:
    """Return the median, as a function that has no notion of time."""
    return statistics.median(values)


running_count = method_of(StartedSoFar)
my_average = method_of(MyAverage)
my_time_weighted_average = method_of(MyTimeWeightedAverage)
followed_by = method_of(FollowedBy)
lifetimes_seen = method_of(LifetimesSeen)
total_duration = method_of(TotalDuration)
stretched = method_of(Stretched)
not_time_bound = method_of(NotTimeBound)
sum_of_all = method_of(SumOfAll)
median_of = method_of(plain_median)
