"""Rewrites that evaluate a filter earlier, where fewer rows have been made of what it drops.

A filter is taken apart at its ``and``. A conjunct that goes below an operator is evaluated for rows for which it was
not before: rows that have no partner, or that another conjunct keeps away from it. So it must have a value for every
row (``safety``), unless it sees exactly the rows that it saw.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from lmerge.temporal.expressions.properties import columns_read, conjuncts, over_projection, plain_column
from lmerge.temporal.expressions.safety import can_fail
from lmerge.temporal.expressions.tree import ColumnReference, LiteralValue, Node, Operation, UserCall, walk
from lmerge.temporal.operators.join import JoinKind
from lmerge.temporal.plan.applying import ApplyNode
from lmerge.temporal.plan.joins import AsOfJoinNode, JoinNode
from lmerge.temporal.plan.nodes import PlanNode
from lmerge.temporal.plan.rules import IsShared, PlanRule, stops_alike
from lmerge.temporal.plan.shaping import CleanseNode, CoalesceNode, EdgesNode
from lmerge.temporal.plan.spans import FilterNode, LifetimeNode, SelectNode, UnionNode
from lmerge.temporal.plan.windows import WindowNode
from lmerge.temporal.windows.kinds import Hopping

Moved = Callable[[Node], "Node | None"]
"""From a conjunct to the same one over what is below an operator, or None if it cannot go there."""


def merge_filters(node: PlanNode, is_shared: IsShared) -> PlanNode | None:
    """Return two filters as one: the lower one guards the upper one, as before."""
    if not isinstance(node, FilterNode) or not isinstance(node.reads[0], FilterNode) or is_shared(node.reads[0]):
        return None
    below = node.reads[0]
    if not (node.is_plain and below.is_plain):
        return None
    parts = (*conjuncts(below.predicate), *conjuncts(node.predicate))
    return FilterNode(below.reads, node.label or below.label, _all_of(parts))


def below_select(node: PlanNode, is_shared: IsShared) -> PlanNode | None:
    """Filter before a projection, by columns that it takes as they are."""
    below = _filtered(node, is_shared)
    if not isinstance(node, FilterNode) or not isinstance(below, SelectNode):
        return None
    plain = {name: one for name, one in below.columns if isinstance(one, ColumnReference | LiteralValue)}
    return _over_one(node, below, lambda part: _over(part, plain), sees_the_same=True)


def below_lifetime(node: PlanNode, is_shared: IsShared) -> PlanNode | None:
    """Filter before lifetimes are changed: by rows, and before samples by what makes the signal."""
    below = _filtered(node, is_shared)
    if not isinstance(node, FilterNode):
        return None
    if isinstance(below, LifetimeNode):
        return _over_one(node, below, _as_it_is, sees_the_same=below.alteration != "at_end")
    if isinstance(below, (CoalesceNode, CleanseNode)):
        return _over_one(node, below, _as_it_is)
    if isinstance(below, EdgesNode):
        signal = {name: ColumnReference(name) for one in below.by if (name := plain_column(one)) is not None}
        return _over_one(node, below, lambda part: _over(part, signal))
    return None


def below_union(node: PlanNode, is_shared: IsShared) -> PlanNode | None:
    """Filter each stream of a union."""
    below = _filtered(node, is_shared)
    if not isinstance(node, FilterNode) or not isinstance(below, UnionNode):
        return None
    return replace(below, reads=tuple(replace(node, reads=(read,)) for read in below.reads))


def below_join(node: PlanNode, is_shared: IsShared) -> PlanNode | None:
    """Filter a side of a join by its own columns, if its events are in the output only as they are."""
    below = _filtered(node, is_shared)
    if not isinstance(node, FilterNode) or not isinstance(below, JoinNode | AsOfJoinNode):
        return None
    how = below.how if isinstance(below, JoinNode) else JoinKind.LEFT
    left, right = below.reads
    names: list[Mapping[str, Node]] = [{}, {}]
    if how in (JoinKind.INNER, JoinKind.LEFT, JoinKind.ANTI):
        names[0] = {name: ColumnReference(name) for name in left.schema.names}
    if how in (JoinKind.INNER, JoinKind.RIGHT):
        of_right = below.pairs.names[len(left.schema.names) :]
        names[1] = {name: ColumnReference(own) for name, own in zip(of_right, right.schema.names, strict=True)}
    rest: PlanNode = node
    reads = list(below.reads)
    for side, columns in enumerate(names):
        moved, kept = _split(rest, partial(_over, columns=columns))
        if moved:
            reads[side] = FilterNode((reads[side],), "", _all_of(moved))
            rest = _rest(node, kept)
    return None if tuple(reads) == below.reads else _onto(rest, node, replace(below, reads=tuple(reads)))


def below_window(node: PlanNode, is_shared: IsShared) -> PlanNode | None:
    """Filter before windows by groups, by their keys: all windows of a group are kept, or none."""
    below = _filtered(node, is_shared)
    if not isinstance(node, FilterNode) or not isinstance(below, WindowNode) or not _stops_alike(below):
        return None
    keys = {name: one for name, one in below.keys if not any(isinstance(part, UserCall) for part in walk(one))}
    return _over_one(node, below, lambda part: _over(part, keys))


def below_module(node: PlanNode, is_shared: IsShared) -> PlanNode | None:
    """Filter before a user's operator, by columns of its results for which it declares that."""
    below = _filtered(node, is_shared)
    if not isinstance(node, FilterNode) or not isinstance(below, ApplyNode) or not isinstance(below.window, Hopping):
        return None
    if below.call.takes_empty or not _stops_alike(below):
        return None
    given = below.given
    kept = {column.name: replace(column, name="", nullable=False) for column in below.results}
    same = {
        name: node_of_input
        for name, (node_of_input, column) in given.items()
        if name in below.declared.filter_commutes and kept.get(name) == replace(column, name="", nullable=False)
    }
    return _over_one(node, below, lambda part: _over(part, same))


