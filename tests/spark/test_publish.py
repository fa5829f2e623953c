"""``publish`` and ``heartbeat``: the elements of a DataFrame, and refusals that name the argument."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from client_world import ThreadedWorld, threaded_world
from spark_world import (
    MERGE,
    FileFeed,
    S,
    publish_counts,
    publish_flights,
    recorded,
    run_to_end,
    table,
    unreachable_server,
)

import lmerge
from lmerge import clock
from lmerge.core.elements import INF, Adjust, Event, Insert, Stable
from lmerge.errors import UsageError
from lmerge.spark import Payload, Running, heartbeat, publish
from lmerge.wire.rows import RowCodec
from lmerge.wire.schema import parse_schema

HOUR = 1_700_002_800 * S
SCHEMA = "ts long, name string, n long"
CONNECT: dict[str, Any] = {"servers": "nowhere:1", "merge": MERGE, "replica": "a"}


@pytest.fixture
def world() -> Iterator[ThreadedWorld]:
    with threaded_world(policy="eager") as world:
        yield world


@pytest.fixture
def feed(tmp_path: Path) -> FileFeed:
    return FileFeed(tmp_path / "feed", SCHEMA)


def at(seconds: int) -> int:
    return HOUR + seconds * S


# The elements of rows.


def test_rows_are_events_with_the_columns_that_are_left_as_payload(
    spark: Any, tmp_path: Path, feed: FileFeed, world: ThreadedWorld
) -> None:
    feed.put({"ts": at(0), "name": "x", "n": 7}, {"ts": at(1), "name": "y"})
    feed.put({"ts": at(100), "name": "z", "n": 1})
    feed.put({"ts": at(101), "name": "z", "n": 1})
    with recorded(world.target) as recorder:
        run_to_end(publish_flights(spark, feed, world.target), tmp_path / "c")
        events = table(recorder.until_stable(at(90)))
    codec = RowCodec(parse_schema({"name": "string?", "n": "int?"}))
    assert events[:2] == [
        Event(at(0), codec.encode({"name": "x", "n": 7}), at(60)),
        Event(at(1), codec.encode({"name": "y", "n": None}), at(61)),
    ]


def test_counts_are_revised(spark: Any, tmp_path: Path, feed: FileFeed, world: ThreadedWorld) -> None:
    feed.put({"ts": at(0), "name": "x"}, {"ts": at(1), "name": "x"})
    feed.put({"ts": at(2), "name": "x"}, {"ts": at(3), "name": "y"})
    feed.put({"ts": at(100), "name": "z"})
    feed.put({"ts": at(100), "name": "z"})
    codec = RowCodec(parse_schema({"name": "string?", "count": "int"}))
    one, two, three = (codec.encode({"name": name, "count": n}) for name, n in (("y", 1), ("x", 2), ("x", 3)))
    with recorded(world.target) as recorder:
        run_to_end(publish_counts(spark, feed, world.target), tmp_path / "c")
        elements = [element for element in recorder.until_stable(at(80)) if not isinstance(element, Stable)]
    of_x = [element for element in elements if element.payload in (two, three)]
    assert of_x == [Insert(two, at(0), at(10)), Adjust(two, at(0), at(10), at(0)), Insert(three, at(0), at(10))]
    assert Insert(one, at(0), at(10)) in elements


def test_starts_ends_and_takings_back_are_one_event_each(
    spark: Any, tmp_path: Path, feed: FileFeed, world: ThreadedWorld
) -> None:
    """A start is an event without an end. An end sets its end, and an end at its start takes it back."""
    feed = FileFeed(tmp_path / "intervals", "began long, ended long, name string")
    feed.put({"began": at(0), "name": "x"}, {"began": at(1), "name": "y"})
    feed.put({"name": "x", "ended": at(5)}, {"began": at(1), "name": "y", "ended": at(1)})
    stream = feed.timed(spark, "began", "ended").select("name", "began", "ended")
    writer = publish(
        stream,
        merge=MERGE,
        replica="a",
        servers=world.target,
        mode="intervals",
        keys=["name"],
        vs="began",
        ve="ended",
        payload=Payload(schema={"name": "string?"}),
        stable_lag="1 hour",
        running=Running(partitions=2),
    )
    payload = RowCodec(parse_schema({"name": "string?"}))
    x, y = (payload.encode({"name": name}) for name in "xy")
    with recorded(world.target) as recorder:
        run_to_end(writer, tmp_path / "c")
        elements = recorder.until(lambda elements: len(elements) >= 4)
    assert sorted(elements, key=lambda e: (e.payload, isinstance(e, Adjust))) == [
        Insert(x, at(0), INF),
        Adjust(x, at(0), INF, at(5)),
        Insert(y, at(1), INF),
        Adjust(y, at(1), INF, at(1)),
    ]


# What is refused.


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"mode": "complete"}, "mode is 'complete'"),
        ({"late": "later"}, "late is 'later'"),
        ({"payload": Payload(["nmae"])}, "payload has 'nmae'"),
        ({"vs": "name"}, r"vs \(name\) is string"),
        ({"mode": "intervals"}, "needs keys"),
        ({"mode": "intervals", "keys": ["nobody"]}, "keys has 'nobody'"),
        ({"servers": "a,a"}, "a server stands twice"),
        ({"stable_lag": "a while"}, "not a duration"),
    ],
)
def test_a_wrong_argument_is_named(spark: Any, feed: FileFeed, given: dict[str, Any], message: str) -> None:
    stream = feed.timed(spark, "ts").withWatermark("ts", "10 seconds")
    with pytest.raises(UsageError, match=message):
        publish(stream, **{"vs": "ts", "stable_lag": "0 seconds", **CONNECT, **given})


def test_a_batch_dataframe_is_refused(spark: Any) -> None:
    with pytest.raises(UsageError, match="not a streaming one"):
        publish(spark.range(1), vs="id", **CONNECT)


def test_a_plan_that_replicas_would_not_agree_on_is_refused(spark: Any, feed: FileFeed) -> None:
    from pyspark.sql import functions

    stream = feed.timed(spark, "ts").withWatermark("ts", "10 seconds").withColumn("luck", functions.rand())
    with pytest.raises(UsageError, match="rand"):
        publish(stream, vs="ts", **CONNECT)


# Heartbeats.


def test_a_heartbeat_moves_the_stable_point_of_a_silent_source(
    spark: Any, tmp_path: Path, feed: FileFeed, world: ThreadedWorld
) -> None:
    """Ticks count for the watermark and are no events. The optimizer changes neither."""
    began_us = clock.wall_us()
    feed.put({"ts": at(0), "name": "x", "n": 1})
    stream = heartbeat(feed.timed(spark, "ts"), time="ts", watermark="10 seconds", every="200 ms", lag="5 seconds")
    writer = publish(stream, vs="ts", merge=MERGE, replica="a", servers=world.target)
    with recorded(world.target) as recorder:
        query = writer.option("checkpointLocation", str(tmp_path / "c")).start()
        elements = recorder.until_stable(began_us - 15 * S)
        query.stop()
    assert query.exception() is None
    inserts = [element for element in elements if isinstance(element, Insert)]
    assert [element.vs for element in inserts] == [at(0)]


def test_a_heartbeat_closes_windows_of_a_silent_source(
    spark: Any, tmp_path: Path, feed: FileFeed, world: ThreadedWorld
) -> None:
    from pyspark.sql import functions

    feed.put({"ts": at(0), "name": "x", "n": 1})
    stream = heartbeat(feed.timed(spark, "ts"), time="ts", watermark="10 seconds", every="200 ms")
    counts = stream.groupBy(functions.window("ts", "10 seconds"), "name").count()
    writer = publish(counts, vs="window.start", ve="window.end", merge=MERGE, replica="a", servers=world.target)
    with recorded(world.target) as recorder:
        query = writer.option("checkpointLocation", str(tmp_path / "c")).start()
        elements = recorder.until(lambda elements: any(isinstance(element, Insert) for element in elements))
        query.stop()
    assert [element.ve for element in elements if isinstance(element, Insert)] == [at(10)]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"time": "name"}, "not a column of timestamps"),
        ({"every": "0 seconds"}, "every must be more"),
        ({"lag": "some"}, "not a duration"),
    ],
)
def test_a_wrong_heartbeat_is_refused(spark: Any, feed: FileFeed, given: dict[str, str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        heartbeat(feed.timed(spark, "ts"), **{"time": "ts", "watermark": "10 seconds", **given})


# What a user can read.


def test_nothing_secret_is_in_the_plan_that_spark_shows(spark: Any, feed: FileFeed, tmp_path: Path) -> None:
    token = tmp_path / "a.token"
    token.write_text("lmt_secret")
    writer = publish_flights(
        spark,
        feed,
        unreachable_server(),
        security=lmerge.Security(token_file=str(token)),
        running=Running(give_up_after="1 second"),
    )
    query = writer.option("checkpointLocation", str(tmp_path / "c")).start()
    feed.put({"ts": at(0), "name": "x"})
    done = threading.Event()
    assert not done.is_set()
    with pytest.raises(Exception, match="ServerGone") as caught:
        query.awaitTermination(60)
    shown = query._jsq.explainInternal(True) if hasattr(query, "_jsq") else ""
    assert "lmt_secret" not in f"{caught.value}{shown}{query.lastProgress}"
