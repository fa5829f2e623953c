"""Expressions on the native core: typed in Python, evaluated over columns. Called by ``describing``.

A row that has no value is evaluated again in Python, which raises the error. So messages exist once.
"""

from __future__ import annotations

from lmerge._native import Expressions
from lmerge.temporal.expressions.binding import BoundExpression, BoundProjection, typed_tree
from lmerge.temporal.expressions.lowering import lowered
from lmerge.temporal.native.step import column_form
from lmerge.wire.native_fitting import declared_column
from lmerge.wire.schema import Schema


def native_expressions(bound: BoundExpression | BoundProjection, schema: Schema) -> Expressions | None:
    """Return bound expressions for columns of ``schema``, or None if they call a user's function."""
    nodes = bound.nodes if isinstance(bound, BoundProjection) else (bound.node,)
    trees = lowered([typed_tree(node, schema) for node in nodes])
    if trees is None:
        return None
    listed = [
        (operation, declared_column(column), operands, detail) for operation, column, operands, detail in trees.nodes
    ]
    return Expressions(column_form(schema), listed, trees.roots, bound.evaluate)
