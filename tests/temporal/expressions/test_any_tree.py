"""Any tree of operations, on any values: PlanError at bind or ModuleViolation at run, and else a value of its type."""

from __future__ import annotations

import json
from decimal import Decimal
from random import Random
from typing import Any

import pytest

from lmerge.temporal.errors import ModuleViolation, PlanError
from lmerge.temporal.expressions.binding import bind, bind_all, typed_tree
from lmerge.temporal.expressions.families import ALL_RULES
from lmerge.temporal.expressions.injectivity import kept_columns
from lmerge.temporal.expressions.json_format import node_from_json, node_to_json
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
    "date": (0, -1, 20_000, 10**7, EDGE, LARGEST),
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


def is_of(value: Any, column: Column) -> bool:
    """Return whether a value has the one form that its type has in rows."""
    if value is None:
        return column.nullable
    kinds = {"bool": bool, "float": float, "string": str, "bytes": bytes, "decimal": Decimal}
    if column.type == "list":
        return type(value) is tuple and all(is_of(one, column.children[0]) for one in value)
    if column.type == "struct":
        return type(value) is tuple and all(map(is_of, value, column.children))
    if type(value) is not kinds.get(column.type, int):
        return False
    if column.type == "float":
        return value is NAN or (value == value and str(value) != "-0.0")
    if column.type == "decimal":
        assert isinstance(value, Decimal)
        sign, digits, exponent = value.as_tuple()
        return exponent == -column.scale and len(digits) <= 38 and not (sign and not value)
    return column.type in kinds or EDGE <= value <= LARGEST


@pytest.mark.parametrize("seed", range(24))
def test_any_tree_is_refused_or_gives_values_of_its_type(seed: int) -> None:
    rng = Random(seed)
    rows = [tuple(random_value(rng, column) for column in SCHEMA.columns) for _ in range(12)]
    good: list[tuple[Node, list[Any]]] = []
    for _ in range(20):
        tree = random_tree(rng, rng.randint(1, 3))
        assert node_from_json(json.loads(json.dumps(node_to_json(tree), allow_nan=False))) == tree
        try:
            bound = bind(tree, SCHEMA, operator="any")
        except PlanError:
            continue
        found = [value_or_error(bound.evaluate, row) for row in rows]
        for row, value in zip(rows, found, strict=True):
            assert isinstance(value, ModuleViolation) or is_of(value, bound.column), (bound.column, row, value)
        good.append((tree, found))
        assert kept_columns([tree], SCHEMA) <= set(SCHEMA.names)
    together = bind_all([tree for tree, _ in good], SCHEMA)
    for index, row in enumerate(rows):
        expected = [found[index] for _, found in good]
        values = value_or_error(together.evaluate, row)
        if isinstance(values, ModuleViolation):
            assert any(isinstance(value, ModuleViolation) for value in expected)
        else:
            assert all(value is other or value == other for value, other in zip(values, expected, strict=True))


def value_or_error(evaluate: Any, row: Values) -> Any:
    try:
        return evaluate(row)
    except ModuleViolation as violation:
        return violation


@pytest.mark.parametrize("seed", range(12))
def test_what_is_kept_can_be_computed_back(seed: int) -> None:
    rng = Random(seed)
    for _ in range(20):
        trees = [random_tree(rng, rng.randint(0, 2)) for _ in range(rng.randint(1, 2))]
        try:
            projection = bind_all(trees, SCHEMA)
        except PlanError:
            continue
        names = kept_columns(trees, SCHEMA)
        indexes = [index for index, name in enumerate(SCHEMA.names) if name in names]
        seen: dict[Values, Values] = {}
        for _ in range(60 if indexes else 0):
            row = tuple(random_value(rng, column) for column in SCHEMA.columns)
            values = value_or_error(projection.evaluate, row)
            kept = tuple(row[index] for index in indexes)
            if not isinstance(values, ModuleViolation):
                assert seen.setdefault(values, kept) == kept, f"{names} of {projection.columns}"
