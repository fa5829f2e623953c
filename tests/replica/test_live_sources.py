"""Sources that live: merges that are read, sources that are idle, and clocks that pace."""

from __future__ import annotations

import queue
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from client_world import MERGE, ThreadedWorld, threaded_world
from replica_world import Reading, counts_by_window, flight_rows

from lmerge import Publisher
from lmerge.client import describe_merge
from lmerge.core.elements import INF
from lmerge.errors import InputViolation, UsageError
from lmerge.replica import (
    MergeStream,
    Progress,
    PythonItems,
    Query,
    ReplayPace,
    ReplicaOptions,
    ReplicaRun,
    in_order,
    run,
)
from lmerge.temporal.changes import Change
from lmerge.temporal.expressions.surface import col
from lmerge.temporal.plan.stream import Stream, count, source

SCHEMA = {"origin": "string", "delay": "int?"}
FLIGHTS = source("flights", SCHEMA)
COUNTED = FLIGHTS.where(col.delay > 15).group_by(col.origin).tumbling(50).agg(n=count(), form="eager")
ROWS = sorted(flight_rows(500), key=lambda row: int(row["at"]))
OUTPUT = "counts"


@pytest.fixture
def world() -> Iterator[ThreadedWorld]:
    with threaded_world(merges=(MERGE, OUTPUT)) as made:
        yield made


def publish(publisher: Publisher, rows: list[dict[str, Any]]) -> None:
    for row in rows:
        publisher.insert({"origin": row["origin"], "delay": row["delay"]}, row["at"], row["at"] + 1)
        publisher.stable(row["at"])
    publisher.flush()


def replica(
    world: ThreadedWorld, stream: Stream = COUNTED, *, checkpoint: Path | None = None, **sources: Any
) -> ReplicaRun:
    declared = sources or {"flights": MergeStream(servers=world.target, merge=MERGE)}
    options = ReplicaOptions(checkpoint=checkpoint, checkpoint_every_s=0)
    return ReplicaRun(
        Query({"p": stream}, declared), None, servers=world.target, merge=OUTPUT, replica="a", options=options
    )


def test_a_plan_reads_a_merge_and_publishes_into_another(world: ThreadedWorld) -> None:
    """The subscription begins in the middle, and another input has brought the output so far."""
    with Reading(world.target, OUTPUT) as reading, Publisher(world.target, MERGE, "a", schema=SCHEMA) as publisher:
        publish(publisher, ROWS[:200])
        other = Publisher(world.target, OUTPUT, "b", properties=["key"], schema=COUNTED.schema)
        for origin, n, vs, ve in counts_by_window(ROWS):
            if vs == 200:
                other.insert({"origin": origin, "n": n}, vs, ve)
        other.stable(201)
        other.flush()
        with replica(world) as begun:
            assert begun.joined_at == 201, "behind the last window of which the subscription lacks events"
            while len(describe_merge(world.target, OUTPUT).inputs) < 2:
                pass
            other.close()
            thread = threading.Thread(target=begun.run)
            thread.start()
            publish(publisher, ROWS[200:])
            publisher.stable(INF)
            thread.join(60)
        expected = Counter({event: n for event, n in counts_by_window(ROWS).items() if event[-1] >= 201})
        assert 0 < len(expected) < len(counts_by_window(ROWS))
        assert reading.table() == expected


def opened_and_run(begun: ReplicaRun) -> None:
    with begun:
        begun.run()


def test_a_replica_goes_on_from_where_it_has_read_a_merge(world: ThreadedWorld, tmp_path: Path) -> None:
    parts = (ROWS[:200], ROWS[200:350], ROWS[350:])
    with Reading(world.target, OUTPUT) as reading, Publisher(world.target, MERGE, "a", schema=SCHEMA) as publisher:
        for part in parts:
            begun = replica(world, checkpoint=tmp_path)
            thread = threading.Thread(target=opened_and_run, args=(begun,))
            thread.start()
            if part is parts[0]:  # a reader that comes first has the stream from its beginning
                while not describe_merge(world.target, MERGE).subscribers:
                    assert thread.is_alive()
            publish(publisher, part)
            if part is parts[-1]:
                publisher.stable(INF)
            else:
                reading.until(part[-1]["at"] // 50 * 50)
                begun.stop()
            thread.join(60)
        assert reading.table() == counts_by_window(ROWS)


def test_a_plan_that_needs_all_of_a_merge_is_refused(world: ThreadedWorld) -> None:
    with Publisher(world.target, MERGE, "a", schema=SCHEMA) as publisher:
        publish(publisher, ROWS[:100])
        with pytest.raises(UsageError, match="plan 'p' needs all of its sources, and one of them was joined later"):
            replica(world, FLIGHTS.edges("origin")).open()


def test_a_merge_with_other_columns_is_refused(world: ThreadedWorld) -> None:
    with Publisher(world.target, MERGE, "a", schema={"x": "int"}) as publisher:
        publisher.insert({"x": 1}, 1, 5)
        publisher.flush()
        with pytest.raises(UsageError, match=r"the merge has the columns \(x: int\), and the plan has \("):
            replica(world).open()


class Given:
    """Items that a test gives one by one; None ends them."""

    def __init__(self) -> None:
        self.items: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def __iter__(self) -> Iterator[Any]:
        while (item := self.items.get()) is not None:
            yield item


@pytest.mark.parametrize("idle", ["others", "clock"])
def test_an_idle_source_does_not_stop_time(idle: str, world: ThreadedWorld) -> None:
    busy, silent = Given(), Given()
    both = FLIGHTS.union(source("more", SCHEMA))
    progress = Progress(idle_after_s=0.01, idle=idle)  # type: ignore[arg-type]  # texts are taken as well
    begun = replica(
        world,
        both,
        flights=PythonItems(items=busy, is_waiting=True, time="at", progress=in_order()),
        more=PythonItems(items=silent, is_waiting=True, time="at", progress=progress),
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


def test_a_source_that_breaks_its_promise_is_named(world: ThreadedWorld) -> None:
    a = ("A", 1)
    items = [Change(a, 5, 5, 9), Change(a, 5, 8, 9)]
    query = Query({"p": FLIGHTS}, {"flights": PythonItems(items=items)})
    with pytest.raises(InputViolation, match=r"input 'flights' broke its promise \(unknown-event\)"):
        run(query, "p", servers=world.target, merge=OUTPUT, replica="a")
    late = Query({"p": FLIGHTS}, {"flights": PythonItems(items=ROWS[::-1], time="at", progress=in_order())})
    with pytest.raises(InputViolation, match=r"input 'flights' broke its promise \(late\)"):
        run(late, "p", servers=world.target, merge=OUTPUT, replica="b")


def test_a_replay_takes_its_time(world: ThreadedWorld) -> None:
    """500 units of time at 1,000 a second."""
    query = Query({"p": COUNTED}, {"flights": PythonItems(items=ROWS, time="at", progress=in_order())})
    options = ReplicaOptions(clock=ReplayPace(1_000.0))
    with ReplicaRun(query, "p", servers=world.target, merge=OUTPUT, replica="a", options=options) as begun:
        assert begun.clock is not None
        assert begun.run()
        assert begun.clock.now() >= ROWS[-1]["at"]
