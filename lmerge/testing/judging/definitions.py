"""Definitions: what each operator means, by brute force over the few events of a small table.

They are the third opinion (TESTING 6, V7): where engine and SQL differ over at most ``EVENTS_MAX`` events, the
definition decides which one is blamed. They share no code with either, but for what evaluates expressions and modules.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

from lmerge.core.elements import INF, NEG_INF
from lmerge.temporal.changes import Lifetime
from lmerge.temporal.expressions.binding import bind
from lmerge.temporal.expressions.properties import plain_column
from lmerge.temporal.operators.join import JoinKind
from lmerge.temporal.plan.compiling import in_order
from lmerge.temporal.plan.groups import GroupApplyNode
from lmerge.temporal.plan.joins import AsOfJoinNode, JoinNode, PairingNode
from lmerge.temporal.plan.nodes import PlanNode
from lmerge.temporal.plan.ranking import TopNode
from lmerge.temporal.plan.shaping import EdgesNode
from lmerge.temporal.plan.spans import FilterNode, LifetimeNode, SelectNode
from lmerge.temporal.plan.windows import WindowNode
from lmerge.temporal.values import Values, order_of
from lmerge.temporal.windows.kinds import CountedEnd, CountWindows, Hopping, Sessions, WindowDescriptor
from lmerge.temporal.windows.policies import Stamp
from lmerge.testing.judging.tables import CUTS_LEFT, CUTS_RIGHT, KEEPS_LEFT, KEEPS_OWN, KEEPS_RIGHT
from lmerge.testing.judging.unjudged import NotJudged

EVENTS_MAX: Final = 8

Table = Sequence[Lifetime]
Begun = int
"""The latest time that the streams have come to: where the windows of an event without an end stop (D13)."""


def defined(node: PlanNode, tables: Mapping[PlanNode, Table], begun: Mapping[PlanNode, Begun]) -> list[Lifetime]:
    """Return the table that a node means, over those of ``tables``. Raises NotJudged without a definition.

    ``begun``: of each table.
    """
    found: dict[PlanNode, Table] = dict(tables)
    times = dict(begun)
    for one in in_order([node], tables):
        if one not in found:
            define = _DEFINITIONS.get(one.kind)
            if define is None:
                raise NotJudged(f"{one.title}: there is no definition of {one.kind!r}")
            came = max(times[read] for read in one.reads)
            found[one] = define(one, [found[read] for read in one.reads], came)
            times[one] = one.operator(one.title).mark_of(came) if isinstance(one, LifetimeNode) else came
    return list(found[node])


def later(t: int, amount: int) -> int:
    """Return a time moved by an amount; the infinities stay, and are never passed."""
    return t if t in (INF, NEG_INF) else max(NEG_INF, min(INF, t + amount))


# Event by event.


def _filtered(node: FilterNode, reads: Sequence[Table], begun: Begun) -> list[Lifetime]:
    return [event for event in reads[0] if node.bound.evaluate(event.row) is True]


def _selected(node: SelectNode, reads: Sequence[Table], begun: Begun) -> list[Lifetime]:
    return [Lifetime(node.bound.evaluate(row), vs, ve) for row, vs, ve in reads[0]]


def _altered(node: LifetimeNode, reads: Sequence[Table], begun: Begun) -> list[Lifetime]:
    d = node.amount
    changed: Mapping[str, Callable[[int, int], tuple[int, int]]] = {
        "shift": lambda vs, ve: (later(vs, d), later(ve, d)),
        "set_duration": lambda vs, ve: (vs, later(vs, d)),
        "clip_duration": lambda vs, ve: (vs, min(ve, later(vs, d))),
        "extend": lambda vs, ve: (vs, later(ve, d)),
        "at_end": lambda vs, ve: (ve, later(ve, d)),
    }
    made = [Lifetime(row, *changed[node.alteration](vs, ve)) for row, vs, ve in reads[0]]
    return [event for event in made if event.vs < event.ve]


def _united(node: PlanNode, reads: Sequence[Table], begun: Begun) -> list[Lifetime]:
    return [event for table in reads for event in table]


def _same(node: PlanNode, reads: Sequence[Table], begun: Begun) -> list[Lifetime]:
    return list(reads[0])


def _coalesced(node: PlanNode, reads: Sequence[Table], begun: Begun) -> list[Lifetime]:
    """Walk the ends of each row's events, and emit a stretch where the number of live ones falls to zero."""
    found = []
    for row in {event.row for event in reads[0]}:
        own = [event for event in reads[0] if event.row == row]
        begins = None
        for t in sorted({t for event in own for t in (event.vs, event.ve)}):
            alive = any(event.vs <= t < event.ve for event in own)
            if alive and begins is None:
                begins = t
            elif not alive and begins is not None:
                found.append(Lifetime(row, begins, t))
                begins = None
    return found


