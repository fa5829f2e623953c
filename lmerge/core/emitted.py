"""Keeps events that a resumed merge has emitted and that its algorithm will emit once more.

Called by ``merge``, and by ``snapshot``, which stores them. See ``resume``: under the policy final-only an event is
emitted before the stable point reaches it, and the index of a resumed merge begins without it.
"""

from __future__ import annotations

from base64 import b64encode
from collections import Counter
from collections.abc import Iterable
from typing import Any

from lmerge.core.batch import AnyBatch, BatchBuilder, Row
from lmerge.core.elements import INSERT, STABLE, Event


class EmittedOutput:
    """Events that the output has emitted and that the algorithm will emit once more."""

    def __init__(self, events: Iterable[Event] = ()) -> None:
        self.events = Counter(events)

    def __bool__(self) -> bool:
        return bool(self.events)

    def without_repeats(self, batch: AnyBatch) -> AnyBatch:
        """Return the output without the events already emitted. Its stables show which events cannot come any more."""
        builder = BatchBuilder()
        for row in batch.rows():
            event = Event(row[1], row[4], row[2])
            if row[0] == INSERT and self.events[event] > 0:
                self.events[event] -= 1
                continue
            builder.rows.append(row)
            if row[0] == STABLE:
                self.events = Counter({e: n for e, n in self.events.items() if n and e.ve >= row[1]})
        self.events = +self.events
        return builder.build()

    def with_live(self, live: AnyBatch) -> AnyBatch:
        """Return the live events of an engine together with these events."""
        rows = [(INSERT, e.vs, e.ve, 0, e.payload) for e in self.events.elements()]
        inserts = [row for row in live.rows() if row[0] == INSERT]
        stables = [row for row in live.rows() if row[0] != INSERT]
        builder = BatchBuilder()
        builder.rows = sorted(rows + inserts, key=_by_event) + stables
        return builder.build()

    def dump(self) -> list[list[Any]]:
        """Return the events as plain data."""
        return [[e.vs, b64encode(e.payload).decode(), e.ve] for e in sorted(self.events.elements())]


def _by_event(row: Row) -> tuple[int, bytes, int]:
    return row[1], row[4], row[2]
