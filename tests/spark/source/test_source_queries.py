"""Queries that read a merge: exactly once over failures, restarts and servers, with real servers and a real Spark."""

from __future__ import annotations

import time
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from read_world import MERGE, Collected, options, reading, revised, run_available, servers, stables, tdb

import lmerge
from lmerge.core.batch import Batch
from lmerge.core.elements import INF, Adjust, Event, Insert, Stable
from lmerge.core.tdb import Tdb
from lmerge.spark.frames import from_frame
from lmerge.spark.source.envelope_rows import ELEMENTS, FRAMES, UPSERT

pytest.importorskip("pyspark", reason="the connector needs it")

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

A = (Insert(b"a", 1, 3), Insert(b"b", 2, 9), Stable(5))
B = (Insert(b"c", 6, 7), Stable(8))


def test_a_query_reads_a_merge_that_revises(spark: SparkSession, tmp_path: Path) -> None:
    events = tdb(10)
    with servers(2) as world:
        world.publish(*revised(1, events), replica="a")
        world.publish(*revised(2, events), replica="b")
        sink = Collected()
        run_available(reading(spark, world.target, maxRowsPerBatch=40), tmp_path, sink)
        assert sink.events == events
        assert len(sink.batches) >= len(events) // 40


@pytest.mark.parametrize("envelope", [UPSERT, ELEMENTS, FRAMES])
def test_other_envelopes_add_up_to_the_tdb(spark: SparkSession, tmp_path: Path, envelope: str) -> None:
    events = tdb(11)
    with servers() as world:
        world.publish(*revised(1, events))
        sink = Collected()
        run_available(reading(spark, world.target, envelope=envelope, maxRowsPerBatch=50), tmp_path, sink)
    if envelope == UPSERT:
        kept = {(row["vs"], bytes(row["payload"]), row["ordinal"]): row for row in sink.rows}
        assert sorted(Event(row["vs"], bytes(row["payload"]), row["ve"]) for row in kept.values()) == events
        return
    stream = Tdb("elements")
    if envelope == FRAMES:
        for frame in sorted(sink.rows, key=lambda row: row["order"]):
            for element in from_frame(bytes(frame["frame"])).elements():
                stream.apply(element)
    for row in sink.rows if envelope == ELEMENTS else ():
        if row["kind"] == "insert":
            stream.apply(Insert(bytes(row["payload"]), row["vs"], row["ve"]))
        elif row["kind"] == "adjust":
            stream.apply(Adjust(bytes(row["payload"]), row["vs"], row["vold"], row["ve"]))
        else:
            stream.apply(Stable(row["vs"]))
    assert stream.events() == events


def test_a_query_that_fails_between_and_inside_batches_loses_and_doubles_nothing(
    spark: SparkSession, tmp_path: Path
) -> None:
    events, random = tdb(12), Random(12)
    failed: set[int] = set()

    def fail(batch: int) -> None:
        if batch not in failed and random.random() < 0.4:
            failed.add(batch)
            raise RuntimeError("the sink is broken")

    sink = Collected(fail)
    with servers(2) as world:
        world.publish(*revised(1, events))
        ended = False
        while not ended:
            try:
                run_available(reading(spark, world.target, maxRowsPerBatch=60), tmp_path, sink)
                ended = True
            except Exception as problem:
                if "the sink is broken" not in str(problem):
                    raise
    assert failed
    assert sink.events == events


