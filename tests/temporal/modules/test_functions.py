"""Plain functions as aggregates, on lists, NumPy and Arrow (M1, M10, M15)."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from datetime import datetime, timezone
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from lmerge.temporal.changes import Lifetime
from lmerge.temporal.errors import ModuleViolation, PlanError
from lmerge.temporal.modules.adapters import bind_aggregate_module
from lmerge.temporal.modules.aggregates import aggregate_module
from lmerge.temporal.modules.arguments import argument_of, column_argument
from lmerge.temporal.modules.builtin import bind_aggregate
from lmerge.temporal.modules.functions import FunctionAggregate, aggregate_function
from lmerge.temporal.windows.kinds import WindowDescriptor
from lmerge.wire.schema import parse_schema

SCHEMA = parse_schema({"v": "float", "w": "int", "t": "timestamp", "d": "decimal(1)", "maybe": "float?"})
WINDOW = WindowDescriptor(0, 10)
ROWS = [
    (4.0, 1, 0, Decimal("0.5"), None),
    (1.0, 2, 1_000_000, Decimal("2.5"), 3.5),
    (3.0, 3, 2_000_000, Decimal("1.0"), 0.5),
]


def result(module: FunctionAggregate, *columns: str) -> Any:
    arguments = [column_argument(SCHEMA, column, "") for column in columns]
    bound = aggregate_module([bind_aggregate_module(module, arguments, "r")], SCHEMA)
    ((found,),) = bound.compute([Lifetime(row, 0, 1) for row in sorted(ROWS, key=repr)], WINDOW)
    return found


@aggregate_function()
def spread(values: list[float]) -> float:
    """Largest less smallest."""
    return max(values) - min(values)


@aggregate_function()
def weighted(values: list[float], weights: Sequence[int], *, power: int = 1) -> float:
    return sum(v * float(w) ** power for v, w in zip(values, weights, strict=True)) / sum(weights)


def test_a_decorator_makes_an_aggregate_of_a_function_that_stays_a_function() -> None:
    assert result(spread, "v") == 3.0
    assert spread([1.0, 5.0]) == 4.0
    assert (spread.module_name, spread.version, spread.__doc__) == ("spread", 1, "Largest less smallest.")
    assert str(spread.input_schema()) == "values: float"


def test_a_function_without_annotations_declares_its_types() -> None:
    median = aggregate_function(inputs={"value": "float"}, result="float", version=2)(statistics.median)
    assert result(median, "v") == 3.0
    assert median.shown == "module 'median' version 2"
    assert result(
        aggregate_function(inputs={"value": "decimal(1)"}, result="decimal(1)", name="most")(max), "d"
    ) == Decimal("2.5")


def test_several_inputs_are_a_column_each_and_parameters_are_by_name() -> None:
    assert result(weighted, "v", "w") == pytest.approx(15 / 6)
    assert result(weighted.given(power=2), "v", "w") == pytest.approx((4 + 4 + 27) / 6)
    assert list(weighted.signature.parameters) == ["power"]


@pytest.mark.parametrize("columns", ["list", "numpy", "arrow"])
def test_columns_come_in_the_form_that_is_declared(columns: Any) -> None:
    forms: dict[str, Callable[[Any, Any], Any]] = {
        "list": lambda v, w: sum(v) + sum(w) if isinstance(v, list) else None,
        "numpy": lambda v, w: np.sum(v) + np.sum(w) if (v.dtype, w.dtype) == (np.float64, np.int64) else None,
        "arrow": lambda v, w: pc.add(pc.sum(v), pc.sum(w)) if (v.type, w.type) == (pa.float64(), pa.int64()) else None,
    }
    declare = aggregate_function(inputs={"v": "float", "w": "int"}, result="float", name="total", columns=columns)
    assert result(declare(forms[columns]), "v", "w") == 14.0


def test_arrow_has_moments_decimals_and_missing_values() -> None:
    declare = aggregate_function(
        inputs={"t": "timestamp", "d": "decimal(1)", "maybe": "float?"}, result="int", name="look", columns="arrow"
    )
    seen: list[Any] = []

    def look(*arrays: Any) -> int:
        seen.extend(arrays)
        return 1

    result(declare(look), "t", "d", "maybe")
    assert seen[0].type == pa.timestamp("us", tz="UTC")
    assert sorted(seen[0].to_pylist())[1] == datetime(1970, 1, 1, 0, 0, 1, tzinfo=timezone.utc)
    assert seen[1].sort().to_pylist() == [Decimal("0.5"), Decimal("1.0"), Decimal("2.5")]
    assert seen[2].null_count == 1


def test_an_expression_is_an_argument() -> None:
    from lmerge.temporal.expressions.surface import Columns

    argument = argument_of(Columns().v * 2, SCHEMA, "spread")
    bound = bind_aggregate_module(spread, [argument], "r")
    assert bound.over([Lifetime(row, 0, 1) for row in ROWS], WINDOW) == 6.0
    largest = bind_aggregate("max", [argument_of((Columns().v * 2 + 1) / 3, SCHEMA, "max")], {}, "r", SCHEMA)
    assert largest.over([Lifetime(row, 0, 1) for row in ROWS], WINDOW) == 3.0
    listed = bind_aggregate("collect", [argument_of(Columns().v * 2, SCHEMA, "collect")], {}, "r", SCHEMA)
    assert listed.result.describe() == "list<float>"
    assert argument_of(Columns().v, SCHEMA, "spread") == column_argument(SCHEMA, "v", "spread")


def test_a_result_that_does_not_fit_is_named() -> None:
    with pytest.raises(ModuleViolation, match=r"module 'listing' version 1 returned in window \[0, 10\) for r"):
        result(aggregate_function(inputs={"v": "float"}, result="float", name="listing")(list), "v")


@pytest.mark.parametrize(
    ("declare", "problem"),
    [
        (lambda: aggregate_function()(lambda values: 1), "needs a name"),
        (
            lambda: aggregate_function()(sorted),
            "declare its inputs, or annotate its arguments as list|declare its inputs",
        ),
        (lambda: aggregate_function(inputs={"x": "float"}, name="f")(max), "declare its result"),
        (
            lambda: aggregate_function(inputs={"x": "double"}, result="float")(max),
            "aggregate 'max': column 'x': unknown type",
        ),
        (
            lambda: aggregate_function(inputs={"x": "float"}, result="float", columns="pandas")(max),  # type: ignore[arg-type]  # what a test is about
            "columns is 'pandas'",
        ),
    ],
)
def test_what_cannot_be_declared_is_refused(declare: Callable[[], Any], problem: str) -> None:
    with pytest.raises(PlanError, match=problem):
        declare()


def test_an_annotation_without_a_type_of_a_schema_is_refused() -> None:
    def price(values: list[Decimal]) -> Decimal:
        return max(values)

    with pytest.raises(PlanError, match=r"aggregate 'price': declare its inputs, or annotate values as list\[float\]"):
        aggregate_function()(price)

    def maybe(values: list[int | None]) -> int | None:
        return max((one for one in values if one is not None), default=None)

    declared = aggregate_function()(maybe)
    assert (str(declared.input_schema()), declared.result_column(declared.input_schema()).describe()) == (
        "values: int?",
        "int?",
    )
