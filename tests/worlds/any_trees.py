"""Any tree of operations, on any values: extremes, NaN, NULL, empty text. Most trees fit their operands."""

from __future__ import annotations

from decimal import Decimal
from random import Random
from typing import Any

from lmerge.temporal.errors import PlanError
from lmerge.temporal.expressions.binding import typed_tree
from lmerge.temporal.expressions.families import ALL_RULES
from lmerge.temporal.expressions.literals import literal_of
from lmerge.temporal.expressions.tree import ColumnReference, Node, Operation
from lmerge.temporal.values import NAN, Values
from lmerge.wire.schema import Column, parse_schema

FIELDS = {
    "flag": "bool?",
    "number": "int",
    "other": "int?",
    "real": "float?",
    "cents": "float(2)",
    "money": "decimal(2)?",
    "huge": "decimal(0)",
    "tiny": "decimal(38)",
    "text": "string",
    "raw": "bytes?",
    "at": "timestamp",
    "until": "timestamp?",
    "day": "date",
    "days": "list<date?>",
    "place?": {"city": "string?", "gate": "float"},
}
SCHEMA = parse_schema(FIELDS)
EDGE, LARGEST = -(2**63), 2**63 - 1
INTS = (0, 1, -1, 2, 7, EDGE, LARGEST, 2**53 + 1)
VALUES: dict[str, tuple[Any, ...]] = {
    "bool": (True, False),
    "int": INTS,
    "float": (0.0, 1.5, -2.25, NAN, float("inf"), float("-inf"), 1e308, 5e-324),
    "string": ("", "a", "12", "true", "2013-01-31", "2013-01-31T10:00:00Z", "1e400", "\U0001f600", "nan"),
    "bytes": (b"", b"\x00\xff"),
    "timestamp": INTS,
    "date": (0, -1, 20_000, 10**7, -(2**31), 2**31 - 1),
}
PARAMETERS: dict[str, tuple[Any, ...]] = {
    "digits": (0, 2, -3, 38, 39, True, "2"),
    "type": ("bool", "int", "float", "float(1)", "string", "bytes", "timestamp", "date", "decimal(2)", "decimal(38)"),
    "strict": (True, False, 1),
    "unit": ("second", "day", "week", "x"),
    "name": ("city", "gate", "x"),
    "characters": ("", " ", "a"),
}  # fmt: skip


def random_value(rng: Random, column: Column) -> Any:
    if column.nullable and rng.random() < 0.2:
        return None
    if column.type == "decimal":
        unscaled = rng.choice((0, 1, -1, 250, 10**38 - 1, -(10**37)))
        return Decimal((int(unscaled < 0), tuple(map(int, str(abs(unscaled)))), -column.scale))
    if column.type == "list":
        return tuple(random_value(rng, column.children[0]) for _ in range(rng.randint(0, 3)))
    if column.type == "struct":
        return tuple(random_value(rng, child) for child in column.children)
    return rng.choice(VALUES[column.type])


def random_tree(rng: Random, depth: int) -> Node:
    """Return a tree of any operations; most fit their operands."""
    if depth == 0 or rng.random() < 0.15:
        return ColumnReference(rng.choice(SCHEMA.names)) if rng.random() < 0.7 else random_literal(rng)
    rule = ALL_RULES[rng.choice(tuple(ALL_RULES))]
    tree: Node = ColumnReference("number")
    for _ in range(12):
        count = rng.randint(rule.least, rule.most or rule.least + 3)
        operands = [random_tree(rng, depth - 1) for _ in range(count)]
        if rng.random() < 0.4:  # of one type
            operands = [operands[0], *(rng.choice((operands[0], operand)) for operand in operands[1:])]
        parameters = tuple((name, rng.choice(PARAMETERS[name])) for name in rule.parameters)
        tree = Operation(rule.name, tuple(operands), parameters)
        if fits(tree):
            break
    return tree


def random_literal(rng: Random) -> Node:
    kind = rng.choice(tuple(VALUES))
    if kind in ("date", "timestamp"):
        return literal_of("2013-01-31" if kind == "date" else "2013-01-31T10:00:00Z", kind)
    if rng.random() < 0.1:
        return literal_of(None, rng.choice((None, kind)))
    return literal_of(rng.choice(VALUES[kind]))


def fits(tree: Node) -> bool:
    try:
        typed_tree(tree, SCHEMA)
    except PlanError:
        return False
    return True


def random_any_row(rng: Random) -> Values:
    """Return a row of ``SCHEMA``."""
    return tuple(random_value(rng, column) for column in SCHEMA.columns)
