"""The replay's pace: late replicas catch up in few large batches, nothing is reordered, and stopping is prompt."""

from __future__ import annotations

import threading
import time
from datetime import date
from itertools import chain

from lmerge.core.batch import Batch
from lmerge_replicas.flights.flight import DAY, HOUR, Flight
from lmerge_replicas.flights.replay import BATCH_ELEMENTS_MAX, ReplayClock, first_instant, replay
from lmerge_replicas.flights.source import Days
from lmerge_replicas.flights.stream import FlightStream
from lmerge_replicas.flights.style import STYLES


def test_a_replica_that_is_late_publishes_everything_in_order_in_few_batches(blizzard: list[Flight]) -> None:
    style, published = STYLES["aggressive"], list[Batch]()
    clock = ReplayClock(time.time() - 3600, blizzard[0].vs - DAY, speed=86_400.0)  # the replay ended long ago
    assert replay(FlightStream(blizzard, style).steps(), clock, published.append, threading.Event())
    steps = list(FlightStream(blizzard, style).steps())
    assert list(chain.from_iterable(b.elements() for b in published)) == list(
        chain.from_iterable(step.batch.elements() for step in steps)
    )
    assert len(published) < len(steps) / 10
    assert max(b.count for b in published) < 2 * BATCH_ELEMENTS_MAX


def test_nothing_is_published_before_its_time(blizzard: list[Flight]) -> None:
    """The clock stops just after the 40th step, and a day of flights takes a year."""
    stop, published = threading.Event(), list[Batch]()
    steps = list(FlightStream(blizzard, STYLES["open-ended"]).steps())
    clock = ReplayClock(time.time(), steps[39].until + 1, speed=1 / 365)

    def publish(batch: Batch) -> None:
        published.append(batch)
        stop.set()

    assert not replay(steps, clock, publish, stop)
    assert sum(b.count for b in published) == sum(step.batch.count for step in steps[:40])


def test_a_stopped_replay_ends_at_once_and_is_not_complete(blizzard: list[Flight]) -> None:
    stop = threading.Event()
    stop.set()
    clock = ReplayClock(time.time() + 3600, blizzard[0].vs, speed=1.0)
    assert not replay(FlightStream(blizzard, STYLES["aggressive"]).steps(), clock, lambda batch: None, stop)


def test_replicas_of_the_same_days_start_at_one_instant_before_anything_is_published(blizzard: list[Flight]) -> None:
    start = first_instant(Days(date(2013, 2, 7), date(2013, 2, 10)))
    assert start == (blizzard[0].vs // DAY * DAY) + 5 * HOUR - 2 * HOUR  # midnight in New York, less the longest lead
    for style in STYLES.values():
        assert next(FlightStream(blizzard, style).steps()).until >= start
