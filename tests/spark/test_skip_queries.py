"""Queries that are behind and skip events that are not needed, with real servers, a real Spark, and counted work."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from client_world import ThreadedWorld, threaded_world
from spark_world import MERGE, FileFeed, S, recorded, run_to_end, table, unreachable_server

import lmerge
from lmerge.core.batch import Batch
from lmerge.core.elements import NEG_INF, Event, Insert, Stable
from lmerge.errors import UsageError
from lmerge.spark import Payload, Running, explain, publish, skip_to, skipped_until
from lmerge.spark.plan.lint import lint
from lmerge.spark.spool.spool import Spool
from lmerge.wire.rows import RowCodec
from lmerge.wire.schema import Schema, parse_schema

HOUR = 1_700_002_800 * S
SCHEMA = "ts long, name string, n long"
SCORED = parse_schema({"name": "string?", "n": "int?", "score": "int?"})
COUNTED = parse_schema({"name": "string?", "count": "int"})
# Rows come every second, twenty in a batch, and end after a minute.
EACH, LIFE = 20, 60

Row = Mapping[str, Any]


def rows_of(batch: int) -> list[dict[str, Any]]:
    return [{"ts": HOUR + (batch * EACH + i) * S, "name": f"n{i % 3}", "n": batch * EACH + i} for i in range(EACH)]


def moment(batch: int) -> int:
    """Return the time at which the rows of a batch begin."""
    return HOUR + batch * EACH * S


def scored(rows: Sequence[Row]) -> list[Event]:
    codec = RowCodec(SCORED)

    def event(row: Row) -> Event:
        payload = codec.encode({"name": row["name"], "n": row["n"], "score": 7 * row["n"]})
        return Event(row["ts"], payload, row["ts"] + LIFE * S)

    return sorted(map(event, rows))


def counted(rows: Sequence[Row]) -> list[Event]:
    codec = RowCodec(COUNTED)
    counts = Counter((row["ts"] // (10 * S) * 10 * S, row["name"]) for row in rows)
    return sorted(
        Event(start, codec.encode({"name": name, "count": count}), start + 10 * S)
        for (start, name), count in counts.items()
    )


def costly(folder: Path) -> Any:
    """Return a function whose calls are counted in files of ``folder``."""
    from pyspark.sql import functions

    folder.mkdir()

    def score(n):  # type: ignore[no-untyped-def]  # PySpark would take hints for those of pandas
        with (folder / str(os.getpid())).open("a") as file:
            file.write(f"{n}\n")
        return 7 * n

    return functions.udf(score, "long")


def reached(folder: Path) -> list[int]:
    """Return the rows for which it was called. Spark may call it twice for a row."""
    return sorted({int(line) for file in folder.iterdir() for line in file.read_text().split()})


def skips_of(folder: Path, name: str) -> list[int]:
    return [
        int(line.split()[1])
        for file in folder.iterdir()
        for line in file.read_text().splitlines()
        if line.split()[0] == name
    ]


@pytest.fixture
def world() -> Iterator[ThreadedWorld]:
    with threaded_world(feedback_lag=S, feedback_interval_s=0.0) as world:
        yield world


@pytest.fixture
def feed(tmp_path: Path) -> FileFeed:
    return FileFeed(tmp_path / "feed", SCHEMA)


def ahead(world: ThreadedWorld, events: Sequence[Event], stable: int, schema: Schema) -> lmerge.Publisher:
    """Run a replica that has published all events that begin before ``stable``."""
    publisher = lmerge.Publisher(world.target, MERGE, "ahead", schema=schema, properties=("insert-only",))
    publisher.open()
    published = [Insert(event.payload, event.vs, event.ve) for event in events if event.vs < stable]
    publisher.publish(Batch.of([*published, Stable(stable)]))
    publisher.flush()
    return publisher


def trips(spark: Any, feed: FileFeed, checkpoint: Path) -> Any:
    timed = feed.timed(spark, "ts").withWatermark("ts", "0 seconds")
    return skip_to(timed, f"ts + INTERVAL {LIFE} SECONDS", checkpoint=str(checkpoint))


def scoring(spark: Any, feed: FileFeed, world: ThreadedWorld, checkpoint: Path, score: Any) -> Any:
    """Put the expensive function into a column and into a filter, which the optimizer moves as far as it may."""
    columns = ("ts", f"ts + INTERVAL {LIFE} SECONDS AS until", "name", "n", "score")
    rows = trips(spark, feed, checkpoint).withColumn("score", score("n")).where("score >= 0").selectExpr(*columns)
    return publish(
        rows,
        servers=world.target,
        merge=MERGE,
        replica="slow",
        vs="ts",
        ve="until",
        late="drop",
        payload=Payload(schema=SCORED),
        properties=("insert-only",),
        allow=("udf",),
    )


def test_a_query_that_is_behind_skips_before_the_expensive_part_and_goes_on_after_a_restart(
    spark: Any, tmp_path: Path, feed: FileFeed, world: ThreadedWorld
) -> None:
    """There are twelve batches. The other replica has done ten of them, and leaves before the rest comes."""
    checkpoint, calls = tmp_path / "c", tmp_path / "calls"
    rows = [row for batch in range(14) for row in rows_of(batch)]
    score = costly(calls)
    with recorded(world.target) as reader:
        with ahead(world, scored(rows), moment(10), SCORED):
            for batch in range(6):
                feed.put(*rows_of(batch))
            run_to_end(scoring(spark, feed, world, checkpoint, score), checkpoint)
        assert Spool(f"{checkpoint}/lmerge").skips_next() == moment(10)
        assert len(reached(calls)) < 6 * EACH
        for batch in range(6, 14):
            feed.put(*rows_of(batch))
        run_to_end(scoring(spark, feed, world, checkpoint, score), checkpoint)
        later = reached(calls)
        expected = [row["n"] for row in rows[6 * EACH :] if row["ts"] + LIFE * S >= moment(10)]
        assert [n for n in later if n >= 6 * EACH] == expected
        elements = reader.until_stable(moment(12))
        assert [event for event in table(elements) if event.ve < moment(13)] == [
            event for event in scored(rows) if event.ve < moment(13)
        ]


def test_windows_that_have_lost_rows_are_not_published(
    spark: Any, tmp_path: Path, feed: FileFeed, world: ThreadedWorld
) -> None:
    from pyspark.sql import functions

    checkpoint = tmp_path / "c"
    rows = [row for batch in range(10) for row in rows_of(batch)]
    for batch in range(10):
        feed.put(*rows_of(batch))
    timed = feed.timed(spark, "ts").withWatermark("ts", "0 seconds")
    kept = skip_to(timed, "ts + INTERVAL 10 SECONDS", checkpoint=str(checkpoint))
    counts = kept.groupBy(functions.window("ts", "10 seconds"), "name").count()
    writer = publish(
        counts,
        servers=world.target,
        merge=MERGE,
        replica="slow",
        vs="window.start",
        ve="window.end",
        mode="update",
        payload=Payload(schema=COUNTED),
    )
    with recorded(world.target) as reader:
        with ahead(world, counted(rows), moment(7), COUNTED):
            run_to_end(writer, checkpoint)
        spool = Spool(f"{checkpoint}/lmerge")
        assert spool.skips_next() == moment(7)
        newest = spool.record.newest
        assert newest is not None
        skipping = [batch for batch in range(newest.batch + 1) if spool.skips_to(batch) == moment(7)]
        published = [
            element
            for batch in skipping
            if (manifest := spool.record.manifest(batch))
            for part in manifest.parts
            for piece in spool.read_part(part)
            for element in piece.elements()
        ]
        assert published
        assert all(max(e.ve, getattr(e, "vold", e.ve)) >= moment(7) for e in published)
        elements = reader.until_stable(moment(9) - 11 * S)
        final = moment(9) - 11 * S
        assert [e for e in table(elements) if e.ve < final] == [e for e in counted(rows) if e.ve < final]


def test_state_of_the_users_own_skips_as_of_its_batch(
    spark: Any, tmp_path: Path, feed: FileFeed, world: ThreadedWorld
) -> None:
    """A stateful processor and a function get the same time to which the batch skips."""
    from processors import SkipRecorder
    from pyspark.sql import functions

    checkpoint, calls = tmp_path / "c", tmp_path / "calls"
    calls.mkdir()
    provider = "spark.sql.streaming.stateStore.providerClass"
    spark.conf.set(provider, "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider")
    rows = [row for batch in range(6) for row in rows_of(batch)]
    for batch in range(6):
        feed.put(*rows_of(batch))

    def record_skip(n):  # type: ignore[no-untyped-def]  # as above
        with (calls / f"{os.getpid()}-f").open("a") as file:
            file.write(f"f {skipped_until(str(checkpoint))}\n")
        return 7 * n

    try:
        stream = feed.timed(spark, "ts").withWatermark("ts", "0 seconds")
        stream = stream.withColumn("score", functions.udf(record_skip, "long")("n"))
        stream = stream.groupBy("name").transformWithState(
            SkipRecorder(str(checkpoint), str(calls)), "ts timestamp, name string, n long, score long", "Append", "None"
        )
        stream = stream.withColumn("until", functions.expr(f"ts + INTERVAL {LIFE} SECONDS"))
        writer = publish(
            stream,
            servers=world.target,
            merge=MERGE,
            replica="slow",
            vs="ts",
            ve="until",
            stable_lag="1 hour",
            late="drop",
            payload=Payload(schema=SCORED),
            properties=("insert-only",),
            allow=("udf",),
            running=Running(skips=True),
        )
        with ahead(world, scored(rows), moment(9), SCORED):
            run_to_end(writer, checkpoint)
    finally:
        spark.conf.unset(provider)
    spool = Spool(f"{checkpoint}/lmerge")
    newest = spool.record.newest
    assert newest is not None
    expected = {spool.skips_to(batch) for batch in range(newest.batch + 1)}
    assert expected == {NEG_INF, moment(9)}
    assert set(skips_of(calls, "p")) == set(skips_of(calls, "f")) == expected


def test_a_query_that_reads_a_merge_does_not_read_what_is_not_needed(
    spark: Any, tmp_path: Path, world: ThreadedWorld
) -> None:
    """It feeds another merge, where another replica is ahead."""
    from read_world import reading

    checkpoint, calls = tmp_path / "c", tmp_path / "calls"
    rows = [row for batch in range(20) for row in rows_of(batch)]
    score = costly(calls)
    merges = {"merge": "trips", "startingOffsets": "trips@-inf"}
    with lmerge.Publisher(world.target, "trips", "source", schema={"name": "string?", "n": "int?"}) as source:
        for row in rows:
            source.insert({"name": row["name"], "n": row["n"]}, row["ts"], row["ts"] + LIFE * S)
        source.stable(rows[-1]["ts"] + 2 * LIFE * S)
        source.flush()
        stream = reading(
            spark,
            world.target,
            **merges,
            timeType="timestamp",
            payload="columns",
            maxRowsPerBatch=40,
            skipTo=str(checkpoint),
        )
        done = stream.withWatermark("vs", "0 seconds").withColumn("score", score("n"))
        writer = publish(
            done,
            servers=world.target,
            merge=MERGE,
            replica="slow",
            vs="vs",
            ve="ve",
            late="drop",
            payload=Payload(["name", "n", "score"], SCORED),
            properties=("insert-only",),
            allow=("udf",),
            running=Running(skips=True),
        )
        with recorded(world.target) as reader, ahead(world, scored(rows), moment(17), SCORED):
            run_to_end(writer, checkpoint)
            assert Spool(f"{checkpoint}/lmerge").skips_next() == moment(17)
            called = reached(calls)
            assert len(called) < len(rows)
            assert set(called) >= {row["n"] for row in rows if row["ts"] + LIFE * S >= moment(17)}
            final = moment(18) - S  # the watermark of the last batch
            elements = reader.until_stable(final)
            assert [e for e in table(elements) if e.ve < final] == [e for e in scored(rows) if e.ve < final]


# Refused and accepted arguments.


def test_a_query_with_another_checkpoint_ends(spark: Any, tmp_path: Path, feed: FileFeed, world: ThreadedWorld) -> None:
    for batch in range(2):
        feed.put(*rows_of(batch))
    writer = scoring(spark, feed, world, tmp_path / "elsewhere", costly(tmp_path / "calls"))
    with pytest.raises(Exception, match=r"UsageError.*elsewhere/lmerge is empty"):
        run_to_end(writer, tmp_path / "c")


@pytest.mark.parametrize(
    ("changed", "message"), [({"ve": "name"}, r"ve \(name\) is string"), ({"checkpoint": None}, "give checkpoint")]
)
def test_a_wrong_argument_is_named(spark: Any, feed: FileFeed, changed: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        skip_to(feed.timed(spark, "ts"), **{"ve": "ts", "checkpoint": "/c", **changed})


def test_the_lint_accepts_it_and_the_user_is_informed(spark: Any, tmp_path: Path, feed: FileFeed) -> None:
    rows = trips(spark, feed, tmp_path)
    assert lint(rows) == []
    assert "leaves out what they no longer need" in explain(rows, "ts")
    assert "leaves out" not in explain(feed.timed(spark, "ts").withWatermark("ts", "0 seconds"), "ts")


def test_ends_that_a_revision_may_change_are_refused(spark: Any, tmp_path: Path, feed: FileFeed) -> None:
    from pyspark.sql import functions

    counts = trips(spark, feed, tmp_path).groupBy(functions.window("ts", "10 seconds"), "name").count()
    given: dict[str, Any] = {
        "servers": unreachable_server(),
        "merge": MERGE,
        "replica": "a",
        "mode": "update",
        "vs": "window.start",
    }
    publish(counts, **given, ve="window.end")
    publish(
        counts.withColumn("until", functions.expr("window.end")),
        **given,
        ve="until",
        keys=["name", "window.start", "until"],
    )
    last = (
        trips(spark, feed, tmp_path)
        .groupBy(functions.window("ts", "10 seconds"), "name")
        .agg(functions.max("ts").alias("last"))
    )
    ends: list[dict[str, Any]] = [{"ve": "last"}, {"ve": "window.end", "keys": ["name"]}]
    for refused in ends:
        with pytest.raises(UsageError, match="ends that no revision changes"):
            publish(last.withColumn("n", functions.lit(1)), **given, **refused, payload=Payload(["name", "n"]))
    publish(last, **given, ve="last", payload=Payload(["name"]), running=Running(skips=False))
