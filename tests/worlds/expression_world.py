"""Random expressions with their types, random rows, and the same expressions as DuckDB's SQL.

The SQL is written from the table of semantics and shares no code with the expressions. Not in it, because DuckDB means
something else, or nothing:

* ``//`` and ``%`` of negative numbers are truncated there; ``_floor`` builds ours from that. Those of floats and
  decimals are left out.
* ``/`` by zero is infinite for floats there.
* ``round`` takes halves away from zero there; casts of floats to ints round, and casts of text accept blanks and
  fractions.
* ``upper`` of ``ß`` is one letter there.
* ``exp``, ``ln`` and ``power`` differ in the last bit between libraries.
* Both sides of ``&``, and all branches, can be evaluated there: so values are small, and nothing overflows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from random import Random
from typing import Any

import duckdb

from lmerge.temporal.expressions.surface import Expression, coalesce, col, concat, greatest, least, lit, when
from lmerge.temporal.expressions.tree import ColumnReference, LiteralValue, Node, Operation
from lmerge.temporal.values import NAN, Values
from lmerge.wire.schema import parse_schema

SCHEMA = parse_schema(
    {
        "a": "int",
        "b": "int?",
        "x": "float",
        "y": "float?",
        "s": "string",
        "t": "string?",
        "p": "bool",
        "q": "bool?",
        "m": "decimal(2)",
        "n": "decimal(1)?",
        "at": "timestamp",
        "until": "timestamp?",
        "day": "date?",
        "place?": {"city": "string?", "gate": "int"},
        "stops": "list<int>",
    }
)

_SQL_TYPES = {
    "a": "BIGINT",
    "b": "BIGINT",
    "x": "DOUBLE",
    "y": "DOUBLE",
    "s": "VARCHAR",
    "t": "VARCHAR",
    "p": "BOOLEAN",
    "q": "BOOLEAN",
    "m": "DECIMAL(12,2)",
    "n": "DECIMAL(12,1)",
    "at": "TIMESTAMP",
    "until": "TIMESTAMP",
    "day": "DATE",
    "place": "STRUCT(city VARCHAR, gate BIGINT)",
    "stops": "BIGINT[]",
}

TEXTS = ("", "a", "B", "JFK", "été", "12", "-7", "xay", "a a", "ñ", "日本", "z\U0001f600")
FLOATS = (0.0, 1.0, -1.5, 2.25, NAN, float("inf"), float("-inf"), 1e10, 0.1)
EPOCH = datetime(1970, 1, 1)


def random_row(rng: Random) -> Values:
    """Return a row of ``SCHEMA``: small values, so that equal ones and NULLs meet."""
    hour = 3_600_000_000
    full: list[Any] = [
        rng.randint(-4, 4),
        rng.randint(-9, 9),
        rng.choice(FLOATS),
        rng.choice(FLOATS),
        rng.choice(TEXTS),
        rng.choice(TEXTS),
        rng.random() < 0.5,
        rng.random() < 0.5,
        Decimal(rng.randint(-500, 500)).scaleb(-2),
        Decimal(rng.randint(-50, 50)).scaleb(-1),
        rng.randint(-400_000, 400_000) * hour + rng.randint(0, 2) * 59_999_999,
        rng.randint(-50, 50) * hour,
        rng.randint(-20_000, 20_000),
        (rng.choice((None, *TEXTS)), rng.randint(0, 5)),
        tuple(rng.randint(-2, 2) for _ in range(rng.randint(0, 3))),
    ]
    nullable = [column.nullable for column in SCHEMA.columns]
    return tuple(None if can and rng.random() < 0.25 else one for can, one in zip(nullable, full, strict=True))


# Expressions.


def random_expression(rng: Random, kind: str, depth: int) -> Expression:
    """Return an expression of a type: int, float, string, bool, decimal, timestamp or date."""
    if depth <= 0 or rng.random() < 0.1:
        return rng.choice(_LEAVES[kind])(rng)
    make = rng.choice((*_MADE[kind], _coalesced, _chosen))
    return make(rng, kind, depth - 1)


def _coalesced(rng: Random, kind: str, depth: int) -> Expression:
    return coalesce(*(random_expression(rng, kind, depth) for _ in range(rng.randint(1, 3))))


def _chosen(rng: Random, kind: str, depth: int) -> Expression:
    case = when(random_expression(rng, "bool", depth)).then(random_expression(rng, kind, depth))
    if rng.random() < 0.4:
        case = case.when(random_expression(rng, "bool", depth)).then(random_expression(rng, kind, depth))
    return case if rng.random() < 0.3 else case.otherwise(random_expression(rng, kind, depth))


_Make = Callable[[Random, str, int], Expression]


def _of(build: Callable[..., Expression], *kinds: str) -> _Make:
    return lambda rng, _, depth: build(*(random_expression(rng, kind, depth) for kind in kinds))


def _extreme(rng: Random, kind: str, depth: int) -> Expression:
    function = rng.choice((least, greatest))
    return function(*(random_expression(rng, kind, depth) for _ in range(rng.randint(1, 3))))


def _compared(rng: Random, _: str, depth: int) -> Expression:
    kind = rng.choice(tuple(_MADE))
    left, right = random_expression(rng, kind, depth), random_expression(rng, kind, depth)
    if kind in ("float", "decimal") and rng.random() < 0.3:
        right = random_expression(rng, "int", depth)
    comparisons: tuple[Callable[[Expression, Expression], Expression], ...] = (
        lambda a, b: a == b,
        lambda a, b: a != b,
        lambda a, b: a < b,
        lambda a, b: a <= b,
        lambda a, b: a > b,
        lambda a, b: a >= b,
        lambda a, b: a.between(b, left),
    )
    return rng.choice(comparisons)(left, right)


def _member(rng: Random, _: str, depth: int) -> Expression:
    if rng.random() < 0.5:
        return random_expression(rng, "int", depth).is_in([rng.randint(-3, 3) for _ in range(rng.randint(1, 3))])
    if rng.random() < 0.5:
        return random_expression(rng, "float", depth).is_in(rng.sample(FLOATS, 3))
    return random_expression(rng, "string", depth).is_in(rng.sample(TEXTS, 2))


def _null(rng: Random, _: str, depth: int) -> Expression:
    one = random_expression(rng, rng.choice(tuple(_MADE)), depth)
    return one.is_null() if rng.random() < 0.5 else one.is_not_null()


def _substring(rng: Random, _: str, depth: int) -> Expression:
    text = random_expression(rng, "string", depth)
    start = rng.randint(0, 3)
    return text.substring(start) if rng.random() < 0.5 else text.substring(start, rng.randint(0, 3))


def _truncated(rng: Random, _: str, depth: int) -> Expression:
    return random_expression(rng, "timestamp", depth).truncate(rng.choice(("second", "minute", "hour", "day")))


_MADE: dict[str, tuple[_Make, ...]] = {
    "int": (
        _of(lambda a, b: a + b, "int", "int"),
        _of(lambda a, b: a - b, "int", "int"),
        _of(lambda a: a * 3, "int"),
        _of(lambda a, b: a // b, "int", "int"),
        _of(lambda a, b: a % b, "int", "int"),
        _of(lambda a: -a, "int"),
        _of(lambda a: a.abs(), "int"),
        _of(lambda a: a.sign(), "int"),
        _of(lambda a: a.length(), "string"),
        _of(lambda a: a.cast("int"), "bool"),
        _of(lambda a: a.cast("int", strict=False), "string"),
        _of(lambda a: a.hour_of_day(), "timestamp"),
        _of(lambda a: a.day_of_week(), "timestamp"),
        _of(lambda a: a.day_of_week(), "date"),
        _of(lambda a, b: (a - b) % 1000, "timestamp", "timestamp"),
        _of(lambda a, b: a - b, "date", "date"),
        _of(lambda a: col.stops.element(a), "int"),
        _extreme,
    ),
    "float": (
        _of(lambda a, b: a + b, "float", "float"),
        _of(lambda a, b: a - b, "float", "int"),
        _of(lambda a, b: a * b, "float", "float"),
        _of(lambda a, b: a / b, "float", "float"),
        _of(lambda a, b: a / b, "int", "int"),
        _of(lambda a, b: a / b, "decimal", "int"),
        _of(lambda a: -a, "float"),
        _of(lambda a: a.abs(), "float"),
        _of(lambda a: a.floor(), "float"),
        _of(lambda a: a.ceil(), "float"),
        _of(lambda a: a.abs().sqrt(), "float"),
        _of(lambda a: a.cast("float"), "decimal"),
        _extreme,
    ),
    "string": (
        _of(lambda a: a.lower(), "string"),
        _of(lambda a: a.upper(), "string"),
        _of(concat, "string", "string"),
        _of(lambda a, b: a.replace("a", b), "string", "string"),
        _of(lambda a: a.trim("a "), "string"),
        _of(lambda a: a.cast("string"), "int"),
        _of(lambda a: a.cast("string"), "bool"),
        _of(lambda a: a.cast("string"), "decimal"),
        _substring,
        _extreme,
    ),
    "bool": (
        _of(lambda a, b: a & b, "bool", "bool"),
        _of(lambda a, b: a | b, "bool", "bool"),
        _of(lambda a, b, c: a & b & c, "bool", "bool", "bool"),
        _of(lambda a: ~a, "bool"),
        _of(lambda a, b: a.starts_with(b), "string", "string"),
        _of(lambda a, b: a.ends_with(b), "string", "string"),
        _of(lambda a, b: a.contains(b), "string", "string"),
        _compared,
        _compared,
        _compared,
        _member,
        _null,
    ),
    "decimal": (
        _of(lambda a: a + col.m, "decimal"),
        _of(lambda a: a - col.n, "decimal"),
        _of(lambda a: a + 1, "decimal"),
        _of(lambda a: -a, "decimal"),
        _of(lambda a: a.abs(), "decimal"),
        _of(lambda a: a.cast("decimal(2)"), "int"),
        _of(lambda a: a.floor(), "decimal"),
        _of(lambda a: a.ceil(), "decimal"),
        _extreme,
    ),
    "timestamp": (_truncated, _of(lambda a: a.cast("timestamp"), "date"), _extreme),
    "date": (_of(lambda a: a.date_of(), "timestamp"), _of(lambda a: a.cast("date"), "timestamp"), _extreme),
}

_LEAVES: dict[str, tuple[Callable[[Random], Expression], ...]] = {
    "int": (
        lambda _: col.a,
        lambda _: col.b,
        lambda _: col.place.field("gate"),
        lambda _: col.stops.length(),
        lambda rng: lit(rng.randint(-3, 3)),
    ),
    "float": (lambda _: col.x, lambda _: col.y, lambda rng: lit(rng.choice(FLOATS))),
    "string": (lambda _: col.s, lambda _: col.t, lambda _: col.place.field("city"), lambda rng: lit(rng.choice(TEXTS))),
    "bool": (lambda _: col.p, lambda _: col.q, lambda rng: lit(rng.random() < 0.5), lambda _: lit(None, "bool")),
    "decimal": (lambda _: col.m, lambda _: col.n, lambda rng: lit(Decimal(rng.randint(-99, 99)).scaleb(-1))),
    "timestamp": (
        lambda _: col.at,
        lambda _: col.until,
        lambda rng: lit(datetime(1960 + rng.randint(0, 60), 2, 28, 23, 59, 59, 999_999, tzinfo=timezone.utc)),
    ),
    "date": (lambda _: col.day, lambda rng: lit(date(1960 + rng.randint(0, 60), 3, 1))),
}

KINDS = tuple(_MADE)


# SQL.


def _floor_mod(a: str, b: str) -> str:
    return f"((({a}) % ({b}) + ({b})) % ({b}))"


_INFIX = {
    "add": "+",
    "multiply": "*",
    "equal": "=",
    "not_equal": "<>",
    "less": "<",
    "less_equal": "<=",
    "greater": ">",
    "greater_equal": ">=",
}

_SQL: dict[str, Callable[..., str]] = {
    "subtract": lambda a, b: f"({a} - {b})",
    "divide": lambda a, b: f"CASE WHEN {b} = 0 THEN NULL ELSE CAST({a} AS DOUBLE) / CAST({b} AS DOUBLE) END",
    "floor_divide": lambda a, b: f"CASE WHEN {b} = 0 THEN NULL ELSE ({a} - {_floor_mod(a, b)}) // ({b}) END",
    "modulo": lambda a, b: f"CASE WHEN {b} = 0 THEN NULL ELSE {_floor_mod(a, b)} END",
    "negate": lambda a: f"(-({a}))",
    "not": lambda a: f"(NOT {a})",
    "and": lambda *parts: f"({' AND '.join(parts)})",
    "or": lambda *parts: f"({' OR '.join(parts)})",
    "is_null": lambda a: f"({a} IS NULL)",
    "is_in": lambda a, *others: f"({a} IN ({', '.join(others)}))",
    "between": lambda a, low, high: f"({a} BETWEEN {low} AND {high})",
    "coalesce": lambda *parts: f"COALESCE({', '.join(parts)})",
    "least": lambda *parts: f"LEAST({', '.join(parts)})",
    "greatest": lambda *parts: f"GREATEST({', '.join(parts)})",
    "lower": lambda a: f"lower({a})",
    "upper": lambda a: f"upper({a})",
    "length": lambda a: f"length({a})",
    "concat": lambda *parts: f"({' || '.join(parts)})",
    "starts_with": lambda a, b: f"starts_with({a}, {b})",
    "ends_with": lambda a, b: f"ends_with({a}, {b})",
    "contains": lambda a, b: f"contains({a}, {b})",
    "replace": lambda a, b, c: f"replace({a}, {b}, {c})",
    "substring": lambda a, start, *length: f"substring({', '.join((a, f'{start} + 1', *length))})",
    "abs": lambda a: f"abs({a})",
    "sign": lambda a: f"CAST(sign({a}) AS BIGINT)",
    "floor": lambda a: f"floor({a})",
    "ceil": lambda a: f"ceil({a})",
    "sqrt": lambda a: f"sqrt({a})",
    "hour_of_day": lambda a: f"hour({a})",
    "day_of_week": lambda a: f"isodow({a})",
    "date_of": lambda a: f"CAST({a} AS DATE)",
    "element": lambda a, index: f"list_extract({a}, CASE WHEN {index} >= 0 THEN {index} + 1 ELSE {index} END)",
}

_CASTS = {"int": "BIGINT", "float": "DOUBLE", "string": "VARCHAR", "date": "DATE", "timestamp": "TIMESTAMP"}


def sql_of(node: Node) -> str:
    """Return an expression that ``random_expression`` has made as DuckDB's SQL."""
    if isinstance(node, ColumnReference):
        return f'"{node.name}"'
    if isinstance(node, LiteralValue):
        return _sql_literal(node)
    assert isinstance(node, Operation)
    parts = [sql_of(operand) for operand in node.operands]
    if node.name in _INFIX:
        return f"({parts[0]} {_INFIX[node.name]} {parts[1]})"
    if node.name == "subtract" and _is_moment(node.operands[0]):
        return f"(epoch_us({parts[0]}) - epoch_us({parts[1]}))"
    if node.name == "case":
        pairs = "".join(f" WHEN {c} THEN {v}" for c, v in zip(parts[:-1:2], parts[1::2], strict=False))
        return f"(CASE{pairs} ELSE {parts[-1]} END)"
    if node.name == "cast":
        return _sql_cast(node, parts[0])
    if node.name == "trim":
        return f"trim({parts[0]}, '{node.parameter('characters')}')"
    if node.name == "truncate":
        return f"CAST(date_trunc('{node.parameter('unit')}', {parts[0]}) AS TIMESTAMP)"
    if node.name == "field":
        return f"struct_extract({parts[0]}, '{node.parameter('name')}')"
    return _SQL[node.name](*parts)


