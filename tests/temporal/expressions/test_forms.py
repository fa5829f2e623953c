"""Expressions as JSON and as text: what is read back is what was written. What plans ask of them."""

from __future__ import annotations

import json
import math
from datetime import date, datetime, timezone
from decimal import Decimal
from random import Random
from typing import Any

import pytest
from expression_world import KINDS, random_expression, random_row
from expression_world import SCHEMA as WORLD

from lmerge.temporal.errors import PlanError
from lmerge.temporal.expressions import surface
from lmerge.temporal.expressions.binding import bind, bind_all
from lmerge.temporal.expressions.families import ALL_RULES
from lmerge.temporal.expressions.functions import FunctionRegistry
from lmerge.temporal.expressions.injectivity import is_injective, kept_columns
from lmerge.temporal.expressions.json_format import from_json, to_json
from lmerge.temporal.expressions.printing import shown
from lmerge.temporal.expressions.properties import (
    columns_read,
    conjuncts,
    is_deterministic,
    over_projection,
    plain_column,
)
from lmerge.temporal.expressions.surface import Expression, coalesce, col, concat, lit, when
from lmerge.temporal.expressions.tree import Operation, walk
from lmerge.wire.schema import parse_schema

PYTHON = {name: getattr(surface, name) for name in dir(surface)} | {"Decimal": Decimal}

LITERALS = [
    *(lit(True), lit(-5), lit(2**63 - 1), lit(1.5), lit(-1.5e300), lit(math.nan), lit(-math.inf), lit("it's"), lit("")),
    *(lit(b"\x00'"), lit(Decimal("-1.50")), lit(Decimal(0)), lit(datetime(2013, 1, 31, 23, 59, 59, 1, timezone.utc))),
    *(lit(date(1969, 12, 31)), lit(2**63 - 1, "timestamp"), lit(None), lit(None, "string"), lit(1.25, "float(2)")),
    *(lit("1.5", "decimal(3)"), lit(None, "decimal(2)"), lit(1, "float")),
]

WRITTEN = [
    "(col.delay > 15) & col.origin.is_in(['JFK'])",
    "col['dep delay'] + 1",
    "col['_x'] + col['class']",
    "1 - col.a * (col.b - 2)",
    "(1 - col.a) * col.b - 2 - (3 - col.c)",
    "-(-col.a)".replace("(-col.a)", "-col.a"),
    "~((col.a == 1) | (col.b != 2)) & col.c",
    "lit(1) + 2",
    "lit(15) < col.delay",
    "(col.a < col.b) == (col.c >= 1.5)",
    "when(col.a > 1).then('x').when(col.b).then('y').otherwise('z')",
    "when(col.a > 1).then(lit(None, 'int'))",
    "coalesce(col.a, col.b, 0)",
    "(col.a + 1).cast('float', strict=False).round(2)",
    "col.t.truncate('hour') >= lit('2013-01-31T10:00:00Z', 'timestamp')",
    "col.day.is_in([lit('2013-01-31', 'date')])",
    "col.price * Decimal('1.50')",
    "col.s.trim().trim('x').substring(1, 2)",
    "(-col.a).abs() // 5 % 3",
    "col.p.field('city').length().between(1, 3)",
    "~col.a.is_null()",
    "lit(-5).abs() + -5",
    "col.x.exp().ln().power(2.5)",
]


@pytest.mark.parametrize("text", WRITTEN)
def test_an_expression_is_shown_as_it_is_written(text: str) -> None:
    assert str(eval(text, PYTHON)) == text


@pytest.mark.parametrize("literal", LITERALS, ids=str)
def test_literals_are_read_back(literal: Expression) -> None:
    for one in (literal, literal + literal, when(literal.is_null()).then(literal), col.x.is_in([literal])):  # type: ignore[list-item]  # any type
        assert from_json(json.loads(json.dumps(to_json(one), allow_nan=False))).node == one.node
        assert eval(str(one), PYTHON).node == one.node


@pytest.mark.parametrize("seed", range(150))
def test_random_expressions_are_read_back(seed: int) -> None:
    rng = Random(seed)
    one = random_expression(rng, rng.choice(KINDS), rng.randint(0, 5))
    assert from_json(json.loads(json.dumps(to_json(one), allow_nan=False))).node == one.node
    assert eval(str(one), PYTHON).node == one.node
    assert repr(one) == f"<expression {one}>"


def test_a_literal_of_nan_is_equal_to_itself() -> None:
    """Python 3.13 compares the fields of dataclasses by ==."""
    assert lit(math.nan).node == lit(-math.nan).node
    assert len({lit(math.nan).node, lit("nan", "float").node}) == 1
    assert lit(math.nan).node != lit(1.0).node
    assert lit(1).node != lit(1.0).node
    assert lit(1).node != 1


