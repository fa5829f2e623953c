"""Counts of durations by bucket, as Prometheus reads them: an observation costs a bisection and two additions.

The server and the client count with it where an object of the Prometheus library would cost a lock for each
observation. One thread observes; any thread may read.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Final

#: Upper bounds in seconds, for delays of a stream: fine where a healthy one is, up to a minute.
DELAY_BOUNDS: Final = (
    0.001,
    0.002,
    0.003,
    0.005,
    0.0075,
    0.01,
    0.015,
    0.025,
    0.05,
    0.1,
    0.2,
    0.5,
    1.0,
    2.5,
    10.0,
    60.0,
)


class DurationCounts:
    """Counts durations in seconds. ``sum_s``: their sum. ``bounds``: upper bounds of the buckets, ascending."""

    __slots__ = ("_bounds", "_counts", "sum_s")

    def __init__(self, bounds: Sequence[float] = DELAY_BOUNDS) -> None:
        self.sum_s = 0.0
        self._bounds = tuple(bounds)
        self._counts = [0] * (len(self._bounds) + 1)

    def observe(self, seconds: float) -> None:
        """Count one duration. A bucket contains its upper bound."""
        self._counts[bisect_left(self._bounds, seconds)] += 1
        self.sum_s += seconds

    @property
    def count(self) -> int:
        """How many durations were counted."""
        return sum(self._counts)

    def buckets(self) -> list[tuple[str, float]]:
        """Return the buckets as Prometheus has them: the upper bound as text, and how many are not above it."""
        found: list[tuple[str, float]] = []
        total = 0
        for bound, count in zip((*map(str, self._bounds), "+Inf"), self._counts):
            total += count
            found.append((bound, float(total)))
        return found