def test_a_query_goes_on_at_another_server(spark: SparkSession, tmp_path: Path) -> None:
    events = tdb(13, 400)
    stream = revised(1, events)
    middle = stream.index(Stable(stables(stream)[len(stables(stream)) // 2]))
    sink = Collected()
    with servers(2) as world:
        publisher = world.publisher().open()
        publisher.publish(Batch.of(stream[: middle + 1]))
        publisher.flush()
        run_available(reading(spark, world.targets[0]), tmp_path, sink)
        before = len(sink.rows)
        world.stop(0)
        publisher.publish(Batch.of(stream[middle + 1 :]))
        publisher.close()
        run_available(reading(spark, world.target), tmp_path, sink)  # the first server is still named, and unreachable
    assert 0 < before < len(events)
    assert sink.events == events


def test_a_server_that_dies_under_a_running_query_is_not_noticed(spark: SparkSession, tmp_path: Path) -> None:
    events = tdb(14, 400)
    stream = revised(1, events)
    sink = Collected()
    with servers(2) as world:
        publisher = world.publisher().open()
        half = len(stream) // 2
        publisher.publish(Batch.of(stream[:half]))
        publisher.flush()
        query = (
            reading(spark, world.target, maxRowsPerBatch=30)
            .writeStream.foreachBatch(sink)
            .option("checkpointLocation", str(tmp_path))
            .start()
        )
        try:
            wait(lambda: len(sink.batches) >= 2, query)
            world.stop(0)
            publisher.publish(Batch.of(stream[half:]))
            publisher.close()
            wait(lambda: len(sink.rows) >= len(events), query)
        finally:
            query.stop()
    assert sink.events == events


def wait(claim: Any, query: Any) -> None:
    """Wait until ``claim`` holds. It is an error if the query ends first."""
    until_s = time.monotonic() + 60
    while not claim():
        assert query.exception() is None, query.exception()
        assert time.monotonic() < until_s
        query.awaitTermination(0.05)


def test_an_empty_merge_gives_no_rows_and_a_query_can_wait_for_one(spark: SparkSession, tmp_path: Path) -> None:
    with servers() as world:
        sink = Collected()
        query = (
            reading(spark, world.target)
            .writeStream.foreachBatch(sink)
            .option("checkpointLocation", str(tmp_path))
            .start()
        )
        try:
            world.publish(*A)
            wait(lambda: sink.rows, query)
        finally:
            query.stop()
        assert sink.events == [Event(1, b"a", 3)]
    with servers(merges=(MERGE,)) as world:
        empty = Collected()
        run_available(reading(spark, world.target), tmp_path / "empty", empty)
        assert empty.rows == []
        assert table(spark, world.target).collect() == []


def test_what_ends_a_query_stands_in_its_exception(spark: SparkSession, tmp_path: Path) -> None:
    with servers() as world, world.publisher() as publisher:
        publisher.publish(Batch.of(A))
        publisher.flush()
        sink = Collected()
        run_available(reading(spark, world.target), tmp_path, sink)
        world.restart()
        publisher.publish(Batch.of(B))
        publisher.flush()
        world.restart()
        publisher.publish(Batch.of([Stable(20)]))
        publisher.flush()
        with pytest.raises(Exception, match=r"OutOfRange.*flights"):
            run_available(reading(spark, world.target), tmp_path, sink)
        with pytest.raises(Exception, match="the checkpoint is of something else"):
            run_available(reading(spark, world.target, merge="delays", startingOffsets="latest"), tmp_path, sink)


def table(spark: SparkSession, target: str, **given: Any) -> Any:
    from lmerge.spark.session import register

    register(spark)
    return spark.read.format("lmerge").options(**options(target, **given)).load()


def test_a_batch_query_reads_the_table_as_it_is(spark: SparkSession) -> None:
    with servers(2) as world, world.publisher() as publisher:
        publisher.publish(Batch.of([*A, *B, Insert(b"later", 9, 12)]))
        publisher.flush()
        live = table(spark, world.target)
        assert live.columns == ["payload", "vs", "ve"]
        assert [(bytes(row.payload), row.vs, row.ve) for row in live.collect()] == [(b"b", 2, 9)]
        whole = table(spark, world.target, since="earliest", envelope="upsert").orderBy("vs").collect()
        assert [(bytes(row.payload), row.ve, row.is_final) for row in whole] == [
            (b"a", 3, True),
            (b"b", 9, False),
            (b"c", 7, True),
        ]
        then = table(spark, world.target, asOf="flights@3", since="earliest").orderBy("vs").collect()
        assert [(bytes(row.payload), row.ve) for row in then] == [(b"a", 3), (b"b", 9)]
        with pytest.raises(Exception, match="as of 99: it is at 8"):
            table(spark, world.target, asOf="99").collect()


def test_columns_of_the_merges_schema(spark: SparkSession, tmp_path: Path) -> None:
    from lmerge.spark.session import register

    register(spark)
    schema = {"carrier": "string", "delay": "int?", "at": "timestamp", "legs": "list<string>"}
    with servers() as world, lmerge.Publisher(world.target, MERGE, "a", schema=schema) as publisher:
        legs = ["EWR", "IAH"]
        publisher.insert({"carrier": "UA", "delay": 3, "at": 10**15, "legs": legs}, 10**15, 10**15 + 10**6)
        publisher.insert({"carrier": "B6", "delay": None, "at": 10**15, "legs": []}, 10**15, INF)
        publisher.stable(10**15 + 2 * 10**6)
        publisher.flush()
        live = spark.read.format("lmerge").options(servers=world.target, merge=MERGE, since="earliest").load()
        assert live.dtypes == [
            ("carrier", "string"),
            ("delay", "bigint"),
            ("at", "timestamp"),
            ("legs", "array<string>"),
            ("vs", "timestamp"),
            ("ve", "timestamp"),
        ]
        rows = (
            live.selectExpr("carrier", "delay", "legs", "ve is null as goes_on", "unix_micros(vs) as vs")
            .orderBy("carrier")
            .collect()
        )
        assert [tuple(row) for row in rows] == [
            ("B6", None, [], True, 10**15),
            ("UA", 3, ["EWR", "IAH"], False, 10**15),
        ]
        stream = (
            spark.readStream.format("lmerge")
            .options(servers=world.target, merge=MERGE, startingOffsets="flights@-inf")
            .load()
        )
        sink = Collected()
        run_available(stream.select("carrier", "legs"), tmp_path, sink)
        assert sink.rows == [{"carrier": "UA", "legs": ["EWR", "IAH"]}]