def test_the_document_is_public() -> None:
    assert to_json((col.delay > 15) & col.t.cast("int")) == {
        "lmerge_expression": 1,
        "expression": {
            "operation": "and",
            "operands": [
                {"operation": "greater", "operands": [{"column": "delay"}, {"literal": 15, "type": "int"}]},
                {"operation": "cast", "operands": [{"column": "t"}], "type": "int", "strict": True},
            ],
        },
    }
    literals = [to_json(lit(value))["expression"] for value in (math.nan, Decimal("1.50"), b"\xff", date(2013, 1, 31))]
    assert literals == [
        {"literal": "nan", "type": "float"},
        {"literal": "1.50", "type": "decimal(2)"},
        {"literal": "ff", "type": "bytes"},
        {"literal": "2013-01-31", "type": "date"},
    ]


def test_every_operation_is_read_back_by_a_test() -> None:
    written = [eval(text, PYTHON).node for text in WRITTEN]
    random = [random_expression(Random(seed), KINDS[seed % len(KINDS)], 4).node for seed in range(400)]
    used = {node.name for tree in (*written, *random) for node in walk(tree) if isinstance(node, Operation)}
    assert ALL_RULES.keys() - used == set()


def test_functions_are_named_with_their_version() -> None:
    functions = FunctionRegistry()
    declared = functions.scalar(["int"], "int", name="f", version=2)(lambda n: n)
    document = to_json(declared(col.a) + 1)
    assert document["expression"]["operands"][0] == {"function": "f", "version": 2, "operands": [{"column": "a"}]}
    assert from_json(document, functions).node == (declared(col.a) + 1).node
    with pytest.raises(PlanError, match="the plan needs function 'f' version 2, which is not installed"):
        from_json(document, FunctionRegistry())
    document["expression"]["operands"][0]["version"] = 3
    with pytest.raises(PlanError, match="function 'f' has no version 3; it is declared in 2"):
        from_json(document, functions)


def _nested(depth: int) -> dict[str, Any]:
    document: dict[str, Any] = {"column": "a"}
    for _ in range(depth):
        document = {"operation": "negate", "operands": [document]}
    return document


@pytest.mark.parametrize(
    ("node", "message"),
    [
        ([], "a part of an expression is an object, not"),
        ({}, "is column, literal, operation or function, not {}"),
        ({"column": 5}, "column is text, not 5"),
        ({"column": "a", "type": "int"}, "has column, type, where it must have column"),
        ({"literal": 5}, "the literal 5 has no type"),
        ({"literal": "5", "type": "number"}, "unknown type 'number'"),
        ({"literal": "five", "type": "int"}, "a literal of int: 'five' is no whole number"),
        ({"literal": "zz", "type": "bytes"}, "'zz' is no hexadecimal text"),
        ({"literal": [1], "type": "int"}, "is not a whole number"),
        ({"operation": "median", "operands": []}, "there is no operation 'median'"),
        ({"operation": "abs"}, "has operation, where it must have operands, operation"),
        ({"operation": "abs", "operands": {}}, "operands are a list"),
        ({"operation": "round", "operands": [], "digits": [1]}, "digits is text, a number or a truth value"),
        ({"operation": "round", "operands": []}, "where it must have digits, operands, operation"),
        ({"function": "f", "version": "1", "operands": []}, "a version is a number, not '1'"),
        (_nested(5000), "nested deeper than 100"),
    ],
    ids=lambda value: value if isinstance(value, str) else "node",
)
def test_a_document_that_is_no_expression_is_refused(node: Any, message: str) -> None:
    with pytest.raises(PlanError, match=message):
        from_json({"lmerge_expression": 1, "expression": node})


@pytest.mark.parametrize(
    ("document", "message"),
    [
        (5, "this is no expression: 5"),
        ({"expression": {"column": "a"}}, "this is no expression"),
        ({"lmerge_expression": 2, "expression": {}}, "version 2 cannot be read; this is version 1"),
        ({"lmerge_expression": True, "expression": {}}, "version True cannot be read"),
        ({"lmerge_expression": 1}, "where it must have expression, lmerge_expression"),
    ],
    ids=str,
)
def test_a_document_of_another_kind_is_refused(document: Any, message: str) -> None:
    with pytest.raises(PlanError, match=message):
        from_json(document)


# Properties.

SCHEMA = parse_schema(
    {"a": "int", "b": "int?", "x": "float", "m": "decimal(2)", "s": "string", "t": "timestamp", "p": "bool"}
)


def test_columns_that_are_read() -> None:
    assert columns_read((col.b + col.a > col.b).node) == ("b", "a")
    assert columns_read(lit(1).node) == ()
    assert plain_column(col.a.node) == "a"
    assert plain_column((col.a + 0).node) is None


def test_a_predicate_has_conjuncts() -> None:
    parts = [col.a > 1, ~col.p, (col.b == 2) | (col.a == 3)]
    both = parts[0] & parts[1] & parts[2]
    assert conjuncts(both.node) == tuple(part.node for part in parts)
    nested = Operation("and", (parts[0].node, Operation("and", (parts[1].node, parts[2].node))))
    assert conjuncts(nested) == conjuncts(both.node)
    assert conjuncts(parts[2].node) == (parts[2].node,)


