"""Expressions are checked against a schema, evaluated once where they are equal, and named in errors."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from random import Random
from typing import Any

import pytest
from expression_world import SCHEMA as WORLD
from expression_world import random_row

from lmerge.temporal.errors import ModuleViolation, PlanError
from lmerge.temporal.expressions.binding import bind, bind_all
from lmerge.temporal.expressions.functions import FunctionRegistry
from lmerge.temporal.expressions.surface import Expression, col, least, lit, when
from lmerge.temporal.expressions.tree import DEPTH_MAX, NODES_MAX, Operation
from lmerge.wire.schema import Column, parse_schema

SCHEMA = parse_schema(
    {"origin": "string", "delay": "int?", "distance": "int", "price": "decimal(2)", "speed": "float(1)"}
)
ANY_INDEX: Any = 0
ROW = ("JFK", 20, 1200, None, 1.5)


def test_a_predicate_is_evaluated_for_rows() -> None:
    late = bind((col.delay > 15) & col.origin.is_in(["JFK"]), SCHEMA)
    assert late.column == Column("(col.delay > 15) & col.origin.is_in(['JFK'])", "bool", nullable=True)
    assert late.evaluate(ROW) is True
    assert late.evaluate_batch([ROW, ("LGA", 20, 0, None, 0.0), ("JFK", None, 0, None, 0.0)]) == [True, False, None]
    assert late.evaluate_batch([]) == []


def test_a_plain_column_keeps_its_name_and_type() -> None:
    assert bind(col.speed, SCHEMA).column == Column("speed", "float", round_digits=1)
    assert bind(col["speed"] + 0, SCHEMA).column == Column("col.speed + 0", "float")


def test_a_projection_has_a_schema() -> None:
    projection = bind_all({"far": col.distance > 1000, "delay": col.delay, "hours": col.delay / 60}, SCHEMA)
    assert str(projection.schema) == "far: bool, delay: int?, hours: float?"
    assert projection.evaluate(ROW) == (True, 20, 20 / 60)
    assert projection.evaluate_batch([ROW, ROW]) == [(True, 20, 20 / 60)] * 2
    assert bind_all([col.delay, col.delay], SCHEMA).evaluate(ROW) == (20, 20)
    with pytest.raises(PlanError, match="two columns named 'delay'"):
        _ = bind_all([col.delay, col.delay], SCHEMA).schema


def test_the_name_of_a_long_expression_is_cut() -> None:
    many = col.origin.is_in([f"airport {index}" for index in range(100)])
    assert len(bind(many, SCHEMA).column.name.encode()) <= 200
    assert bind_all([many], SCHEMA).schema.names[0].startswith("col.origin.is_in(['airport 0', ")


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        (col.weight + 1, ("operator 'f': col.weight in col.weight + 1: there is no column 'weight'; the columns are "
         "origin, delay, distance, price, speed")),
        (col.delay > "x", "operator 'f': col.delay > 'x': what it compares are int? and string (delay: int?)"),
        ((col.delay + col.origin > 3) & col.origin.is_in(["a"]), ("operator 'f': col.delay + col.origin in "
         "(col.delay + col.origin > 3) & col.origin.is_in(['a']): it takes numbers, not int? and string "
         "(delay: int?, origin: string)")),
        (col.origin + col.origin, ("operator 'f': col.origin + col.origin: it takes numbers; concat() joins text "
         "(origin: string)")),
        (col.price * 1.5, ("operator 'f': col.price * 1.5: it takes decimal(2) and float only after a cast: a float is "
         "not exact (price: decimal(2))")),
        (col.delay & col.distance, ("operator 'f': col.delay & col.distance: it takes bool, not int?; compare it with "
         "something (delay: int?, distance: int)")),
        (col.delay.lower(), "operator 'f': col.delay.lower(): it takes string, not int? (delay: int?)"),
        (col.origin.truncate("hour"), ("operator 'f': col.origin.truncate('hour'): it takes timestamp, not string "
         "(origin: string)")),
        (col.delay.cast("number"), "operator 'f': col.delay.cast('number'): unknown type 'number'; the types are "),
        (lit(None) + 1, "operator 'f': lit(None) + 1: the type of NULL is open; write lit(None, 'int') or another"),
        (lit(None), "operator 'f': lit(None): the type of NULL is open; write lit(None, 'int') or another type"),
        (col.speed.round(99), "operator 'f': col.speed.round(99): rounding to 99 digits is beyond 38 (speed: "),
    ],
    ids=str,
)  # fmt: skip
def test_an_error_names_the_expression_its_columns_and_types(expression: Expression, message: str) -> None:
    with pytest.raises(PlanError) as raised:
        bind(expression, SCHEMA, operator="f")
    assert str(raised.value).startswith(message)


@pytest.mark.parametrize(
    ("node", "message"),
    [
        (Operation("median", ()), "there is no operation 'median'"),
        (Operation("add", (lit(1).node,)), "it takes 2 operands, not 1"),
        (Operation("substring", (lit("").node,)), "it takes 2 to 3 operands, not 1"),
        (Operation("and", ()), "it takes 1 to any number of operands, not 0"),
        (Operation("round", (lit(1).node,)), "its parameters are digits"),
        (Operation("round", (lit(1).node,), (("digits", "2"),)), "digits is '2', which is no int"),
        (Operation("round", (lit(1).node,), (("digits", True),)), "digits is True, which is no int"),
        (Operation("abs", (lit(1).node,), (("digits", 2),)), "its parameters are none"),
        (Operation("case", (lit(True).node, lit(1).node, lit(2).node, lit(3).node)), "a value for the rest"),
        (Operation("truncate", (lit(0, "timestamp").node,), (("unit", "week"),)), "'week' is no unit"),
    ],
    ids=str,
)
def test_a_tree_that_no_surface_builds_is_refused(node: Operation, message: str) -> None:
    with pytest.raises(PlanError, match=message):
        bind(node, SCHEMA)


def test_an_error_at_run_names_operator_expression_and_row() -> None:
    bound = bind((col.distance * col.distance > 5) & (col.delay > 5), SCHEMA, operator="late")
    with pytest.raises(ModuleViolation) as raised:
        bound.evaluate_batch([ROW, ("LGA", 1, 2**40, None, 0.0)])
    assert str(raised.value) == (
        "operator 'late': col.distance * col.distance: the result is beyond 64 bits, "
        "in row ('LGA', 1, 1099511627776, None, 0.0)"
    )


@pytest.mark.parametrize(
    "use",
    [
        lambda: bool(col.delay > 15),
        lambda: (col.delay > 15) and (col.delay < 20),
        lambda: not (col.delay > 15),
        lambda: 1 < col.delay < 15,
        lambda: max(col.delay, col.distance),
    ],
)
def test_an_expression_has_no_truth_value(use: Any) -> None:
    with pytest.raises(PlanError, match="has no truth value before a row is there; write & for and"):
        use()


@pytest.mark.parametrize(
    ("use", "message"),
    [
        (lambda: col.delay == None, "use is_null()"),  # noqa: E711  (what is refused)
        (lambda: lit(1) + {1: 2}, "{1: 2} is no literal; it is dict"),
        (lambda: lit(datetime(2013, 1, 1)), "has no time zone"),
        (lambda: lit(2**63), "out of the 64-bit range"),
        (lambda: lit("soon", "timestamp"), "'soon' is no moment as 2013-01-31T10:00:00Z"),
        (lambda: lit("\ud800"), "half of a surrogate pair"),
        (lambda: col[ANY_INDEX], "a column has a name, not 0"),
        (lambda: col.origin.is_in("JFK"), "several values, not 'JFK'"),
    ],
)
def test_what_cannot_be_part_of_an_expression_is_refused(use: Any, message: str) -> None:
    with pytest.raises(PlanError, match=message):
        use()


def test_columns_that_tools_probe_are_no_columns() -> None:
    assert not hasattr(col, "_repr_html_")
    assert bind(col["_x"], parse_schema({"_x": "int"})).evaluate((4,)) == 4
    with pytest.raises(TypeError, match="unhashable"):
        hash(col.delay)
    assert {col.delay.node: 1}[col["delay"].node] == 1


def test_a_deep_or_a_large_tree_is_refused() -> None:
    deep = col.delay
    for _ in range(DEPTH_MAX):
        deep = -deep
    with pytest.raises(PlanError, match=f"nested deeper than {DEPTH_MAX}"):
        bind(deep, SCHEMA)
    assert isinstance(deep.node, Operation)
    assert bind(deep.node.operands[0], SCHEMA).evaluate(ROW) in (20, -20)
    doubled = col.delay
    for _ in range(40):
        doubled = doubled + doubled
    with pytest.raises(PlanError, match=f"more than {NODES_MAX} parts"):
        bind(doubled, SCHEMA)
    either = lit(False)
    for index in range(3000):
        either = either | (col.delay == index)
    assert bind(either, SCHEMA).evaluate(ROW) is True, "chains of | are not deep"


def test_a_case_with_many_branches_works_until_it_is_too_deep() -> None:
    case = when(col.delay == 0).then(0)
    for index in range(1, 100):
        case = case.when(col.delay == index).then(index)
    assert bind(case, SCHEMA).evaluate(ROW) == 20
    for index in range(100, 2000):
        case = case.when(col.delay == index).then(index)
    with pytest.raises(PlanError, match="too many branches inside each other"):
        bind(case, SCHEMA)


@pytest.mark.parametrize("seed", range(150))
def test_e22_equal_parts_are_evaluated_at_most_once_a_row(seed: int) -> None:
    functions = FunctionRegistry()
    calls: list[tuple[int | None, int | None]] = []

    @functions.scalar(["int?", "int?"], "int?", nulls="pass")
    def counted(a: int | None, b: int | None) -> int | None:
        calls.append((a, b))
        return None if a is None or b is None else a + b

    rng = Random(seed)
    shared = [counted(col.a, rng.randint(0, 2)), counted(col.b, col.a), counted(counted(col.a, 1), col.b)]

    def random_part(depth: int) -> Expression:
        if depth == 0:
            return rng.choice(shared) > rng.randint(-3, 3)
        left, right = random_part(depth - 1), random_part(depth - 1)
        return rng.choice((left & right, left | right, ~left, when(left).then(right).otherwise(random_part(depth - 1))))

    parts = [random_part(3) for _ in range(3)]
    alone = [bind(part, WORLD) for part in parts]
    together = bind_all([*parts, *shared], WORLD)
    for _ in range(20):
        row = random_row(rng)
        expected = [one.evaluate(row) for one in alone]
        calls.clear()
        found = together.evaluate(row)
        assert list(found[:3]) == expected
        assert len(calls) <= 4, "one for each of the shared calls, and one inside the last"


def test_a_part_is_not_evaluated_where_nothing_needs_it() -> None:
    functions = FunctionRegistry()
    calls: list[int] = []

    @functions.scalar(["int"], "int")
    def counted(n: int) -> int:
        calls.append(n)
        return n

    one = counted(col.distance)
    both = bind_all(
        [when(col.origin == "JFK").then(one).otherwise(0), when(col.delay > 15).then(one).otherwise(1)], SCHEMA
    )
    assert both.evaluate(ROW) == (1200, 1200)
    assert both.evaluate(("LGA", 20, 7, None, 0.0)) == (0, 7)
    assert both.evaluate(("JFK", 1, 8, None, 0.0)) == (8, 1)
    assert both.evaluate(("LGA", 1, 9, None, 0.0)) == (0, 1)
    assert calls == [1200, 7, 8]


def test_parts_of_different_types_are_different() -> None:
    constants = [lit(1), lit(True), lit(1.0), lit(Decimal("1.0")), lit(Decimal("1.00"))]
    found = bind_all([*constants, *map(least, constants)], SCHEMA).evaluate(ROW)
    assert list(map(str, found)) == ["1", "True", "1.0", "1.0", "1.00"] * 2
