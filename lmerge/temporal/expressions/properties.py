"""What plans ask of an expression, and how they rewrite it.

Which columns it reads, whether it is deterministic or a plain column; its conjuncts, for a filter that moves in parts
below a join; and the expression over the input of a projection, for operators that are fused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from lmerge.temporal.expressions.tree import ColumnReference, Node, Operation, UserCall, walk
from lmerge.wire.schema import Schema


def columns_read(node: Node) -> tuple[str, ...]:
    """Return the names of the columns that an expression reads, in the order in which they first occur."""
    return tuple(dict.fromkeys(one.name for one in walk(node) if isinstance(one, ColumnReference)))


def is_deterministic(node: Node) -> bool:
    """Return whether equal rows give equal values: every function that is called declares it."""
    return all(one.function.deterministic for one in walk(node) if isinstance(one, UserCall))


def plain_column(node: Node) -> str | None:
    """Return the name of the column that an expression is, or None if it computes something."""
    return node.name if isinstance(node, ColumnReference) else None


def places_of(nodes: Sequence[Node], schema: Schema) -> Sequence[int] | None:
    """Return the places of the columns of ``schema`` that expressions are, or None if one computes something."""
    names = [node.name for node in nodes if isinstance(node, ColumnReference)]
    return [schema.names.index(name) for name in names] if len(names) == len(nodes) else None


def conjuncts(predicate: Node) -> tuple[Node, ...]:
    """Return the predicates that are true together where ``predicate`` is, in order: earlier ones guard later ones."""
    if isinstance(predicate, Operation) and predicate.name == "and":
        return tuple(part for operand in predicate.operands for part in conjuncts(operand))
    return (predicate,)


def over_projection(node: Node, projection: Mapping[str, Node]) -> Node:
    """Return an expression over a projection's output as one over its input.

    Columns that the projection does not have stay as they are.
    """
    if isinstance(node, ColumnReference):
        return projection.get(node.name, node)
    if isinstance(node, Operation | UserCall):
        return replace(node, operands=tuple(over_projection(operand, projection) for operand in node.operands))
    return node
