"""Feedback (V.D): a replica that is behind leaves out the events that no server needs any more.

    ff = FastForward()
    publisher = lmerge.Publisher("h1:7171,h2:7171", "flights", "slow", on_fast_forward=ff)
    for row in source:
        if ff.needs(row.end):            # before the expensive part
            publisher.insert(score(row), row.start, row.end)

Only an event whose end is final may be left out: an event that was published with a preliminary end needs an adjust to
its final one. Before the first event is left out the publisher sends ``skip`` to the servers, so that the input does
not count as redundant until its stream is right again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple, TypeVar

from lmerge.core.elements import NEG_INF

E = TypeVar("E")

# Ranges that are kept one by one; beyond that the two oldest become one.
RANGES_MAX: Final = 1000


class SkippedRange(NamedTuple):
    """A range of ends, from ``start`` up to, not including, ``end``: events that end in it were left out."""

    start: int
    end: int


class FastForward:
    """Receives feedback from servers and decides which events a producer must still make. Any thread may call it.

    ``until``: events that end before it are not needed. ``count``: how many were left out. ``skipped``: the ranges that
    were left out, oldest first; adjacent ranges become one.
    """

    def __init__(self) -> None:
        self.until = NEG_INF
        self.count = 0
        self.skipped: list[SkippedRange] = []
        self._skipped_to = NEG_INF  # the last skip that was sent to the servers
        self._skip: Callable[[int], None] | None = None
        self._lock = threading.Lock()

    def bind(self, skip: Callable[[int], None]) -> None:
        """Set the function that sends a skip to the servers. Called by the publisher."""
        self._skip = skip

    def __call__(self, until: int) -> None:
        """Receive the feedback of the publisher: events that end before ``until`` are not needed."""
        with self._lock:
            self.until = max(self.until, until)

    def needs(self, ve: int) -> bool:
        """Return whether an event whose final end is ``ve`` must be published. If not, it counts as left out."""
        with self._lock:
            until = self.until
            if ve >= until:
                return True
            if until > self._skipped_to and self._skip is not None:
                self._skip(until)
                self._skipped_to = until
            self.count += 1
            self._remember(ve, until)
            return False

    def filter(self, events: Iterable[E], end: Callable[[E], int]) -> Iterator[E]:
        """Yield those of ``events`` that must be published; ``end`` returns the final end of an event."""
        for event in events:
            if self.needs(end(event)):
                yield event

    def _remember(self, start: int, end: int) -> None:
        ranges = self.skipped
        if ranges and start <= ranges[-1].end:
            ranges[-1] = SkippedRange(min(start, ranges[-1].start), max(end, ranges[-1].end))
        else:
            ranges.append(SkippedRange(start, end))
        if len(ranges) > RANGES_MAX:
            ranges[:2] = [SkippedRange(ranges[0].start, ranges[1].end)]
