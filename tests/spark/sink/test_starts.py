"""A query attaches to its merge when it starts, whether its source has rows or not, and detaches when it ends."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from client_world import ThreadedWorld, threaded_world
from driver_world import FINAL, REFERENCES, SCHEMA, Driver, append_reference, batches, final, wait_for
from spark_world import HERE, MERGE, PLANS, FileFeed, S, recorded, run_to_end, table, unreachable_server

from lmerge import clock
from lmerge.client import describe_merge
from lmerge.client.admin import detach_input
from lmerge.spark import Running
from lmerge.spark.options import sink_options
from lmerge.spark.sink import agent
from lmerge.spark.sink.committer import RunStart
from lmerge.spark.sink.starts import driver_pid
from lmerge.spark.sink.watermark import next_batch
from lmerge.spark.spool.spool import Spool
from lmerge.spark.terminal import own_message

both = pytest.mark.parametrize("plan", ["append", "update"])


@pytest.fixture
def world() -> Iterator[ThreadedWorld]:
    with threaded_world() as world:
        yield world


def feed_in(folder: Path) -> FileFeed:
    return FileFeed(folder / "feed", SCHEMA)


def started(writer: Any, checkpoint: Path) -> Any:
    return writer.option("checkpointLocation", str(checkpoint)).start()


def inputs(target: str) -> dict[str, Any]:
    return {one.replica: one for one in describe_merge(target, MERGE).inputs}


def until(claim: Callable[[], Any], what: str) -> Any:
    """Wait until ``claim`` holds, and return its value."""
    pause = threading.Event()
    for _ in range(3000):
        found = claim()
        if found:
            return found
        pause.wait(0.02)
    raise AssertionError(what)


def is_empty(target: str) -> bool:
    return not inputs(target)


def is_joined(target: str, replica: str) -> Any:
    found = inputs(target).get(replica)
    return found if found is not None and found.state == "joined" else None


# Without rows.


@both
def test_a_replica_without_rows_joins_stays_and_takes_part_when_rows_come(
    spark: Any, tmp_path: Path, world: ThreadedWorld, plan: str
) -> None:
    rows = batches(3)
    quiet, busy = feed_in(tmp_path / "quiet"), feed_in(tmp_path / "busy")
    with recorded(world.target) as recorder:
        a = started(PLANS[plan](spark, quiet, world.target), tmp_path / "a")
        attached = until(partial(is_joined, world.target, "a"), "a has not joined")
        b = started(PLANS[plan](spark, busy, world.target, replica="b"), tmp_path / "b")
        for batch in rows:
            busy.put(*batch)
        expected = final(REFERENCES[plan](rows))
        assert final(table(recorder.until_stable(FINAL))) == expected
        idle = inputs(world.target)["a"]
        assert (idle.state, idle.incarnation) == ("joined", attached.incarnation)
        assert (idle.received.inserts, idle.received.stables) == (0, 0)
        assert a.lastProgress is None or a.lastProgress["numInputRows"] == 0
        for batch in rows:
            quiet.put(*batch)
        a.processAllAvailable()
        taking_part = inputs(world.target)["a"]
        assert taking_part.incarnation == attached.incarnation, "the first batch continues with what has attached"
        assert taking_part.received.inserts >= len(expected)
        assert taking_part.stable_point >= FINAL
        b.stop()
        later = [{"ts": 2 * FINAL, "name": "later", "n": n} for n in range(3)]
        for row in later:
            quiet.put(row)
        a.processAllAvailable()
        assert final(table(recorder.until_stable(2 * FINAL - 60 * S))) == expected
    a.stop()
    until(partial(is_empty, world.target), "an input is attached still")
    assert a.exception() is None


def test_it_attaches_at_all_servers_in_its_role(spark: Any, tmp_path: Path) -> None:
    with threaded_world() as first, threaded_world() as second:
        servers = f"{first.target},{second.target}"
        writer = PLANS["update"](spark, feed_in(tmp_path), servers, running=Running(role="observe"))
        query = started(writer, tmp_path / "c")
        for world in (first, second):
            assert until(partial(inputs, world.target), "it is not attached")["a"].state == "observing"
        query.stop()
        for world in (first, second):
            until(partial(is_empty, world.target), "it is attached still")


@both
def test_a_restart_without_rows_attaches_with_the_state_of_the_checkpoint(
    spark: Any, tmp_path: Path, world: ThreadedWorld, plan: str
) -> None:
    rows = batches(3)
    feed = feed_in(tmp_path)
    with recorded(world.target) as recorder:
        for batch in rows[:3]:
            feed.put(*batch)
        run_to_end(PLANS[plan](spark, feed, world.target), tmp_path / "c")
        before = Spool(str(tmp_path / "c" / "lmerge")).newest_life()
        until(partial(is_empty, world.target), "the first run is attached still")
        query = started(PLANS[plan](spark, feed, world.target), tmp_path / "c")
        attached = until(partial(is_joined, world.target, "a"), "it has not joined")
        assert attached.incarnation > before
        for batch in rows[3:]:
            feed.put(*batch)
        assert final(table(recorder.until_stable(FINAL))) == final(REFERENCES[plan](rows))
        assert inputs(world.target)["a"].incarnation == attached.incarnation
        query.stop()


def test_an_idle_life_keeps_no_later_one_out_whose_clock_went_back(
    spark: Any, tmp_path: Path, world: ThreadedWorld
) -> None:
    """The idle life has written no manifest. The spool has its incarnation all the same."""
    feed = feed_in(tmp_path)
    query = started(PLANS["append"](spark, feed, world.target), tmp_path / "c")
    until(partial(is_joined, world.target, "a"), "it has not joined")
    spool = Spool(str(tmp_path / "c" / "lmerge"))
    assert spool.newest_life() == inputs(world.target)["a"].incarnation
    query.stop()
    until(partial(is_empty, world.target), "it is attached still")
    ahead = clock.wall_us() + 3_600 * S
    spool.begin_life(ahead)
    query = started(PLANS["append"](spark, feed, world.target), tmp_path / "c")
    assert until(partial(is_joined, world.target, "a"), "it has not joined").incarnation > ahead
    query.stop()


# Refused.


@both
def test_a_refused_attach_ends_a_query_without_rows(spark: Any, tmp_path: Path, plan: str) -> None:
    from pyspark.errors import StreamingQueryException

    with threaded_world(allow_create=False) as world:
        query = started(PLANS[plan](spark, feed_in(tmp_path), world.target, merge="fligths"), tmp_path / "c")
        with pytest.raises(StreamingQueryException) as caught:
            query.awaitTermination(60)
        message = own_message(str(caught.value))
        assert message.startswith("cannot attach replica 'a' of merge 'fligths'")
        assert message.count("fligths") >= 2
        assert own_message(str(query.exception())) == message
    with pytest.raises(StreamingQueryException, match="could not attach"):
        spark.streams.awaitAnyTermination(60)
    spark.streams.resetTerminated()


def test_a_query_without_rows_may_give_up_on_servers_that_are_not_there(spark: Any, tmp_path: Path) -> None:
    target = unreachable_server()
    writer = PLANS["append"](spark, feed_in(tmp_path), target, running=Running(give_up_after="1 second"))
    query = started(writer, tmp_path / "c")
    with pytest.raises(Exception, match="ServerGone") as caught:
        query.awaitTermination(120)
    assert target in str(caught.value)
    spark.streams.resetTerminated()


@both
def test_a_query_without_rows_that_was_replaced_is_stopped_and_does_not_fail(
    spark: Any, tmp_path: Path, world: ThreadedWorld, plan: str, capsys: pytest.CaptureFixture[str]
) -> None:
    detach_input(world.target, MERGE, "a", reason="b has taken its place at 5", quarantine=True)
    query = started(PLANS[plan](spark, feed_in(tmp_path), world.target), tmp_path / "c")
    assert query.awaitTermination(120)
    assert query.exception() is None
    assert "b has taken its place" in capsys.readouterr().err


# Stopped.


def test_a_query_that_is_stopped_at_once_leaves_nothing_attached(
    spark: Any, tmp_path: Path, world: ThreadedWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its agent has not started yet when the listener learns of the end."""
    start, starting, goes_on = agent._start, threading.Event(), threading.Event()

    def held(path: Path, owner: int) -> None:
        starting.set()
        assert goes_on.wait(60)
        start(path, owner)

    monkeypatch.setattr(agent, "_start", held)
    query = started(PLANS["append"](spark, feed_in(tmp_path), world.target), tmp_path / "c")
    assert starting.wait(60)
    query.stop()
    vars(spark.sparkContext)["_jsc"].sc().listenerBus().waitUntilEmpty(60_000)
    goes_on.set()
    path = agent.socket_path(str(query.id), driver_pid(spark))
    until(lambda: not _threads(), "the query is followed still")
    until(lambda: not path.exists(), "its agent lives on")
    assert not inputs(world.target)


