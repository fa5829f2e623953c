"""Sources that live: merges that are read, sources that are idle, and clocks that pace."""

from __future__ import annotations

import contextlib
import threading
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any

import pytest
from client_world import MERGE, ThreadedWorld, threaded_world
from replica_world import Reading, counts_by_window, flight_rows

from lmerge import Publisher
from lmerge.client import describe_merge
from lmerge.core.batch import BatchBuilder
from lmerge.core.elements import INF, NEG_INF, Event
from lmerge.core.tdb import Tdb
from lmerge.errors import InputViolation, UsageError
from lmerge.replica import MergeStream, PythonItems, Query, ReplayPace, ReplicaOptions, ReplicaRun, in_order, run
from lmerge.replica.sources import merge_stream
from lmerge.replica.sources.declared import Chunk, SourceContext
from lmerge.temporal.changes import Change, Lifetime
from lmerge.temporal.expressions.surface import col
from lmerge.temporal.open_events import OpenEvents
from lmerge.temporal.plan.stream import Stream, count, source
from lmerge.temporal.running import Item

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


def items_of(chunk: Chunk) -> list[Item]:
    assert isinstance(chunk.items, list)
    return chunk.items


def read_all(chunks: Iterable[Chunk], live: OpenEvents, table: Counter[Lifetime]) -> int:
    """Apply the items of chunks to the live events of a stream and to its table; return how many there were."""
    taken = 0
    for chunk in chunks:
        for item in items_of(chunk):
            taken += 1
            if isinstance(item, int):
                live.move_stable(item)
                continue
            live.apply(item)
            row, vs, old, new = item
            table[Lifetime(row, vs, old)] -= old > vs
            table[Lifetime(row, vs, new)] += new > vs
    return taken


@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_reader_that_is_behind_what_is_needed_leaves_out_what_lies_between(
    is_restarted: bool, world: ThreadedWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of three long events one ends when nothing is needed any more, one later, and one is not there any more."""
    monkeypatch.setattr(merge_stream, "SEEK_AFTER_S", 0)
    payloads = [{"origin": "L", "delay": at} for at in range(3)]
    declared = MergeStream(servers=world.target, merge=MERGE)
    reader = declared.open(SourceContext("flights", FLIGHTS.schema), None)
    chunks, live, table = reader.chunks(), OpenEvents("flights"), Counter[Lifetime]()
    with contextlib.closing(reader), Publisher(world.target, MERGE, "a", schema=SCHEMA) as publisher:
        thread = threading.Thread(target=lambda: read_all(islice(chunks, 1), live, table))
        thread.start()
        while not describe_merge(world.target, MERGE).subscribers:
            assert thread.is_alive()
        for payload in payloads:
            publisher.insert(payload, 0, INF)
        publisher.flush()
        thread.join(60)
        publish(publisher, ROWS[:100])
        for payload, end in zip(payloads, (150, 450, 100), strict=True):
            publisher.adjust(payload, 0, INF, end)
        publish(publisher, ROWS[100:])
        publisher.stable(INF)
        publisher.flush()
        reader.fast_forward(400)
        taken = 0
        for chunk in chunks:
            if is_restarted and reader.parts_skipped:
                read_all([chunk._replace(items=items_of(chunk)[:3])], live, table)
                restarted = declared.open(SourceContext("flights", FLIGHTS.schema, live=live), chunk.begin)
                with contextlib.closing(restarted):
                    read_all(restarted.chunks(), live, table)
                break
            taken += read_all([chunk], live, table)
    events = [Lifetime((row["origin"], row["delay"]), row["at"], row["at"] + 1) for row in ROWS]
    expected = Counter([*events, Lifetime(("L", 1), 0, 450)])
    assert reader.parts_skipped == 1
    assert taken < len(ROWS) / 2
    assert {one: n for one, n in table.items() if n and one.ve >= 400} == {
        one: n for one, n in expected.items() if one.ve >= 400
    }


def test_a_reader_becomes_what_another_subscription_has_by_legal_changes() -> None:
    for seed in range(300):
        random_ = Random(seed)
        stable, needed_from = random_.choice([NEG_INF, 5, 10]), 15
        keys = [(random_.randrange(0, 20), random_.choice([b"a", b"b"])) for _ in range(6)]
        later = [(max(vs, stable), payload) for vs, payload in keys]
        held = [
            Event(vs, payload, random_.randrange(max(vs, stable), 26) + 1) for vs, payload in random_.choices(keys, k=5)
        ]
        there = [
            one._replace(ve=random_.randrange(max(one.vs, needed_from), 26) + 1)
            for one in held
            if random_.random() < 0.6
        ]
        there += [
            Event(vs, payload, random_.randrange(max(vs, needed_from), 26) + 1)
            for vs, payload in random_.choices(later, k=2)
        ]
        reader, came = Tdb("reader", stable_point=stable), BatchBuilder()
        for vs, payload, ve in held:
            reader.enter(vs, payload, ve)
        for vs, payload, ve in there:
            came.insert(payload, vs, ve)
        came.stable(20)
        reader.apply_batch(merge_stream._ReadSoFar(stable, held, needed_from).changes_to(came.build()))
        assert sorted(one for one in reader.events() if one.ve >= needed_from) == sorted(there), seed
        assert reader.stable_point == 20


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
