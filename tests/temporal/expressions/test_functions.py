"""User-defined functions: their types, their values, their errors, by row and in batches."""

from __future__ import annotations

import signal
from datetime import date, datetime, timezone
from decimal import Decimal
from random import Random
from typing import Any

import pytest
from interrupts import accept_interrupts, handled_interrupts

from lmerge.temporal.errors import ModuleViolation, PlanError
from lmerge.temporal.expressions.binding import bind, bind_all
from lmerge.temporal.expressions.functions import FunctionRegistry, call
from lmerge.temporal.expressions.surface import Expression, col, lit, when
from lmerge.wire.schema import parse_schema

SCHEMA = parse_schema({"id": "int?", "value": "float", "at": "timestamp", "day": "date", "price": "decimal(2)"})
HOUR = 3_600_000_000
ROW = (1, 3.0, HOUR, 1, Decimal("1.50"))


@pytest.fixture
def functions() -> FunctionRegistry:
    return FunctionRegistry()


def test_the_example_of_the_source(functions: FunctionRegistry) -> None:
    """Seed 000, III.A.1: value < valThreshold(id)."""

    @functions.scalar(["int"], "float")
    def threshold(sensor: int) -> float:
        return {1: 5.0, 2: 7.0}[sensor]

    kept = bind(col.value < threshold(col.id), SCHEMA)
    assert [kept.evaluate((sensor, value, *ROW[2:])) for sensor, value in ((1, 3.0), (2, 9.0))] == [True, False]
    assert str(col.value < threshold(col.id)) == "col.value < threshold(col.id)"
    by_name = call("threshold", col.id, functions=functions)
    assert by_name.node == threshold(col.id).node


def test_values_are_those_of_python(functions: FunctionRegistry) -> None:
    got: list[Any] = []

    @functions.scalar(
        ["timestamp", "date", "decimal(2)", "float"], {"at": "timestamp", "days": "int?", "all": "list<date>"}
    )
    def seen(*values: Any) -> dict[str, Any]:
        got.extend(values)
        return {"at": datetime(1970, 1, 1, 2, tzinfo=timezone.utc), "all": [date(1970, 1, 3)]}

    bound = bind(seen(col.at, col.day, col.price, lit(2)), SCHEMA)
    assert bound.evaluate(ROW) == (2 * HOUR, None, (2,))
    assert got == [datetime(1970, 1, 1, 1, tzinfo=timezone.utc), date(1970, 1, 2), Decimal("1.50"), 2.0]
    assert type(got[3]) is float
    assert bound.column.type == "struct"


@pytest.mark.parametrize(
    ("result", "value", "problem"),
    [
        ("int", 1.5, "1.5 is not a whole number"),
        ("int", None, "None is not a whole number"),
        ("int", 2**63, "is out of the 64-bit range"),
        ("string", 5, "5 is not a string"),
        ("timestamp", datetime(2013, 1, 1), "has no time zone"),
        ("decimal(1)", Decimal("0.25"), "has more than 1 digits after the point"),
        ("list<int>", "12", "'12' is not a list"),
        ("bool", 1, "1 is not true or false"),
    ],
)
def test_a_result_that_is_not_of_its_type_is_named(
    functions: FunctionRegistry, result: str, value: Any, problem: str
) -> None:
    declared = functions.scalar(["int"], result, name="f", version=3)(lambda _: value)
    listed = functions.scalar(["int"], result, name="f_of_lists", vectorised=True)(lambda ids: [value for _ in ids])
    with pytest.raises(ModuleViolation) as raised:
        bind(declared(col.id), SCHEMA, operator="map").evaluate(ROW)
    text = str(raised.value)
    assert text.startswith(f"operator 'map': f(col.id): function 'f' version 3 returned a result that is no {result}: ")
    assert problem in text
    with pytest.raises(ModuleViolation, match="function 'f_of_lists' version 1 returned"):
        bind(listed(col.id), SCHEMA).evaluate(ROW)


def test_what_a_function_raises_is_named_with_its_row(functions: FunctionRegistry) -> None:
    @functions.scalar(["int"], "int")
    def broken(sensor: int) -> int:
        return 10 // (sensor - 2)

    bound = bind(broken(col.id) > 0, SCHEMA, operator="late")
    with pytest.raises(ModuleViolation) as raised:
        bound.evaluate_batch([ROW, (2, *ROW[1:])])
    assert str(raised.value).startswith(
        "operator 'late': broken(col.id): function 'broken' version 1 raised ZeroDivisionError: "
    )
    assert str(raised.value).endswith("in row (2, 3.0, 3600000000, 1, 1.50)")
    assert isinstance(raised.value.__cause__, ZeroDivisionError)