def _sql_cast(node: Operation, operand: str) -> str:
    target = str(node.parameter("type"))
    if target.startswith("decimal"):
        return f"CAST({operand} AS DECIMAL(20,2))"
    if not node.parameter("strict"):
        return f"CASE WHEN regexp_full_match({operand}, '[+-]?[0-9]+') THEN TRY_CAST({operand} AS BIGINT) END"
    return f"CAST({operand} AS {_CASTS[target]})"


def _is_moment(node: Node) -> bool:
    if isinstance(node, ColumnReference):
        return node.name in ("at", "until")
    if isinstance(node, LiteralValue):
        return node.type is not None and node.type.type == "timestamp"
    assert isinstance(node, Operation)
    if node.name in ("coalesce", "least", "greatest"):
        return _is_moment(node.operands[0])
    if node.name == "case":
        return _is_moment(node.operands[1])
    return node.name == "truncate" or (node.name == "cast" and node.parameter("type") == "timestamp")


def _sql_literal(node: LiteralValue) -> str:
    value, kind = node.value, node.type
    if value is None or kind is None:
        return "NULL" if kind is None else f"CAST(NULL AS {'BOOLEAN' if kind.type == 'bool' else 'BIGINT'})"
    if kind.type == "float":
        return f"CAST('{value}' AS DOUBLE)"
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    if kind.type == "timestamp":
        return f"make_timestamp({value})"
    if kind.type == "date":
        return f"(DATE '1970-01-01' + {value})"
    if kind.type == "int":
        return f"CAST({value} AS BIGINT)"
    return f"CAST('{value}' AS DECIMAL(12,{kind.scale}))" if kind.type == "decimal" else str(value)