def test_a_query_that_is_stopped_without_a_server_does_not_wait_for_one(spark: Any, tmp_path: Path) -> None:
    query = started(PLANS["append"](spark, feed_in(tmp_path), unreachable_server()), tmp_path / "c")
    path = agent.socket_path(str(query.id), driver_pid(spark))
    until(path.exists, "it has no agent")
    query.stop()
    until(lambda: not path.exists(), "its agent lives on")
    until(lambda: not _threads(), "the query is followed still")
    assert query.exception() is None, "what it waited for ended with it"


def test_a_query_that_is_restarted_at_once_is_attached(spark: Any, tmp_path: Path, world: ThreadedWorld) -> None:
    """The end of each run meets the start of the next one in the agent."""
    feed, newest = feed_in(tmp_path), 0

    def newer() -> Any:
        found = is_joined(world.target, "a")
        return found if found is not None and found.incarnation > newest else None

    for waits in (False, False, True, True, False, True):
        query = started(PLANS["append"](spark, feed, world.target), tmp_path / "c")
        if waits:
            newest = until(newer, "it has not joined").incarnation
            assert query.isActive
        query.stop()
        assert query.exception() is None
    until(partial(is_empty, world.target), "it is attached still")


def _threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == "lmerge-a"]


@pytest.mark.timeout(600)
@pytest.mark.usefixtures("spark_is_here")
@pytest.mark.skipif(sys.platform != "linux", reason="processes are killed in groups")
def test_an_idle_query_detaches_with_its_session_and_with_its_driver(tmp_path: Path, world: ThreadedWorld) -> None:
    """A session that is stopped does not stop its queries. A killed driver stops nothing."""
    command = (sys.executable, str(HERE / "idle_app.py"))
    with Driver(tmp_path, world.target, command=command) as driver:
        until(partial(is_joined, world.target, "a"), "it has not joined")
        (tmp_path / "stop").touch()
        wait_for(tmp_path / "stopped")
        until(partial(is_empty, world.target), "it is attached although the session was stopped")
        assert driver.process.poll() is None
        (tmp_path / "stopped").unlink()
        attached = until(partial(is_joined, world.target, "a"), "it has not joined with the second session")
        driver.kill()
        until(partial(is_empty, world.target), "it is attached although the driver was killed")
    rows = batches(2)
    feed = feed_in(tmp_path)
    (tmp_path / "stop").unlink()
    with Driver(tmp_path, world.target, command=command) as driver, recorded(world.target) as recorder:
        assert until(partial(is_joined, world.target, "a"), "it has not joined").incarnation > attached.incarnation
        for batch in rows:
            feed.put(*batch)
        assert final(table(recorder.until_stable(FINAL))) == final(append_reference(rows))


