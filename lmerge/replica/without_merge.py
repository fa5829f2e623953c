"""Runs a plan over its sources without a merge: to look at its result, before it is a replica.

Each result comes once, when nothing can change it any more, as a reader of a merge gets it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from lmerge.core.elements import INSERT
from lmerge.replica.feeds import SourceFeed, earliest, feed_of
from lmerge.replica.query import Query, settings_of, sources_of
from lmerge.replica.sources.declared import SourceContext
from lmerge.temporal.columns import AnyDelta
from lmerge.temporal.plan.nodes import PlanNode
from lmerge.temporal.running import ElementWriter, QueryRun
from lmerge.wire.rows import RowCodec

STEP_ITEMS: Final = 8_192
LOOK_S: Final = 0.1  # how soon a source that has nothing at present is asked again


class FinalResult(NamedTuple):
    """An event of a result that nothing can change any more. ``row``: its values by column."""

    vs: int
    ve: int
    row: dict[str, Any]


def final_results(query: Query, plan: str | None) -> Iterator[FinalResult]:
    """Yield the results of a plan as they become final, until its sources end. ``plan`` None: the only one.

    Raises UsageError if the plan or a source does not fit, InvalidRow for a row that does not, and what a module
    raises.
    """
    name, node = query.plan(plan)
    sources = query.sources_of(node)
    run = QueryRun({name: node}, {label: settings_of(source) for label, source in sources.items()}, only="final")
    wake = threading.Event()
    feeds: list[SourceFeed] = []
    try:
        for declared in sources_of(node):
            columns = run.entrances[declared.label].has_columns
            context = SourceContext(declared.label, declared.schema, may_skip=False, as_columns=columns)
            source = sources[declared.label]
            feeds.append(feed_of(declared.label, source, source.open(context, None), None, wake))
        results = _Results(name, node)
        for feed in _in_order(feeds, wake):
            yield from results.of(run.take_columns(feed.name, feed.take(STEP_ITEMS, None)))
        yield from results.of(run.end_columns())
    finally:
        for feed in feeds:
            feed.close()


def _in_order(feeds: list[SourceFeed], wake: threading.Event) -> Iterator[SourceFeed]:
    """Yield the source whose next item comes first, again and again, until all have ended."""
    while not all(feed.has_ended for feed in feeds):
        found = earliest(feeds)
        if found is not None:
            yield found[0]
        elif not all(feed.has_ended for feed in feeds):
            wake.wait(LOOK_S)
            wake.clear()


class _Results:
    """Makes rows of the batches of a result, by the codec that readers of a merge have too."""

    def __init__(self, name: str, node: PlanNode) -> None:
        self._name, self._writer, self._codec = name, ElementWriter(node), RowCodec(node.schema)

    def of(self, steps: Iterable[Mapping[str, AnyDelta]]) -> Iterator[FinalResult]:
        """Yield the results of steps."""
        for row in self._writer.batch([step[self._name] for step in steps]).rows():
            if row[0] == INSERT:
                yield FinalResult(row[1], row[2], self._codec.decode(row[4]))