@pytest.mark.parametrize("raised", [SystemExit(0), GeneratorExit(), KeyboardInterrupt()])
@pytest.mark.parametrize("vectorised", [False, True])
def test_a_function_does_not_end_the_program(
    functions: FunctionRegistry, raised: BaseException, vectorised: bool
) -> None:
    def ends(sensors: Any) -> Any:
        raise raised

    bound = bind(functions.scalar(["int"], "int", vectorised=vectorised)(ends)(col.id), SCHEMA)
    message = rf"function 'ends' version 1 raised {type(raised).__name__}: .*in row \(1, "
    for evaluate in (lambda: bound.evaluate(ROW), lambda: bound.evaluate_batch([ROW, ROW])):
        with handled_interrupts(), pytest.raises(ModuleViolation, match=message):
            evaluate()


@pytest.mark.parametrize("vectorised", [False, True])
def test_an_interrupt_ends_the_program_and_is_no_fault_of_a_function(
    functions: FunctionRegistry, vectorised: bool
) -> None:
    accept_interrupts()

    def slow(sensors: Any) -> Any:
        signal.raise_signal(signal.SIGINT)
        return sensors

    bound = bind(functions.scalar(["int"], "int", vectorised=vectorised)(slow)(col.id), SCHEMA)
    with pytest.raises(KeyboardInterrupt):
        bound.evaluate_batch([ROW, ROW])


def test_a_moment_that_python_does_not_have_is_named(functions: FunctionRegistry) -> None:
    hour = functions.scalar(["timestamp"], "int", name="hour")(lambda at: at.hour)
    with pytest.raises(ModuleViolation, match=r"function 'hour' version 1 cannot be called: 9223372036854775807 micro"):
        bind(hour(col.at), SCHEMA).evaluate((1, 3.0, 2**63 - 1, 1, Decimal(0)))


@pytest.mark.parametrize(
    ("use", "message"),
    [
        (lambda f: f(), "function 'f' takes 1 arguments, not 0"),
        (lambda f: bind(f(col.value), SCHEMA), r"f\(col.value\): argument 1 is int, not float \(value: float\)"),
        (lambda f: bind(f("a"), SCHEMA), "argument 1 is int, not string"),
        (lambda f: bind(f(col.nothing), SCHEMA), "there is no column 'nothing'"),
    ],
)
def test_arguments_are_checked(functions: FunctionRegistry, use: Any, message: str) -> None:
    declared = functions.scalar(["int"], "int", name="f")(lambda n: n)
    with pytest.raises(PlanError, match=message):
        use(declared)


def test_a_callable_needs_no_hash(functions: FunctionRegistry) -> None:
    class Scaled:
        __hash__ = None  # type: ignore[assignment]  # such as an object that is equal by its fields

        def __call__(self, n: int) -> int:
            return 3 * n

    scaled = functions.scalar(["int"], "int", name="scaled")(Scaled())
    assert bind_all([scaled(col.id), scaled(col.id) + 1], SCHEMA).evaluate(ROW) == (3, 4)


def test_null_is_checked(functions: FunctionRegistry) -> None:
    strict = functions.scalar(["int"], "int", name="f", nulls="pass")(lambda n: n)
    with pytest.raises(PlanError, match=r"argument 1 can be NULL, and the function takes int \(id: int\?\)"):
        bind(strict(col.id), SCHEMA)
    assert bind(functions.scalar(["int"], "int", name="g")(lambda n: n)(lit(None)), SCHEMA).evaluate(ROW) is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"name": "taken"}, "function 'taken' version 1 is declared twice"),
        ({"name": ""}, "the name of a function must not be empty"),
        ({"name": "f", "vectorised": True}, "is vectorised, and has no argument with the length of a batch"),
        ({"name": "f", "columns": "numpy"}, "takes columns, so it has to be declared vectorised"),
        ({"name": "f", "columns": "polars"}, "columns is 'polars'; it is one of list, numpy, arrow"),
        ({"name": "f", "version": 0}, "a version is a number from 1, not 0"),
        ({"name": "f", "nulls": "drop"}, "nulls is 'skip' or 'pass', not 'drop'"),
    ],
)
def test_a_wrong_declaration_is_refused(functions: FunctionRegistry, options: Any, message: str) -> None:
    functions.scalar([], "int", name="taken")(lambda: 1)
    with pytest.raises(PlanError, match=message):
        functions.scalar([], "int", **options)(lambda: 1)