class ExpressionOracle:
    """DuckDB with a table of rows, in which expressions are evaluated."""

    def __init__(self, rows: Sequence[Values]) -> None:
        self._connection = duckdb.connect()
        columns = ", ".join(f'"{name}" {kind}' for name, kind in _SQL_TYPES.items())
        self._connection.execute(f"CREATE TABLE rows (id BIGINT, {columns})")
        marks = ", ".join("?" * (1 + len(_SQL_TYPES)))
        self._connection.executemany(
            f"INSERT INTO rows VALUES ({marks})", [[index, *_python_row(row)] for index, row in enumerate(rows)]
        )

    def values(self, expressions: Sequence[Expression]) -> list[tuple[Any, ...]]:
        """Return the values of expressions for each row, in the form of rows."""
        parts = ", ".join(f"({sql_of(one.node)}) AS c{index}" for index, one in enumerate(expressions))
        found = self._connection.execute(f"SELECT {parts} FROM rows ORDER BY id").fetchall()
        return [tuple(map(_canonical, row)) for row in found]

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


def _python_row(row: Values) -> list[Any]:
    values = dict(zip(SCHEMA.names, row, strict=True))
    for name in ("at", "until"):
        if values[name] is not None:
            values[name] = EPOCH + timedelta(microseconds=values[name])
    if values["day"] is not None:
        values["day"] = EPOCH.date() + timedelta(days=values["day"])
    if values["place"] is not None:
        values["place"] = dict(zip(("city", "gate"), values["place"], strict=True))
    values["stops"] = list(values["stops"])
    return list(values.values())


def _canonical(value: Any) -> Any:
    if isinstance(value, datetime):
        return (value - EPOCH) // timedelta(microseconds=1)
    if isinstance(value, date):
        return (value - EPOCH.date()).days
    if isinstance(value, float):
        return NAN if value != value else value + 0.0
    return value
