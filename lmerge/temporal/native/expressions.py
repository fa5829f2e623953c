"""Expressions on the native core: typed in Python, evaluated over columns. Called by ``describing``.

A row that has no value is evaluated again in Python, which raises the error. So messages exist once. Users' functions
are called for the columns of a batch, and the errors of their calls are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from lmerge._native import Expressions
from lmerge.temporal.expressions.binding import BoundExpression, BoundProjection, typed_tree
from lmerge.temporal.expressions.calling import ColumnCaller
from lmerge.temporal.expressions.generating import Violation
from lmerge.temporal.expressions.lowering import lowered
from lmerge.temporal.native.step import column_form
from lmerge.temporal.values import Values
from lmerge.wire.native_fitting import declared_column
from lmerge.wire.schema import Schema


class ExpressionHost(NamedTuple):
    """What runs in Python for native expressions.

    ``evaluate``: the same expressions for a row, to raise the error that it has. ``violation``: from the failure of a
    call and the row to the error. ``callers``: of users' functions, by their numbers.
    """

    evaluate: Callable[[Values], Any]
    violation: Violation
    callers: Sequence[ColumnCaller]


def native_expressions(bound: BoundExpression | BoundProjection, schema: Schema) -> Expressions | None:
    """Return bound expressions for columns of ``schema``, or None if they must run in Python."""
    nodes = bound.nodes if isinstance(bound, BoundProjection) else (bound.node,)
    trees = lowered([typed_tree(node, schema) for node in nodes])
    if trees is None:
        return None
    listed = [
        (operation, declared_column(column), operands, detail) for operation, column, operands, detail in trees.nodes
    ]
    return Expressions(
        column_form(schema), listed, trees.roots, ExpressionHost(bound.evaluate, bound.code.violation, trees.callers)
    )
