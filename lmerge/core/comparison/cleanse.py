"""Cleanse (VI.D, IV.G.2): makes an ordered, insert-only stream of any stream, by waiting.

Events are buffered until they are fully frozen, and released in order of (Vs, payload). An event may be released
only when no event with a smaller Vs can still be on its way or still change, so one long lifetime holds up
everything behind it: this is the latency and the memory that the paper compares with merging directly. The output
keeps R1 (and R2 where (Vs, payload) is a key).
"""

from __future__ import annotations

import heapq

from lmerge.core.batch import AnyBatch, Batch, BatchBuilder
from lmerge.core.elements import INF, NEG_INF, STABLE, Event
from lmerge.core.tdb import Tdb


class Cleanse:
    """One operator for one stream. Raises InputViolation on a broken stream."""

    def __init__(self, name: str = "stream") -> None:
        self._tdb = Tdb(name)
        self._frozen: list[Event] = []  # a heap: fully frozen, not released yet
        self._pending: list[tuple[int, bytes]] = []  # a heap: starts of events not fully frozen, some of them gone
        self._stable = NEG_INF

    @property
    def buffered(self) -> int:
        """Number of events that wait."""
        return len(self._frozen) + self._tdb.live_count

    def apply(self, batch: AnyBatch) -> Batch:
        """Take a batch, release what can be released."""
        out = BatchBuilder()
        for row in batch.rows():
            self._tdb.apply_row(row)
            if row[0] == STABLE:
                self._release(row[1], out)
            elif row[2] > row[1]:
                heapq.heappush(self._pending, (row[1], row[4]))
        return out.build()

    def _release(self, t: int, out: BatchBuilder) -> None:
        for event in self._tdb.take_frozen():
            heapq.heappush(self._frozen, event)
        while self._pending and not self._tdb.live_ends(*self._pending[0]):
            heapq.heappop(self._pending)
        # At stable(+inf) nothing changes any more: an event that never ends is final too.
        if t == INF:
            for event in self._tdb.live_events():
                heapq.heappush(self._frozen, event)
            self._tdb = Tdb(self._tdb.name, stable_point=INF)
        bound = t if t == INF or not self._pending else min(t, self._pending[0][0])
        while self._frozen and (t == INF or self._frozen[0].vs < bound):
            vs, payload, ve = heapq.heappop(self._frozen)
            out.insert(payload, vs, ve)
        if bound > self._stable:
            self._stable = bound
            out.stable(bound)
