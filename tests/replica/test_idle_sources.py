"""A source that is silent does not stop time: it follows the clock of the run, or the other sources."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from client_world import ThreadedWorld, threaded_world
from replica_world import Reading, flight_rows

from lmerge.clock import wall_us
from lmerge.errors import UsageError
from lmerge.replica import Progress, PythonItems, Query, ReplayPace, ReplicaOptions, ReplicaRun, after, in_order
from lmerge.replica.feeds import SourceFeed, feed_of
from lmerge.replica.idling import FAR_US, IDLE_TICK_S, IdleSources
from lmerge.replica.query import settings_of, sources_of
from lmerge.replica.sources.declared import SourceContext
from lmerge.temporal.changes import Change
from lmerge.temporal.plan.stream import Stream, source
from lmerge.temporal.running import QueryRun

SCHEMA = {"origin": "string", "delay": "int?"}
FLIGHTS, MORE, THIRD = (source(name, SCHEMA) for name in ("flights", "more", "third"))
ROWS = sorted(flight_rows(500), key=lambda row: int(row["at"]))
OUTPUT = "counts"


class Given:
    """Items that a test gives one by one; None ends them."""

    def __init__(self) -> None:
        self.items: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def __iter__(self) -> Iterator[Any]:
        while (item := self.items.get()) is not None:
            yield item


@pytest.fixture
def world() -> Iterator[ThreadedWorld]:
    with threaded_world(merges=(OUTPUT,)) as made:
        yield made


def replica(world: ThreadedWorld, stream: Stream, clock: ReplayPace | None = None, **sources: Any) -> ReplicaRun:
    options = ReplicaOptions(clock=clock)
    return ReplicaRun(
        Query({"p": stream}, sources), None, servers=world.target, merge=OUTPUT, replica="a", options=options
    )


def live(given: Given, progress: Progress) -> PythonItems:
    return PythonItems(items=given, is_waiting=True, time="at", progress=progress)


@pytest.mark.parametrize("idle", ["others", "clock"])
def test_an_idle_source_does_not_stop_time(idle: str, world: ThreadedWorld) -> None:
    busy, silent = Given(), Given()
    begun = replica(
        world,
        FLIGHTS.union(MORE),
        ReplayPace(1e6, first=0),
        flights=live(busy, in_order()),
        more=live(silent, in_order(idle_after_s=0.01, idle=idle)),
    )
    with Reading(world.target, OUTPUT) as reading, begun:
        thread = threading.Thread(target=begun.run)
        thread.start()
        for row in ROWS:
            busy.items.put(row)
        reading.until(int(ROWS[-1]["at"]))
        for given in (busy, silent):
            given.items.put(None)
        thread.join(60)
        assert sum(reading.table().values()) == len(ROWS)


def test_a_source_that_always_has_something_does_not_keep_an_idle_one_from_going_on(world: ThreadedWorld) -> None:
    """The busy one has items until the reader has seen time go on."""
    silent, is_seen = Given(), threading.Event()

    def busy() -> Iterator[Any]:
        at = 0
        while not is_seen.is_set():
            at += 1
            yield {"origin": "A", "delay": 1, "at": at}

    begun = replica(
        world,
        FLIGHTS.union(MORE),
        flights=PythonItems(items=busy, time="at", progress=in_order()),
        more=live(silent, in_order(idle_after_s=0.01, idle="others")),
    )
    with Reading(world.target, OUTPUT) as reading, begun:
        thread = threading.Thread(target=begun.run)
        thread.start()
        try:
            reading.until(1)
        finally:
            is_seen.set()
            silent.items.put(None)
            thread.join(60)


class Made:
    """Feeds of live sources without a server: what was taken, and when, is up to the test."""

    def __init__(self, stack: ExitStack, *, clock: int = 0, is_wall: bool = False, **rules: Progress) -> None:
        streams = {"flights": FLIGHTS, "more": MORE, "third": THIRD}
        first, *others = (streams[name] for name in rules)
        node = first.union(*others).node
        self.given = {name: Given() for name in rules}
        sources = {name: live(self.given[name], rule) for name, rule in rules.items()}
        self.query = QueryRun({"p": node}, {name: settings_of(one) for name, one in sources.items()})
        self.wake = threading.Event()
        self.feeds: dict[str, SourceFeed] = {}
        schemas = {found.label: found.schema for found in sources_of(node)}
        for name, one in sources.items():
            reader = one.open(SourceContext(name, schemas[name]), None)
            self.feeds[name] = feed_of(name, one, reader, None, self.wake)
            self.feeds[name].taken_s = 0.0
            stack.callback(self.given[name].items.put, None)
        entrances = self.query.entrances
        self.idle = IdleSources(list(self.feeds.values()), entrances, lambda: clock, is_wall=is_wall)

    def take(self, name: str, *items: Any, taken_s: float = 0.0) -> None:
        """Give items to a source, and let the query take them."""
        for item in items:
            self.given[name].items.put({"origin": "A", "delay": 1, "at": item} if isinstance(item, int) else item)
        feed = self.feeds[name]
        ends = None in items
        before = feed.items
        while not feed.has_ended if ends else feed.items < before + len(items):
            self.waiting(name)
            if not feed.has_ended:
                self.idle.note(feed)
                self.query.take_columns(name, feed.take(100, None))
        feed.taken_s = taken_s

    def waiting(self, name: str) -> None:
        """Wait until a source has an item."""
        while self.feeds[name].next_release() is None and not self.feeds[name].has_ended:
            self.wake.wait()
            self.wake.clear()

    def due(self, now_s: float) -> dict[str, int]:
        return {feed.name: latest for feed, latest in self.idle.due(now_s)}


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as made:
        yield made


OTHERS = in_order(idle_after_s=10, idle="others")


def test_a_source_is_idle_after_its_time_and_follows_the_least_of_the_others(stack: ExitStack) -> None:
    made = Made(stack, flights=OTHERS, more=in_order(), third=in_order())
    made.take("more", 50)
    made.take("third", 70)
    assert made.due(9.9) == {}
    assert made.due(10.0) == {"flights": 50}
    assert made.due(10.0 + IDLE_TICK_S / 2) == {}, "not so soon again"


def test_a_source_with_an_item_is_not_idle(stack: ExitStack) -> None:
    made = Made(stack, flights=OTHERS, more=in_order())
    made.take("more", 50)
    made.given["flights"].items.put({"origin": "A", "delay": 1, "at": 7})
    made.waiting("flights")
    assert made.due(20.0) == {}


def test_a_source_that_has_ended_counts_by_its_latest_start_when_nothing_else_goes_on(stack: ExitStack) -> None:
    made = Made(stack, flights=OTHERS, more=in_order(), third=in_order())
    made.take("more", 50, None)
    made.take("third", 70)
    assert made.due(20.0) == {"flights": 70}, "it does not stand still where the one that ended has been"
    made.take("third", 90, None)
    assert made.due(30.0) == {"flights": 90}


def test_the_end_of_an_event_is_no_time_that_its_source_has_reached(stack: ExitStack) -> None:
    made = Made(stack, flights=OTHERS, more=in_order())
    made.take("more", Change(("A", 1), 40, 40, 10**6), None)
    assert made.due(20.0) == {"flights": 40}


def test_two_idle_sources_do_not_wait_for_each_other(stack: ExitStack) -> None:
    made = Made(stack, flights=OTHERS, more=OTHERS, third=in_order())
    made.take("third", 70)
    assert made.due(20.0) == {"flights": 70, "more": 70}


def test_an_idle_source_follows_the_clock_of_the_run(stack: ExitStack) -> None:
    made = Made(stack, clock=123, flights=after(5, idle_after_s=10))
    assert made.due(20.0) == {"flights": 123}


@pytest.mark.parametrize("distance", [-FAR_US - 1, FAR_US + 1, None])
def test_units_that_are_no_microseconds_are_refused(distance: int | None, stack: ExitStack) -> None:
    now = wall_us()
    made = Made(stack, clock=now, is_wall=True, flights=after(5, idle_after_s=10), more=in_order())
    made.take("more", 1_600_000_000 if distance is None else now + distance)
    with pytest.raises(UsageError, match=r"an idle source \('flights'\) follows the wall clock.*declare idle='others'"):
        made.due(20.0)


def test_units_show_with_the_first_item(stack: ExitStack) -> None:
    now = wall_us()
    for at in (now - 1000, 1_600_000_000):
        made = Made(stack, clock=now, is_wall=True, flights=after(5, idle_after_s=10))
        assert made.due(20.0) == {"flights": now}
        made.given["flights"].items.put({"origin": "A", "delay": 1, "at": at})
        made.waiting("flights")
        if at > FAR_US:
            made.idle.note(made.feeds["flights"])
        else:
            with pytest.raises(UsageError, match="follows the wall clock"):
                made.idle.note(made.feeds["flights"])


def test_late_events_are_counted_for_each_run(world: ThreadedWorld, tmp_path: Path) -> None:
    """The counts of runs before it, which a checkpoint has, are not those of a run."""
    rows: list[Any] = [{"origin": "A", "delay": 1, "at": at} for at in (1, 50, 2, 60, 3)]
    rows += [Change(("B", 1), 5, 5, 90)]
    for late, expected in (("drop", (3, 0)), ("move", (2, 1))):
        declared = PythonItems(items=rows, time="at", progress=after(0, late=late))
        query = Query({"p": FLIGHTS}, {"flights": declared})
        options = ReplicaOptions(checkpoint=tmp_path / late)
        for found in (expected, (0, 0)):
            with ReplicaRun(query, None, servers=world.target, merge=late, replica="a", options=options) as run:
                run.run()
            assert run.late() == found