@pytest.mark.parametrize("seed", range(40))
def test_an_expression_over_a_projection_is_one_over_its_input(seed: int) -> None:
    rng = Random(seed)
    kinds = {"a": "int", "x": "float", "s": "string", "p": "bool", "at": "timestamp"}
    projection = {name: random_expression(rng, kind, 2) for name, kind in kinds.items()}
    rest = {name: col[name] for name in WORLD.names if name not in kinds}
    projected = bind_all(projection | rest, WORLD)
    one = random_expression(rng, rng.choice(KINDS), 3)
    above = bind(one, projected.schema)
    fused = bind(over_projection(one.node, {name: each.node for name, each in projection.items()}), WORLD)
    assert fused.column.describe() == above.column.describe()
    for _ in range(20):
        row = random_row(rng)
        values = above.evaluate(projected.evaluate(row)), fused.evaluate(row)
        assert values[0] is values[1] or values[0] == values[1]


def test_an_expression_is_as_deterministic_as_what_it_calls() -> None:
    functions = FunctionRegistry()
    sure = functions.scalar(["int"], "int", name="sure")(lambda n: n)
    dice = functions.scalar(["int"], "int", name="dice", deterministic=False)(lambda n: n)
    assert is_deterministic((sure(col.a) + 1).node)
    assert not is_deterministic((sure(dice(col.a)) + 1).node)


@pytest.mark.parametrize(
    ("expression", "kept"),
    [
        *((col.a, "a"), (-col.x, "x"), (col.a + 1, "a"), (5 - col.b, "b"), (col.a * -3, "a"), (~col.p, "p")),
        *((col.m + 1, "m"), (col.a + Decimal("1.5"), "a"), (col.a.cast("string"), "a"), (col.t.cast("string"), "t")),
        *((col.a.cast("decimal(2)"), "a"), (col.m.cast("decimal(3)"), "m"), (concat("x", col.s, "y"), "s")),
        *(
            (col.t - lit("2013-01-01T00:00:00Z", "timestamp"), "t"),
            (col.a.cast("int"), "a"),
            (col.x.cast("string"), "x"),
        ),
        *(
            (col.x + 1, ""),
            (col.a * 0, ""),
            (col.a + 0.5, ""),
            (col.a / 2, ""),
            (col.a + col.b, ""),
            (col.a - col.a, ""),
        ),
        *((col.a.cast("float"), ""), (col.m.cast("decimal(1)"), ""), (col.s.lower(), ""), (col.a.abs(), "")),
        *((concat(col.s, col.s), ""), ((col.a % 5).cast("int"), ""), (col.s.cast("int", strict=False), "")),
        *((col.a + lit(None, "int"), ""), (coalesce(col.b, 0), ""), (col.a > 1, ""), (lit(1), "")),
        *(
            (col.t.truncate("day"), ""),
            (col.m.cast("decimal(38)", strict=False), ""),
            (col.x.cast("float(1)"), ""),
            (when(col.p).then(col.a), ""),
        ),
    ],
    ids=str,
)
def test_a_column_that_can_be_computed_back_is_kept(expression: Expression, kept: str) -> None:
    assert kept_columns([expression], SCHEMA) == frozenset([kept] if kept else [])


def test_a_row_is_injective_if_it_keeps_the_columns() -> None:
    assert is_injective([col.a + 1, col.s, col.x > 1], SCHEMA, ["s", "a"])
    assert not is_injective([col.a + 1, col.s.lower()], SCHEMA, ["s", "a"])
    assert not is_injective([col.a], SCHEMA)
    assert is_injective([col[name] for name in SCHEMA.names], SCHEMA)


def test_functions_that_declare_it_are_injective() -> None:
    functions = FunctionRegistry()
    paired = functions.scalar(["int", "string", "int"], "string", name="paired", injective=True)(_paired)
    floats = functions.scalar(["float"], "float", name="floats", injective=True)(lambda x: x)
    dice = functions.scalar(["int"], "int", name="dice", injective=True, deterministic=False)(lambda n: n)
    assert kept_columns([paired(col.a, col.s, 1)], SCHEMA) == {"a", "s"}
    assert kept_columns([paired(col.a, col.s.lower(), 1)], SCHEMA) == {"a"}
    assert kept_columns([paired(col.b, col.s, 1)], SCHEMA) == set(), "NULL of either gives NULL"
    assert kept_columns([floats(col.x)], SCHEMA) == {"x"}
    assert kept_columns([floats(col.a)], SCHEMA) == set()
    assert kept_columns([dice(col.a)], SCHEMA) == set()
    assert shown(paired(col.a, "x", 1).node) == "paired(col.a, 'x', 1)"


def _paired(a: int, s: str, n: int) -> str:
    return f"{a} {s} {n}"
