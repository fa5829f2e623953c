"""Root causes (S16): the events of the sources that an event of a result comes from, through every operator.

The plan is computed over what its sources have had, each node by itself, and the event's origins are followed back
(``lmerge.temporal.plan.origins``), inside sub-plans of groups over the events of the event's own group. Then the plan
is computed over these events alone, with the same stable points: they are enough if the event is there again. If other
events are needed, because what is left of other results stands in the way, as few of them are added as trying shows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from lmerge.errors import UsageError
from lmerge.temporal.changes import NOTHING_CHANGES, Change, Delta, Lifetime
from lmerge.temporal.graph import stepped
from lmerge.temporal.operators.operator import PlanOperator
from lmerge.temporal.plan.compiling import in_order
from lmerge.temporal.plan.groups import GroupApplyNode
from lmerge.temporal.plan.nodes import PlanNode
from lmerge.temporal.plan.origins import Computed, origins
from lmerge.temporal.plan.sources import SourceNode
from lmerge.temporal.runs.recording import SourceRecord
from lmerge.temporal.runs.results import ResultTable
from lmerge.temporal.values import Values, order_key

# Computations of the plan over a part of the events, to find which of them are needed.
TRIES_MAX: Final = 200

Needed = dict[PlanNode, dict[Lifetime, None]]


def why(node: PlanNode, records: Mapping[str, SourceRecord], event: Lifetime) -> dict[str, list[Lifetime]]:
    """Return the events of each source, by its name, that an event of a node comes from, by start, end and row.

    Raises UsageError if the node over these records does not have the event, and what an operator raises.
    """
    tables = _tables(node, records)
    if event not in tables.events[node]:
        raise UsageError(
            f"{node.title} does not have {event} now, as far as its sources are recorded: "
            "it was revised, or the events behind it are not kept any more"
        )
    sources = _sources(node)
    found = tables.behind(event)
    chosen = {source.label: set(found[source]) for source in sources}
    if not _has(node, records, chosen, event):
        chosen = _completed(node, records, chosen, event)
    keys = {source.label: order_key(source.schema) for source in sources}
    return {
        name: sorted(
            (one for one in records[name].events if one in events),
            key=lambda one: (one.vs, one.ve, keys[name](one.row)),
        )
        for name, events in chosen.items()
    }


def _sources(node: PlanNode) -> list[SourceNode]:
    return [one for one in in_order([node]) if isinstance(one, SourceNode)]


def _tables(node: PlanNode, records: Mapping[str, SourceRecord]) -> _PlanTables:
    return _PlanTables(node, {source: records[source.label].batches() for source in _sources(node)})


class _NodeRun(NamedTuple):
    operator: PlanOperator
    table: ResultTable


class _PlanTables:
    """The table of every node of a plan over batches of its sources. ``events``: the table of each node."""

    def __init__(self, node: PlanNode, batches: Mapping[SourceNode, Sequence[Delta]]) -> None:
        self._node = node
        self._order = in_order([node])
        self._batches: dict[PlanNode, list[Delta]] = {one: [] for one in self._order}
        kept = {one: _NodeRun(one.operator(one.title), ResultTable()) for one in self._order if one.reads}
        tables = {source: ResultTable() for source in batches}
        for at in range(max(map(len, batches.values()))):
            for source, of_source in batches.items():
                self._batches[source].append(of_source[at] if at < len(of_source) else NOTHING_CHANGES)
                tables[source].apply(self._batches[source][-1])
            for one, (operator, table) in kept.items():
                self._batches[one].append(stepped(operator, [self._batches[read][-1] for read in one.reads]))
                table.apply(self._batches[one][-1])
        self._operators = {one: operator for one, (operator, _) in kept.items()}
        self.events: dict[PlanNode, list[Lifetime]] = {
            one: list(table.events.elements())
            for one, table in [*tables.items(), *((one, table) for one, (_, table) in kept.items())]
        }

    def behind(self, event: Lifetime) -> Needed:
        """Return the events of each node that an event of the plan's result comes from."""
        needed: Needed = {one: {} for one in self._order} | {self._node: {event: None}}
        for one in reversed(self._order):
            for result in needed[one] if one.reads else ():
                for read, found in zip(one.reads, self._origins(one, result), strict=True):
                    needed[read].update(dict.fromkeys(found))
        return needed

    def _origins(self, node: PlanNode, event: Lifetime) -> list[list[Lifetime]]:
        if isinstance(node, GroupApplyNode):
            return [self._of_groups(node, event)]
        return origins(Computed(node, self._operators[node], [self.events[read] for read in node.reads]), event)

    def _of_groups(self, node: GroupApplyNode, event: Lifetime) -> list[Lifetime]:
        """Return the events that an event comes from through the sub-plan, in each group that has it."""
        width = len(node.bound_keys.columns) if node.has_keys else 0
        result = event._replace(row=event.row[width:])
        found: set[Lifetime] = set()
        for key, batches in _by_group(node, self._batches[node.reads[0]]).items():
            if key[:width] == event.row[:width]:
                tables = _PlanTables(node.plan, {node.group: batches})
                if result in tables.events[node.plan]:
                    found.update(tables.behind(result)[node.group])
        return [one for one in self.events[node.reads[0]] if one in found]


def _by_group(node: GroupApplyNode, batches: Sequence[Delta]) -> dict[Values, list[Delta]]:
    """Return the batches of each group. All of them have the stream's stable points and watermarks."""
    changes: dict[Values, list[list[Change]]] = {}
    for at, delta in enumerate(batches):
        for change in delta.changes:
            key = node.bound_keys.evaluate(change.row) if node.keys else ()
            changes.setdefault(key, [[] for _ in batches])[at].append(change)
    times = [(delta.stable, _mark_of(delta)) for delta in batches]
    return {
        key: [Delta(own, *time) for own, time in zip(of_key, times, strict=True)] for key, of_key in changes.items()
    }


def _mark_of(delta: Delta) -> int | None:
    """Return the watermark of a batch, as an operator takes it from its changes where none comes with them."""
    return max((change.vs for change in delta.changes), default=None) if delta.mark is None else delta.mark


def _has(
    node: PlanNode, records: Mapping[str, SourceRecord], chosen: Mapping[str, set[Lifetime]], event: Lifetime
) -> bool:
    """Whether the plan over the chosen events alone has an event."""
    parts = {
        name: records[name]._replace(events=tuple(one for one in records[name].events if one in events))
        for name, events in chosen.items()
    }
    return event in _tables(node, parts).events[node]


def _completed(
    node: PlanNode, records: Mapping[str, SourceRecord], chosen: Mapping[str, set[Lifetime]], event: Lifetime
) -> dict[str, set[Lifetime]]:
    """Return chosen events with as few others as trying shows, over which the plan has an event."""
    others = [(name, one) for name in chosen for one in dict.fromkeys(records[name].events) if one not in chosen[name]]

    def together(added: list[tuple[str, Lifetime]]) -> dict[str, set[Lifetime]]:
        found = {name: set(events) for name, events in chosen.items()}
        for name, one in added:
            found[name].add(one)
        return found

    size, tries = max(1, len(others) // 2), 0
    while tries < TRIES_MAX:
        at = 0
        while at < len(others) and tries < TRIES_MAX:
            fewer = others[:at] + others[at + size :]
            tries += 1
            if _has(node, records, together(fewer), event):
                others = fewer
            else:
                at += size
        if size == 1:
            break
        size //= 2
    return together(others)
