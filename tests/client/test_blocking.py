"""The blocking Publisher and Subscriber: in this process, and in processes that are interrupted, forked or just end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import pyarrow as pa
import pytest
from client_world import MERGE, ThreadedWorld, threaded_world

from lmerge import Publisher, PublisherLimits, Subscriber
from lmerge.client import AsyncSubscriber, describe_merge, describe_server, list_merges
from lmerge.client.subscribe.checkpoint import load
from lmerge.core.batch import Batch
from lmerge.core.elements import INF, Adjust, Element, Insert, Stable
from lmerge.core.tdb import Tdb
from lmerge.errors import InputViolation, ServerGone, UnknownMerge, UsageError
from lmerge.wire.token import format_token


@pytest.fixture
def world() -> Iterator[ThreadedWorld]:
    with threaded_world() as world:
        yield world


class Listener:
    """Reads a subscriber in a thread, until its end."""

    def __init__(self, target: str) -> None:
        self.subscriber = Subscriber(target, MERGE)
        self.elements: list[Element] = []
        self._begun = threading.Event()
        self._thread = threading.Thread(target=self._read)
        self._thread.start()
        while not describe_merge(target, MERGE).subscribers:
            pass

    def _read(self) -> None:
        for element in self.subscriber:
            self.elements.append(element)

    def join(self) -> list[Element]:
        self._thread.join(20)
        assert not self._thread.is_alive()
        return self.elements


def test_three_lines_publish_and_three_subscribe(world: ThreadedWorld) -> None:
    listener = Listener(world.target)
    with Publisher(world.target, MERGE, "a") as publisher:
        publisher.insert("UA 1545", vs=1, ve=9)
        publisher.adjust("UA 1545", vs=1, vold=9, ve=7)
        publisher.stable(INF)
    assert listener.join() == [Insert(b"UA 1545", 1, 9), Adjust(b"UA 1545", 1, 9, 7), Stable(INF)]


def test_rows_of_dicts_and_of_arrow_meet_in_one_merge(world: ThreadedWorld) -> None:
    rows = [
        {"carrier": "UA", "flight": 1545, "at": 1, "until": 9},
        {"carrier": "DL", "flight": 461, "at": 2, "until": 8},
    ]
    with Publisher(world.target, MERGE, "dicts", schema="infer") as dicts:
        dicts.publish_rows(rows, vs="at", ve="until")
        dicts.flush()
        with Publisher(world.target, MERGE, "arrow", schema="infer") as arrow:
            arrow.publish_rows(pa.Table.from_pylist(rows), vs="at", ve="until")
            arrow.flush()
            arrow.stable(2)
            dicts.stable(2)
            arrow.flush()
            dicts.flush()
            with Subscriber(world.target, MERGE) as subscriber:
                changes = list(islice(subscriber.rows(), 3))
    assert [(change.op, change.row, change.vs, change.ve) for change in changes] == [
        ("insert", {"carrier": "UA", "flight": 1545}, 1, 9),
        ("insert", {"carrier": "DL", "flight": 461}, 2, 8),
        ("stable", None, 2, 0),
    ]


def test_a_cut_link_is_mended_for_both(world: ThreadedWorld) -> None:
    listener = Listener(world.target)
    with Publisher(world.target, MERGE, "a") as publisher:
        for i in range(3000):
            publisher.insert(f"event {i}", i, i + 10_000)
            if i % 1000 == 500:
                publisher.flush()
                world.cut()
                world.mend()
        publisher.flush()
        assert publisher.reconnects >= 2
        while not (listener.subscriber.tdb.live_count == 3000 or listener.subscriber.gaps):
            pass
        publisher.stable(INF)
    inserts = [element for element in listener.join() if isinstance(element, Insert)]
    assert len(inserts) == len(set(inserts)) == 3000


def test_a_violation_is_raised_to_the_caller_and_at_the_end(world: ThreadedWorld) -> None:
    publisher = Publisher(world.target, MERGE, "a", properties=["insert-only", "ordered"]).open()
    publisher.insert("x", 5)
    with pytest.raises(InputViolation, match="Ve >= Vs"):
        publisher.insert("y", 5, 4)
    publisher.insert("z", 4)
    with pytest.raises(InputViolation, match="ordered"):
        publisher.flush()
    with pytest.raises(InputViolation, match="ordered"):
        publisher.insert("late", 9)
    with pytest.raises(InputViolation, match="ordered"):
        publisher.close()


def test_a_full_buffer_blocks_the_caller_until_the_link_is_mended(world: ThreadedWorld) -> None:
    with Publisher(world.target, MERGE, "a", limits=PublisherLimits(buffer_bytes_max=1000)) as publisher:
        world.cut()
        published = 0

        def publish_all() -> None:
            nonlocal published
            for i in range(300):
                publisher.insert(b"x" * 100, i)
                published += 1

        publishing = threading.Thread(target=publish_all)
        publishing.start()
        while not publisher._outbox.is_full:
            pass
        assert published < 50
        world.mend()
        publishing.join(20)
        publisher.flush()
        assert published == 300


def test_many_threads_can_share_a_publisher(world: ThreadedWorld) -> None:
    with Publisher(world.target, MERGE, "a") as publisher:

        def publish(number: int) -> None:
            for i in range(500):
                publisher.insert(f"{number} {i}", i)

        threads = [threading.Thread(target=publish, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        publisher.flush()
        assert describe_merge(world.target, MERGE).live_events == 2000


def test_a_reader_that_is_slow_in_its_own_process_loses_nothing(world: ThreadedWorld) -> None:
    with Publisher(world.target, MERGE, "a") as publisher, Subscriber(world.target, MERGE) as subscriber:
        batches = subscriber.batches()
        publisher.insert("first", 0)
        count = next(batches).count
        for i in range(300):
            publisher.publish(Batch.of([Insert(b"%d" % i, 1, INF)]))
            publisher.flush()
        while count < 301:
            count += next(batches).count
        assert subscriber.tdb.live_count == 301


def test_a_subscriber_is_closed_from_another_thread(world: ThreadedWorld) -> None:
    listener = Listener(world.target)
    listener.subscriber.close()
    assert listener.join() == []
    with pytest.raises(UsageError, match="read once"):
        list(listener.subscriber)


def test_nothing_can_be_published_after_close(world: ThreadedWorld) -> None:
    with Publisher(world.target, MERGE, "a") as publisher:
        publisher.insert("x", 1)
    calls: tuple[Callable[[], None], ...] = (
        lambda: publisher.insert("y", 1),
        lambda: publisher.stable(1),
        lambda: publisher.publish(Batch.of([])),
    )
    for publish in calls:
        with pytest.raises(UsageError, match="is closed"):
            publish()
    publisher.close()


def test_questions_to_a_server_are_answered(world: ThreadedWorld) -> None:
    assert [summary.merge for summary in list_merges(world.target)] == [MERGE]
    assert describe_server(world.target).limits.payload_bytes == 2**20
    with pytest.raises(UnknownMerge):
        describe_merge(world.target, "missing")
    world.run(world.world.server.stop(0.0))
    with pytest.raises(ServerGone, match=world.target):
        list_merges(world.target)


def run_python(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def own_lines(stderr: str) -> list[str]:
    """Return the lines without gRPC's own log lines."""
    return [line for line in stderr.splitlines() if line and not line.startswith(("I0", "I1", "W0", "W1", "E0", "E1"))]


