"""Where a query that begins in the middle of its streams is right: what a new operator makes of the events that live.

A source that runs since long can give a new operator its live events: those that end at or behind its stable point.
All others have gone. An operator that starts with them computes some results wrongly, because an event that has gone
was a member of a window, cut a lifetime, or was the last sample. So every operator has a rule: by which results of it
are right if its inputs are right from some point on.

A stream that begins in the middle has no wrong events, and lacks some. It has either all that *end* at or behind a
time t, or all that *start* at or behind t (``StreamBeginning``). The second is less: a long lifetime that began before
t is missing too. Where an operator computes wrong results from what there is, they all start before some time, and the
running query leaves them out (``Opening.since``): a start never changes, so no revision brings one back.

    insert(a, 1, 20)  insert(b, 2, 4)  stable(6)     live: a. A count in windows of 5 that begins now:
    [0, 5): counts 1, but is 2: left out             [5, 10): 1, right: a member ends behind 5, so it is live
    snapshots: [1, 20): 1, but is [4, 20): left out  the next one starts at an edge behind 6, and is right

Where every time is too early, because an event that has gone can change any later result, there is no beginning: the
last sample of a key holds until the next one, however late that comes. Such a plan is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from lmerge.core.elements import INF, NEG_INF, show_time
from lmerge.temporal.errors import PlanError
from lmerge.temporal.operators.join import JoinKind
from lmerge.temporal.operators.lifetimes import plus
from lmerge.temporal.plan.applying import ApplyNode
from lmerge.temporal.plan.compiling import in_order
from lmerge.temporal.plan.groups import GroupApplyNode
from lmerge.temporal.plan.joins import AsOfJoinNode, JoinNode
from lmerge.temporal.plan.nodes import PlanNode
from lmerge.temporal.plan.ranking import TopNode
from lmerge.temporal.plan.shaping import CleanseNode, CoalesceNode, EdgesNode
from lmerge.temporal.plan.spans import FilterNode, LifetimeNode, SelectNode, UnionNode
from lmerge.temporal.plan.windows import AggregateNode, WindowNode
from lmerge.temporal.windows.kinds import Hopping, Sessions
from lmerge.temporal.windows.policies import Stamp


class StreamBeginning(NamedTuple):
    """Which events of a stream are there: those that end (``by_end``), or start, at or behind ``t``."""

    t: int
    by_end: bool = True

    @property
    def is_whole(self) -> bool:
        """Whether no event is missing."""
        return self.t == NEG_INF

    def has(self, vs: int, ve: int) -> bool:
        """Whether an event with this lifetime is there."""
        return (ve if self.by_end else vs) >= self.t

    def __str__(self) -> str:
        if self.is_whole:
            return "from the start"
        return f"events that {'end' if self.by_end else 'start'} at or behind {show_time(self.t)}"


FROM_THE_START: Final = StreamBeginning(NEG_INF)


class Opening(NamedTuple):
    """How an operator begins: which events its stream has, and the start before which its results are left out."""

    begins: StreamBeginning
    since: int = NEG_INF


def opening(node: PlanNode, inputs: Sequence[StreamBeginning]) -> Opening:
    """Return how a node begins over inputs that begin. Raises PlanError where no result would ever be right."""
    if all(begins.is_whole for begins in inputs):
        return Opening(FROM_THE_START)
    rule = _RULES.get(type(node))
    found = None if rule is None else rule(node, inputs)
    if found is None or found.begins.t == INF:
        had = " and ".join(dict.fromkeys(str(begins) for begins in inputs))
        raise PlanError(
            f"{node.title}: {node.shown} cannot begin in the middle of its input, of which it gets {had}: "
            "an event that has gone can change any later result"
        )
    return found


_Rule = Callable[[PlanNode, Sequence[StreamBeginning]], "Opening | None"]


def _as_the_input(node: PlanNode, inputs: Sequence[StreamBeginning]) -> Opening:
    return Opening(inputs[0])


def _of_union(node: PlanNode, inputs: Sequence[StreamBeginning]) -> Opening:
    return Opening(StreamBeginning(_latest(inputs), all(begins.by_end for begins in inputs)))


def _of_lifetime(node: PlanNode, inputs: Sequence[StreamBeginning]) -> Opening | None:
    assert isinstance(node, LifetimeNode)
    (begins,), d = inputs, node.amount
    t, by_end = begins
    if node.alteration == "shift":
        return Opening(StreamBeginning(plus(t, d), by_end))
    if node.alteration == "at_end":  # [ve, ve + d): where it starts is where the event ends
        return Opening(StreamBeginning(plus(t, d))) if by_end else None
    if not by_end or node.alteration == "clip_duration":
        return Opening(begins)
    # The last event that is missing ends at t - 1. It starts at t - 2 at the latest, for a set duration.
    return Opening(StreamBeginning(plus(t, d) if node.alteration == "extend" else plus(t, d - 1)))


def _of_join(node: PlanNode, inputs: Sequence[StreamBeginning]) -> Opening | None:
    # A pair ends with the first of its two events. A part without a partner starts where a partner has ended.
    assert isinstance(node, JoinNode)
    if not all(begins.by_end for begins in inputs):
        return None  # a partner that started long ago can be missing for any event
    t = _latest(inputs)
    covers = {JoinKind.INNER: (), JoinKind.LEFT: (1,), JoinKind.ANTI: (1,), JoinKind.RIGHT: (0,)}.get(node.how, (0, 1))
    return Opening(StreamBeginning(t)) if all(inputs[side].is_whole for side in covers) else _from_start(t)


def _of_as_of(node: PlanNode, inputs: Sequence[StreamBeginning]) -> Opening | None:
    # A sample before t is missing, and holds for left events up to ``within`` later.
    assert isinstance(node, AsOfJoinNode)
    if inputs[1].is_whole:
        return Opening(inputs[0])
    if node.within is None:
        return None
    return _from_start(max(inputs[0].t, plus(inputs[1].t, node.within)))


def _of_edges(node: PlanNode, inputs: Sequence[StreamBeginning]) -> Opening:
    # A sample lasts until the next one, so the last one before t is missing, and no later one.
    return _from_start(inputs[0].t)


def _of_coalesce(node: PlanNode, inputs: Sequence[StreamBeginning]) -> Opening | None:
    # A stretch that starts at or behind t continues no event that ended before t.
    return _from_start(inputs[0].t) if inputs[0].by_end else None


def _of_window(node: PlanNode, inputs: Sequence[StreamBeginning]) -> Opening | None:
    assert isinstance(node, WindowNode)
    (t, by_end), window, stamp = inputs[0], node.window, node.policies.stamp
    if not by_end or stamp in (Stamp.UNCHANGED, Stamp.TIME_BOUND):
        return None  # a result with its own lifetime can start any time behind a window that is wrong
    if isinstance(window, Hopping):
        return _of_grid(window, stamp, t)
    if stamp is not Stamp.ALIGN:
        return None  # the result of a window that began before t can lie anywhere in it
    # What ended before t can go on into a session that starts within the gap. Edges and counted points at or behind t
    # are those of events that end at or behind it.
    return _from_start(plus(t, window.gap) if isinstance(window, Sessions) else t)


def _of_grid(window: Hopping, stamp: Stamp, t: int) -> Opening:
    # A member ends behind the start of its window: all members of a window from t - 1 on end at or behind t.
    first = window.start_above(t - 2)
    if stamp is Stamp.CLIP:  # results lie anywhere in their windows
        return _from_start(max(first, first - window.hop + window.size))
    since = first if stamp is Stamp.ALIGN else first + window.size - 1
    return Opening(StreamBeginning(min(INF, first + window.size)), since)


def _of_groups(node: PlanNode, inputs: Sequence[StreamBeginning]) -> Opening | None:
    """Return how a sub-plan of groups begins: as its nodes do, but nothing leaves wrong results out between them."""
    assert isinstance(node, GroupApplyNode)
    found: dict[PlanNode, Opening] = {node.group: Opening(inputs[0])}
    for one in in_order([node.plan]):
        if one != node.group:
            if any(found[read].since > NEG_INF for read in one.reads):
                return None
            found[one] = opening(one, [found[read].begins for read in one.reads])
    return found[node.plan]


def _from_start(t: int) -> Opening:
    return Opening(StreamBeginning(t, by_end=False), since=t)


def _latest(inputs: Sequence[StreamBeginning]) -> int:
    return max(begins.t for begins in inputs)


_RULES: Final[Mapping[type[PlanNode], _Rule]] = {
    FilterNode: _as_the_input,
    SelectNode: _as_the_input,
    CleanseNode: _as_the_input,
    LifetimeNode: _of_lifetime,
    UnionNode: _of_union,
    GroupApplyNode: _of_groups,
    JoinNode: _of_join,
    AsOfJoinNode: _of_as_of,
    EdgesNode: _of_edges,
    CoalesceNode: _of_coalesce,
    AggregateNode: _of_window,
    TopNode: _of_window,
    ApplyNode: _of_window,
}
