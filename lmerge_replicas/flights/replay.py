"""Replay: publishes a stream of flights at the pace of a clock that all replicas share.

Called by `__main__`. Application time runs ``speed`` times as fast as wall time, from a start instant that every
replica gets, or by a file that the conductor of the replay rewrites again and again (`FileClock`). So replicas keep
step without communication. A replica that was away finds its place from the clock alone, and one that the machine slows
down has more to publish when its turn comes.
"""

from __future__ import annotations

import json
import math
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from lmerge.core.batch import Batch, BatchBuilder
from lmerge.core.elements import INF
from lmerge.errors import UsageError
from lmerge_replicas.flights.flight import NEW_YORK, SECOND, Clock, midnight
from lmerge_replicas.flights.source import Days
from lmerge_replicas.flights.stream import StreamStep
from lmerge_replicas.flights.style import LEAD_MAX

TICK_S = 0.02  # steps nearer together than this become one batch: 50 messages a second cost nothing
LOOK_S = 0.1  # how often a clock in a file is read again: a check takes some ten microseconds
BATCH_ELEMENTS_MAX = 8_192  # a replica that has fallen behind sends batches of about 1 MB, well below the wire's limit


class ReplayClock(NamedTuple):
    """A clock that shows application time ``first`` at wall time ``start`` (epoch seconds).

    It runs ``speed`` times as fast, and stands still at ``until``.
    """

    start: float
    first: int
    speed: float
    until: int = INF

    def now(self) -> int:
        """Return application time in microseconds."""
        return min(self.first + int((time.time() - self.start) * self.speed * SECOND), self.until)

    def seconds_until(self, instant: int) -> float:
        """Return wall seconds until application time ``instant``; negative: it has passed, infinite: never reached."""
        if instant > self.until:
            return math.inf
        return self.start + (instant - self.first) / SECOND / self.speed - time.time()


class FileClock:
    """The clock in a file, which is read again and again."""

    def __init__(self, path: Path) -> None:
        """Read the clock. Raises UsageError if there is none."""
        self._path = path
        self._clock = self._read()
        self._read_at_s = time.monotonic()

    def now(self) -> int:
        """As `ReplayClock`."""
        return self._current().now()

    def seconds_until(self, instant: int) -> float:
        """As `ReplayClock`."""
        return self._current().seconds_until(instant)

    def _current(self) -> ReplayClock:
        now_s = time.monotonic()
        if now_s - self._read_at_s >= LOOK_S:
            self._clock, self._read_at_s = self._read(), now_s
        return self._clock

    def _read(self) -> ReplayClock:
        clock = read_clock(self._path)
        if clock is None:
            raise UsageError(f"there is no replay clock in {self._path}")
        return clock


def read_clock(path: Path) -> ReplayClock | None:
    """Return the clock in the file, or None if it is not set yet."""
    try:
        return ReplayClock(**json.loads(path.read_text()))
    except FileNotFoundError:
        return None


def write_clock(path: Path, clock: ReplayClock) -> None:
    """Set the clock, at the same moment for all readers."""
    unseen = path.with_name(f".{path.name}")
    unseen.write_text(json.dumps(clock._asdict()))
    os.replace(unseen, path)


def first_instant(days: Days) -> int:
    """Return the application time at which the replay of ``days`` starts: before anything is announced."""
    return Clock().to_utc(midnight(days.first), NEW_YORK) - LEAD_MAX


def replay(
    steps: Iterable[StreamStep], clock: ReplayClock | FileClock, publish: Callable[[Batch], None], stop: threading.Event
) -> bool:
    """Publish each step when its time comes, in as few batches as the tick allows. False if ``stop`` came first."""
    for batch in _paced(iter(steps), clock, stop):
        publish(batch)
    return not stop.is_set()


def _paced(steps: Iterator[StreamStep], clock: ReplayClock | FileClock, stop: threading.Event) -> Iterator[Batch]:
    builder = BatchBuilder()
    for step in steps:
        wait_s = clock.seconds_until(step.until)
        if len(builder) and (wait_s > 0 or len(builder) >= BATCH_ELEMENTS_MAX):
            yield builder.build()
            builder = BatchBuilder()
        while wait_s > 0 and not stop.wait(min(max(wait_s, TICK_S), LOOK_S)):
            wait_s = clock.seconds_until(step.until)
        if stop.is_set():
            return
        builder.extend(step.batch)
    yield builder.build()
