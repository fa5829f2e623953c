"""What a rewrite of plans is, and what rewrites ask of streams."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from lmerge.temporal.operators.join import JoinKind
from lmerge.temporal.plan.compiling import in_order
from lmerge.temporal.plan.groups import GroupInputNode
from lmerge.temporal.plan.joins import AsOfJoinNode, JoinNode
from lmerge.temporal.plan.nodes import PlanNode
from lmerge.temporal.plan.shaping import CleanseNode, CoalesceNode, EdgesNode
from lmerge.temporal.plan.sources import SourceNode, SourceShape
from lmerge.temporal.plan.spans import FilterNode, LifetimeNode, SelectNode, UnionNode
from lmerge.temporal.plan.windows import WindowNode
from lmerge.temporal.windows.kinds import Hopping, Sessions, Snapshots
from lmerge.temporal.windows.policies import Stamp

IsShared: TypeAlias = Callable[[PlanNode], bool]
"""Whether several nodes read a node."""

PlanRule: TypeAlias = Callable[[PlanNode, IsShared], "PlanNode | None"]
"""From a node to one with the same stream, or None."""

_KEEPS_LIFETIMES = (FilterNode, SelectNode, UnionNode, CoalesceNode, CleanseNode)


def stops_alike(node: PlanNode) -> bool:
    """Whether the windows of a grid over a stream stop at the same time without some of its events.

    The windows of an event without an end stop at the last finite time: of the watermark, a stable point, or an end of
    an event that is there (departure D13). The watermark of a source that has ended is behind its ends. So it is only
    ends that a plan has made that can be the last ones, and only where some events have no end.
    """
    ends: dict[PlanNode, bool] = {}
    by_watermark: dict[PlanNode, bool] = {}
    for one in in_order([node]):
        ends[one] = _all_end(one, [ends[read] for read in one.reads])
        by_watermark[one] = _ends_by_watermark(one, all(by_watermark[read] for read in one.reads))
    return ends[node] or by_watermark[node]


def _all_end(node: PlanNode, below: Sequence[bool]) -> bool:
    """Whether no event is without an end. ``below``: whether that is so in what the node reads."""
    if isinstance(node, SourceNode):
        # What the stream of a group is made of is in the plan around it.
        return node.shape is SourceShape.POINT
    if isinstance(node, LifetimeNode):
        return node.alteration in ("set_duration", "clip_duration", "at_end") or all(below)
    if isinstance(node, EdgesNode):
        return node.lasts is not None
    if isinstance(node, JoinNode):
        return {JoinKind.INNER: any(below), JoinKind.FULL: all(below), JoinKind.RIGHT: below[1]}.get(node.how, below[0])
    if isinstance(node, AsOfJoinNode):
        return below[0]
    if isinstance(node, WindowNode):
        is_grid, stamp = isinstance(node.window, Hopping), node.policies.stamp
        return is_grid and stamp in (Stamp.ALIGN, Stamp.POINT_AT_END, Stamp.CLIP)
    return isinstance(node, _KEEPS_LIFETIMES) and all(below)


def _ends_by_watermark(node: PlanNode, below: bool) -> bool:
    """Whether no event ends behind the watermark of sources that have ended, if that is so ``below``."""
    if isinstance(node, GroupInputNode):
        return False
    if isinstance(node, LifetimeNode):
        return node.alteration in ("shift", "clip_duration") and below
    if isinstance(node, EdgesNode):
        return node.lasts is None and below
    if isinstance(node, WindowNode):
        is_made_of_ends = isinstance(node.window, (Snapshots, Sessions)) and node.policies.stamp is Stamp.ALIGN
        return is_made_of_ends and below
    return isinstance(node, (SourceNode, JoinNode, AsOfJoinNode, *_KEEPS_LIFETIMES)) and below
