"""Clocks by which history is replayed: replicas that share one keep step without communication.

A clock maps wall time to the time of the stream. ``lmerge_replicas.flights.replay`` has one in a file.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Protocol

from lmerge.errors import UsageError


class PaceClock(Protocol):
    """The time of the stream as a function of wall time."""

    def now(self) -> int:
        """Return the time of the stream."""

    def seconds_until(self, instant: int) -> float:
        """Return wall seconds until that time of the stream; negative: it has passed."""


@dataclass(frozen=True)
class SharedClock:
    """A clock that shows ``first`` at ``start_s``, in seconds since 1970, and ``speed`` units of time a second."""

    first: int
    start_s: float
    speed: float

    def now(self) -> int:
        """Return the time of the stream."""
        return self.first + int((time.time() - self.start_s) * self.speed)

    def seconds_until(self, instant: int) -> float:
        """Return wall seconds until that time of the stream; negative: it has passed."""
        return self.start_s + (instant - self.first) / self.speed - time.time()


@dataclass(frozen=True)
class ReplayPace:
    """A clock that begins with the first item of the sources: ``speed`` units of time a second.

    ``start_s``: when, in seconds since 1970; None: now. ``first``: the time of the stream then; None: that of the first
    item that the sources have. Replicas that give the same start, and read the same sources, share a clock. Raises
    UsageError.
    """

    speed: float
    start_s: float | None = None
    first: int | None = None

    def __post_init__(self) -> None:
        if not self.speed > 0:
            raise UsageError(f"a clock of speed {self.speed} does not go on")

    def clock(self, first: int) -> SharedClock:
        """Return the clock of sources whose first item is at ``first``."""
        start_s = time.time() if self.start_s is None else self.start_s
        return SharedClock(first if self.first is None else self.first, start_s, self.speed)
