"""How far the output of an operator must be stable at least, by the rules of each operator over its inputs' tables.

An operator that never moves its stable point keeps every other law. The rules are those of the operators' sheets and of
the table of windows, written from the tables alone: ``c`` is the input's stable point, an event with Vs < c <= Ve is
half frozen, and ``g(x)`` is the smallest start of a grid above x. Where an operator has no rule here, nothing is
required of it before its inputs end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, TypeAlias

from lmerge.temporal.changes import Delta
from lmerge.temporal.plan.joins import AsOfJoinNode, JoinNode
from lmerge.temporal.plan.nodes import PlanNode
from lmerge.temporal.plan.shaping import CleanseNode, CoalesceNode, EdgesNode
from lmerge.temporal.plan.spans import FilterNode, LifetimeNode, SelectNode, UnionNode
from lmerge.temporal.plan.windows import WindowNode
from lmerge.temporal.values import Values
from lmerge.temporal.windows.kinds import CountedEnd, CountWindows, Hopping, Sessions, Snapshots
from lmerge.temporal.windows.policies import Form, Stamp
from lmerge.testing.canonical.times import INF, NEG_INF
from lmerge.testing.judging.operator_run import OperatorRun

StreamEvent: TypeAlias = tuple[Values, int, int]
Rule: TypeAlias = "Callable[[PlanNode, Sequence[_TakenInput]], int | None]"


class _TakenInput:
    """The table of an input as far as it has come."""

    def __init__(self) -> None:
        self.events: Counter[StreamEvent] = Counter()
        self.stable = NEG_INF

    def take(self, delta: Delta) -> None:
        for row, vs, old, new in delta.changes:
            if old > vs:
                self.events[row, vs, old] -= 1
            if new > vs:
                self.events[row, vs, new] += 1
        self.stable = self.stable if delta.stable is None else max(self.stable, delta.stable)

    def there(self) -> list[StreamEvent]:
        """Return the events that are there."""
        return list(self.events.elements())

    def half_frozen(self) -> list[int]:
        """Return the starts of the events that have begun before the stable point and not ended before it."""
        return [vs for _, vs, ve in self.there() if vs < self.stable <= ve]


def stuck(operator: OperatorRun) -> tuple[int, int, int] | None:
    """Return the step behind which an output is less stable than its rule, with its stable point and the rule's.

    None if it never is, or if there is no rule for what is judged as one operator.
    """
    node = operator.result
    rule = next((rule for kind, rule in _RULES.items() if isinstance(node, kind)), None)
    if rule is None or tuple(node.reads) != operator.reads:
        return None
    inputs = [_TakenInput() for _ in operator.reads]
    stable = NEG_INF
    for step, read, found in operator.steps:
        for one, delta in zip(inputs, read, strict=True):
            one.take(delta)
        stable = stable if found.stable is None else max(stable, found.stable)
        if all(NEG_INF < one.stable < INF for one in inputs):
            least = rule(node, inputs)
            if least is not None and stable < least:
                return step, stable, least
    return None


def _least_of_inputs(node: PlanNode, inputs: Sequence[_TakenInput]) -> int:
    return min(one.stable for one in inputs)


def _moved(node: PlanNode, inputs: Sequence[_TakenInput]) -> int:
    assert isinstance(node, LifetimeNode)
    c = inputs[0].stable
    return max(NEG_INF, min(INF, c + node.amount)) if str(node.alteration) == "shift" else c


def _released(node: PlanNode, inputs: Sequence[_TakenInput]) -> int:
    """Return the first start of what is not released: an event is when its end is final."""
    return min([inputs[0].stable, *inputs[0].half_frozen()])


def _coalesced(node: PlanNode, inputs: Sequence[_TakenInput]) -> int:
    """Return the start of the first run of equal rows that meet which can still go on."""
    (read,) = inputs
    by_row: dict[Values, list[tuple[int, int]]] = {}
    for row, vs, ve in read.there():
        by_row.setdefault(row, []).append((vs, ve))
    return min([read.stable, *(vs for spans in by_row.values() for vs in _open_runs(spans, 0, read.stable))])


def _open_runs(lifetimes: Sequence[tuple[int, int]], gap: int, c: int) -> list[int]:
    """Return the starts of runs of lifetimes, at most a gap apart, that have begun before ``c`` and can still grow."""
    runs: list[list[int]] = []
    for vs, ve in sorted(lifetimes):
        if runs and vs <= runs[-1][1] + gap:
            runs[-1][1] = max(runs[-1][1], ve)
        else:
            runs.append([vs, ve])
    return [vs for vs, ve in runs if vs < c <= ve + gap]


def _of_windows(node: PlanNode, inputs: Sequence[_TakenInput]) -> int | None:
    assert isinstance(node, WindowNode)
    (read,) = inputs
    if node.policies.stamp is Stamp.TIME_BOUND:
        # In the other forms a result that is bound to its cause is held back, and holds the stable point (D9).
        return read.stable if node.policies.form is Form.EAGER else None
    kind, c = node.window, read.stable
    if isinstance(kind, Hopping):
        return _of_grid(node, kind, read)
    if isinstance(kind, Snapshots):
        return min([c, *(_of_snapshots(node, c, group) for group in _groups(node, read.there()))])
    if isinstance(kind, CountWindows):
        if node.policies.stamp is Stamp.POINT_AT_END:
            return None if _reads_ends(node) else c
        return min([c, *(_of_counts(node, kind, c, group) for group in _groups(node, read.there()))])
    if isinstance(kind, Sessions) and node.policies.stamp is Stamp.ALIGN and not _reads_ends(node):
        groups = _groups(node, read.there())
        return min([c, *(vs for one in groups for vs in _open_runs([event[1:] for event in one], kind.gap, c))])
    return None


def _of_grid(node: WindowNode, kind: Hopping, read: _TakenInput) -> int:
    def g(x: int) -> int:
        least = NEG_INF if kind.since is None else kind.since - 1
        return kind.offset + kind.hop * ((max(x, least) - kind.offset) // kind.hop + 1)

    starts = [read.stable, *(read.half_frozen() if _reads_ends(node) else ())]
    first = min(g(start - kind.size) for start in starts)
    return min(INF, first + kind.size - 1 if node.policies.stamp is Stamp.POINT_AT_END else first)


def _of_snapshots(node: WindowNode, c: int, events: Sequence[StreamEvent]) -> int:
    if _reads_ends(node):
        return min([c, *(vs for _, vs, ve in events if vs < c <= ve)])
    reads_window = node.module.reads_window or node.policies.stamp is Stamp.POINT_AT_END
    if node.policies.form in (Form.SETTLED, Form.EAGER) and not (reads_window or node.module.reads_events):
        return c
    points = [t for _, vs, ve in events for t in (vs, ve)]
    begun = max((t for t in points if t < c), default=None)
    is_open = begun is not None and any(vs <= begun < ve for _, vs, ve in events)
    return begun if begun is not None and is_open else c


def _of_counts(node: WindowNode, kind: CountWindows, c: int, events: Sequence[StreamEvent]) -> int:
    by_ends = kind.by is CountedEnd.ENDS
    counted = sorted({(ve if by_ends else vs) for _, vs, ve in events if (ve if by_ends else vs) < c})
    of_c = _back(counted, kind.count - 1, c)
    if by_ends or not _reads_ends(node):
        return of_c
    held = [vs for _, vs, ve in events if vs < c <= ve]
    return min([of_c, *(_back([t for t in counted if t <= vs], kind.count, vs) for vs in held)])


def _back(times: Sequence[int], count: int, otherwise: int) -> int:
    """Return the ``count``-th last of times, or the first of fewer."""
    return times[max(0, len(times) - count)] if times and count else otherwise


def _reads_ends(node: WindowNode) -> bool:
    """Whether a later end of an event can change the result of a window that has ended."""
    module = node.module
    return module.reads_events and not module.starts_only and not node.policies.clip.cuts_right


def _groups(node: WindowNode, events: Iterable[StreamEvent]) -> list[list[StreamEvent]]:
    found: dict[Values, list[StreamEvent]] = {}
    for event in events:
        found.setdefault(node.bound_keys.evaluate(event[0]), []).append(event)
    return list(found.values())


_RULES: Final[Mapping[type, Rule]] = {
    FilterNode: _least_of_inputs,
    SelectNode: _least_of_inputs,
    EdgesNode: _least_of_inputs,
    UnionNode: _least_of_inputs,
    JoinNode: _least_of_inputs,
    LifetimeNode: _moved,
    AsOfJoinNode: _least_of_inputs,
    CoalesceNode: _coalesced,
    CleanseNode: _released,
    WindowNode: _of_windows,
}