# The parts.


def test_who_start_an_agent_at_once_start_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    owner = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    path = agent.socket_path("query", owner.pid)
    start, starts = agent._start, []

    def counted(path: Path, owner: int) -> None:
        starts.append(owner)
        start(path, owner)

    def connect(_: int) -> bool:
        with agent._connected(path, owner.pid) as connection:
            return not connection.closed

    monkeypatch.setattr(agent, "_start", counted)
    try:
        with ThreadPoolExecutor(4) as pool:
            assert all(pool.map(connect, range(4)))
        assert starts == [owner.pid]
    finally:
        owner.kill()
        owner.communicate()
    until(lambda: not path.exists(), "the agent outlives its owner")


def test_an_attach_that_meets_the_end_of_an_earlier_run_reaches_another_agent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    start, starts, ended = agent._start, [], threading.Event()

    def counted(path: Path, owner: int) -> None:
        start(path, owner)
        starts.append(owner)

    monkeypatch.setattr(agent, "_start", counted)
    options = sink_options(
        {"servers": unreachable_server(), "merge": MERGE, "replica": "a", "checkpointLocation": str(tmp_path / "c")}
    )
    owner = os.getpid()
    with ThreadPoolExecutor(1) as pool:
        attached = pool.submit(agent.attach, "q", owner, RunStart(options, "q", "2"), lambda: not ended.is_set())
        until(lambda: Spool(options.spool).newest_life(), "it does not attach")
        assert agent.leave("q", "2") == 1, "as the run before, if the agent does not know of this one yet"
        until(lambda: len(starts) == 2, "no other agent was started")
        ended.set()
        assert attached.result(60) is None
    agent.leave("q", "2")
    until(lambda: not agent.socket_path("q", owner).exists(), "its agent lives on")


def test_the_next_batch_is_the_one_that_spark_has_not_recorded(tmp_path: Path) -> None:
    assert next_batch(str(tmp_path)) == 0
    for folder in ("offsets", "commits"):
        (tmp_path / folder).mkdir()
    for name in ("9", "10", ".10.crc"):
        (tmp_path / "offsets" / name).touch()
    (tmp_path / "commits" / "9").touch()
    assert next_batch(f"file:{tmp_path}") == 10
    (tmp_path / "commits" / "10").touch()
    assert next_batch(str(tmp_path)) == 11
