"""Typed trees as a list of nodes, for evaluators that do not run Python: ``native/temporal/src/expressions``.

The rules of types exist here only. What is handed over has a type for each node, casts that are not written among
them. Each node stands behind its operands, and equal nodes are one, so that each is evaluated once (E22).

A call of a user's function is a node with the number of its ``ColumnCaller``, which the evaluator calls for a batch.
Expressions with a function that is not deterministic are not handed over: the row of an error is evaluated again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from lmerge.temporal.expressions.calling import ColumnCaller, column_caller
from lmerge.temporal.expressions.times import UNITS
from lmerge.temporal.expressions.tree import Operation
from lmerge.temporal.expressions.typed import (
    Constant,
    FirstPresent,
    FirstTrue,
    FunctionCall,
    Junction,
    Lenient,
    LoadColumn,
    Site,
    Strict,
    TypedNode,
)
from lmerge.temporal.expressions.typing_rules import NESTED, with_null
from lmerge.wire.schema import Column

LoweredNode: TypeAlias = tuple[str, Column, tuple[int, ...], Any]
"""An operation, the type of its values, the numbers of its operands, and what else it needs: the value of a constant,
the values of ``is_in``, an index, a number of digits, characters, microseconds, or of a call the number of its caller
and whether NULL needs no call."""


@dataclass(slots=True)
class LoweredTrees:
    """``nodes``: each behind its operands. ``roots``: for each tree the number of its node. ``callers``: by number."""

    nodes: list[LoweredNode] = field(default_factory=list)
    roots: list[int] = field(default_factory=list)
    callers: list[ColumnCaller] = field(default_factory=list)


def lowered(trees: Sequence[TypedNode]) -> LoweredTrees | None:
    """Return the nodes of typed trees, or None if one of them calls a function that is not deterministic."""
    lowering = _Lowering()
    try:
        lowering.trees.roots.extend(map(lowering.number, trees))
    except _NotLowered:
        return None
    return lowering.trees


class _NotLowered(Exception):
    """A node calls a function that is not deterministic."""


class _Lowering:
    def __init__(self) -> None:
        self.trees = LoweredTrees()
        self._numbers: dict[Any, int] = {}
        self._of_object: dict[int, int] = {}  # id of a TypedNode, which lives as long as the tree

    def number(self, typed: TypedNode) -> int:
        """Return the number of a node."""
        found = self._of_object.get(id(typed))
        if found is None:
            operands = tuple(map(self.number, typed.operands))
            column = _evaluated_type(typed)
            key = (typed.code, _distinguished(column), operands)
            found = self._numbers.get(key)
            if found is None:
                found = self._numbers[key] = len(self.trees.nodes)
                operation, detail = self._operation(typed)
                self.trees.nodes.append((operation, column, operands, detail))
            self._of_object[id(typed)] = found
        return found

    def _operation(self, typed: TypedNode) -> tuple[str, Any]:
        """Return the name of a node's operation, and what else it needs."""
        code = typed.code
        if not isinstance(code, FunctionCall):
            return _operation(typed)
        function = code.function
        if not function.deterministic:
            raise _NotLowered
        types = tuple(operand.column for operand in typed.operands)
        self.trees.callers.append(column_caller(function, types, Site(typed.node)))
        return "call", (len(self.trees.callers) - 1, function.nulls == "skip")


def _evaluated_type(typed: TypedNode) -> Column:
    """Return the type of the values that a node computes. That of its place can have less: no declared digits."""
    column, code = typed.column, typed.code
    if isinstance(code, Strict):
        column = with_null(dict(code.bindings).get("target", column), column.nullable)
    return column


def _distinguished(column: Column) -> Column:
    """Return what of a type makes a difference to the values, or to their form in columns."""
    return column if column.type in NESTED else Column("", column.type, scale=column.scale)


_OWN_FORMS: Final[Mapping[type[Any], str]] = {FirstTrue: "case", FirstPresent: "coalesce"}


def _operation(typed: TypedNode) -> tuple[str, Any]:
    """Return the name of a node's operation, and what else it needs."""
    code = typed.code
    if isinstance(code, LoadColumn):
        return "column", code.index
    if isinstance(code, Constant):
        return "constant", code.value
    if isinstance(code, Junction):
        return ("and" if code.is_all else "or"), None
    if isinstance(code, Strict | Lenient):
        return code.operation, _detail(typed, code)
    return _OWN_FORMS[type(code)], None


def _detail(typed: TypedNode, code: Strict | Lenient) -> Any:
    node, bindings = typed.node, dict(code.bindings)
    name = code.operation
    if name == "is_in":
        return list(bindings.get("values", ()))
    if name == "field":
        return bindings["index"]
    if name in ("round", "trim", "truncate"):
        assert isinstance(node, Operation)
        (parameter,) = (value for _, value in node.parameters)
        return UNITS[str(parameter)] if name == "truncate" else parameter
    return None
