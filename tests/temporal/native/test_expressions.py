"""Expressions on the native core give what they give in Python: the same values bit for bit, and the same errors."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from decimal import Decimal
from operator import add, eq, floordiv, ge, lt, mod, mul, neg, sub, truediv
from random import Random

import pytest
from any_trees import SCHEMA as ANY_SCHEMA
from any_trees import random_any_row, random_tree
from expression_world import KINDS, random_expression, random_row
from expression_world import SCHEMA as MIXED_SCHEMA

from lmerge.core.engines import selection
from lmerge.temporal.errors import ModuleViolation, PlanError
from lmerge.temporal.expressions.binding import BoundProjection, bind_all
from lmerge.temporal.expressions.surface import Expression, coalesce, col, concat, when
from lmerge.temporal.expressions.tree import Node
from lmerge.temporal.python_values import EXACT
from lmerge.temporal.values import Values, canonical_float
from lmerge.wire.native_fitting import declared
from lmerge.wire.schema import Schema, parse_schema

pytestmark = pytest.mark.skipif(selection.native_problem() is not None, reason="the native core is not built")

TREES = 60


def native_rows(bound: BoundProjection, schema: Schema, rows: Sequence[Values]) -> list[Values] | str:
    """Return the values for rows on the native core, or the error."""
    from lmerge._native import ColumnForm
    from lmerge.temporal.native.expressions import native_expressions

    expressions = native_expressions(bound, schema)
    assert expressions is not None
    batch = ColumnForm(declared(schema)).batch([(row, 0, 0, 1) for row in rows])
    try:
        return [row for row, *_ in expressions.evaluate(batch).changes()]
    except ModuleViolation as violation:
        return str(violation)


def python_rows(bound: BoundProjection, rows: Sequence[Values]) -> list[Values | ModuleViolation]:
    def one(row: Values) -> Values | ModuleViolation:
        try:
            return bound.evaluate(row)
        except ModuleViolation as violation:
            return violation

    return list(map(one, rows))


def check(trees: Sequence[Node], schema: Schema, rows: Sequence[Values]) -> None:
    bound = bind_all(trees, schema, operator="any")
    expected = python_rows(bound, rows)
    good = [row for row, values in zip(rows, expected, strict=True) if not isinstance(values, ModuleViolation)]
    found = native_rows(bound, schema, good)
    of_good = [values for values in expected if not isinstance(values, ModuleViolation)]
    assert isinstance(found, list), found
    for row, values, native in zip(good, of_good, found, strict=True):
        assert repr(native) == repr(values), f"{[str(column) for column in bound.columns]} of {row}"
    wrong = [(row, str(one)) for row, one in zip(rows, expected, strict=True) if isinstance(one, ModuleViolation)]
    if wrong:
        assert native_rows(bound, schema, rows) == wrong[0][1]
    for row, problem in wrong[1:4]:
        assert native_rows(bound, schema, [*good, row, *good]) == problem


def check_any(seed: int) -> None:
    rng = Random(seed)
    rows = [random_any_row(rng) for _ in range(24)]
    trees = 0
    while trees < TREES:
        some = [random_tree(rng, rng.randint(1, 3)) for _ in range(rng.choice((1, 1, 2)))]
        try:
            bind_all(some, ANY_SCHEMA)
        except PlanError:
            continue
        check(some, ANY_SCHEMA, rows)
        trees += 1


def check_deep(seed: int) -> None:
    rng = Random(seed)
    rows = [random_row(rng) for _ in range(40)]
    for _ in range(TREES):
        trees = [random_expression(rng, rng.choice(KINDS), rng.randint(1, 5)).node for _ in range(rng.randint(1, 3))]
        check(trees, MIXED_SCHEMA, rows)


@pytest.mark.parametrize("seed", range(8))
def test_any_tree_gives_the_same_values_and_errors(seed: int) -> None:
    check_any(seed)


@pytest.mark.parametrize("seed", range(10))
def test_deep_trees_give_the_same_values_and_errors(seed: int) -> None:
    check_deep(seed)


@pytest.mark.long
@pytest.mark.timeout(0)
@pytest.mark.parametrize("check_seed", [check_any, check_deep])
def test_many_trees_give_the_same_values_and_errors(check_seed: Callable[[int], None], long_seeds: range) -> None:
    for seed in long_seeds:
        check_seed(1000 + seed)


def any_float(rng: Random) -> float:
    """Return a float of any bits, or one that is near to a tie."""
    if rng.random() < 0.5:
        return canonical_float(struct.unpack("d", rng.randbytes(8))[0])
    return canonical_float(rng.randint(-10_000, 10_000) / 2 ** rng.randint(0, 12) * 10 ** rng.randint(-9, 9))


def any_int(rng: Random) -> int:
    return rng.randint(-(2**63), 2**63 - 1) >> rng.randint(0, 63)


def any_decimal(rng: Random, scale: int) -> Decimal:
    digits = rng.randint(0, 10 ** rng.randint(1, 38) - 1) // 5 * 5
    return EXACT.scaleb(Decimal(digits * rng.choice((1, -1))), -scale)


NUMBERS = parse_schema({"x": "float", "y": "float", "m": "int", "n": "int", "p": "decimal(4)", "q": "decimal(19)"})


def any_numbers(rng: Random) -> Values:
    return (
        any_float(rng),
        any_float(rng) if rng.random() < 0.5 else float(rng.randint(-4, 4)),
        any_int(rng),
        any_int(rng),
        any_decimal(rng, 4),
        any_decimal(rng, 19),
    )


def of_numbers() -> list[Expression]:
    x, y, m, n, p, q = col.x, col.y, col.m, col.n, col.p, col.q
    both = [(x, y), (m, n), (p, q), (q, p), (m, p), (x, n)]
    arithmetic = [f(a, b) for f in (add, sub, mul, truediv, floordiv, mod, lt, ge, eq) for a, b in both]
    rounded = [one.round(digits) for one in (x, m, p, q) for digits in (-38, -19, -3, 0, 1, 3, 15, 16, 17, 25, 38)]
    of_one = [f(one) for one in (x, m, p, q) for f in (neg, abs, Expression.sign, Expression.floor, Expression.ceil)]
    of_float = [f(one) for one in (x, p, q) for f in (Expression.sqrt, Expression.exp, Expression.ln)]
    types = ("int", "float", "float(3)", "string", "decimal(0)", "decimal(2)", "decimal(19)", "decimal(38)")
    casts = [one.cast(kind) for one in (x, m, p, q) for kind in types]
    return [*arithmetic, *rounded, *of_one, *of_float, *casts, x.power(y), y.power(x), x.power(n % 7), (x / y).power(2)]


@pytest.mark.parametrize("expression", of_numbers(), ids=str)
def test_numbers_of_any_bits_give_the_same(expression: Expression) -> None:
    rng = Random(str(expression))
    check([expression.node], NUMBERS, [any_numbers(rng) for _ in range(200)])


@pytest.mark.parametrize(
    "kind", ["int", "float", "float(2)", "bool", "decimal(0)", "decimal(3)", "decimal(38)", "date", "timestamp"]
)
def test_texts_near_to_a_value_are_read_the_same(kind: str) -> None:
    rng = Random(kind)
    schema = parse_schema({"t": "string"})
    texts = [*TEXTS, *(changed(rng, rng.choice(TEXTS)) for _ in range(1500))]
    check([col.t.cast(kind, strict=False).node], schema, [(text,) for text in texts])
    check([col.t.cast(kind).node], schema, [(text,) for text in texts])


TEXTS = (
    *("0", "12", "-7", "+3", "9223372036854775807", "-9223372036854775808", "9223372036854775808", "0" * 70),
    *("1.5", ".5", "5.", ".", "-0.0", "1e5", "1E-5", "1e400", "1e-400", "-1e400", "inf", "-inf", "+inf", "nan", "-nan"),
    *("0.0005", "0.0015", "2.5", "3.5", "9" * 38, "9" * 35 + ".9995", "1" + "0" * 38, "0." + "0" * 38 + "5", "1" * 153),
    *("true", "false", "True", "", " 1", "1 ", "1_0", "\u0663", "1\n", "infinity", "e5", "1e", "0x1"),
    *("2013-01-31", "2013-02-29", "2012-02-29", "1900-02-29", "2000-02-29", "0001-01-01", "9999-12-31", "0000-01-01"),
    *("2013-01-31T10:00:00Z", "2013-01-31 10:00Z", "2013-01-31T10:00:00.5Z", "2013-01-31T10:00:00.123456+01:30"),
    *("0001-01-01T00:00:00+99:99", "9999-12-31T23:59:59.999999-99:99", "2013-01-31T24:00:00Z", "2013-01-31T10:60:00Z"),
    *("2013-01-31T10:00:00", "2013-01-31T10:00:00.1234567Z", "2013-01-31T10:00:00.Z", "2013-01-31t10:00:00Z"),
)


def changed(rng: Random, text: str) -> str:
    """Return text with another character, or one less, or one more."""
    at = rng.randint(0, len(text))
    letters: tuple[str, ...] = ("", *"0159.-+:eTZ \u00e9")
    return text[:at] + rng.choice(letters) + text[at + rng.randint(0, 1) :]


@pytest.mark.parametrize("first", range(-720_000, 2_934_000, 522_000))
def test_days_and_moments_of_all_years_give_the_same(first: int) -> None:
    rng = Random(first)
    schema = parse_schema({"day": "date", "at": "timestamp"})
    rows = [
        (first + rng.randint(0, 522_000), (first + rng.randint(0, 522_000)) * 86_400_000_000 + at) for at in range(300)
    ]
    at = col.at.truncate("hour") - col.day.cast("timestamp")
    check([col.day.cast("string").node, col.at.cast("string").node, at.node], schema, rows)
    parts = [col.at.hour_of_day(), col.at.day_of_week(), col.day.day_of_week(), col.at.date_of(), col.at.cast("date")]
    check([part.node for part in parts], schema, rows)


CASES = (
    "\u00c9COLE \u00df",
    "\u039f\u0394\u039f\u03a3",
    "\u0130I\u0131i",
    "\ufb01",
    "\ua7cb\u0264\u019b",
    "\u1e9e",
    "plain",
    "",
    "\U0001044c",
)


def test_text_of_every_script_gives_the_same() -> None:
    schema = parse_schema({"t": "string?", "u": "string"})
    rng = Random(1)
    letters = [
        chr(rng.choice((rng.randint(0, 0x24F), rng.randint(0, 0xD7FF), rng.randint(0xE000, 0x10FFFF))))
        for _ in range(900)
    ]
    texts = [*CASES, *(rng.choice(letters) + "".join(rng.choices(letters, k=rng.randint(0, 5))) for _ in range(300))]
    rows = [(rng.choice((None, text)), rng.choice(texts)) for text in texts]
    t, u = col.t, col.u
    trees = [t.upper(), t.lower(), u.upper(), u.lower(), t.length(), concat(t, "-", u), t.trim(), t.trim("\u00e9 a")]
    trees += [t.substring(n) for n in (0, 1, -2)] + [t.substring(n, k) for n in (0, 1, -3, 9) for k in (-1, 0, 2)]
    trees += [t.replace("a", u), t.replace(u.substring(0, 1), ""), t.contains(u), u.starts_with(t), t < u, t == u]
    check([tree.node for tree in trees], schema, rows)


def test_a_row_with_an_error_that_nothing_needs_has_a_value() -> None:
    schema = parse_schema({"n": "int", "m": "int?", "t": "string"})
    beyond, number = col.n * col.n, col.t.cast("int")
    trees = [
        (col.n < 10) & (beyond > 5),
        (col.n >= 10) | (beyond > 5),
        when(col.n >= 10).then(-1).when(col.n < 0).then(-beyond).otherwise(beyond),
        coalesce(col.m, beyond),
        when(col.t == "x").then(None).otherwise(number),
        (col.m > 0) & (number > 3),
    ]
    rng = Random(3)
    rows: list[Values] = [
        (rng.choice((1, 7, -3, 2**40)), rng.choice((None, 0, 5)), rng.choice(("x", "12", "0"))) for _ in range(400)
    ]
    for tree in trees:
        check([tree.node], schema, rows)
    check([tree.node for tree in trees], schema, rows)
