"""Figures of a plan that runs: what its sources have given, and what its operators keep and leave out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from lmerge.core.elements import NEG_INF
from lmerge.replica.feeds import SourceFeed
from lmerge.temporal.running import QueryRun
from lmerge.temporal.runs.parts import RunPart


class SourceCounts(NamedTuple):
    """A source: items taken, its stable point, late events, and parts that were not read after feedback."""

    name: str
    items: int
    stable: int
    dropped: int
    moved: int
    parts_skipped: int


class OperatorCounts(NamedTuple):
    """An operator: live events, and what else it keeps, by kind; the stable point of its output.

    ``skipped``: events that were left out after feedback; ``freed``: those that it had kept and dropped for it;
    ``failed``: those without a value of an expression. ``state_bytes``: of its state in the last checkpoint.
    """

    name: str
    events: int
    sizes: Mapping[str, int]
    stable: int
    skipped: int
    freed: int
    failed: int
    state_bytes: int


class RunCounts(NamedTuple):
    """A run at one moment. ``forwarded_to``: the feedback that it has taken."""

    sources: Sequence[SourceCounts] = ()
    operators: Sequence[OperatorCounts] = ()
    forwarded_to: int = NEG_INF


def counts_of(
    query: QueryRun, feeds: Sequence[SourceFeed], forwarded_to: int, state_bytes: Mapping[str, int]
) -> RunCounts:
    """Return the figures between two steps. Costs O(groups). ``state_bytes``: by operator."""
    sources = []
    for feed in feeds:
        entrance = query.entrances[feed.name]
        late = entrance.dropped, entrance.moved
        sources.append(
            SourceCounts(feed.name, feed.items, entrance.live.stable, *late, parts_skipped=feed.reader.parts_skipped)
        )
    operators = [_operator_counts(part, state_bytes.get(part.name, 0)) for part in query.parts]
    return RunCounts(sources, operators, forwarded_to)


def _operator_counts(part: RunPart, state_bytes: int) -> OperatorCounts:
    one = part.operator
    kept = one.live(), one.sizes(), one.stable
    return OperatorCounts(part.name, *kept, one.skipped, one.purged, one.failed, state_bytes)