def test_a_process_that_ends_without_closing_ends_quietly(world: ThreadedWorld) -> None:
    code = (
        "import sys, lmerge\n"
        "publisher = lmerge.Publisher(sys.argv[1], 'flights', 'a').open()\n"
        "publisher.insert('x', 1)\n"
        "publisher.flush()\n"
        "batches = lmerge.Subscriber(sys.argv[1], 'flights').batches()\n"
        "print(next(batches).count)\n"
    )
    done = run_python(code, world.target)
    assert (done.returncode, done.stdout, own_lines(done.stderr)) == (0, "1\n", [])


def test_after_a_fork_the_childs_own_publisher_works_and_the_parents_raises_the_reason(world: ThreadedWorld) -> None:
    code = (
        "import os, sys, lmerge, lmerge.errors\n"
        "subscriber = lmerge.Subscriber(sys.argv[1], 'flights')\n"
        "if os.fork() == 0:\n"
        "    try:\n"
        "        subscriber.tdb\n"
        "    except lmerge.errors.UsageError as error:\n"
        "        print(error, flush=True)\n"
        "    with lmerge.Publisher(sys.argv[1], 'flights', 'child') as child:\n"
        "        child.insert('x', 1)\n"
        "    print('published', flush=True)\n"
        "    os._exit(0)\n"
        "os.wait()\n"
    )
    done = run_python(code, world.target)
    assert done.stdout.splitlines() == [
        "this publisher or subscriber was opened before this process forked: open another",
        "published",
    ], done.stderr