def _edges(node: EdgesNode, reads: Sequence[Table], begun: Begun) -> list[Lifetime]:
    order = order_of(node.schema.columns)
    found = []
    for row, vs, _ in reads[0]:
        key = node.bound_by.evaluate(row)
        signal = [event for event in reads[0] if node.bound_by.evaluate(event.row) == key]
        holding = max((event.row for event in signal if event.vs == vs), key=order)
        end = min((event.vs for event in signal if event.vs > vs), default=INF)
        end = end if node.lasts is None else min(end, later(vs, node.lasts))
        event = Lifetime(row, vs, end)
        if holding == row and event not in found and vs < end:
            found.append(event)
    return found


# Pairs.


def _pairs(node: PairingNode) -> Callable[[Values, Values], bool]:
    left, right = node.bound_keys

    def are_equal(one: Values, other: Values) -> bool:
        keys = left.evaluate(one), right.evaluate(other)
        return None not in keys[0] and keys[0] == keys[1]

    return are_equal if node.keys else lambda one, other: True


def _joined(node: JoinNode, reads: Sequence[Table], begun: Begun) -> list[Lifetime]:
    left, right = reads
    is_pair = _pairs(node)
    bound = node.bound_predicate

    def matches(one: Values, other: Values) -> bool:
        return is_pair(one, other) and (bound is None or bound.evaluate((*one, *other)) is True)

    widths = [len(read.schema.columns) for read in node.reads]
    found = []
    if node.how is not JoinKind.ANTI:
        for one in left:
            for other in right:
                vs, ve = max(one.vs, other.vs), min(one.ve, other.ve)
                if vs < ve and matches(one.row, other.row):
                    found.append(Lifetime((*one.row, *other.row), vs, ve))
    if node.how.value in (*KEEPS_LEFT, "anti"):
        padding = () if node.how is JoinKind.ANTI else (None,) * widths[1]
        for one in left:
            covers = [other for other in right if matches(one.row, other.row)]
            found += [Lifetime((*one.row, *padding), vs, ve) for vs, ve in _uncovered(one, covers)]
    if node.how.value in KEEPS_RIGHT:
        for other in right:
            covers = [one for one in left if matches(one.row, other.row)]
            found += [Lifetime((*(None,) * widths[0], *other.row), vs, ve) for vs, ve in _uncovered(other, covers)]
    return found


def _uncovered(event: Lifetime, covers: Sequence[Lifetime]) -> list[tuple[int, int]]:
    """Return the longest stretches of an event in which none of the others is alive."""
    inside = {t for one in covers for t in (one.vs, one.ve) if event.vs < t < event.ve}
    times = sorted({event.vs, event.ve, *inside})
    found: list[tuple[int, int]] = []
    for vs, ve in pairwise(times):
        if any(one.vs <= vs < one.ve for one in covers):
            continue
        if found and found[-1][1] == vs:
            vs = found.pop()[0]
        found.append((vs, ve))
    return found


