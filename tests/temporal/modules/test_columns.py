"""Modules of all eight kinds on columns of NumPy and Arrow: what they get, and what operators may return (M15)."""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pytest
from column_modules import FORMS, ON_COLUMNS, Form, on_columns
from module_world import ARGUMENT, DEFINED, NUMBERS, events_of
from window_judge import check_windows

from lmerge.core.engines import selection
from lmerge.temporal.changes import Change, Delta, Lifetime
from lmerge.temporal.errors import ModuleViolation, PlanError
from lmerge.temporal.modules.adapters import bind_aggregate_module, bind_operator_module
from lmerge.temporal.modules.aggregates import aggregate_module
from lmerge.temporal.modules.kinds import Aggregate, AggregateModule, Operator, OperatorModule, TimedOperator
from lmerge.temporal.modules.properties import StampedColumns, Window
from lmerge.temporal.values import order_key
from lmerge.temporal.windows.group import WindowRules
from lmerge.temporal.windows.kinds import CountWindows, Hopping, Snapshots, WindowDescriptor, WindowKind
from lmerge.temporal.windows.module import WindowModule
from lmerge.temporal.windows.policies import Clip, Stamp
from lmerge.temporal.windows.policies import Form as OutputForm
from lmerge.temporal.windows.window_operator import WindowOperator
from lmerge.testing.module_checks import check_module
from lmerge.wire.schema import SchemaLike, parse_schema

WINDOW = WindowDescriptor(0, 10)
ROWS = ((0,), (1,), (3,))


def bound(module: AggregateModule | OperatorModule) -> WindowModule:
    if isinstance(module, AggregateModule):
        return aggregate_module([bind_aggregate_module(module, [ARGUMENT], "r")], NUMBERS)
    return bind_operator_module(module, NUMBERS, None if module.inputs is None else [ARGUMENT])


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", ON_COLUMNS)
def test_each_kind_on_columns_computes_what_its_definition_has(
    kind: type[AggregateModule | OperatorModule], form: Form
) -> None:
    defined, module = DEFINED[ON_COLUMNS[kind]], bound(on_columns(kind, form))
    for seed in range(30):
        random_ = random.Random(seed)
        events = []
        for _ in range(random_.randint(1, 6)):
            start = random_.randint(-5, 9)
            events.append(Lifetime(random_.choice(ROWS), start, random_.randint(max(start, 0) + 1, 12)))
        events.sort(key=lambda event: (event.vs, event.ve, event.row))
        assert sorted(module.compute(events, WINDOW)) == sorted(defined(events, WINDOW))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", ON_COLUMNS)
def test_windows_with_each_kind_on_columns_are_those_of_the_definition(
    kind: type[AggregateModule | OperatorModule], form: Form
) -> None:
    user_module = on_columns(kind, form)
    module = bound(user_module)
    stamps = [Stamp.ALIGN, Stamp.CLIP, Stamp.UNCHANGED] if module.stamps else [Stamp.ALIGN]
    for seed in range(8):
        random_ = random.Random(seed)
        kinds: list[WindowKind] = [Hopping(5, 5), Hopping(4, 2, 1), Snapshots(), CountWindows(2)]
        window = random_.choice(kinds)
        clip = random_.choice(list(Clip)) if user_module.is_timed else Clip.NONE
        rules = WindowRules(window, module, clip, random_.choice(stamps), random_.choice(list(OutputForm)), tuple)
        check_windows(rules, random_, ROWS)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", ON_COLUMNS)
def test_each_kind_on_columns_keeps_what_every_module_must(
    kind: type[AggregateModule | OperatorModule], form: Form
) -> None:
    assert check_module(on_columns(kind, form), schema=NUMBERS, rounds=20)[0] == "deterministic"


TYPES = parse_schema(
    {"n": "int", "x": "float", "s": "string?", "at": "timestamp", "day": "date", "p": "decimal(2)", "l": "list<int>"}
)
TYPED = [
    Lifetime((2, 0.5, None, 1_000_000, 1, Decimal("1.50"), (1, 2)), 0, 1),
    Lifetime((1, 1.5, "b", 0, 0, Decimal("2.00"), ()), 0, 1),
]


