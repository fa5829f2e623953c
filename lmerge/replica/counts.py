"""Figures of a plan that runs: what its sources have given, and what its operators keep and leave out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from lmerge.core.elements import NEG_INF
from lmerge.replica.feeds import SourceFeed
from lmerge.temporal.running import QueryRun


class SourceCounts(NamedTuple):
    """A source: items taken, its stable point, late events, and parts that were not read after feedback."""

    name: str
    items: int
    stable: int
    dropped: int
    moved: int
    parts_skipped: int


class OperatorCounts(NamedTuple):
    """An operator: live events, events that were left out after feedback, and what else it keeps, by kind."""

    name: str
    events: int
    skipped: int
    sizes: Mapping[str, int]


class RunCounts(NamedTuple):
    """A run at one moment. ``forwarded_to``: the feedback that it has taken."""

    sources: Sequence[SourceCounts] = ()
    operators: Sequence[OperatorCounts] = ()
    forwarded_to: int = NEG_INF


def counts_of(query: QueryRun, feeds: Sequence[SourceFeed], forwarded_to: int) -> RunCounts:
    """Return the figures between two steps. Costs O(groups)."""
    sources = []
    for feed in feeds:
        entrance = query.entrances[feed.name]
        late = entrance.dropped, entrance.moved
        sources.append(
            SourceCounts(feed.name, feed.items, entrance.live.stable, *late, parts_skipped=feed.reader.parts_skipped)
        )
    operators = [
        OperatorCounts(part.name, part.operator.live(), part.operator.skipped, part.operator.sizes())
        for part in query.parts
    ]
    return RunCounts(sources, operators, forwarded_to)