PUSHING: Final[Mapping[str, PlanRule]] = {
    "merge-filters": merge_filters,
    "filter-below-select": below_select,
    "filter-below-lifetime": below_lifetime,
    "filter-below-union": below_union,
    "filter-below-join": below_join,
    "filter-below-window": below_window,
    "filter-below-module": below_module,
}


def _filtered(node: PlanNode, is_shared: IsShared) -> PlanNode | None:
    """Return what a filter reads, if nothing else reads it, and no row that fails is dropped."""
    if not isinstance(node, FilterNode) or not node.is_plain or is_shared(node.reads[0]):
        return None
    return node.reads[0]


def _stops_alike(node: WindowNode) -> bool:
    return not isinstance(node.window, Hopping) or stops_alike(node.reads[0])


def _as_it_is(part: Node) -> Node:
    return part


def _over(part: Node, columns: Mapping[str, Node]) -> Node | None:
    """Return a conjunct over other columns, or None if it reads one that is not among them."""
    return over_projection(part, columns) if columns.keys() >= set(columns_read(part)) else None


def _split(node: PlanNode, moved: Moved, sees_the_same: bool = False) -> tuple[list[Node], list[Node]]:
    """Return the conjuncts that go below, as they are there, and those that stay."""
    below: list[Node] = []
    kept: list[Node] = []
    if not isinstance(node, FilterNode):
        return below, kept
    for part in conjuncts(node.predicate):
        found = moved(part)
        is_free = (sees_the_same and not kept) or not can_fail(part, node.input_schema)
        if found is None or not is_free or not columns_read(part):
            kept.append(part)
        else:
            below.append(found)
    return below, kept


def _over_one(node: FilterNode, below: PlanNode, moved: Moved, sees_the_same: bool = False) -> PlanNode | None:
    """Return the operator over what can go below it, under what stays."""
    parts, kept = _split(node, moved, sees_the_same)
    if not parts:
        return None
    label = "" if kept else node.label
    return _onto(_rest(node, kept), node, replace(below, reads=(FilterNode(below.reads, label, _all_of(parts)),)))


def _rest(node: FilterNode, kept: Sequence[Node]) -> PlanNode:
    """Return the filter with the conjuncts that stay, or what it reads if none do."""
    return replace(node, predicate=_all_of(kept)) if kept else node.reads[0]


def _onto(rest: PlanNode, node: FilterNode, below: PlanNode) -> PlanNode:
    """Return what is left of a filter over another operator."""
    return replace(rest, reads=(below,)) if isinstance(rest, FilterNode) and rest is not node.reads[0] else below


def _all_of(parts: Sequence[Node]) -> Node:
    return parts[0] if len(parts) == 1 else Operation("and", tuple(parts))
