"""Nothing lost and nothing twice, whatever dies: real drivers, real servers, killed at every place of a batch.

What a reader of the merge has in the end is compared with what the rows mean, computed here without Spark.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from client_world import ThreadedWorld, threaded_world
from hooks import hook
from spark_world import HERE, PLANS, Feed, S, recorded, run_to_end, table

from lmerge.core.elements import Event
from lmerge.wire.rows import RowCodec
from lmerge.wire.schema import parse_schema

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are killed in groups")

HOUR = 1_700_002_800 * S
SCHEMA = "ts long, name string, n long"
DEADLINE_S = 120.0

Rows = Sequence[Sequence[Mapping[str, Any]]]


def batches(count: int) -> list[list[dict[str, Any]]]:
    """``count`` batches that overlap in time, and two that only move the watermark past them."""
    rows = [
        [{"ts": HOUR + (4 * batch + i) * S, "name": f"n{i % 3}", "n": 100 * batch + i} for i in range(12)]
        for batch in range(count)
    ]
    return [*rows, *([{"ts": HOUR + 3600 * S + i, "name": "end", "n": i}] for i in range(3))]


def append_reference(rows: Rows) -> list[Event]:
    codec = RowCodec(parse_schema({"name": "string?", "n": "int?"}))
    return sorted(
        Event(row["ts"], codec.encode({"name": row["name"], "n": row["n"]}), row["ts"] + 60 * S)
        for batch in rows for row in batch
    )


def update_reference(rows: Rows) -> list[Event]:
    codec = RowCodec(parse_schema({"name": "string?", "count": "int"}))
    counts = Counter((row["ts"] // (10 * S) * 10 * S, row["name"]) for batch in rows for row in batch)
    return sorted(
        Event(start, codec.encode({"name": name, "count": count}), start + 10 * S)
        for (start, name), count in counts.items()
    )


REFERENCES = {"append": append_reference, "update": update_reference}
# The last rows' watermark: everything that ends before is final.
FINAL = HOUR + 3500 * S


def final(events: Sequence[Event]) -> list[Event]:
    return [event for event in events if event.ve < FINAL]


class Driver:
    """A driver in a process of its own."""

    def __init__(self, scratch: Path, servers: str, plan: str = "append") -> None:
        self.hooks = scratch / "hooks"
        self.hooks.mkdir(exist_ok=True)
        self._log = (scratch / "driver.log").open("ab")
        self.log = scratch / "driver.log"
        self.process = subprocess.Popen(
            [sys.executable, str(HERE / "driver_app.py"), str(scratch), servers, plan], stdout=self._log,
            stderr=subprocess.STDOUT, start_new_session=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE), str(HERE.parents[1])])},
        )

    def reaches(self, place: str) -> None:
        """Wait until it has stopped there."""
        reached = self.hooks / f"{place}.reached"
        pause = threading.Event()
        for _ in range(int(DEADLINE_S / 0.05)):
            if reached.exists():
                return
            assert self.process.poll() is None, self.log.read_text()[-3000:]
            pause.wait(0.05)
        raise AssertionError(f"never came to {place}: {self.log.read_text()[-3000:]}")

    def kill(self) -> None:
        """The driver's Python and its JVM at once, without a word."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self._log.close()

    def ends(self) -> None:
        """Wait for its end; it was a good one."""
        assert self.process.wait(DEADLINE_S) == 0, self.log.read_text()[-3000:]
        self._log.close()


@contextmanager
def stop_at(scratch: Path, place: str) -> Iterator[None]:
    gate = scratch / "hooks" / place
    gate.parent.mkdir(exist_ok=True)
    gate.touch()
    try:
        yield
    finally:
        gate.unlink()


def feed_of(scratch: Path, rows: Rows) -> Feed:
    feed = Feed(scratch / "feed", SCHEMA)
    for batch in rows:
        feed.put(*batch)
    return feed


@pytest.fixture
def world() -> Iterator[ThreadedWorld]:
    with threaded_world() as world:
        yield world


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    (tmp_path / "hooks").mkdir()
    return tmp_path


def hooked(spark: Any, scratch: Path, servers: str, plan: str, **options: Any) -> Any:
    """A writer of this process's session, with places."""
    hook(spark)
    feed = Feed(scratch / "feed", SCHEMA)
    return PLANS[plan](spark, feed, servers, **options).option("path", str(scratch / "hooks"))


