"""Cleanse (VI.D, IV.G.2): turns any stream into an ordered, insert-only stream by buffering.

Events are buffered until they are fully frozen, and released in order of (Vs, payload). An event may be released only
when no event with a smaller Vs can still arrive or change. So one long lifetime delays every event behind it. The paper
compares this latency and memory with merging directly. The output keeps the properties of R1 (and of R2 where
(Vs, payload) is a key).
"""

from __future__ import annotations

import heapq

from lmerge.core.batch import AnyBatch, Batch, BatchBuilder
from lmerge.core.elements import INF, NEG_INF, STABLE, Event
from lmerge.core.tdb import Tdb


class Cleanse:
    """Cleanses one stream. Raises InputViolation on a stream that breaks a rule."""

    def __init__(self, name: str = "stream") -> None:
        self._tdb = Tdb(name)
        self._frozen: list[Event] = []  # a heap: fully frozen, not released yet
        self._pending: list[tuple[int, bytes]] = []  # a heap: starts of events not fully frozen, some stale
        self._stable = NEG_INF

    @property
    def buffered(self) -> int:
        """Number of buffered events."""
        return len(self._frozen) + self._tdb.live_count

    def apply(self, batch: AnyBatch) -> Batch:
        """Take a batch and return the events that can be released."""
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
        # After stable(+inf) no event changes any more: an event without an end is final too.
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
