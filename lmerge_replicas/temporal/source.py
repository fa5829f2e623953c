"""The news of the flights as a source of a plan: hour by hour, each hour released when the replay clock has reached it.

The stream is that of the aggressive style of `lmerge_replicas.flights`. After a join in the middle it has the flights
that are published by then and that end at the join or later, so it is complete from there.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from lmerge.core.batch import Batch
from lmerge.core.elements import INF, INSERT, NEG_INF, STABLE
from lmerge.replica.sources.declared import Chunk, PhysicalSource, Position, SourceContext, SourceReader
from lmerge.temporal.changes import Change
from lmerge.temporal.running import Item
from lmerge_replicas.flights.stream import FlightStream
from lmerge_replicas.flights.style import STYLES
from lmerge_replicas.flights.timetable import Timetable

STYLE = STYLES["aggressive"]


@dataclass(frozen=True, kw_only=True)
class FlightNewsSource(PhysicalSource):
    """The flights of a timetable. ``join_at``: the stream begins there, at the time ``now`` of the replay."""

    kind = "flights"

    timetable: Timetable
    join_at: int | None = None
    now: int = 0

    @property
    def where(self) -> str:
        return "the flights of 2013"

    def open(self, context: SourceContext, position: Position) -> SourceReader:
        return FlightNewsReader(self)

    def joined(self, join_at: int | None, now: int) -> FlightNewsSource:
        """Return the source of a replica that joins a merge."""
        return replace(self, join_at=join_at, now=now)


class FlightNewsReader(SourceReader):
    """Reads the stream."""

    def __init__(self, source: FlightNewsSource) -> None:
        self._join_at = source.join_at
        self._stream = FlightStream(source.timetable, STYLE)
        self._first = None
        if source.join_at is not None:
            joined = 0 if source.join_at == INF else source.join_at
            self._first = self._stream.join(max(source.now, joined), source.join_at)

    def complete_from(self) -> int:
        return NEG_INF if self._join_at is None else self._join_at

    def chunks(self) -> Iterator[Chunk]:
        if self._first is not None and self._first.count:
            yield _chunk(self._first, NEG_INF)
        for step in self._stream.steps():
            if step.batch.count:
                yield _chunk(step.batch, step.until)


def _chunk(batch: Batch, release: int) -> Chunk:
    items: list[Item] = []
    for kind, vs, ve, vold, payload in batch.rows():
        if kind == STABLE:
            items.append(vs)
        else:
            items.append(Change((payload.decode("ascii"),), vs, vs if kind == INSERT else vold, ve))
    return Chunk(items, None, None, [release] * len(items))
