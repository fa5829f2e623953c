"""A new version of a Spark query takes over from the old one while a subscriber reads on: ``lmerge cutover``.

v1 is the flights query in append mode, v2 the same in update mode: another plan, the same table. Both replay the same
news, up to a clock that the test sets.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from client_world import ThreadedWorld, threaded_world
from spark_world import MERGE, FileFeed, S, recorded, table
from spark_world import PLANS as FEEDS

from lmerge.client import describe_merge
from lmerge.client.admin import detach_input
from lmerge.core.elements import Insert
from lmerge.demo.judge import FlightsJudge
from lmerge.spark.sink import agent
from lmerge_replicas.flights.flight import DAY, HOUR
from lmerge_replicas.flights.replay import ReplayClock, first_instant, write_clock
from lmerge_replicas.flights.source import Days
from lmerge_replicas.spark import session
from lmerge_replicas.spark.__main__ import ProgressLine, follow
from lmerge_replicas.spark.news import WATERMARK_DELAY, final_watermark, read_log, write_log
from lmerge_replicas.spark.plans import PLANS, publish
from lmerge_replicas.spark.source import FlightNews

DAYS = Days(date(2013, 2, 7), date(2013, 2, 10))
INTERVAL = 3 * HOUR
CUTOVER_S = 240.0


@pytest.fixture
def world() -> Iterator[ThreadedWorld]:
    with threaded_world(divergence="alarm", certify_interval=INTERVAL) as world:
        yield world


class Replay:
    """The news up to a time, for queries that read them."""

    def __init__(self, spark: Any, folder: Path) -> None:
        self._spark, self._folder, self._clock = spark, folder, folder / "clock.json"
        self._log = write_log(folder, DAYS)
        self.final = final_watermark(read_log(self._log))
        spark.dataSource.register(FlightNews)

    def comes_to(self, days: float) -> int:
        """Set the clock to this time after the beginning, and stop it. Return the watermark of a batch from then on."""
        t = first_instant(DAYS) + round(days * DAY)
        write_clock(self._clock, ReplayClock(time.time(), t, 1e-9))
        return t - WATERMARK_DELAY

    def query(self, plan: str, name: str, target: str) -> Any:
        news = session.news(self._spark, self._log, self._clock, rows_max=2000)
        writer = publish(PLANS[plan], news, target, MERGE, name)
        return writer.option("checkpointLocation", str(self._folder / name)).start()


def reaches(query: Any, watermark: int) -> None:
    assert follow(query, threading.Event(), watermark, ProgressLine("", is_shown=False))


@pytest.mark.parametrize("mode", ["append", "update"])
def test_a_query_that_was_replaced_before_its_first_batch_is_stopped(
    spark: Any, world: ThreadedWorld, tmp_path: Path, capsys: pytest.CaptureFixture[str], mode: str
) -> None:
    feed = FileFeed(tmp_path / "in", "ts long, name string, n long")
    feed.put({"ts": 1 * S, "name": "x", "n": 1})
    detach_input(world.target, MERGE, "a", reason="b has taken its place at 5", quarantine=True)
    writer = FEEDS[mode](spark, feed, world.target)
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    for _ in range(5):
        feed.put({"ts": 2 * S, "name": "x", "n": 1})
    assert query.awaitTermination(CUTOVER_S)
    assert query.exception() is None
    assert "b has taken its place" in capsys.readouterr().err


@pytest.mark.parametrize("mode", ["append", "update"])
def test_a_replaced_query_is_stopped_by_who_can_see_that_no_batch_is_under_way(
    spark: Any, world: ThreadedWorld, tmp_path: Path, mode: str
) -> None:
    """A batch's progress can reach the listener after the next batch has begun.

    In mode update the sink does not wait for it. If the listener stopped the query as well, it would do so in the
    middle of a batch.
    """
    from lmerge.spark.sink.query_ends import QueryEnds

    feed = FileFeed(tmp_path / "in", "ts long, name string, n long")
    feed.put({"ts": 1 * S, "name": "x", "n": 1})
    writer = FEEDS[mode](spark, feed, world.target)
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    query.processAllAvailable()
    ended = agent._end_path(str(query.id))
    ended.write_text(json.dumps({"run": str(query.runId), "words": "b has taken its place at 5"}))
    QueryEnds().onQueryProgress(SimpleNamespace(progress=query.lastProgress))
    if mode == "update":
        assert query.isActive
        assert ended.exists(), "it is for the sink"
        feed.put({"ts": 2 * S, "name": "x", "n": 1})
    assert query.awaitTermination(CUTOVER_S)
    assert query.exception() is None
    assert not ended.exists()


@pytest.mark.long
@pytest.mark.timeout(900)
def test_the_subscriber_sees_neither_gap_nor_duplicate(
    spark: Any, world: ThreadedWorld, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """v1 (append)   v2 (update)
    2.5 days    publishes     -             lmerge cutover waits for v2
    3.5 days    publishes     publishes     they are equal; v2 takes over, v1 is detached
    the end     refused       publishes
    """
    replay = Replay(spark, tmp_path)
    with recorded(world.target) as recorder:
        early = replay.comes_to(2.5)
        v1 = replay.query("append", "v1", world.target)
        reaches(v1, early)
        cutover = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "lmerge",
                "cutover",
                MERGE,
                "--from",
                "v1",
                "--to",
                "v2",
                "--intervals",
                "4",
                "--timeout",
                str(CUTOVER_S),
                "--server",
                world.target,
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert cutover.stdout is not None
        assert cutover.stdout.readline().startswith("waiting")
        v2 = replay.query("update", "v2", world.target)
        late = replay.comes_to(3.5)
        reaches(v2, late)
        output, _ = cutover.communicate(timeout=CUTOVER_S + 60)
        assert cutover.returncode == 0, output
        stages = [line.split()[0] for line in output.splitlines()]
        assert list(dict.fromkeys(stages)) == ["joined", "certifying", "leaving", "done"]
        replay.comes_to(100)
        reaches(v2, replay.final)
        elements = recorder.until_stable(replay.final)
        assert [status.replica for status in describe_merge(world.target, MERGE).inputs] == ["v2"]
        v2.stop()
    assert v1.awaitTermination(CUTOVER_S), "it is stopped, and does not fail"
    assert v1.exception() is None
    assert "v2 has taken its place" in capsys.readouterr().err
    with FlightsJudge(DAYS) as judge:
        assert table(elements) == judge.events()
    inserted = [(element.payload, element.vs) for element in elements if isinstance(element, Insert)]
    assert len(set(inserted)) == len(inserted), "an event was published twice"
