"""Following feedback (V.D): a replica that is behind leaves out what nobody wants any more.

    ff = FastForward()
    publisher = lmerge.Publisher("h1:7171,h2:7171", "flights", "slow", on_fast_forward=ff)
    for row in source:
        if ff.wants(row.end):            # before the expensive part
            publisher.insert(score(row), row.start, row.end)

Only events whose end is known to be final may be left out: one that is said with a guessed end must be told its real
one. Before the first is left out the servers are told (``skip``), so that the input does not count as redundant
until it is right again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple, TypeVar

from lmerge.core.elements import NEG_INF

E = TypeVar("E")

# Ranges that are remembered one by one; then the two oldest become one.
RANGES_MAX: Final = 1000


class SkippedRange(NamedTuple):
    """Events that end from ``start`` up to, not including, ``end`` were left out."""

    start: int
    end: int


class FastForward:
    """Hears what servers want, and says which events a producer must still make. Any thread may ask.

    ``until``: events that end before are not wanted. ``count``: how many were left out. ``skipped``: where, oldest
    first; ranges that meet are one.
    """

    def __init__(self) -> None:
        self.until = NEG_INF
        self.count = 0
        self.skipped: list[SkippedRange] = []
        self._said = NEG_INF  # the last skip that the servers were told
        self._skip: Callable[[int], None] | None = None
        self._lock = threading.Lock()

    def bind(self, skip: Callable[[int], None]) -> None:
        """Called by the publisher: how to tell the servers."""
        self._skip = skip

    def __call__(self, until: int) -> None:
        """The publisher's feedback."""
        with self._lock:
            self.until = max(self.until, until)

    def wants(self, ve: int) -> bool:
        """Whether an event that ends at ``ve`` for good must be said. If not, it counts as left out."""
        with self._lock:
            until = self.until
            if ve >= until:
                return True
            if until > self._said and self._skip is not None:
                self._skip(until)
                self._said = until
            self.count += 1
            self._remember(ve, until)
            return False

    def filter(self, events: Iterable[E], end: Callable[[E], int]) -> Iterator[E]:
        """Those of ``events`` that must be said; ``end`` tells when one ends for good."""
        for event in events:
            if self.wants(end(event)):
                yield event

    def _remember(self, start: int, end: int) -> None:
        ranges = self.skipped
        if ranges and start <= ranges[-1].end:
            ranges[-1] = SkippedRange(min(start, ranges[-1].start), max(end, ranges[-1].end))
        else:
            ranges.append(SkippedRange(start, end))
        if len(ranges) > RANGES_MAX:
            ranges[:2] = [SkippedRange(ranges[0].start, ranges[1].end)]
