"""What the sources of a run have had: the events that ``why`` looks for causes in."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from lmerge.core.elements import INF, NEG_INF
from lmerge.temporal.changes import Change, Delta, Lifetime


class SourceRecord(NamedTuple):
    """The table of a source: its events, its latest finite stable point, its watermark, and whether it has ended."""

    events: tuple[Lifetime, ...]
    stable: int = NEG_INF
    mark: int = NEG_INF
    has_ended: bool = False

    def batches(self) -> list[Delta]:
        """Return batches that mean this table."""
        changes = [Change(row, vs, vs, ve) for row, vs, ve in self.events]
        stable, mark = (None if t == NEG_INF else t for t in (self.stable, self.mark))
        return [Delta(changes, stable, mark), *([Delta([], INF)] if self.has_ended else [])]


class SourceRecorder:
    """Keeps the events of one source. Of more than ``most`` those that have ended first are dropped, if final."""

    def __init__(self, most: int, events: Iterable[Lifetime] = (), stable: int = NEG_INF) -> None:
        self.dropped = 0
        self._most = most
        self._events = Counter(events)
        self._has_ended = stable == INF
        self._stable = NEG_INF if self._has_ended else stable
        self._mark = NEG_INF

    def apply(self, delta: Delta) -> None:
        """Take a batch of the source."""
        for row, vs, old, new in delta.changes:
            if old > vs:
                self._events[Lifetime(row, vs, old)] -= 1
                if not self._events[Lifetime(row, vs, old)]:
                    del self._events[Lifetime(row, vs, old)]
            if new > vs:
                self._events[Lifetime(row, vs, new)] += 1
        self._mark = self._mark if delta.mark is None else max(self._mark, delta.mark)
        if delta.stable == INF:
            self._has_ended = True
        elif delta.stable is not None:
            self._stable = max(self._stable, delta.stable)
            if len(self._events) > 2 * self._most:
                self._drop()

    def record(self) -> SourceRecord:
        """Return what is kept."""
        return SourceRecord(tuple(self._events.elements()), self._stable, self._mark, self._has_ended)

    def _drop(self) -> None:
        final = sorted((event for event in self._events if event.ve < self._stable), key=lambda event: event.ve)
        for event in final[: len(self._events) - self._most]:
            del self._events[event]
            self.dropped += 1