def _as_of(node: AsOfJoinNode, reads: Sequence[Table], begun: Begun) -> list[Lifetime]:
    left, samples = reads
    is_pair, order = _pairs(node), order_of(node.reads[1].schema.columns)
    width = len(node.reads[1].schema.columns)
    found = []
    for row, vs, ve in left:
        before = [one for one in samples if one.vs <= vs and is_pair(row, one.row)]
        latest = max(before, key=lambda one: (one.vs, order(one.row)), default=None)
        if latest is not None and node.within is not None and later(latest.vs, node.within) < vs:
            latest = None
        if latest is not None:
            found.append(Lifetime((*row, *latest.row), vs, ve))
        elif node.is_outer:
            found.append(Lifetime((*row, *(None,) * width), vs, ve))
    return found


# Windows and groups.


def _windowed(node: WindowNode, reads: Sequence[Table], begun: Begun) -> list[Lifetime]:
    (events,) = reads
    last = max([begun, *(event.ve for event in events if event.ve < INF)])
    groups: dict[Values, list[Lifetime]] = {}
    for event in events:
        groups.setdefault(node.bound_keys.evaluate(event.row), []).append(event)
    found = [
        result
        for key, own in groups.items()
        for first, end in _spans(node, own, last)
        for result in _results(node, key, [one for one in own if _belongs(node, one, first, end)], first, end)
    ]
    return found if node.on_empty is None else found + _without_events(node, events, last)


def _without_events(node: WindowNode, events: Table, last: int) -> list[Lifetime]:
    """Return the results of the windows of a grid without groups that have no events, from its first window on."""
    kind, on_empty = node.window, node.on_empty
    assert isinstance(kind, Hopping)
    assert kind.since is not None
    assert on_empty is not None
    start = kind.offset
    while start - kind.hop >= kind.since:
        start -= kind.hop
    while start < kind.since:
        start += kind.hop
    found = []
    while start <= last:
        end = later(start, kind.size)
        if not any(_belongs(node, event, start, end) for event in events):
            found += _stamped(node, (), on_empty(WindowDescriptor(start, end, ())), start, end)
        start += kind.hop
    return found


