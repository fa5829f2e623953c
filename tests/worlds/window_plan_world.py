"""What tests of windows in plans share: modules that they register, a stream of numbers, and what comes out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar

from history_world import collect
from module_world import CountsByValue, Distinct, Latest, Ranked, RunningCount, Spread, Total, Weighted, WeightedTotal

from lmerge.temporal.changes import Change, Lifetime
from lmerge.temporal.modules.functions import aggregate_function
from lmerge.temporal.modules.kinds import Aggregate, Operator, TimedOperator
from lmerge.temporal.modules.properties import Properties, TimedRow, Window
from lmerge.temporal.modules.registry import MODULES
from lmerge.temporal.plan.compiling import compile_plan
from lmerge.temporal.plan.stream import Stream, source
from lmerge.temporal.running import QueryRun
from lmerge.testing.example_modules import FollowedBy, MyAverage, MyTimeWeightedAverage
from lmerge.wire.schema import SchemaLike

EVERY_KIND = (Spread, Total, Weighted, WeightedTotal, Distinct, CountsByValue, Ranked, Latest)


@aggregate_function()
def middle(values: list[int], *, low: bool = True) -> int:
    """Return the value in the middle."""
    return sorted(values)[(len(values) - low) // 2]


class Sparse(Operator[int]):
    """How many rows there are, also if there are none."""

    inputs: ClassVar[SchemaLike] = {"b": "int"}
    results: ClassVar[SchemaLike] = {"rows": "int"}
    properties = Properties(empty_preserving=False)

    def compute(self, rows: Sequence[int]) -> list[tuple[int]]:
        return [(len(rows),)]


class OpenAggregate(Aggregate[int, Any]):
    """Returns what a test lets it return."""

    inputs: ClassVar[SchemaLike] = {"b": "int"}
    result = "int"
    answer: ClassVar[Callable[[Sequence[int]], Any]] = len

    def compute(self, rows: Sequence[int]) -> Any:
        return type(self).answer(rows)


class OpenOperator(TimedOperator[int]):
    """Yields what a test lets it yield. It declares all that a run checks."""

    inputs: ClassVar[SchemaLike] = {"b": "int"}
    results: ClassVar[SchemaLike] = {"x": "int"}
    properties = Properties(time_bound=True, insert_only=True, preserves_order=True)
    answer: ClassVar[Callable[[Sequence[TimedRow[int]], Window], Any]] = lambda rows, window: []

    def compute(self, rows: Sequence[TimedRow[int]], window: Window) -> Any:
        return type(self).answer(rows, window)


class Keyed(TimedOperator[int]):
    """What a module learns of its window."""

    inputs: ClassVar[SchemaLike] = {"b": "int"}
    results: ClassVar[SchemaLike] = {"kind": "string", "key": "string", "length": "int"}

    def compute(self, rows: Sequence[TimedRow[int]], window: Window) -> Iterator[tuple[str, str, int]]:
        assert window.kind is not None
        yield window.kind.shown, repr(window.key), window.end - window.start


REGISTERED = (
    *EVERY_KIND,
    middle,
    Sparse,
    OpenAggregate,
    OpenOperator,
    Keyed,
    RunningCount,
    MyAverage,
    MyTimeWeightedAverage,
    FollowedBy,
)


@contextmanager
def registered_modules() -> Iterator[None]:
    """Register the modules for a while."""
    before = set(MODULES.names())
    for one in REGISTERED:
        MODULES.named(one)
    yield
    for name in set(MODULES.names()) - before:
        MODULES.forget(name)


def numbers(*promises: str) -> Stream:
    return source("numbers", {"a": "int", "b": "int"}, promises=promises)


def signals() -> Stream:
    return source("signals", {"kind": "string", "key": "string", "value": "float"})


def events(*found: tuple[Any, int, int]) -> list[Change]:
    return [Change(row if isinstance(row, tuple) else (0, row), vs, vs, ve) for row, vs, ve in found]


def results(stream: Stream, *found: tuple[Any, int, int]) -> list[Lifetime]:
    return collect(stream.node, {compile_plan([stream.node]).sources[0].label: events(*found)})


def step_by_step(stream: Stream, items: Sequence[Change | int]) -> None:
    run = QueryRun({"out": stream.node})
    for item in items:
        run.take("numbers", [item])
