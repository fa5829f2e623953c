"""The queries of windows: which events belong to each, what is computed of them, and their results' lifetimes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from lmerge.temporal.changes import Lifetime
from lmerge.temporal.expressions.binding import bind
from lmerge.temporal.expressions.printing import shown
from lmerge.temporal.expressions.properties import plain_column
from lmerge.temporal.plan.applying import ApplyNode
from lmerge.temporal.plan.ranking import TopNode
from lmerge.temporal.plan.windows import AggregateNode, WindowNode
from lmerge.temporal.row_forms import RowForms
from lmerge.temporal.windows.kinds import CountedEnd, CountWindows, Hopping, Sessions, WindowDescriptor
from lmerge.temporal.windows.policies import Stamp
from lmerge.testing.canonical import windows
from lmerge.testing.canonical.times import INF, NEG_INF
from lmerge.testing.judging.functions import BIGINT, BLOB, RESULTS
from lmerge.testing.judging.sort_keys import sort_key
from lmerge.testing.judging.tables import CUTS_LEFT, CUTS_RIGHT, KEEPS_OWN, EventTable, Sequences
from lmerge.wire.schema import Schema

KEY = "window_key"


def windowed(node: WindowNode, reads: Sequence[EventTable], made: Sequences) -> EventTable:
    """Return the table of what is computed in windows, when all of it is final."""
    (events,) = reads
    bound = node.bound_keys
    names = [name for name, _ in node.keys]
    key_forms = RowForms(Schema(bound.columns)) if names else None
    key = _key_of(node, key_forms, made)
    keyed = f"(SELECT *, {key} AS {KEY}, {_begun(events)} AS begun FROM {events.name})"
    members = _members(node, keyed, [*events.groups, KEY])
    clip = str(node.policies.clip)
    members = windows.clipped(members, left=clip in CUTS_LEFT, right=clip in CUTS_RIGHT)
    if isinstance(node, TopNode):
        query = _ranked(node, members, events.groups, key_forms, made)
    else:
        query = _computed(node, members, events, key_forms, made)
    what = "top" if isinstance(node, TopNode) else "apply" if isinstance(node, ApplyNode) else "aggregate"
    return made.add(what, query, events.groups, events.begun)


def _key_of(node: WindowNode, forms: RowForms | None, made: Sequences) -> str:
    """Return the expression of the group's key: the row of its columns, which is equal exactly if the keys are."""
    if forms is None:
        return "'' :: BLOB"
    evaluate, values, payload = node.bound_keys.evaluate, made.functions.rows(node.input_schema).values, forms.payload
    listed = ", ".join(shown(one) for _, one in node.keys)
    return f"{made.functions.add(f'by {listed}', lambda row: payload(evaluate(values(row))), [BLOB], BLOB)}(payload)"


def _begun(events: EventTable) -> str:
    """Return the time at which the last window of a grid has begun, at the end: no earlier than the last finite end.

    An event without an end would have windows for ever (departure D13).
    """
    over = f"OVER (PARTITION BY {', '.join(events.groups)})" if events.groups else "OVER ()"
    return f"greatest({events.begun}, coalesce(max(ve) FILTER (WHERE ve < {INF}) {over}, {NEG_INF}))"


def _members(node: WindowNode, events: str, keys: Sequence[str]) -> str:
    kind = node.window
    if isinstance(kind, Hopping):
        return windows.in_hopping(events, kind.size, kind.hop, kind.offset, "begun", kind.since)
    if isinstance(kind, CountWindows):
        return windows.in_count_windows(events, kind.count, kind.by is CountedEnd.ENDS, keys)
    if isinstance(kind, Sessions):
        return windows.in_sessions(events, kind.gap, keys)
    return windows.in_snapshots(events, keys)


# Ranks: their SQL is that of rank().


def _ranked(node: TopNode, members: str, groups: Sequence[str], forms: RowForms | None, made: Sequences) -> str:
    schema = node.input_schema
    bound = [(bind(one, schema, operator=node.title), down) for one, down in node.order_by]
    order = [(one.column, one.evaluate, down) for one, down in bound]
    listed = ", ".join(f"{shown(one)}{' desc' * down}" for one, down in node.order_by)
    place = made.functions.ranking(f"rank by {listed}", schema, order)
    ranked = windows.ranked(members, [*groups, KEY], f"{place}(payload)", node.k)
    values, payload = made.functions.rows(schema).values, made.functions.rows(node.schema).payload
    repeated = {plain_column(one) for name, one in node.keys if plain_column(one) == name}
    kept = [at for at, name in enumerate(schema.names) if name not in repeated]

    def row(key: bytes, own: bytes, rank: int) -> bytes:
        found = values(own)
        first = () if forms is None else forms.of_payload(key)
        return payload((*first, *(found[at] for at in kept), *((rank,) if node.rank is not None else ())))

    name = made.functions.add("with key and rank", row, [BLOB, BLOB, BIGINT], BLOB)
    columns = ", ".join([*groups, f"{name}({KEY}, payload, rank) AS payload", "window_start", "window_end"])
    results = f"SELECT {columns} FROM ({ranked})"
    return windows.at_end(results) if node.policies.stamp is Stamp.POINT_AT_END else windows.aligned(results)