class Look(Operator[Any]):
    """Keeps what it gets, and returns nothing."""

    results: ClassVar[SchemaLike] = {"n": "int"}

    def __init__(self, columns: Any) -> None:
        self.columns = columns
        self.given: Any = None

    def compute(self, rows: Any) -> list[Any]:
        self.given = rows
        return []


def test_arrays_of_arrow_have_the_types_of_the_columns() -> None:
    look = Look("arrow")
    bind_operator_module(look, TYPES).compute(TYPED, WINDOW)
    assert [one.type for one in look.given] == [
        pa.int64(),
        pa.float64(),
        pa.string(),
        pa.timestamp("us", tz="UTC"),
        pa.date32(),
        pa.decimal128(38, 2),
        pa.list_(pa.field("item", pa.int64(), nullable=False)),
    ]
    assert look.given.n.to_pylist() == [1, 2]
    assert look.given.s.to_pylist() == ["b", None]
    assert look.given.at.to_pylist()[1] == datetime(1970, 1, 1, 0, 0, 1, tzinfo=timezone.utc)
    assert look.given.day.to_pylist() == [date(1970, 1, 1), date(1970, 1, 2)]
    assert (look.given.p.to_pylist(), look.given.l.to_pylist()) == ([Decimal("2.00"), Decimal("1.50")], [[], [1, 2]])


def test_arrays_of_numpy_have_numbers_as_they_are_and_other_values_as_objects() -> None:
    look = Look("numpy")
    bind_operator_module(look, TYPES).compute(TYPED, WINDOW)
    assert [one.dtype.name for one in look.given] == ["int64", "float64", *["object"] * 5]
    assert look.given.day.tolist() == [date(1970, 1, 1), date(1970, 1, 2)]
    listed = Look("list")
    bind_operator_module(listed, TYPES).compute(TYPED, WINDOW)
    assert listed.given[:3] == ([1, 2], [1.5, 0.5], ["b", None])


def test_an_int_column_is_taken_for_floats_in_arrays() -> None:
    class Mean(Aggregate[Any, float]):
        inputs: ClassVar[SchemaLike] = {"value": "float"}
        result = "float"
        columns = "numpy"

        def compute(self, rows: Any) -> float:
            assert rows.dtype == np.float64
            return float(rows.mean())

    module = aggregate_module([bind_aggregate_module(Mean(), [ARGUMENT], "m")], NUMBERS)
    assert list(module.compute(events_of((1, 0, 1), (2, 0, 1)), WINDOW)) == [(1.5,)]


def test_a_moment_beyond_those_of_python_is_one_of_arrow_and_refused_as_an_object() -> None:
    far = [Lifetime((1, 0.5, None, 2**62, 1, Decimal(1), ()), 0, 1)]
    look = Look("arrow")
    bind_operator_module(look, TYPES).compute(far, WINDOW)
    assert look.given.at.cast("int64").to_pylist() == [2**62]
    with pytest.raises(ModuleViolation, match=r"'look' version 1 cannot be given its columns: .* no year from 1"):
        bind_operator_module(Look("numpy"), TYPES).compute(far, WINDOW)


def test_another_form_is_refused() -> None:
    with pytest.raises(PlanError, match="declares columns='pandas'; there are rows, list, numpy, arrow"):
        bind_operator_module(Look("pandas"), TYPES)


def returning(value: Any, timed: bool = False) -> WindowModule:
    class Returning(Operator[int]):
        inputs: ClassVar[SchemaLike] = {"value": "int"}
        results: ClassVar[SchemaLike] = {"a": "int", "b": "string?"}

        def compute(self, rows: Sequence[int]) -> Any:
            return value

    class Stamps(TimedOperator[int]):
        inputs: ClassVar[SchemaLike] = {"value": "int"}
        results: ClassVar[SchemaLike] = {"a": "int", "b": "string?"}

        def compute(self, rows: Any, window: Window) -> Any:
            return value

    return bound(Stamps() if timed else Returning())


def computed(module: WindowModule) -> list[Any]:
    return list(module.compute(events_of((1, 2, 3)), WINDOW))


