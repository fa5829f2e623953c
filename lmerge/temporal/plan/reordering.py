"""Rewrites by what modules declare, and those that make plans of one query differ: join orders, sides and forms."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from lmerge.temporal.errors import PlanError
from lmerge.temporal.expressions.properties import columns_read, over_projection
from lmerge.temporal.expressions.safety import can_fail
from lmerge.temporal.expressions.tree import ColumnReference, Node
from lmerge.temporal.operators.join import JoinKind
from lmerge.temporal.plan.applying import ApplyNode
from lmerge.temporal.plan.groups import GroupApplyNode
from lmerge.temporal.plan.joins import JoinNode
from lmerge.temporal.plan.nodes import PlanNode
from lmerge.temporal.plan.rules import IsShared, PlanRule, stops_alike
from lmerge.temporal.plan.spans import SelectNode
from lmerge.temporal.plan.windows import AggregateNode, WindowNode
from lmerge.temporal.windows.kinds import Hopping
from lmerge.temporal.windows.policies import Form, Stamp

_MIRRORED: Final = {JoinKind.LEFT: JoinKind.RIGHT, JoinKind.RIGHT: JoinKind.LEFT}


def groups_apart(node: PlanNode, is_shared: IsShared) -> PlanNode | None:
    """Compute a module for each group of the columns that it declares: a change then concerns one group.

    The windows of a grid are the same for all groups. Others depend on all events.
    """
    if not isinstance(node, ApplyNode) or node.is_apart or not isinstance(node.window, Hopping):
        return None
    return replace(node, is_apart=True) if node.declared.per_group and not node.call.takes_empty else None


def group_windows(node: PlanNode, is_shared: IsShared) -> PlanNode | None:
    """Compute the windows of each group as windows by the group's key.

    A user's module sees the key of its group, which a group alone does not have.
    """
    if not isinstance(node, GroupApplyNode) or not node.has_keys or node.plan.reads != (node.group,):
        return None
    windows = node.plan
    if not isinstance(windows, AggregateNode) or any(call.module is not None for _, call in windows.calls):
        return None
    if isinstance(windows.window, Hopping) and not stops_alike(node.reads[0]):
        return None
    return replace(windows, reads=node.reads, label=node.label or windows.label, keys=(*node.keys, *windows.keys))


def time_bound(node: PlanNode, is_shared: IsShared) -> PlanNode | None:
    """Let the output be stable where the input is. The results are checked: a change may not change the past."""
    if not isinstance(node, ApplyNode) or node.policies.stamp is not Stamp.UNCHANGED:
        return None
    if not node.declared.time_bound or not isinstance(node.window, Hopping):
        return None
    return replace(node, policies=replace(node.policies, stamp=Stamp.TIME_BOUND))


def join_order(node: PlanNode, is_shared: IsShared) -> PlanNode | None:
    """Join the second and the third of three streams first, if the third is joined with the second alone."""
    if not isinstance(node, JoinNode) or node.how is not JoinKind.INNER or is_shared(node.reads[0]):
        return None
    lower, third = node.reads
    if not isinstance(lower, JoinNode) or lower.how is not JoinKind.INNER:
        return None
    first, second = lower.reads
    width = len(first.schema.names)
    of_second = dict(zip(lower.pairs.names[width:], map(ColumnReference, second.schema.names), strict=True))
    keys = tuple((over_projection(left, of_second), right) for left, right in node.keys)
    is_free = node.predicate is None or not can_fail(node.predicate, node.pairs)
    if not is_free or any(not of_second.keys() >= set(columns_read(left)) for left, _ in node.keys):
        return None
    try:
        inner = JoinNode((second, third), "", keys, node.suffix, node.how, None, node.pairs_max)
        names = _renamed(node.pairs.names[width:], inner.pairs.names)
        if node.predicate is not None and not names.keys() >= set(columns_read(node.predicate)):
            return None
        inner = replace(inner, predicate=_over(node.predicate, names))
        outer = JoinNode((first, inner), node.label, lower.keys, lower.suffix, node.how, None, lower.pairs_max)
        of_lower = _renamed(lower.pairs.names, outer.pairs.names[: len(lower.pairs.names)])
        outer = replace(outer, predicate=_over(lower.predicate, of_lower))
        return _in_columns_of(node, outer, outer.schema.names)
    except PlanError:  # two columns have one name in another order
        return None


def join_sides(node: PlanNode, is_shared: IsShared) -> PlanNode | None:
    """Turn the sides of a join around, once: the smaller label, or the shorter text, is on the left."""
    if not isinstance(node, JoinNode) or node.how is JoinKind.ANTI:
        return None
    left, right = node.reads
    if not _order(left) > _order(right):
        return None
    keys = tuple((b, a) for a, b in node.keys)
    how = _MIRRORED.get(node.how, node.how)
    try:
        made = JoinNode((right, left), node.label, keys, node.suffix, how, None, node.pairs_max)
        names = [*made.pairs.names[len(right.schema.names) :], *made.pairs.names[: len(right.schema.names)]]
        made = replace(made, predicate=_over(node.predicate, _renamed(node.pairs.names, names)))
        return _in_columns_of(node, made, names)
    except PlanError:
        return None


def in_form(form: Form) -> PlanRule:
    """Return the rewrite that gives all windows a form."""

    def of_form(node: PlanNode, is_shared: IsShared) -> PlanNode | None:
        if not isinstance(node, WindowNode) or node.policies.form is form:
            return None
        return replace(node, policies=replace(node.policies, form=form))

    return of_form


GROUPING: Final[Mapping[str, PlanRule]] = {"group-windows": group_windows}

MODULES_DECLARE: Final[Mapping[str, PlanRule]] = {"groups-apart": groups_apart, "time-bound": time_bound}

FORMS: Final[Mapping[str, PlanRule]] = {f"form-{form}": in_form(form) for form in Form}

DIFFERING: Final[Mapping[str, PlanRule]] = {"join-order": join_order, "join-sides": join_sides, **FORMS}


def _renamed(names: list[str] | tuple[str, ...], others: list[str] | tuple[str, ...]) -> dict[str, Node]:
    return {name: ColumnReference(other) for name, other in zip(names, others, strict=True)}


def _over(predicate: Node | None, names: Mapping[str, Node]) -> Node | None:
    return None if predicate is None else over_projection(predicate, names)


def _in_columns_of(node: PlanNode, made: PlanNode, names: list[str] | tuple[str, ...]) -> PlanNode:
    """Return a node with the columns of another one, in their order; ``names``: those of the node for them."""
    if made.schema.names == node.schema.names == tuple(names):
        return made
    columns = [(name, ColumnReference(own)) for name, own in zip(node.schema.names, names, strict=True)]
    return SelectNode((made,), "", tuple(columns))


def _order(node: PlanNode) -> tuple[str, str]:
    return node.label, node.shown
