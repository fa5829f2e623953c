"""Which events of a node's inputs an event of its output comes from: the structural half of root causes (S16).

An origin has all that takes part in the event, and all that shapes it: the members of its window and the events whose
ends are the window's; the left event of a part without a partner, and the right events that cut it. So the operator
over these events alone has the event in its output again, next to others that may be wrong.

A node without a rule comes from all of its inputs. ``lmerge.temporal.runs.causes`` follows the origins to the sources.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from lmerge.core.elements import INF
from lmerge.temporal.changes import Change, Lifetime
from lmerge.temporal.operators.lifetimes import AlterLifetime
from lmerge.temporal.operators.operator import PlanOperator
from lmerge.temporal.operators.span import MapRows
from lmerge.temporal.plan.applying import ApplyNode
from lmerge.temporal.plan.joins import AsOfJoinNode, JoinNode
from lmerge.temporal.plan.nodes import PlanNode
from lmerge.temporal.plan.ranking import TopNode
from lmerge.temporal.plan.shaping import CleanseNode, CoalesceNode, EdgesNode
from lmerge.temporal.plan.spans import FilterNode, LifetimeNode, SelectNode, UnionNode
from lmerge.temporal.plan.windows import AggregateNode, WindowNode
from lmerge.temporal.values import Values
from lmerge.temporal.windows.group import WindowGroup
from lmerge.temporal.windows.kinds import CountedEnd, CountWindows, Snapshots, WindowKind
from lmerge.temporal.windows.placing import GROUPS
from lmerge.temporal.windows.stamping import has_results, stamped

Events: TypeAlias = Iterable[Lifetime]


class Computed(NamedTuple):
    """A node that has computed something. ``inputs``: the events of each input; ``operator``: with what it keeps."""

    node: PlanNode
    operator: PlanOperator
    inputs: Sequence[Sequence[Lifetime]]


def origins(computed: Computed, event: Lifetime) -> list[list[Lifetime]]:
    """Return the events of each input that an event of the output comes from."""
    rule = _RULES.get(type(computed.node))
    return [list(events) for events in computed.inputs] if rule is None else rule(computed, event)


_Rule = Callable[[Computed, Lifetime], list[list[Lifetime]]]


def _the_same(computed: Computed, event: Lifetime) -> list[list[Lifetime]]:
    return [[one for one in events if one == event] for events in computed.inputs]


def _of_select(computed: Computed, event: Lifetime) -> list[list[Lifetime]]:
    node, (events,) = computed.node, computed.inputs
    assert isinstance(node, SelectNode)
    part = node.part
    assert isinstance(part, MapRows)
    return [[one for one in events if one[1:] == event[1:] and part.function(one.row) == event.row]]


def _of_lifetime(computed: Computed, event: Lifetime) -> list[list[Lifetime]]:
    node, (events,) = computed.node, computed.inputs
    assert isinstance(node, LifetimeNode)
    part = node.part
    assert isinstance(part, AlterLifetime)
    return [[one for one in events if one.row == event.row and part.altered(one.vs, one.ve) == event[1:]]]


def _of_join(computed: Computed, event: Lifetime) -> list[list[Lifetime]]:
    node, (lefts, rights) = computed.node, computed.inputs
    assert isinstance(node, JoinNode)
    width = len(node.reads[0].schema.columns)
    is_left = len(event.row) == width  # of an anti-join
    sides: list[set[Lifetime]] = [set(), set()]
    for left in lefts:
        found = [right for right in rights if _overlap(left, right) and _match(node, left, right)]
        pairs = [one for one in found if left.row + one.row == event.row and _common(left, one) == event[1:]]
        if pairs and not is_left:
            sides[0].add(left)
            sides[1].update(pairs)
        missing = () if is_left else (None,) * (len(event.row) - width)
        if node.how.reports_left and left.row + missing == event.row and left.vs <= event.vs and event.ve <= left.ve:
            sides[0].add(left)
            sides[1].update(found)
    for right in rights:
        if node.how.reports_right and (None,) * width + right.row == event.row and _covers(right, event):
            sides[0].update(left for left in lefts if _overlap(left, right) and _match(node, left, right))
            sides[1].add(right)
    return [[one for one in events if one in side] for events, side in zip(computed.inputs, sides, strict=True)]


def _match(node: JoinNode, left: Lifetime, right: Lifetime) -> bool:
    keys = [side.match_key(one.row) for side, one in zip(node.inputs(), (left, right), strict=True)]
    if None in keys or keys[0] != keys[1]:
        return False
    return node.bound_predicate is None or node.bound_predicate.evaluate(left.row + right.row) is True


def _of_as_of(computed: Computed, event: Lifetime) -> list[list[Lifetime]]:
    node, (lefts, samples) = computed.node, computed.inputs
    assert isinstance(node, AsOfJoinNode)
    width = len(node.reads[0].schema.columns)
    left = Lifetime(event.row[:width], event.vs, event.ve)
    times = [one.vs for one in samples if one.row == event.row[width:] and one.vs <= event.vs]
    last = max(times, default=None)
    holders = [one for one in samples if one.row == event.row[width:] and one.vs == last]
    return [[one for one in lefts if one == left], holders]


def _of_edges(computed: Computed, event: Lifetime) -> list[list[Lifetime]]:
    node, (samples,) = computed.node, computed.inputs
    assert isinstance(node, EdgesNode)
    key = node.bound_by.evaluate(event.row)
    return [[one for one in samples if one.vs in (event.vs, event.ve) and node.bound_by.evaluate(one.row) == key]]


def _of_coalesce(computed: Computed, event: Lifetime) -> list[list[Lifetime]]:
    (events,) = computed.inputs
    return [[one for one in events if one.row == event.row and _overlap(one, event)]]


def _of_window(computed: Computed, event: Lifetime) -> list[list[Lifetime]]:
    node, (events,) = computed.node, computed.inputs
    assert isinstance(node, WindowNode)
    by_key: dict[Values, list[Lifetime]] = {}
    for one in events:
        by_key.setdefault(node.bound_keys.evaluate(one.row) if node.keys else (), []).append(one)
    found: set[Lifetime] = set()
    for key, members in by_key.items():
        group = GROUPS[type(node.window)](key, node.rules)
        if event.row[: len(group.shown_key)] == group.shown_key:
            found |= _of_group(group, members, event, _begun(computed.operator))
    return [[one for one in events if one in found]]


def _of_group(group: WindowGroup, events: Sequence[Lifetime], event: Lifetime, begun: int) -> set[Lifetime]:
    """Return the events of the windows with a result, and those that make the edges of snapshots."""
    kind, found = group.rules.kind, set[Lifetime]()
    for row, vs, ve in events:
        group.apply(Change(row, vs, vs, ve), begun)
    for entry in list(group.windows.values()):
        if has_results(group, entry) and event in stamped(group, entry):
            start, end = entry.span
            found.update(one for one in events if _is_member(kind, one, start, end))
            if isinstance(kind, Snapshots):
                found.update(one for one in events if one.ve == start or one.vs == end)
    return found


def _is_member(kind: WindowKind, event: Lifetime, start: int, end: int) -> bool:
    if isinstance(kind, CountWindows):  # a group does not keep all of its events
        return start <= (event.ve if kind.by is CountedEnd.ENDS else event.vs) < end
    return event.vs < end and event.ve > start


def _begun(operator: PlanOperator) -> int:
    """Return the start behind which no window of a grid has begun."""
    times: list[Any] = operator.state()["times"]
    _, mark, last_finite, _ = times
    begun: int = last_finite if mark == INF else mark
    return begun


def _overlap(one: Lifetime, other: Lifetime) -> bool:
    return one.vs < other.ve and other.vs < one.ve


def _covers(one: Lifetime, other: Lifetime) -> bool:
    return one.vs <= other.vs and other.ve <= one.ve


def _common(one: Lifetime, other: Lifetime) -> tuple[int, int]:
    return max(one.vs, other.vs), min(one.ve, other.ve)


_RULES: Final[Mapping[type[PlanNode], _Rule]] = {
    FilterNode: _the_same,
    UnionNode: _the_same,
    CleanseNode: _the_same,
    SelectNode: _of_select,
    LifetimeNode: _of_lifetime,
    JoinNode: _of_join,
    AsOfJoinNode: _of_as_of,
    EdgesNode: _of_edges,
    CoalesceNode: _of_coalesce,
    AggregateNode: _of_window,
    TopNode: _of_window,
    ApplyNode: _of_window,
}