def test_an_operator_of_rows_may_return_columns_too() -> None:
    rows = [(1, "x"), (2, None)]
    for columns in (
        {"a": [1, 2], "b": ["x", None]},
        {"b": np.array(["x", None], object), "a": pa.array([1, 2])},
        [np.array([1, 2]), pa.array(["x", None])],
        (pa.chunked_array([[1], [2]]), pa.array(["x", None])),
    ):
        assert computed(returning(columns)) == rows
    assert computed(returning({"a": np.array([3])})) == [(3, None)]
    assert computed(returning({})) == []
    assert computed(returning({"a": [1]}, timed=True)) == [Lifetime((1, None), 0, 10)]
    stamped = StampedColumns({"a": [1, 2]}, pa.array([0, 5]), np.array([3, 6]))
    assert computed(returning(stamped, timed=True)) == [Lifetime((1, None), 0, 3), Lifetime((2, None), 5, 6)]


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (None, r"returned None; an operator returns rows in window \[0, 10\), given the event"),
        ({"a": [1, 2], "b": ["x"]}, r"returned columns of 1 and 2 values in window \[0, 10\)"),
        ({"a": [1], "c": ["x"]}, "returned a column 'c', which it does not declare"),
        ({"b": ["x"]}, "no value for a, which is int"),
        ({"a": [1.5]}, "for a, which is int: 1.5 is not a whole number"),
        ({"a": 1}, "raised TypeError: 'int' object is not iterable"),
        ([np.array([1])], "returned 1 columns, and declares 2"),
        (StampedColumns({"a": [1]}, [0], [1]), "where a row is a tuple, a list or a mapping"),
    ],
)
def test_columns_that_are_no_results_are_named(value: Any, problem: str) -> None:
    with pytest.raises(ModuleViolation, match=problem):
        computed(returning(value))


def test_stamps_that_do_not_fit_their_columns_are_named() -> None:
    with pytest.raises(ModuleViolation, match="returned columns of 1 and 2 values"):
        computed(returning(StampedColumns({"a": [1, 2]}, [0], [1, 2]), timed=True))
    with pytest.raises(ModuleViolation, match=r"a lifetime with 0\.5, which is no time"):
        computed(returning(StampedColumns({"a": [1]}, np.array([0.5]), [1]), timed=True))


@pytest.mark.skipif(selection.native_problem() is not None, reason="the native core is not built")
@pytest.mark.parametrize("form", [*FORMS, "list"])
def test_columns_of_a_batch_reach_a_module_as_its_rows_do(form: Any) -> None:
    """In the same order and of the same types; those of Arrow, and numbers of NumPy, without a row in between."""
    from lmerge.temporal.native.step import column_form

    seen: list[str] = []

    class LookAtAll(Look):
        inputs: ClassVar[SchemaLike] = {"n": "int", "x": "float", "s": "string?", "at": "timestamp", "p": "decimal(2)"}

        def compute(self, rows: Any) -> list[Any]:
            seen.append(repr([(getattr(one, "type", getattr(one, "dtype", None)), list(one)) for one in rows]))
            return [(len(rows.n),)]

    class LookAtNumbers(LookAtAll):
        inputs: ClassVar[SchemaLike] = {"n": "int", "x": "float"}

    random_ = random.Random(1)
    schema = parse_schema(LookAtAll.inputs)
    rows = [
        (random_.randint(0, 3), random_.choice((0.5, 1.5)), random_.choice(("b", "a", None)), at, Decimal("1.50"))
        for at in range(40)
    ]
    delta = Delta([Change(row, at // 4, at // 4, at // 4 + 1) for at, row in enumerate(rows)], 100, 100)
    for kind in (LookAtAll, LookAtNumbers):
        module = bind_operator_module(kind(form), schema)
        assert module.takes_blocks is (form == "arrow" or kind is LookAtNumbers)
        outputs = []
        for given in (delta, column_form(schema).batch(delta.changes, delta.stable, delta.mark)):
            rules = WindowRules(Hopping(5, 5), module, Clip.NONE, Stamp.ALIGN, OutputForm.FINAL, order_key(schema))
            WindowOperator("window", rules, order_key(module.results)).step_mixed([given])
            outputs.append([*seen])
            seen.clear()
        assert len(outputs[0]) == 2
        assert outputs[0] == outputs[1]
