"""The checks of modules find what is declared and not so, with the smallest counterexample (M6, M14, D14)."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import pytest
from aggregate_definition import SCHEMA
from module_world import CountsByValue, Distinct, Latest, Ranked, RunningCount, Spread, Total, Weighted, WeightedTotal

from lmerge.temporal.errors import ModuleViolation, PlanError
from lmerge.temporal.modules.aggregates import aggregate_module
from lmerge.temporal.modules.arguments import column_argument
from lmerge.temporal.modules.builtin import BUILTIN_AGGREGATES, bind_aggregate
from lmerge.temporal.modules.functions import aggregate_function
from lmerge.temporal.modules.kinds import (
    Aggregate,
    AggregateModule,
    IncrementalAggregate,
    OperatorModule,
    TimedOperator,
)
from lmerge.temporal.modules.properties import Properties, Stamped, TimedRow, Window
from lmerge.temporal.modules.top_k import OrderBy, TopK
from lmerge.temporal.windows.module import IncrementalModule
from lmerge.testing.example_modules import FollowedBy, MyAverage, MyTimeWeightedAverage
from lmerge.testing.module_checks import check_incremental, check_module
from lmerge.wire.schema import SchemaLike, parse_schema

VALUE: SchemaLike = {"value": "int"}
SIZE = aggregate_function(inputs={"v": "int?", "s": "decimal(2)"}, result="int", name="size")(lambda v, s: len(v))


@pytest.mark.parametrize(
    ("module", "names"),
    [
        (Spread(), ["deterministic"]),
        (Total(), ["deterministic", "incremental", "state", "mergeable"]),
        (Weighted(), ["deterministic"]),
        (WeightedTotal(), ["deterministic", "incremental", "state"]),
        (CountsByValue(), ["deterministic", "incremental", "state", "mergeable"]),
        (Ranked(), ["deterministic"]),
        (Latest(), ["deterministic", "incremental", "state"]),
        (RunningCount(), ["deterministic", "time_bound"]),
        (FollowedBy(), ["deterministic", "insert_only"]),
        (MyAverage(), ["deterministic"]),
        (MyTimeWeightedAverage(), ["deterministic"]),
        (
            aggregate_function(inputs={"v": "int?", "s": "decimal(2)"}, result="int", name="size")(lambda v, s: len(v)),
            ["deterministic"],
        ),
    ],
)
def test_a_module_that_keeps_what_it_declares_passes(
    module: AggregateModule | OperatorModule, names: list[str]
) -> None:
    assert check_module(module, rounds=60) == names


def test_an_operator_over_any_rows_is_checked_over_the_rows_of_a_schema() -> None:
    names = ["deterministic", "filter_commutes", "per_group", "insert_only"]
    assert check_module(Distinct(), schema={"n": "int", "s": "string"}, rounds=60) == names
    with pytest.raises(PlanError, match="takes the rows of any stream: a check needs a schema"):
        check_module(Distinct())


def test_rows_can_be_those_of_the_user() -> None:
    seen = set()

    @aggregate_function()
    def look(values: list[float]) -> float:
        seen.update(values)
        return 1.0

    check_module(look, rows=[{"values": 7.0}, [8.0]], rounds=20)
    assert seen == {7.0, 8.0}


@pytest.mark.parametrize("name", BUILTIN_AGGREGATES)
def test_every_aggregate_is_incremental(name: str) -> None:
    column = "f" if name in ("first", "last") else "d"
    parameters = {"p": 0.3} if name.startswith("percentile") else {}
    bound = bind_aggregate(name, [column_argument(SCHEMA, column, name)], parameters, "r", SCHEMA)
    module = aggregate_module([bound], SCHEMA)
    assert isinstance(module, IncrementalModule)
    check_incremental(module, SCHEMA, rounds=25)


def test_top_k_is_incremental() -> None:
    by = OrderBy(column_argument(SCHEMA, "f", "top"), descending=True)
    check_incremental(TopK(SCHEMA, 2, [by]), SCHEMA, rounds=60)


class Drifting(IncrementalAggregate[float, float, float]):
    """A sum that floats spoil."""

    inputs: ClassVar[SchemaLike] = {"value": "float"}
    result = "float"

    def begin(self) -> float:
        return 0.0

    def add(self, state: float, rows: Sequence[float]) -> float:
        return state + sum(rows)

    def remove(self, state: float, rows: Sequence[float]) -> float:
        return state - sum(rows)

    def compute(self, state: float) -> float:
        return state


class Odd(Total):
    """Keeps a set in its state."""

    def state_of(self, state: list[int]) -> Any:
        return {1: state}


class Halved(Total):
    def merge(self, state: list[int], other: list[int]) -> list[int]:
        return state


class Unrestored(Total):
    def restore(self, plain: Any) -> list[int]:
        return [plain[0], 0]


class Random(Aggregate[int, int]):
    inputs: ClassVar[SchemaLike] = VALUE
    result = "int"

    def __init__(self) -> None:
        self._numbers = itertools.count()

    def compute(self, rows: Sequence[int]) -> int:
        return next(self._numbers)


class Falling(Distinct):
    """Raises for some rows."""

    def compute(self, rows: Sequence[tuple[int]]) -> list[tuple[int]]:
        assert rows.count((2,)) < 2, "twice"
        return list(rows)


class Smallest(Distinct):
    properties = Properties(filter_commutes=("n",))

    def compute(self, rows: Sequence[tuple[int]]) -> list[tuple[int]]:
        return [min(rows)]


class SmallestOfAll(Smallest):
    properties = Properties(per_group=("n",))


class SmallestAlone(Smallest):
    properties = Properties(insert_only=True)


class Backwards(TimedOperator[int]):
    inputs: ClassVar[SchemaLike] = VALUE
    results: ClassVar[SchemaLike] = VALUE
    properties = Properties(preserves_order=True)

    def compute(self, rows: Sequence[TimedRow[int]], window: Window) -> Iterator[Stamped]:
        for one in rows:
            yield Stamped((one.row,), max(window.start, window.end - one.start), 10**6)


class Hasty(TimedOperator[int]):
    inputs: ClassVar[SchemaLike] = VALUE
    results: ClassVar[SchemaLike] = VALUE
    properties = Properties(time_bound=True)

    def compute(self, rows: Sequence[TimedRow[int]], window: Window) -> Iterator[Stamped]:
        yield Stamped((len(rows),), window.start, window.end)


class HastyWithEnds(Hasty):
    """Keeps to the starts of events, and not to their ends: an event that is cut changes what is before the cut."""

    def compute(self, rows: Sequence[TimedRow[int]], window: Window) -> Iterator[Stamped]:
        for one in rows:
            yield Stamped((min(one.end, 99),), max(one.start, window.start), window.end)


@pytest.mark.parametrize(
    ("module", "problem", "events"),
    [
        (Drifting(), r"'drifting' version 1 is not incremental: from the state the results are", 2),
        (Odd(), "'odd' version 1 is not state: its state has the key 1, which is no plain value", 1),
        (Unrestored(), "is not state: when restored the results are", 1),
        (Halved(), r"is not mergeable: from merged states the results are \[\(.*\)\], from the set", 1),
        (Random(), r"is not deterministic: at first the results are \[\(.*\)\], then", 1),
        (Falling(), "is not deterministic: module 'falling' version 1 raised AssertionError: twice", 2),
        (Smallest(), "is not filter_commutes: with the events of n = .* alone the results are", 2),
        (SmallestOfAll(), "is not per_group: by group the results are", 2),
        (SmallestAlone(), "is not insert_only: .* takes .* away", 2),
        (Backwards(), "is not preserves_order: .* makes .*, and there is a result from", 2),
        (Hasty(), "is not time_bound: .* changes the time from .* on, and the results by", 1),
        (HastyWithEnds(), "is not time_bound: .* changes the time from", 1),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, (AggregateModule, OperatorModule)) else "",
)
def test_a_module_that_does_not_is_refuted_by_a_smallest_window(
    module: AggregateModule | OperatorModule, problem: str, events: int
) -> None:
    with pytest.raises(ModuleViolation, match=problem) as caught:
        check_module(module, schema={"n": "int"} if module.inputs is None else None)
    _, _, shown = str(caught.value).rpartition(" with ")
    assert shown.count("[") == events


def test_a_property_by_columns_that_are_not_there_is_refused() -> None:
    class Elsewhere(Distinct):
        properties = Properties(per_group=("city",))

    class Aggregated(Spread):
        properties = Properties(filter_commutes=("value",))

    with pytest.raises(PlanError, match="declares per_group by 'city', which it does not take and return"):
        check_module(Elsewhere(), schema={"n": "int"})
    with pytest.raises(PlanError, match="declares filter_commutes by 'value'"):
        check_module(Aggregated())


def test_an_incremental_module_of_lmerge_that_were_not_is_refuted() -> None:
    schema = parse_schema({"n": "int"})
    module = TopK(schema, 1, [OrderBy(column_argument(schema, "n", "top"))])
    module.remove = lambda state, event: state  # type: ignore[method-assign]  # a defect
    with pytest.raises(ModuleViolation, match=r"top\(1 by n\) is not incremental: from the state the results are"):
        check_incremental(module, schema)