def _spans(node: WindowNode, events: Table, last: int) -> list[tuple[int, int]]:
    kind = node.window
    if isinstance(kind, Hopping):
        starts = set()
        for event in events:
            start = kind.offset + ((event.vs - kind.size - kind.offset) // kind.hop) * kind.hop
            while start <= min(last, event.ve - 1):
                if start + kind.size > event.vs and (kind.since is None or start >= kind.since):
                    starts.add(start)
                start += kind.hop
        return [(start, later(start, kind.size)) for start in sorted(starts)]
    if isinstance(kind, CountWindows):
        times = {event.vs if kind.by is CountedEnd.STARTS else event.ve for event in events} - {INF}
        ordered = sorted(times)
        return [
            (t, ordered[at + kind.count - 1] + 1)
            for at, t in enumerate(ordered[: max(0, len(ordered) - kind.count + 1)])
        ]
    if isinstance(kind, Sessions):
        runs: list[tuple[int, int]] = []
        for event in sorted(events, key=lambda one: (one.vs, one.ve)):
            if runs and event.vs <= runs[-1][1] + kind.gap:
                runs[-1] = (runs[-1][0], max(runs[-1][1], event.ve))
            else:
                runs.append((event.vs, event.ve))
        return runs
    edges = sorted({t for event in events for t in (event.vs, event.ve)})
    return list(pairwise(edges))


def _belongs(node: WindowNode, event: Lifetime, first: int, end: int) -> bool:
    if isinstance(node.window, CountWindows):
        return first <= (event.vs if node.window.by is CountedEnd.STARTS else event.ve) < end
    return event.vs < end and event.ve > first


def _results(node: Any, key: Values, members: list[Lifetime], first: int, end: int) -> list[Lifetime]:
    if not members:
        return []
    clip = str(node.policies.clip)
    clipped = [
        Lifetime(row, max(vs, first) if clip in CUTS_LEFT else vs, min(ve, end) if clip in CUTS_RIGHT else ve)
        for row, vs, ve in members
    ]
    rows: Any
    if isinstance(node, TopNode):
        rows = _ranked(node, [event.row for event in clipped])
    else:
        order, module = order_of(node.input_schema.columns), node.module
        clipped.sort(key=lambda event: order(event.row))
        if module.reads_events:
            clipped.sort(key=lambda event: (event.vs, 0 if module.starts_only else event.ve))
        rows = module.compute(clipped, WindowDescriptor(first, end, key))
    return _stamped(node, key, rows, first, end)


def _stamped(node: Any, key: Values, rows: Any, first: int, end: int) -> list[Lifetime]:
    """Return the results of a window with their lifetimes."""
    stamp = node.policies.stamp
    if stamp is Stamp.POINT_AT_END and end == INF:
        return []
    lifetime = (end - 1, end) if stamp is Stamp.POINT_AT_END else (first, end)
    if isinstance(node, TopNode) or not node.module.stamps:
        return [Lifetime((*key, *row), *lifetime) for row in rows]
    if str(stamp) not in KEEPS_OWN:
        return [Lifetime((*key, *one.row), *lifetime) for one in rows]
    own: list[tuple[Values, int, int]] = [(one.row, one.vs, one.ve) for one in rows]
    if stamp is Stamp.CLIP:
        own = [(row, max(vs, first), min(ve, end)) for row, vs, ve in own]
    return [Lifetime((*key, *row), vs, ve) for row, vs, ve in own if vs < ve]


def _ranked(node: TopNode, rows: Sequence[Values]) -> list[Values]:
    """Return the rows with their ranks: one more than the number of rows that are before it."""
    schema = node.input_schema
    ranking = []
    for expression, is_descending in node.order_by:
        bound = bind(expression, schema, operator=node.title)
        ranking.append((bound.evaluate, order_of([bound.column]), is_descending))

    def is_before(one: Values, other: Values) -> bool:
        for evaluate, order, is_descending in ranking:
            values = evaluate(one), evaluate(other)
            if None in values:
                if values[0] is not values[1]:
                    return values[1] is None
                continue
            keys = order((values[0],)), order((values[1],))
            if keys[0] != keys[1]:
                return bool(keys[1] < keys[0]) if is_descending else bool(keys[0] < keys[1])
        return False

    repeated = {plain_column(one) for name, one in node.keys if plain_column(one) == name}
    kept = [at for at, name in enumerate(schema.names) if name not in repeated]
    found = []
    for row in rows:
        rank = 1 + sum(is_before(other, row) for other in rows)
        if rank <= node.k:
            found.append((*(row[at] for at in kept), *((rank,) if node.rank is not None else ())))
    return found


def _applied(node: GroupApplyNode, reads: Sequence[Table], begun: Begun) -> list[Lifetime]:
    groups: dict[Values, list[Lifetime]] = {}
    for event in reads[0]:
        groups.setdefault(node.bound_keys.evaluate(event.row), []).append(event)
    found = []
    for key, events in groups.items():
        first = key if node.has_keys else ()
        results = defined(node.plan, {node.group: events}, {node.group: begun})
        found += [Lifetime((*first, *row), vs, ve) for row, vs, ve in results]
    return found


Definition = Callable[[Any, Sequence[Table], Begun], list[Lifetime]]
_DEFINITIONS: Final[Mapping[str, Definition]] = {
    "filter": _filtered,
    "select": _selected,
    "lifetime": _altered,
    "union": _united,
    "edges": _edges,
    "coalesce": _coalesced,
    "cleanse": _same,
    "join": _joined,
    "as_of": _as_of,
    "aggregate": _windowed,
    "top": _windowed,
    "apply": _windowed,
    "group_apply": _applied,
}
