"""The eight kinds of ``module_world`` on columns: each computes the same from an array for each input."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Literal

import numpy as np
import pyarrow as pa
from module_world import LONGEST, CountsByValue, Distinct, Latest, Ranked, Spread, Total, Weighted, WeightedTotal

from lmerge.temporal.modules.kinds import (
    Aggregate,
    AggregateModule,
    IncrementalAggregate,
    IncrementalOperator,
    IncrementalTimedAggregate,
    IncrementalTimedOperator,
    Operator,
    OperatorModule,
    TimedAggregate,
    TimedOperator,
)
from lmerge.temporal.modules.properties import Properties, StampedColumns, TimedColumns, Window
from lmerge.wire.schema import SchemaLike

Form = Literal["numpy", "arrow"]
FORMS: tuple[Form, ...] = ("numpy", "arrow")


def array(columns: Any) -> Any:
    """Return a column as an array of NumPy, and check that it is one, or one of Arrow."""
    if isinstance(columns, pa.Array):
        assert columns.type == pa.int64()
        return columns.to_numpy(zero_copy_only=False)
    assert isinstance(columns, np.ndarray)
    assert columns.dtype == np.int64
    return columns


def weights(rows: TimedColumns) -> int:
    """Return the sum of value times duration."""
    durations = np.minimum(array(rows.end).astype(object) - array(rows.start).astype(object), LONGEST)
    return int((array(rows.columns) * durations).sum())


class ColumnSpread(Aggregate[Any, int]):
    inputs: ClassVar[SchemaLike] = {"value": "int"}
    result = "int"

    def compute(self, rows: Any) -> int:
        return array(rows).max() - array(rows).min()  # type: ignore[no-any-return]  # a number of NumPy


class ColumnTotal(IncrementalAggregate[Any, int, int]):
    inputs: ClassVar[SchemaLike] = {"value": "int"}
    result = "int"

    def begin(self) -> int:
        return 0

    def add(self, state: int, rows: Any) -> int:
        return state + int(array(rows).sum())

    def remove(self, state: int, rows: Any) -> int:
        return state - int(array(rows).sum())

    def compute(self, state: int) -> int:
        return state


class ColumnWeighted(TimedAggregate[Any, float]):
    inputs: ClassVar[SchemaLike] = {"value": "int"}
    result = "float"

    def compute(self, rows: Any, window: Window) -> float:
        return weights(rows) / min(window.end - window.start, LONGEST)


class ColumnWeightedTotal(IncrementalTimedAggregate[Any, int, float]):
    inputs: ClassVar[SchemaLike] = {"value": "int"}
    result = "float"

    def begin(self) -> int:
        return 0

    def add(self, state: int, rows: Any) -> int:
        return state + weights(rows)

    def remove(self, state: int, rows: Any) -> int:
        return state - weights(rows)

    def compute(self, state: int, window: Window) -> float:
        return state / min(window.end - window.start, LONGEST)


class ColumnDistinct(Operator[Any]):
    """Takes the rows of any stream: a named tuple of arrays. Returns columns by name."""

    def results_schema(self, inputs: Any) -> Any:
        return inputs

    def compute(self, rows: Any) -> dict[str, Any]:
        return {"n": np.unique(array(rows.n))}


class ColumnCounts(IncrementalOperator[Any, dict[str, int]]):
    """Returns columns in the order of its results."""

    inputs: ClassVar[SchemaLike] = {"value": "int"}
    results: ClassVar[SchemaLike] = {"value": "int", "count": "int"}

    def begin(self) -> dict[str, int]:
        return {}

    def add(self, state: dict[str, int], rows: Any) -> dict[str, int]:
        for value, count in zip(*np.unique(array(rows), return_counts=True), strict=True):
            state[str(value)] = state.get(str(value), 0) + int(count)
        return state

    def remove(self, state: dict[str, int], rows: Any) -> dict[str, int]:
        for value in array(rows):
            state[str(value)] -= 1
        return {value: count for value, count in state.items() if count}

    def compute(self, state: dict[str, int]) -> Sequence[Any]:
        return [pa.array(list(map(int, state)), pa.int64()), np.array(list(state.values()), np.int64)]


class ColumnRanked(TimedOperator[Any]):
    inputs: ClassVar[SchemaLike] = {"value": "int"}
    results: ClassVar[SchemaLike] = {"value": "int", "place": "int"}
    properties = Properties(reads=("start", "window"))

    def compute(self, rows: Any, window: Window) -> StampedColumns:
        assert rows.end is None
        starts = array(rows.start)
        places = np.searchsorted(starts, starts)  # starts come in order
        ends = np.full(len(starts), window.end)
        return StampedColumns({"value": rows.columns, "place": places}, np.maximum(starts, window.start), ends)


class ColumnLatest(IncrementalTimedOperator[Any, list[list[int]]]):
    """Returns lists by name."""

    inputs: ClassVar[SchemaLike] = {"value": "int"}
    results: ClassVar[SchemaLike] = {"value": "int"}
    properties = Properties(reads=("end",))

    def begin(self) -> list[list[int]]:
        return []

    def add(self, state: list[list[int]], rows: Any) -> list[list[int]]:
        assert rows.start is None
        pairs = zip(array(rows.end).tolist(), array(rows.columns).tolist(), strict=True)
        return sorted(state + [list(pair) for pair in pairs])

    def remove(self, state: list[list[int]], rows: Any) -> list[list[int]]:
        for pair in zip(array(rows.end).tolist(), array(rows.columns).tolist(), strict=True):
            state.remove(list(pair))
        return state

    def compute(self, state: list[list[int]], window: Window) -> dict[str, list[int]]:
        return {"value": [row for end, row in state if end == state[-1][0]]}


ON_COLUMNS: dict[type[AggregateModule | OperatorModule], type[AggregateModule | OperatorModule]] = {
    ColumnSpread: Spread,
    ColumnTotal: Total,
    ColumnWeighted: Weighted,
    ColumnWeightedTotal: WeightedTotal,
    ColumnDistinct: Distinct,
    ColumnCounts: CountsByValue,
    ColumnRanked: Ranked,
    ColumnLatest: Latest,
}
"""Each kind, with the one of rows whose definition it has."""


def on_columns(kind: type[AggregateModule | OperatorModule], form: Form) -> AggregateModule | OperatorModule:
    """Return a module of a kind that gets its columns in a form."""
    module = kind()
    module.columns = form
    return module