# Modules and aggregates: a function of the set of a window's events.


def _computed(node: WindowNode, members: str, events: EventTable, forms: RowForms | None, made: Sequences) -> str:
    assert isinstance(node, (AggregateNode, ApplyNode))
    groups = events.groups
    shown_call = node.call.shown if isinstance(node, ApplyNode) else ", ".join(call.shown for _, call in node.calls)
    name = made.functions.add(
        shown_call,
        _over_windows(node, forms, made),
        [f"{BLOB}[]", f"{BIGINT}[]", f"{BIGINT}[]", BIGINT, BIGINT, BLOB],
        RESULTS,
    )
    by = ", ".join([*groups, KEY, "window_start", "window_end"])
    call = f"{name}(list(payload), list(vs), list(ve), window_start, window_end, {KEY})"
    each = f"SELECT {by}, unnest({call}) AS result FROM ({members}) GROUP BY {by}"
    if node.on_empty is not None:
        each = f"{each} UNION ALL {_without_events(node, members, events, made)}"
    chosen = ", ".join([*groups, "result.payload AS payload", "window_start", "window_end"])
    own = "result.vs AS result_start, result.ve AS result_end"
    stamp = node.policies.stamp
    if str(stamp) in KEEPS_OWN:
        return windows.kept(f"SELECT {chosen}, {own} FROM ({each})", cut=stamp is Stamp.CLIP)
    results = f"SELECT {chosen} FROM ({each})"
    return windows.at_end(results) if stamp is Stamp.POINT_AT_END else windows.aligned(results)


def _without_events(node: WindowNode, members: str, events: EventTable, made: Sequences) -> str:
    """Return the results of the windows of a grid that have no events: it has a first one, and no groups."""
    kind, on_empty, payload = node.window, node.on_empty, made.functions.rows(node.schema).payload
    assert isinstance(kind, Hopping)
    assert kind.since is not None
    assert on_empty is not None
    keeps_own = str(node.policies.stamp) in KEEPS_OWN

    def compute(first: int, last: int) -> list[dict[str, object]]:
        results = []
        for one in on_empty(WindowDescriptor(first, last, ())):
            row, start, end = one if node.module.stamps else (one, first, last)
            lifetime = (start, end) if keeps_own else (first, last)
            results.append({"payload": payload(row), "vs": lifetime[0], "ve": lifetime[1]})
        return results

    name = made.functions.add("without events", compute, [BIGINT, BIGINT], RESULTS)
    begun = f"SELECT {_begun(events)} AS begun FROM {events.name}"
    until = f"SELECT coalesce(max(begun), {events.begun}) AS begun FROM ({begun})"
    every = windows.grid(f"({until})", kind.size, kind.hop, kind.offset, "begun", kind.since)
    chosen = f"'' :: BLOB AS {KEY}, window_start, window_end, unnest({name}(window_start, window_end)) AS result"
    return f"SELECT {chosen} FROM ({every}) WHERE window_start NOT IN (SELECT window_start FROM ({members}))"


def _over_windows(node: WindowNode, forms: RowForms | None, made: Sequences) -> Callable[..., list[dict[str, object]]]:
    """Return the function of the members of a window that gives its results as payloads with lifetimes."""
    module, columns = node.module, node.input_schema.columns
    values, payload = made.functions.rows(node.input_schema).values, made.functions.rows(node.schema).payload
    keeps_own = str(node.policies.stamp) in KEEPS_OWN

    def order(event: Lifetime) -> tuple[object, ...]:
        """Order events as a module gets them: by what it reads of their lifetimes, then by rows."""
        row = sort_key(event.row, columns)
        if not module.reads_events:
            return (row,)
        return (event.vs, row) if module.starts_only else (event.vs, event.ve, row)

    def compute(
        payloads: list[bytes], starts: list[int], ends: list[int], first: int, last: int | None, key: bytes
    ) -> list[dict[str, object]]:
        if last is None:  # a window that is not complete has no results
            return []
        events = sorted(map(Lifetime, map(values, payloads), starts, ends), key=order)
        keys = () if forms is None else forms.of_payload(key)
        found = module.compute(events, WindowDescriptor(first, last, keys))
        results = []
        for one in found:
            row, start, end = one if module.stamps else (one, first, last)
            lifetime = (start, end) if keeps_own else (first, last)
            results.append({"payload": payload((*keys, *row)), "vs": lifetime[0], "ve": lifetime[1]})
        return results

    return compute
