"""What a restart has of each source: items are passed over, a socket's are lost, a merge may have gone on."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from client_world import MERGE, ThreadedWorld, threaded_world
from replica_world import WINDOW, Reading, counts_by_window, flight_rows

from lmerge import Publisher
from lmerge.client import Subscriber, describe_merge
from lmerge.core.elements import INF, NEG_INF
from lmerge.errors import UsageError
from lmerge.replica import (
    ArrowSocket,
    CsvFile,
    JsonLinesSocket,
    MergeStream,
    PythonItems,
    Query,
    ReplicaOptions,
    ReplicaRun,
    in_order,
)
from lmerge.replica.checkpoints import NAME
from lmerge.replica.sources import iterables
from lmerge.replica.sources.declared import PhysicalSource
from lmerge.temporal.expressions.surface import col
from lmerge.temporal.plan.stream import Stream, count, source

SCHEMA = {"origin": "string", "delay": "int?"}
FLIGHTS = source("flights", SCHEMA)
COUNTED = FLIGHTS.where(col.delay > 15).group_by(col.origin).tumbling(WINDOW).agg(n=count(), form="eager")
ROWS = sorted(flight_rows(500), key=lambda row: int(row["at"]))
OUTPUT = "counts"


@pytest.fixture
def world() -> Iterator[ThreadedWorld]:
    with threaded_world(merges=(MERGE, OUTPUT)) as made:
        yield made


def run_of(
    world: ThreadedWorld,
    declared: PhysicalSource,
    checkpoint: Path | None,
    *,
    stream: Stream = COUNTED,
    join_at: int | None = None,
) -> ReplicaRun:
    options = ReplicaOptions(checkpoint=checkpoint, checkpoint_every_s=1e9, join_at=join_at)
    query = Query({"p": stream}, {"flights": declared})
    return ReplicaRun(query, None, servers=world.target, merge=OUTPUT, replica="a", options=options)


def killed_after(begun: ReplicaRun, items: int) -> None:
    """Take some items, write a checkpoint, and end as a process does that is killed."""
    begun.open()
    begun._step_items = 1
    while sum(feed.items for feed in begun.feeds) < items:
        feed, _ = begun._next_feed()
        if feed is not None:
            begun._step_items = 1
            begun._step(feed)
    begun._save()
    begun.close(is_failed=True)


def ended(begun: ReplicaRun) -> int:
    """Run to the end; return how many items were taken."""
    with begun:
        assert begun.run()
    return sum(source.items for source in begun.counted().sources)


class IterableRows:
    """Rows that can be run through as often as one likes, and are no list."""

    def __iter__(self) -> Iterator[Any]:
        return iter(ROWS)


async def asynchronous() -> AsyncIterator[Any]:
    for row in ROWS:
        yield row


NAMES = ("list", "iterable", "function", "asynchronous")


@pytest.mark.parametrize("items", [ROWS, IterableRows(), lambda: iter(ROWS), asynchronous], ids=NAMES)
def test_a_restart_passes_over_items_that_come_again(
    items: Any, world: ThreadedWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(iterables, "ITEMS_PER_CHUNK", 64)
    declared = PythonItems(items=items, time="at", progress=in_order())
    with Reading(world.target, OUTPUT) as reading:
        killed_after(run_of(world, declared, tmp_path), 200)
        assert ended(run_of(world, declared, tmp_path)) == len(ROWS) + 1 - 200
        assert reading.table() == counts_by_window(ROWS)


def test_what_is_run_through_once_allows_no_checkpoint(world: ThreadedWorld, tmp_path: Path) -> None:
    for items, message in (
        (iter(ROWS), "an iterator is run through once: give a list, or a function"),
        ((row for row in ROWS), "an iterator is run through once: give a list, or a function"),
        (asynchronous(), "an asynchronous iterable is run through once: give a function that returns it"),
    ):
        declared = PythonItems(items=items, time="at", progress=in_order())
        with pytest.raises(UsageError, match=f"source 'flights' .* allows no checkpoint: {message}"):
            run_of(world, declared, tmp_path).open()
        begun = run_of(world, declared, None)
        begun.open()
        begun.close()


class Sender:
    """A program that sends what happens from now on to who is connected."""

    def __init__(self, *, is_arrow: bool = False) -> None:
        self._server = socket.create_server(("127.0.0.1", 0))
        self._is_arrow = is_arrow
        self.address = f"127.0.0.1:{self._server.getsockname()[1]}"

    def send(self, rows: list[dict[str, Any]]) -> threading.Thread:
        """Send rows to the next connection, and close it, in a thread."""
        thread = threading.Thread(target=self._send, args=(rows,))
        thread.start()
        return thread

    def _send(self, rows: list[dict[str, Any]]) -> None:
        connection, _ = self._server.accept()
        with connection, contextlib.suppress(OSError):  # the reader was killed
            if not self._is_arrow:
                connection.sendall("".join(json.dumps(row) + "\n" for row in rows).encode())
                return
            table = pa.Table.from_pylist(rows)
            with connection.makefile("wb") as stream, pa.ipc.new_stream(stream, table.schema) as writer:
                writer.write_table(table, 50)

    def close(self) -> None:
        self._server.close()


@pytest.fixture(params=["json", "arrow"])
def sender(request: pytest.FixtureRequest) -> Iterator[Sender]:
    made = Sender(is_arrow=request.param == "arrow")
    yield made
    made.close()


def socket_of(sender: Sender, **columns: str) -> PhysicalSource:
    kind = ArrowSocket if sender._is_arrow else JsonLinesSocket
    return kind(address=sender.address, progress=in_order(), **(columns or {"time": "at"}))  # type: ignore[arg-type]  # texts by name


def rows_from(t: int) -> list[dict[str, Any]]:
    """Return the rows of points that end at ``t`` or later."""
    return [row for row in ROWS if row["at"] + 1 >= t]


def published_of(target: str, until: int) -> Publisher:
    """Return another replica, which has published what starts before ``until``."""
    publisher = Publisher(target, OUTPUT, "other", properties=["key"], schema=COUNTED.schema)
    for origin, n, vs, ve in counts_by_window(ROWS):
        if vs < until:
            publisher.insert({"origin": origin, "n": n}, vs, ve)
    publisher.stable(280)
    publisher.flush()
    return publisher


def joined_and_ended(begun: ReplicaRun, world: ThreadedWorld, other: Publisher) -> int:
    """Run to the end, alone from where it has joined; return from where that is."""
    with begun:
        while len(describe_merge(world.target, OUTPUT).inputs) < 2:
            pass
        other.stable(301)
        other.flush()
        other.close()
        assert begun.run()
    return begun.joined_at


def test_a_socket_that_is_joined_is_right_from_there(sender: Sender, world: ThreadedWorld) -> None:
    """301: behind the last window that has times before 260."""
    with Reading(world.target, OUTPUT) as reading:
        other = published_of(world.target, 301)
        thread = sender.send(rows_from(260))
        assert joined_and_ended(run_of(world, socket_of(sender), None, join_at=260), world, other) == 301
        thread.join()
        assert reading.table() == counts_by_window(ROWS)


def test_a_socket_goes_on_from_a_checkpoint_where_it_is_joined(
    sender: Sender, world: ThreadedWorld, tmp_path: Path
) -> None:
    """Rows up to 199 were taken, rows before 260 are lost, and the windows with their times are those of another."""
    with Reading(world.target, OUTPUT) as reading:
        thread = sender.send(ROWS[:200])
        killed_after(run_of(world, socket_of(sender), tmp_path), 190)
        thread.join()
        other = published_of(world.target, 301)
        thread = sender.send(rows_from(260))
        assert joined_and_ended(run_of(world, socket_of(sender), tmp_path, join_at=260), world, other) == 301
        thread.join()
        assert reading.table() == counts_by_window(ROWS)


def test_what_a_socket_has_lost_is_never_claimed(sender: Sender, world: ThreadedWorld, tmp_path: Path) -> None:
    thread = sender.send(ROWS[:200])
    killed_after(run_of(world, socket_of(sender), tmp_path), 190)
    thread.join()
    mark = int(ROWS[189]["at"])
    for join_at, message in (
        (None, "what it sent since the checkpoint is lost: give --join-at"),
        (mark + 1, f"it was read up to {mark}, and --join-at is {mark + 1}; give {mark + 2} or later"),
    ):
        thread = sender.send([])
        with pytest.raises(UsageError, match=rf"source 'flights' \({sender.address}\) cannot seek.*{message}"):
            run_of(world, socket_of(sender), tmp_path, join_at=join_at).__enter__()
        thread.join()


def test_a_socket_of_which_all_was_taken_is_not_needed_again(
    sender: Sender, world: ThreadedWorld, tmp_path: Path
) -> None:
    with Reading(world.target, OUTPUT) as reading:
        thread = sender.send(ROWS)
        killed_after(run_of(world, socket_of(sender), tmp_path), len(ROWS) + 1)
        thread.join()
        sender.close()
        assert ended(run_of(world, socket_of(sender), tmp_path)) in (0, 1)
        assert reading.table() == counts_by_window(ROWS)


def test_a_socket_of_intervals_allows_no_checkpoint(sender: Sender, world: ThreadedWorld, tmp_path: Path) -> None:
    declared = socket_of(sender, start="at", end="until")
    with pytest.raises(UsageError, match="allows no checkpoint: a socket may send intervals again"):
        run_of(world, declared, tmp_path).open()


def test_join_at_counts_for_a_file_with_a_checkpoint_too(world: ThreadedWorld, tmp_path: Path) -> None:
    path = tmp_path / "flights.csv"
    path.write_text("origin,delay,at\n" + "".join(f"JFK,20,{at}\n" for at in range(300)))
    declared = CsvFile(path=path, time="at", progress=in_order())
    killed_after(run_of(world, declared, tmp_path), 100)
    with run_of(world, declared, tmp_path, join_at=160) as begun:
        assert begun.joined_at == 201


def publish(publisher: Publisher, rows: list[dict[str, Any]], lasting: int = 1) -> None:
    for row in rows:
        publisher.insert({"origin": row["origin"], "delay": row["delay"]}, row["at"], row["at"] + lasting)
        publisher.stable(row["at"])
    publisher.flush()


def test_a_run_that_is_stopped_before_its_merge_begins_writes_no_checkpoint(
    world: ThreadedWorld, tmp_path: Path
) -> None:
    merge = MergeStream(servers=world.target, merge=MERGE)
    begun = run_of(world, merge, tmp_path)
    thread = threading.Thread(target=lambda: begun.__enter__().run())
    thread.start()
    while not describe_merge(world.target, MERGE).subscribers:
        assert thread.is_alive()
    begun.stop()
    thread.join(60)
    begun.close()
    assert not (tmp_path / NAME).exists()


def test_a_merge_of_which_nothing_was_taken_begins_anew(world: ThreadedWorld, tmp_path: Path) -> None:
    merge = MergeStream(servers=world.target, merge=MERGE)
    with Publisher(world.target, MERGE, "a", schema=SCHEMA) as publisher:
        publish(publisher, ROWS[:100])
        with run_of(world, merge, tmp_path) as begun:
            first = begun.joined_at
            begun._save()
        publish(publisher, ROWS[100:300])
        with run_of(world, merge, tmp_path) as begun:
            assert NEG_INF < first < begun.joined_at
            assert begun.joined_at > int(ROWS[299]["at"]) // WINDOW * WINDOW


def test_a_plan_without_state_begins_with_a_checkpoint_of_its_source_merge(world: ThreadedWorld) -> None:
    """II.4: the live events that ``lmerge checkpoint`` writes are the first batch of the subscription.

    A plan of span operators needs nothing else, so it is right from the stable point of the checkpoint on.
    """
    merge = MergeStream(servers=world.target, merge=MERGE)
    stateless = FLIGHTS.where(col.delay > 15).shift(10)
    with Reading(world.target, OUTPUT) as reading, Publisher(world.target, MERGE, "a", schema=SCHEMA) as publisher:
        publish(publisher, ROWS[:300], lasting=100)
        with Subscriber(world.target, MERGE) as subscriber:
            next(iter(subscriber.batches()))
            checkpoint = subscriber.tdb
        assert len(list(checkpoint.live_events())) > 50
        with run_of(world, merge, None, stream=stateless) as begun:
            assert begun.joined_at == checkpoint.stable_point + 10
            thread = threading.Thread(target=begun.run)
            thread.start()
            publish(publisher, ROWS[300:], lasting=100)
            publisher.stable(INF)
            thread.join(60)
        joined = begun.joined_at
        late = [row for row in ROWS if row["delay"] > 15]
        expected = Counter((row["origin"], row["delay"], row["at"] + 10, row["at"] + 110) for row in late)
        assert {one: n for one, n in reading.table().items() if one[-1] >= joined} == {
            one: n for one, n in expected.items() if one[-1] >= joined
        }
