"""The queries of operators over rows and over several streams."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from lmerge.temporal.expressions.printing import shown
from lmerge.temporal.operators.edges import SampleTies
from lmerge.temporal.plan.joins import AsOfJoinNode, JoinNode, PairingNode
from lmerge.temporal.plan.shaping import CleanseNode, CoalesceNode, EdgesNode
from lmerge.temporal.plan.spans import FilterNode, LifetimeNode, SelectNode, UnionNode
from lmerge.testing.canonical import groups, joins, presence, samples, spans
from lmerge.testing.judging.functions import BLOB, BOOLEAN
from lmerge.testing.judging.tables import KEEPS_LEFT, KEEPS_RIGHT, EventTable, Sequences
from lmerge.testing.judging.unjudged import NotJudged
from lmerge.wire.schema import Schema

_ALTERED = {
    "shift": "shifted",
    "set_duration": "with_duration",
    "clip_duration": "clipped",
    "extend": "extended",
    "at_end": "at_end",
}


def filtered(node: FilterNode, reads: Sequence[EventTable], made: Sequences) -> EventTable:
    """Return the table of a filter."""
    (events,) = reads
    _check_plain(node)
    bound = node.bound
    holds = made.functions.predicate(shown(node.predicate), node.input_schema, bound.evaluate)
    return _added(made, "filter", spans.filtered(events.name, f"{holds}(payload)"), events)


def selected(node: SelectNode, reads: Sequence[EventTable], made: Sequences) -> EventTable:
    """Return the table of a projection."""
    (events,) = reads
    _check_plain(node)
    computed = made.functions.projection(node.shown, node.input_schema, node.schema, node.bound.evaluate)
    columns = [*((name, name) for name in events.groups), ("payload", f"{computed}(payload)")]
    return _added(made, "select", spans.projected(events.name, columns), events)


def _check_plain(node: FilterNode | SelectNode) -> None:
    if not node.is_plain:
        raise NotJudged(f"{node.title} drops rows that fail, or computes them twice")


def altered(node: LifetimeNode, reads: Sequence[EventTable], made: Sequences) -> EventTable:
    """Return the table of other lifetimes."""
    (events,) = reads
    begun = node.operator(node.title).mark_of(events.begun)
    query = getattr(spans, _ALTERED[node.alteration])(events.name, node.amount)
    return made.add(node.alteration, query, events.groups, begun)


def united(node: UnionNode, reads: Sequence[EventTable], made: Sequences) -> EventTable:
    """Return the table of a union."""
    begun = max(events.begun for events in reads)
    return made.add("union", spans.union([events.name for events in reads]), reads[0].groups, begun)


def edges(node: EdgesNode, reads: Sequence[EventTable], made: Sequences) -> EventTable:
    """Return the table of samples. Ties that are an error end the query, so they are not there to be judged."""
    (events,) = reads
    if node.ties is not SampleTies.LAST:
        raise NotJudged(f"{node.title}: ties are an error")
    bound = node.bound_by
    key = made.functions.key(_listed("signal", node.by), node.input_schema, bound.columns, bound.evaluate)
    order = made.functions.order(node.input_schema)
    keyed = f"(SELECT *, {key}(payload) AS signal, {order}(payload) AS place_of_row FROM {events.name})"
    keys = [*events.groups, "signal"]
    # The order of rows decides; the payload goes along, because equal places are equal rows.
    query = samples.edges(keyed, keys, ["place_of_row", "payload", *events.groups], node.lasts)
    return _added(made, "edges", query, events)


def coalesced(node: CoalesceNode, reads: Sequence[EventTable], made: Sequences) -> EventTable:
    """Return the table of the stretches of each row."""
    (events,) = reads
    return _added(made, "coalesce", presence.coalesced(events.name, [*events.groups, "payload"]), events)


def cleansed(node: CleanseNode, reads: Sequence[EventTable], made: Sequences) -> EventTable:
    """Return the table of cleanse: what is final is released, and at the end all is final."""
    (events,) = reads
    return _added(made, "cleanse", f"SELECT * FROM {events.name}", events)


def joined(node: JoinNode, reads: Sequence[EventTable], made: Sequences) -> EventTable:
    """Return the table of a join."""
    left, right = reads
    begun = max(left.begun, right.begun)
    condition = _condition(node, left, made)
    if node.how.value == "anti":
        columns = [(name, f"l.{name}") for name in (*left.groups, "payload")]
        return made.add("without", joins.uncovered(left.name, right.name, columns, condition), left.groups, begun)
    keeps_left, keeps_right = node.how.value in KEEPS_LEFT, node.how.value in KEEPS_RIGHT
    pair = _pair(node, made)
    right_columns = [("right_payload", "payload"), *((f"right_{name}", name) for name in left.groups)]
    query = joins.outer(
        left.name,
        right.name,
        [*left.groups, "payload"],
        right_columns,
        condition,
        keeps_left=keeps_left,
        keeps_right=keeps_right,
    )
    names = "".join(f"coalesce({name}, right_{name}) AS {name}, " for name in left.groups)
    query = f"SELECT {names}{pair}(payload, right_payload) AS payload, vs, ve FROM ({query})"
    return made.add(f"{node.how}_join", query, left.groups, begun)


def _condition(node: JoinNode, left: EventTable, made: Sequences) -> str:
    parts = [groups.same_group(left.groups)] if left.groups else []
    if node.keys:
        keys = [_side_key(node, at, made) for at in (0, 1)]
        parts.append(f"{keys[0]}(l.payload) = {keys[1]}(r.payload)")
    if node.predicate is not None and node.bound_predicate is not None:
        evaluate = node.bound_predicate.evaluate
        left_rows, right_rows = (made.functions.rows(read.schema).values for read in node.reads)

        def holds(one: bytes, other: bytes) -> bool | None:
            found: bool | None = evaluate((*left_rows(one), *right_rows(other)))
            return found

        name = made.functions.add(shown(node.predicate), holds, [BLOB, BLOB], BOOLEAN)
        parts.append(f"coalesce({name}(l.payload, r.payload), FALSE)")
    return " AND ".join(parts) or "TRUE"


def _side_key(node: PairingNode, side: int, made: Sequences) -> str:
    """Return the function of the key of one side of a join: a row with a missing value has no partner."""
    bound = node.bound_keys[side]
    what = _listed("left key" if side == 0 else "right key", [pair[side] for pair in node.keys])
    columns = [replace(column, nullable=True) for column in bound.columns]
    return made.functions.key(what, node.reads[side].schema, columns, bound.evaluate, matches_missing=False)


def _pair(node: PairingNode, made: Sequences) -> str:
    """Return the function of two payloads, either of them NULL, that gives that of the pair."""
    left_schema, right_schema = (read.schema for read in node.reads)
    left, right = made.functions.rows(left_schema).values, made.functions.rows(right_schema).values
    payload = made.functions.rows(node.schema).payload
    left_missing, right_missing = (None,) * len(left_schema.columns), (None,) * len(right_schema.columns)

    def pair(one: bytes | None, other: bytes | None) -> bytes:
        first = left_missing if one is None else left(one)
        return payload((*first, *(right_missing if other is None else right(other))))

    return made.functions.add("pair", pair, [BLOB, BLOB], BLOB)


def as_of(node: AsOfJoinNode, reads: Sequence[EventTable], made: Sequences) -> EventTable:
    """Return the table of an as-of join."""
    left, right = reads
    keys = [_side_key(node, at, made) for at in (0, 1)] if node.keys else ["", ""]
    order = made.functions.order(node.reads[1].schema)
    computed = [f"{key}(payload)" if key else "'' :: BLOB" for key in keys]
    left_query = f"(SELECT *, {computed[0]} AS key_of FROM {left.name})"
    right_query = f"(SELECT *, {computed[1]} AS key_of, {order}(payload) AS place_of_row FROM {right.name})"
    pair = _pair(node, made)
    columns = [*((name, f"l.{name}") for name in left.groups), ("payload", f"{pair}(l.payload, s.payload)")]
    key_pairs = [(name, name) for name in (*left.groups, "key_of")]
    query = samples.as_of(
        left_query, right_query, key_pairs, columns, ["place_of_row"], is_outer=node.is_outer, within=node.within
    )
    return made.add("as_of", query, left.groups, max(left.begun, right.begun))


def _added(made: Sequences, what: str, query: str, events: EventTable) -> EventTable:
    return made.add(what, query, events.groups, events.begun)


def _listed(what: str, nodes: Sequence[object]) -> str:
    return f"{what} {', '.join(map(shown, nodes))}".strip()  # type: ignore[arg-type]


def rows_by_column(schema: Schema) -> Mapping[str, int]:
    """Return the places of columns by name."""
    return {name: at for at, name in enumerate(schema.names)}