@pytest.mark.parametrize("role", ["subscribe", "publish"])
def test_ctrl_c_ends_what_waits(world: ThreadedWorld, role: str) -> None:
    waiting = {
        "subscribe": "    for element in lmerge.Subscriber(sys.argv[1], 'flights'): print(element, flush=True)\n",
        "publish": (
            "    with lmerge.Publisher(sys.argv[1], 'flights', 'b') as publisher:\n"
            "        print('open', flush=True)\n"
            "        while True:\n"
            "            publisher.insert('x', 1)\n"
            "            publisher.flush()\n"
        ),
    }[role]
    code = f"import sys, lmerge\ntry:\n{waiting}except KeyboardInterrupt:\n    print('interrupted', flush=True)\n"
    with Publisher(world.target, MERGE, "a") as publisher:
        publisher.insert("x", 1, 5)
        publisher.flush()
        command = [sys.executable, "-c", code, world.target]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert process.stdout is not None
        assert process.stdout.readline().strip() in ("insert(x, 1, 5)", "open")
        os.kill(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=30)
    assert (process.returncode, out, own_lines(err)) == (0, "interrupted\n", [])


class Guarded:
    """A merge that only the background thread may touch: the native one raises "Already mutably borrowed"."""

    def __init__(self, merge: Any) -> None:
        self._merge = merge

    def __getattr__(self, name: str) -> Any:
        assert threading.current_thread().name == "lmerge client", f"{name} of the merge from another thread"
        return getattr(self._merge, name)


@pytest.mark.usefixtures("engine")
def test_a_reader_of_two_servers_may_ask_anything_while_they_are_merged() -> None:
    with threaded_world() as one, threaded_world() as other:
        targets, count = f"{one.target},{other.target}", 1500

        def publish_all() -> None:
            for at in range(count):
                publisher.publish(Batch.of([Insert(b"%d" % at, at, at + 5), Stable(at)]))
            publisher.stable(INF)

        with Publisher(targets, MERGE, "a") as publisher:
            subscriber = Subscriber(targets, MERGE, resume=f"{MERGE}@-inf")
            guarded: Any = Guarded(subscriber._async.follower._merge)
            subscriber._async.follower._merge = guarded
            publishing = threading.Thread(target=publish_all)
            publishing.start()
            received, inserts = Tdb("received"), 0
            for element in subscriber:
                received.apply(element)
                inserts += isinstance(element, Insert)
                assert subscriber.stable_point == received.stable_point
                assert subscriber.token == format_token(MERGE, received.stable_point)
                assert subscriber.gaps == []
                if inserts % 7 == 0:
                    assert load(subscriber.checkpoint(), MERGE)[0].stable_point == received.stable_point
                    assert subscriber.tdb.live_events() == received.live_events()
                    assert [source.target for source in subscriber.sources] == targets.split(",")
            publishing.join()
        assert (inserts, received.stable_point) == (count, INF)


def test_what_came_with_the_end_is_read_although_the_reader_had_just_found_nothing() -> None:
    """The reader's thread looks, the background thread delivers the rest, the reader's thread checks for the end."""
    subscriber = AsyncSubscriber("h:1", MERGE)
    assert subscriber.take() is None
    subscriber.follower.reader.deliver(Batch.of([Insert(b"last", 1, 2), Stable(INF)]))
    assert not subscriber.has_ended()
    assert subscriber.take() is not None
    assert subscriber.has_ended()
