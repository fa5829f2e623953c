"""Relations of how the engine runs: stopped and gone on, with feedback, in its other implementation, to the end.

They hold for every query and run on the engine alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from lmerge.core.elements import INF
from lmerge.core.engines.selection import PYTHON
from lmerge.core.tdb import reconstitute
from lmerge.errors import UsageError
from lmerge.temporal.changes import Change, Delta
from lmerge.temporal.plan.compiling import in_order
from lmerge.temporal.plan.joins import AsOfJoinNode
from lmerge.temporal.plan.shaping import EdgesNode
from lmerge.temporal.plan.spans import UnionNode
from lmerge.temporal.plan.windows import WindowNode
from lmerge.temporal.row_forms import RowForms
from lmerge.temporal.running import QueryRun
from lmerge.temporal.runs.settings import Item
from lmerge.temporal.windows.kinds import CountWindows
from lmerge.testing.checking.implementations import in_other_implementation, strained
from lmerge.testing.checking.key_order import other_key_order
from lmerge.testing.checking.related import CannotHold, RelatedRun, Relation, every_node
from lmerge.testing.decided import Events
from lmerge.testing.judging.operator_run import OperatorRun, recorded
from lmerge.testing.systems.inputs import forms_of, items_of
from lmerge.testing.systems.system import SystemFailure
from lmerge.testing.transforming.concrete import replaced

RESTARTS: Final = 6
"""How often a run is stopped at most."""
FAR: Final = 300
"""How far a stable point goes behind all times: further than all windows, gaps and durations of a drawn tree."""

Batches = Sequence[tuple[str, Sequence[Item]]]


def _restored(related: RelatedRun) -> Iterator[tuple[Events, Events]]:
    """Stop at some points, go on from a snapshot in another run: the whole is the same."""
    (name,) = related.tree.outputs
    yield related.expected, _table(related, _stopped(related, _run(related), name, _batches(related)))


def _forwarded(related: RelatedRun) -> Iterator[tuple[Events, Events]]:
    """Let the run know at some point that only events with Ve >= t are needed: all of these are there, and right.

    At one of the points it is stopped as well: what was left out by then is left out behind the restart.
    """
    (name,) = related.tree.outputs
    ends = sorted({ve for _, _, ve in related.expected}) or [0]
    batches = _batches(related)
    points = [(0, False), *((related.random.randrange(len(batches) + 1), stops) for stops in (True, False))]
    for cut, stops in points:
        t = related.random.choice(ends)
        run = _run(related)
        found = [step[name] for source, items in batches[:cut] for step in run.take(source, items)]
        run.fast_forward(name, t)
        if stops:
            found += _stopped(related, run, name, batches[cut:])
        else:
            found += [step[name] for source, items in batches[cut:] for step in run.take(source, items)]
        yield _needed(related.expected, t), _needed(_table(related, found), t)


def _freed(related: RelatedRun) -> Iterator[tuple[Events, Events]]:
    """Let time go on behind all ends, but not to its own: nothing is kept. Raises CannotHold, and SystemFailure.

    A sample holds until the next one, a count window waits for further events, and what an event without an end keeps
    depends on the operator.
    """
    for node in every_node(list(related.tree.outputs.values())):
        if isinstance(node, (AsOfJoinNode, EdgesNode)):
            raise CannotHold(f"{node.title} keeps samples, whatever their ends are")
        if isinstance(node, WindowNode) and isinstance(node.window, CountWindows):
            raise CannotHold(f"{node.title} waits for further events")
        if isinstance(node, WindowNode) and node.on_empty is not None:
            raise CannotHold(f"{node.title} has a window that goes on, with events or without")
    events = [event for name in related.tree.sources for event in reconstitute(related.inputs.elements(name))]
    if any(event.ve == INF for event in events):
        raise CannotHold("events without an end are kept")
    far = max((event.ve for event in events), default=0) + FAR
    run = _run(related)
    for source, items in _batches(related):
        run.take(source, [far if item == INF else item for item in items])
    for part in run.parts:
        live, sizes = part.operator.live(), {what: count for what, count in part.operator.sizes().items() if count}
        if live or sizes:
            kept = ", ".join(f"{count} {what}" for what, count in {"events": live, **sizes}.items())
            raise SystemFailure(f"at stable({far}), behind all ends, operator {part.name!r} keeps {kept}")
    yield related.expected, related.expected


def _declared_disjoint(related: RelatedRun) -> Iterator[tuple[Events, Events]]:
    """Declare that the streams of a union differ in a column: where they do not, the run fails, and only there.

    Raises CannotHold, and SystemFailure.
    """
    unions = [node for node in in_order(list(related.tree.outputs.values())) if isinstance(node, UnionNode)]
    if not unions:
        raise CannotHold("there is no union")
    union = related.random.choice(unions)
    column = related.random.choice(union.schema.names)
    if union.disjoint_by:
        raise CannotHold(f"{union.title} is declared disjoint already")
    batches = _batches(related)
    operators, _ = recorded(QueryRun(dict(related.tree.outputs), implementation=PYTHON), batches)
    clash = _clash(next(one for one in operators if one.result is union), union.schema.names.index(column))
    declared = replaced(next(iter(related.tree.outputs.values())), {union: replace(union, disjoint_by=(column,))})
    run = QueryRun({"result": declared}, implementation=PYTHON)
    try:
        for source, items in batches:
            run.take(source, items)
    except UsageError as failure:
        if clash is None or "declared disjoint" not in str(failure):
            raise SystemFailure(f"its streams differ in {column!r}, and it fails: {failure}") from None
        clash = None
    if clash is not None:
        raise SystemFailure(f"its streams do not differ in {column!r}: {clash}, and it does not fail")
    yield related.expected, related.expected


def _clash(union: OperatorRun, place: int) -> str | None:
    """Return how two streams of a union have events with one start and one value at a place, or None."""
    first: dict[tuple[int, Any], tuple[int, Change]] = {}
    for _, read, _ in union.steps:
        for at, delta in enumerate(read):
            for change in delta.changes:
                if not change.is_insert:
                    continue
                other, earlier = first.setdefault((change.vs, change.row[place]), (at, change))
                if other != at:
                    return f"{earlier} of stream {other + 1} and {change} of stream {at + 1}"
    return None


def _run(related: RelatedRun) -> QueryRun:
    return QueryRun(dict(related.tree.outputs), implementation=related.implementation)


def _batches(related: RelatedRun) -> Batches:
    forms = forms_of(related.tree.sources)
    return [(one.name, items_of(one.elements, forms[one.name])) for one in related.inputs.batches]


def _stopped(related: RelatedRun, run: QueryRun, name: str, batches: Batches) -> list[Delta]:
    """Take batches; at points that are drawn the run ends, and another one goes on from its bytes."""
    stops = {related.random.randrange(len(batches) + 1) for _ in range(RESTARTS)}
    found = []
    for at, (source, items) in enumerate(batches):
        if at in stops:
            run = QueryRun.load(run.dump(), dict(related.tree.outputs), implementation=related.implementation)
        found += [step[name] for step in run.take(source, items)]
    return found


def _needed(table: Events, t: int) -> Events:
    return Counter({event: count for event, count in table.items() if event[2] >= t})


def _table(related: RelatedRun, deltas: Sequence[Delta]) -> Events:
    """Return the table of the batches of the result."""
    (node,) = related.tree.outputs.values()
    payload = RowForms(node.schema).payload
    found: Events = Counter()
    for delta in deltas:
        for row, vs, old, new in delta.changes:
            if old > vs:
                found[payload(row), vs, old] -= 1
            if new > vs:
                found[payload(row), vs, new] += 1
    return Counter({event: count for event, count in found.items() if count})


OF_ENGINE: Final[Mapping[str, Relation]] = {
    "restored": _restored,
    "fast-forward": _forwarded,
    "other-implementation": in_other_implementation,
    "strained": strained,
    "freed": _freed,
    "disjoint-unions": _declared_disjoint,
    "other-key-order": other_key_order,
}
