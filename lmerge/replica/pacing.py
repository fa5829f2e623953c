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

    def __post_init__(self) -> None:
        if not self.speed > 0:
            raise UsageError(f"a clock of speed {self.speed} does not go on")

    def now(self) -> int:
        """Return the time of the stream."""
        return self.first + int((time.time() - self.start_s) * self.speed)

    def seconds_until(self, instant: int) -> float:
        """Return wall seconds until that time of the stream; negative: it has passed."""
        return self.start_s + (instant - self.first) / self.speed - time.time()