def test_a_wrong_type_or_an_unknown_function_is_refused(functions: FunctionRegistry) -> None:
    with pytest.raises(PlanError, match="unknown type 'number'"):
        functions.scalar(["number"], "int")
    functions.scalar(["int"], "int", name="f", version=2)(lambda n: n)
    with pytest.raises(PlanError, match="needs function 'g' version 1, which is not installed; import the module that"):
        functions.find("g", 1)
    with pytest.raises(PlanError, match="function 'f' has no version 1; it is declared in 2"):
        functions.find("f", 1)


# Vectorised.


def test_a_vectorised_function_is_called_once_for_a_batch(functions: FunctionRegistry) -> None:
    calls: list[tuple[list[int], list[float]]] = []

    @functions.scalar(["int", "float"], "float", vectorised=True)
    def scaled(ids: list[int], values: list[float]) -> list[float]:
        calls.append((ids, values))
        return [sensor * value for sensor, value in zip(ids, values, strict=True)]

    projection = bind_all([scaled(col.id, col.value), scaled(col.id, col.value) + 1, col.id], SCHEMA)
    rows = [(1, 3.0, *ROW[2:]), (None, 4.0, *ROW[2:]), (2, 5.0, *ROW[2:])]
    assert projection.evaluate_batch(rows) == [(3.0, 4.0, 1), (None, None, None), (10.0, 11.0, 2)]
    assert calls == [([1, 2], [3.0, 5.0])]
    assert projection.evaluate(ROW) == (3.0, 4.0, 1)
    assert projection.evaluate_batch([]) == []
    assert len(calls) == 2


def test_a_condition_guards_a_vectorised_function(functions: FunctionRegistry) -> None:
    calls: list[list[int]] = []

    @functions.scalar(["int"], "int", vectorised=True)
    def inverse(ids: list[int]) -> list[int]:
        calls.append(ids)
        return [10 // sensor for sensor in ids]

    bound = bind(when(col.id != 0).then(inverse(col.id)).otherwise(-1), SCHEMA)
    assert bound.evaluate_batch([(n, *ROW[1:]) for n in (0, 5, 2, 0)]) == [-1, 2, 5, -1]
    assert calls == [[5, 2]]


def test_a_vectorised_function_that_raises_is_named_with_its_row(functions: FunctionRegistry) -> None:
    inverse = functions.scalar(["int"], "int", name="inverse", vectorised=True)(lambda ids: [10 // n for n in ids])
    unsure = functions.scalar(["int"], "int", name="unsure", vectorised=True, deterministic=False)(lambda ids: 1 / 0)
    rows = [(n, *ROW[1:]) for n in (1, 0, 2)]
    with pytest.raises(ModuleViolation, match=r"'inverse' version 1 raised ZeroDivisionError.*, in row \(0, 3.0"):
        bind(inverse(col.id), SCHEMA).evaluate_batch(rows)
    with pytest.raises(ModuleViolation, match=r"in a batch of 3 rows; the first is the one shown, in row \(1, 3.0"):
        bind(unsure(col.id), SCHEMA).evaluate_batch(rows)
    short = functions.scalar(["int"], "int", name="short", vectorised=True)(lambda ids: ids[1:])
    with pytest.raises(ModuleViolation, match="function 'short' version 1 returned 2 results for 3 rows"):
        bind(short(col.id), SCHEMA).evaluate_batch(rows)


@pytest.mark.parametrize("seed", range(100))
def test_batches_give_what_rows_give(functions: FunctionRegistry, seed: int) -> None:
    add = functions.scalar(["int?", "int?"], "int?", name="add", nulls="pass")(_add)
    add_lists = functions.scalar(["int?", "int?"], "int?", name="add_lists", nulls="pass", vectorised=True)(
        lambda left, right: [_add(a, b) for a, b in zip(left, right, strict=True)]
    )
    schema = parse_schema({"a": "int", "b": "int?"})
    rng = Random(seed)

    def random_int(rng: Random, function: Any, depth: int) -> Expression:
        if depth == 0:
            return rng.choice((col.a, col.b, lit(rng.randint(-2, 2))))
        left, right = random_int(rng, function, depth - 1), random_int(rng, function, depth - 1)
        return rng.choice(
            (function(left, right), when(left > right).then(function(left, 1)).otherwise(right), left - right)
        )

    rows = [(rng.randint(-3, 3), rng.choice((None, 0, 2))) for _ in range(rng.randint(0, 12))]
    by_row = bind_all([random_int(Random(seed + n), add, 4) for n in range(3)], schema)
    by_batch = bind_all([random_int(Random(seed + n), add_lists, 4) for n in range(3)], schema)
    assert by_batch.evaluate_batch(rows) == [by_row.evaluate(row) for row in rows]


def _add(a: int | None, b: int | None) -> int | None:
    return None if a is None or b is None else a + b