@pytest.mark.parametrize("plan", ["append", "update"])
@pytest.mark.parametrize("place", ["write", "written", "commit", "done"])
def test_a_batch_that_fails_is_said_once_when_it_is_run_again(
    spark: Any, scratch: Path, world: ThreadedWorld, plan: str, place: str
) -> None:
    """A failing task is tried again within the batch; a failing commit ends the query, and a restart goes on."""
    rows = batches(3)
    feed_of(scratch, rows)
    (scratch / "hooks" / f"fail-{place}-1").touch()
    with recorded(world.target) as recorder:
        if place in ("commit", "done"):
            with pytest.raises(Exception, match=f"told to fail at {place}"):
                run_to_end(hooked(spark, scratch, world.target, plan), scratch / "checkpoint")
        run_to_end(hooked(spark, scratch, world.target, plan), scratch / "checkpoint")
        assert not list((scratch / "hooks").glob("fail-*"))
        assert final(table(recorder.until_stable(FINAL))) == final(REFERENCES[plan](rows))


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.usefixtures("spark_is_here")
@pytest.mark.parametrize("plan", ["append", "update"])
def test_a_killed_driver_goes_on_from_its_checkpoint(scratch: Path, world: ThreadedWorld, plan: str) -> None:
    """Before it writes, between write and commit, and between commit and checkpoint; each time at another batch."""
    rows = batches(5)
    feed_of(scratch, rows)
    with recorded(world.target) as recorder:
        for place in ("write-1", "commit-2", "done-3"):
            with stop_at(scratch, place):
                driver = Driver(scratch, world.target, plan)
                driver.reaches(place)
                driver.kill()
        Driver(scratch, world.target, plan).ends()
        assert final(table(recorder.until_stable(FINAL))) == final(REFERENCES[plan](rows))


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.usefixtures("spark_is_here")
@pytest.mark.parametrize("plan", ["append", "update"])
def test_with_two_servers_one_may_go_in_the_middle_of_a_batch_and_the_driver_too(scratch: Path, plan: str) -> None:
    rows = batches(4)
    feed_of(scratch, rows)
    with threaded_world() as first, threaded_world() as second:
        servers = f"{first.target},{second.target}"
        with recorded(servers) as recorder, recorded(second.target) as of_second:
            with stop_at(scratch, "done-2"):
                with stop_at(scratch, "commit-1"):
                    driver = Driver(scratch, servers, plan)
                    driver.reaches("commit-1")
                    first.run(first.world.restart())  # it has lost what was staged, and all else
                driver.reaches("done-2")
                driver.kill()
            Driver(scratch, servers, plan).ends()
            expected = final(REFERENCES[plan](rows))
            assert final(table(of_second.until_stable(FINAL))) == expected
            assert final(table(recorder.until_stable(FINAL))) == expected


@pytest.mark.parametrize("plan", ["append", "update"])
def test_a_server_may_lose_what_was_staged_before_it_is_committed(spark: Any, scratch: Path, plan: str) -> None:
    """One of two servers is restarted between write and commit; a reader of both notices nothing."""
    rows = batches(3)
    feed_of(scratch, rows)
    with threaded_world() as first, threaded_world() as second:
        servers = f"{first.target},{second.target}"
        with recorded(servers) as recorder, recorded(second.target) as of_second:
            with stop_at(scratch, "commit-1"):
                query = started(hooked(spark, scratch, servers, plan), scratch)
                wait_for(scratch / "hooks" / "commit-1.reached")
                first.run(first.world.restart())
            query.awaitTermination()
            expected = final(REFERENCES[plan](rows))
            assert final(table(of_second.until_stable(FINAL))) == expected
            assert final(table(recorder.until_stable(FINAL))) == expected


def test_a_server_that_is_gone_in_the_middle_of_a_batch_is_waited_for(
    spark: Any, scratch: Path, world: ThreadedWorld
) -> None:
    rows = batches(3)
    feed_of(scratch, rows)
    with recorded(world.target) as recorder:
        with stop_at(scratch, "written-1"):
            query = started(hooked(spark, scratch, world.target, "append"), scratch)
            wait_for(scratch / "hooks" / "written-1.reached")
            world.cut()
        assert not query.awaitTermination(3)
        world.mend()
        query.awaitTermination()
        assert final(table(recorder.until_stable(FINAL))) == final(append_reference(rows))


def started(writer: Any, scratch: Path) -> Any:
    return writer.option("checkpointLocation", str(scratch / "checkpoint")).trigger(availableNow=True).start()


def wait_for(path: Path) -> None:
    pause = threading.Event()
    for _ in range(int(DEADLINE_S / 0.02)):
        if path.exists():
            return
        pause.wait(0.02)
    raise AssertionError(f"{path.name} never came")
