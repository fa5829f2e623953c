"""The replay clock of `lmerge demo`: it stops at the marks of the schedule, and slows down on a slow machine.

Called by `run`. Replicas follow the clock in a file (`lmerge_replicas.flights.replay.FileClock`), so they stay in step
with each other however it is set. `stopped_at` and `not_ahead_of` are pure: a clock and wall time in, a clock out.
"""

from __future__ import annotations

import time
from pathlib import Path

from lmerge.core.elements import INF, NEG_INF
from lmerge_replicas.flights.flight import HOUR, SECOND
from lmerge_replicas.flights.replay import ReplayClock, write_clock

# How far the replay may be ahead of the output: several times what a message takes. Beyond that, work piles up.
BEHIND_S_MAX = 1.5


def reading(clock: ReplayClock, wall_s: float) -> int:
    """Return the application time at wall time ``wall_s``, in microseconds."""
    return min(clock.first + int((wall_s - clock.start) * clock.speed * SECOND), clock.until)


def showing(clock: ReplayClock, instant: int, wall_s: float) -> ReplayClock:
    """Return ``clock``, set so that it shows ``instant`` at wall time ``wall_s``."""
    return clock._replace(start=wall_s - (instant - clock.first) / SECOND / clock.speed)


def stopped_at(clock: ReplayClock, until: int, wall_s: float) -> ReplayClock:
    """Return ``clock`` with its stop moved to ``until``. It does not make up for the time that it has stood still."""
    if until == clock.until:
        return clock
    return showing(clock, reading(clock, wall_s), wall_s)._replace(until=until)


def not_ahead_of(clock: ReplayClock, output: int, wall_s: float) -> ReplayClock:
    """Return ``clock``, set back if it is more than BEHIND_S_MAX ahead of ``output``, the output's stable point."""
    # A step of the replay is an hour: the output cannot be nearer to the clock than that.
    latest = output + HOUR + int(BEHIND_S_MAX * clock.speed * SECOND)
    if output in (NEG_INF, INF) or reading(clock, wall_s) <= latest:
        return clock
    return showing(clock, latest, wall_s)


class ReplayClockFile:
    """Sets the replay clock in the file ``path``."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.put_back_s = 0.0  # how far it has been set back in all, in seconds of its pace
        self._clock: ReplayClock | None = None

    @property
    def is_standing(self) -> bool:
        """Whether it stands still at its stop."""
        return self._clock is not None and reading(self._clock, time.time()) >= self._clock.until

    def start(self, clock: ReplayClock) -> None:
        """Start the clock."""
        self._set(clock)

    def stop_at(self, until: int) -> None:
        """Move its stop to ``until``; INF: it does not stop."""
        assert self._clock is not None
        self._set(stopped_at(self._clock, until, time.time()))

    def wait_for(self, output: int) -> None:
        """Set it back if the output is too far behind."""
        assert self._clock is not None
        later = not_ahead_of(self._clock, output, time.time())
        if not self.is_standing:
            self.put_back_s += later.start - self._clock.start
            self._set(later)

    def _set(self, clock: ReplayClock) -> None:
        if clock != self._clock:
            self._clock = clock
            write_clock(self.path, clock)
