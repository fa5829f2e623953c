"""Root causes (S16): the events of the sources that an event of a result comes from, through every operator.

The plan is computed over what its sources have had, each node by itself, and the event's origins are followed back
(``lmerge.temporal.plan.origins``). Then the plan is computed over these events alone, with the same stable points: they
are enough if the event is there again. If other events are needed, because what is left of other results stands in the
way, as few of them are added as trying shows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from lmerge.errors import UsageError
from lmerge.temporal.changes import NOTHING_CHANGES, Delta, Lifetime
from lmerge.temporal.graph import stepped
from lmerge.temporal.operators.operator import PlanOperator
from lmerge.temporal.plan.compiling import in_order
from lmerge.temporal.plan.nodes import PlanNode
from lmerge.temporal.plan.origins import Computed, origins
from lmerge.temporal.plan.sources import SourceNode
from lmerge.temporal.runs.recording import SourceRecord
from lmerge.temporal.runs.results import ResultTable
from lmerge.temporal.values import order_key

# Computations of the plan over a part of the events, to find which of them are needed.
TRIES_MAX: Final = 200

Needed = dict[PlanNode, dict[Lifetime, None]]


def why(node: PlanNode, records: Mapping[str, SourceRecord], event: Lifetime) -> dict[str, list[Lifetime]]:
    """Return the events of each source, by its name, that an event of a node comes from, by start, end and row.

    Raises UsageError if the node over these records does not have the event, and what an operator raises.
    """
    tables = _PlanTables(node, records)
    if event not in tables.events[node]:
        raise UsageError(
            f"{node.title} does not have {event} now, as far as its sources are recorded: "
            "it was revised, or the events behind it are not kept any more"
        )
    needed: Needed = {node: {event: None}}
    for one in reversed(tables.order):
        for result in needed.get(one, {}) if one.reads else ():
            for read, found in zip(one.reads, origins(tables.computed(one), result), strict=True):
                needed.setdefault(read, {}).update(dict.fromkeys(found))
    chosen = {source.label: set(needed.get(source, {})) for source in tables.order if isinstance(source, SourceNode)}
    if not _has(node, records, chosen, event):
        chosen = _completed(node, records, chosen, event)
    keys = {source.label: order_key(source.schema) for source in tables.order if isinstance(source, SourceNode)}
    return {
        name: sorted(
            (one for one in records[name].events if one in events),
            key=lambda one: (one.vs, one.ve, keys[name](one.row)),
        )
        for name, events in chosen.items()
    }


class _NodeRun(NamedTuple):
    operator: PlanOperator
    table: ResultTable


class _PlanTables:
    """The table of every node of a plan over records of its sources. ``order``: the nodes."""

    def __init__(self, node: PlanNode, records: Mapping[str, SourceRecord]) -> None:
        self.order = in_order([node])
        self.events: dict[PlanNode, list[Lifetime]] = {}
        kept = {one: _NodeRun(one.operator(one.title), ResultTable()) for one in self.order if one.reads}
        sources = {one: records[one.label] for one in self.order if isinstance(one, SourceNode)}
        batches = {source: record.batches() for source, record in sources.items()}
        for at in range(max(map(len, batches.values()))):
            found: dict[PlanNode, Delta] = {
                source: of_source[at] if at < len(of_source) else NOTHING_CHANGES
                for source, of_source in batches.items()
            }
            for one, (operator, table) in kept.items():
                found[one] = stepped(operator, [found[read] for read in one.reads])
                table.apply(found[one])
        self._operators = {one: operator for one, (operator, _) in kept.items()}
        self.events |= {source: list(record.events) for source, record in sources.items()}
        self.events |= {one: list(table.events.elements()) for one, (_, table) in kept.items()}

    def computed(self, node: PlanNode) -> Computed:
        """Return a node with its inputs and its operator."""
        return Computed(node, self._operators[node], [self.events[read] for read in node.reads])


def _has(
    node: PlanNode, records: Mapping[str, SourceRecord], chosen: Mapping[str, set[Lifetime]], event: Lifetime
) -> bool:
    """Whether the plan over the chosen events alone has an event."""
    parts = {
        name: records[name]._replace(events=tuple(one for one in records[name].events if one in events))
        for name, events in chosen.items()
    }
    return event in _PlanTables(node, parts).events[node]


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
