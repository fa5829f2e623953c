"""Which steps of a plan the native core computes, and how they are described to it.

A description is a dict: ``kind``, and what the nodes of that kind have. Expressions are handles of the core. A step for
which there is no description, such as one with a function in Python, runs in Python.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from lmerge._native import Expressions
from lmerge.temporal.native.expressions import native_expressions
from lmerge.temporal.native.step import NativeStep, column_form
from lmerge.temporal.native.windows import describe_aggregates, describe_top
from lmerge.temporal.operators.edges import SampleTies
from lmerge.temporal.operators.join import JoinKind
from lmerge.temporal.plan.joins import AsOfJoinNode, JoinNode, PairingNode
from lmerge.temporal.plan.nodes import PlanNode
from lmerge.temporal.plan.ranking import TopNode
from lmerge.temporal.plan.shaping import CleanseNode, CoalesceNode, EdgesNode
from lmerge.temporal.plan.spans import FilterNode, LifetimeNode, RowNode, SelectNode, SpanNode, UnionNode
from lmerge.temporal.plan.windows import AggregateNode

Description: TypeAlias = "dict[str, Any]"


def native_step(name: str, nodes: Sequence[PlanNode]) -> NativeStep | None:
    """Return the native operator of a step that computes ``nodes``, or None if it runs in Python."""
    first, last = nodes[0], nodes[-1]
    description = _chain(nodes) if isinstance(first, SpanNode) else _described(first)
    if description is None:
        return None
    return NativeStep(name, [read.schema for read in first.reads], last.schema, description)


def _described(node: PlanNode) -> Description | None:
    describe = _DESCRIBERS.get(type(node))
    return None if describe is None else describe(node)


def _chain(nodes: Sequence[PlanNode]) -> Description | None:
    parts = [_part(node) for node in nodes]
    return None if None in parts else {"kind": "span", "parts": parts}


def _part(node: PlanNode) -> tuple[str, Any, Any] | None:
    """Return a part of a chain: what it does, with what, and the rows that it gives if they are others."""
    if isinstance(node, LifetimeNode):
        return node.alteration, node.amount, None
    if isinstance(node, RowNode) and not node.is_plain:
        return None  # rows one by one
    if isinstance(node, FilterNode):
        predicate = native_expressions(node.bound, node.input_schema)
        return None if predicate is None else ("keep", predicate, None)
    if isinstance(node, SelectNode):
        columns = native_expressions(node.bound, node.input_schema)
        return None if columns is None else ("map", columns, column_form(node.schema))
    return None


def _union(node: UnionNode) -> Description | None:
    return None if node.disjoint_by else {"kind": "union"}


def _join(node: JoinNode) -> Description | None:
    keys = _keys(node)
    if keys is None:
        return None
    predicate = None
    if node.bound_predicate is not None:
        predicate = native_expressions(node.bound_predicate, node.pairs)
        if predicate is None:
            return None
    how = JoinKind(node.how)
    return {"kind": "join", "how": str(how), "keys": keys, "predicate": predicate, "pairs_max": node.pairs_max}


def _as_of(node: AsOfJoinNode) -> Description | None:
    keys = _keys(node)
    return None if keys is None else {"kind": "as_of", "keys": keys, "is_outer": node.is_outer, "within": node.within}


def _edges(node: EdgesNode) -> Description | None:
    by = native_expressions(node.bound_by, node.input_schema) if node.by else None
    if by is None and node.by:
        return None
    return {"kind": "edges", "by": by, "refuses_ties": node.ties is SampleTies.ERROR, "lasts": node.lasts}


def _coalesce(_: CoalesceNode) -> Description:
    return {"kind": "coalesce"}


def _cleanse(_: CleanseNode) -> Description:
    return {"kind": "cleanse"}


def _keys(node: PairingNode) -> list[Expressions | None] | None:
    """Return the keys of both sides, each None where every row has the same; None if they run in Python."""
    if not node.keys:
        return [None, None]
    reads = zip(node.bound_keys, node.reads, strict=True)
    left, right = (native_expressions(bound, read.schema) for bound, read in reads)
    return None if left is None or right is None else [left, right]


_DESCRIBERS: Final[Mapping[type[PlanNode], Callable[[Any], Description | None]]] = {
    UnionNode: _union,
    JoinNode: _join,
    AsOfJoinNode: _as_of,
    EdgesNode: _edges,
    CoalesceNode: _coalesce,
    CleanseNode: _cleanse,
    AggregateNode: describe_aggregates,
    TopNode: describe_top,
}
