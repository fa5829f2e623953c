"""publish() refuses all that Spark would refuse, in every output mode, with every operator, before there is a query.

Each row of the table is a query. ``publish`` either refuses it with a reason, or it must run: its first batches are
processed, against a real server. So a query that Spark refuses only when it starts, or in its first batch, fails here.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from client_world import threaded_world
from spark_world import FileFeed, S, run_to_end, unreachable_server

from lmerge.errors import UsageError
from lmerge.spark import Running, publish

pytestmark = pytest.mark.filterwarnings("ignore::lmerge.spark.plan.lint.LintWarning")


class RefusalCase(NamedTuple):
    """``refused``: by mode, a part of the reason. A mode that is missing must run."""

    name: str
    build: Callable[[Any, Any], Any]
    refused: dict[str, str]
    vs: str = "ts"
    ve: str | None = None
    keys: tuple[str, ...] | None = ("k",)


def windowed(df: Any, f: Any) -> Any:
    return df.groupBy(f.window("ts", "10 seconds"), "k").agg(f.count("*").alias("n"))


def other(df: Any, f: Any) -> Any:
    return df.select(f.col("ts").alias("ts2"), f.col("k").alias("k2"))


CASES = [
    RefusalCase("projection", lambda df, f: df.select("ts", "k"), {}),
    RefusalCase("windows", windowed, {}, "window.start", "window.end", None),
    RefusalCase(
        "sliding windows",
        lambda df, f: df.groupBy(f.window("ts", "10 seconds", "5 seconds"), "k").count(),
        {},
        "window.start",
        "window.end",
        None,
    ),
    RefusalCase(
        "session windows",
        lambda df, f: df.groupBy(f.session_window("ts", "5 seconds"), "k").count(),
        {"update": "session window"},
        "session_window.end",
        None,
        None,
    ),
    RefusalCase(
        "grouping without event time",
        lambda df, f: df.groupBy("k").agg(f.max("ts").alias("ts")),
        {"append": "watermark", "update": "stable", "intervals": "watermark"},
    ),
    RefusalCase(
        "windows without watermark",
        lambda df, f: (
            df.withColumn("at", f.expr("ts + INTERVAL 1 SECOND"))
            .groupBy(f.window(f.timestamp_micros(f.unix_micros("at")), "10 seconds"), "k")
            .count()
        ),
        {"append": "stable", "update": "stable", "intervals": "stable"},
        "window.start",
        "window.end",
        None,
    ),
    RefusalCase(
        "windows of windows",
        lambda df, f: windowed(windowed(df, f).select(f.window_time("window").alias("ts"), "k"), f),
        {"update": "late rows"},
        "window.start",
        "window.end",
        None,
    ),
    RefusalCase("duplicates", lambda df, f: df.select("ts", "k").dropDuplicates(), {}),
    RefusalCase(
        "duplicates within the watermark", lambda df, f: df.dropDuplicatesWithinWatermark(["k"]).select("ts", "k"), {}
    ),
    RefusalCase(
        "duplicates after an aggregation",
        lambda df, f: windowed(df, f).dropDuplicates(["window", "k"]),
        {"update": "late rows"},
        "window.start",
        "window.end",
        None,
    ),
    RefusalCase(
        "inner join",
        lambda df, f: df.join(other(df, f), f.expr("k = k2 AND ts = ts2")).select("ts", "k"),
        {"update": "update-join"},
    ),
    RefusalCase(
        "outer join",
        lambda df, f: df.join(other(df, f), f.expr("k = k2 AND ts = ts2"), "left").select("ts", "k"),
        {"append": "stable", "update": "stable", "intervals": "stable"},
    ),
    RefusalCase(
        "full join of no time",
        lambda df, f: df.join(other(df, f), f.expr("k = k2"), "full").select("ts", "k"),
        {"append": "stable", "update": "stable", "intervals": "stable"},
    ),
    RefusalCase("union", lambda df, f: df.select("ts", "k").union(df.select("ts", "k")), {}),
    RefusalCase(
        "sort",
        lambda df, f: df.select("ts", "k").orderBy("k"),
        {"append": "Sorting", "update": "Sorting", "intervals": "Sorting"},
    ),
    RefusalCase(
        "limit",
        lambda df, f: df.select("ts", "k").limit(3),
        {"append": "limit", "update": "limit", "intervals": "limit"},
    ),
    RefusalCase("distinct", lambda df, f: df.select("ts", "k").distinct(), {}),
    RefusalCase(
        "window function",
        lambda df, f: df.withColumn("n", f.expr("row_number() OVER (PARTITION BY k ORDER BY ts)")).select("ts", "k"),
        {"append": "Window", "update": "Window", "intervals": "Window"},
    ),
]
MODES = ("append", "update", "intervals")


@pytest.fixture(scope="module")
def target() -> Any:
    with threaded_world() as world:
        yield world.target


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_what_publish_accepts_runs(spark: Any, target: str, tmp_path: Path, case: RefusalCase, mode: str) -> None:
    from pyspark.sql import functions as f

    feed = FileFeed(tmp_path / "in", "ts long, k string")
    for seconds in ((1, 2), (60, 90)):  # a batch with no state behind it, and one with
        feed.put(*({"ts": second * S, "k": key} for second in seconds for key in "ab"))
    df = case.build(feed.timed(spark, "ts").withWatermark("ts", "10 seconds"), f)
    keys = case.keys if mode != "append" else None
    if mode == "intervals" and keys is None:
        keys = ("k",)

    def writer() -> Any:
        return publish(
            df,
            servers=target,
            merge=f"{case.name}-{mode}".replace(" ", "-"),
            replica="a",
            mode=mode,
            vs=case.vs,
            ve=case.ve,
            keys=keys,
            late="drop",
        )

    if mode in case.refused:
        with pytest.raises(UsageError, match=case.refused[mode]):
            writer()
        return
    run_to_end(writer(), tmp_path / "checkpoint")


OPTIONS = [
    ({}, "option checkpointLocation|checkpoint_location is missing"),
    ({"checkpointLocation": "x", "replcia": "b"}, "unknown option 'replcia'; did you mean replica"),
    ({"checkpointLocation": "x", "give_up_after": "soon"}, "give_up_after"),
    ({"checkpointLocation": "x", "token": "secret"}, "token_file"),
]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("options", "message"), OPTIONS)
def test_options_are_refused_before_there_is_a_query(
    spark: Any, tmp_path: Path, mode: str, options: dict[str, str], message: str
) -> None:
    feed = FileFeed(tmp_path / "in", "ts long, k string")
    df = feed.timed(spark, "ts").withWatermark("ts", "10 seconds")
    writer = publish(df, servers=unreachable_server(), merge="m", replica="a", mode=mode, vs="ts", keys=("k",))
    with pytest.raises(UsageError, match=message):
        writer.options(**options).start()
    assert spark.streams.active == []


@pytest.mark.parametrize("output_mode", ["complete", "Append", ""])
def test_an_output_mode_that_is_no_stream_of_changes_is_refused(spark: Any, tmp_path: Path, output_mode: str) -> None:
    df = FileFeed(tmp_path / "in", "ts long, k string").timed(spark, "ts").withWatermark("ts", "10 seconds")
    with pytest.raises(UsageError, match=r"output_mode is .*; it is append or update"):
        publish(
            df, servers=unreachable_server(), merge="m", replica="a", vs="ts", running=Running(output_mode=output_mode)
        )


@pytest.mark.parametrize("late", [None, "fail", "drop"])
def test_a_declared_lag_that_is_broken_ends_the_query(
    spark: Any, target: str, tmp_path: Path, late: str | None
) -> None:
    """A row of second 1 comes after everything before second 90 was declared complete."""
    feed = FileFeed(tmp_path / "in", "ts long, k string")
    for second in (100, 101, 102, 1):
        feed.put({"ts": second * S, "k": "a"})
    df = feed.timed(spark, "ts").withWatermark("ts", "10 seconds")
    writer = publish(df, servers=target, merge=f"late-{late}", replica="a", vs="ts", stable_lag="1 second", late=late)
    if late == "drop":
        run_to_end(writer, tmp_path / "checkpoint")
        return
    with pytest.raises(Exception, match=r"late-row(?s:.*)a larger stable_lag lets it in, and late='drop' leaves"):
        run_to_end(writer, tmp_path / "checkpoint")
