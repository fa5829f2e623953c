"""Any tree of operations, on any values: PlanError at bind or ModuleViolation at run, and else a value of its type."""

from __future__ import annotations

import json
from decimal import Decimal
from random import Random
from typing import Any

import pytest
from any_trees import EDGE, LARGEST, SCHEMA, random_any_row, random_tree

from lmerge.temporal.errors import ModuleViolation, PlanError
from lmerge.temporal.expressions.binding import bind, bind_all
from lmerge.temporal.expressions.injectivity import kept_columns
from lmerge.temporal.expressions.json_format import node_from_json, node_to_json
from lmerge.temporal.expressions.tree import Node
from lmerge.temporal.values import NAN, Values
from lmerge.wire.schema import Column


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
    rows = [random_any_row(rng) for _ in range(12)]
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
            row = random_any_row(rng)
            values = value_or_error(projection.evaluate, row)
            kept = tuple(row[index] for index in indexes)
            if not isinstance(values, ModuleViolation):
                assert seen.setdefault(values, kept) == kept, f"{names} of {projection.columns}"
