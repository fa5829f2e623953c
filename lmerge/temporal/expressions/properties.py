"""What plans ask of an expression: the columns that it reads, and whether it is deterministic or a plain column."""

from __future__ import annotations

from lmerge.temporal.expressions.tree import ColumnReference, Node, UserCall, walk


def columns_read(node: Node) -> tuple[str, ...]:
    """Return the names of the columns that an expression reads, in the order in which they first occur."""
    return tuple(dict.fromkeys(one.name for one in walk(node) if isinstance(one, ColumnReference)))


def is_deterministic(node: Node) -> bool:
    """Return whether equal rows give equal values: every function that is called declares it."""
    return all(one.function.deterministic for one in walk(node) if isinstance(one, UserCall))


def plain_column(node: Node) -> str | None:
    """Return the name of the column that an expression is, or None if it computes something."""
    return node.name if isinstance(node, ColumnReference) else None
