"""Replay: a stream of flights told at the pace of a clock that all replicas share.

Called by `__main__`. Application time runs ``speed`` times as fast as wall time, from a start instant that every
replica gets. So replicas keep step without talking to each other, one that was away finds its place from the
clock alone, and one that the machine slows down simply has more to say when its turn comes.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime, timedelta
from typing import NamedTuple

from lmerge.core.batch import Batch, BatchBuilder
from replicas.flights.flight import EPOCH, NEW_YORK, SECOND, Clock
from replicas.flights.source import Days
from replicas.flights.stream import Step
from replicas.flights.style import LEAD_MAX

TICK_S = 0.02  # steps nearer together than this go out as one batch: 50 messages a second cost nothing
BATCH_ELEMENTS_MAX = 8_192  # a replica that has fallen behind sends batches of about 1 MB, well below the wire's limit


class ReplayClock(NamedTuple):
    """Application time ``first`` is at wall time ``start`` (epoch seconds) and runs ``speed`` times as fast."""

    start: float
    first: int
    speed: float

    def now(self) -> int:
        """Application time, in microseconds."""
        return self.first + int((time.time() - self.start) * self.speed * SECOND)

    def seconds_until(self, instant: int) -> float:
        """Wall seconds until application time ``instant``; negative if it has passed."""
        return self.start + (instant - self.first) / SECOND / self.speed - time.time()


def first_instant(days: Days) -> int:
    """The application time at which the replay of ``days`` starts: before anything is announced."""
    midnight = datetime(days.first.year, days.first.month, days.first.day) - EPOCH
    return Clock().to_utc(midnight // timedelta(microseconds=1), NEW_YORK) - LEAD_MAX


def replay(steps: Iterable[Step], clock: ReplayClock, publish: Callable[[Batch], None], stop: threading.Event) -> bool:
    """Publish each step once its time has come, as few batches as the tick allows. False if ``stop`` ended it early."""
    for batch in _paced(iter(steps), clock, stop):
        publish(batch)
    return not stop.is_set()


def _paced(steps: Iterator[Step], clock: ReplayClock, stop: threading.Event) -> Iterator[Batch]:
    builder = BatchBuilder()
    for step in steps:
        wait_s = clock.seconds_until(step.until)
        if len(builder) and (wait_s > 0 or len(builder) >= BATCH_ELEMENTS_MAX):
            yield builder.build()
            builder = BatchBuilder()
        if stop.wait(max(wait_s, TICK_S)) if wait_s > 0 else stop.is_set():
            return
        builder.extend(step.batch)
    yield builder.build()
