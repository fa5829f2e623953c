"""The stable point of every kind of plan, with rows placed right at its edges.

Each plan is run on batches, one of which has a row exactly on the stable point published before: the earliest row that
Spark lets through. With a stable one microsecond later that row would be late: the query would fail, or the row would
be missing. W is the watermark; T counts from a round hour.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from client_world import ThreadedWorld, threaded_world
from spark_world import MERGE, FileFeed, S, recorded, run_to_end

from lmerge.core.elements import NEG_INF, Adjust, Insert, Stable
from lmerge.spark import publish

HOUR = 1_700_002_800 * S  # a round hour
US = 1
SCHEMA = "ts long, name string"


def t(seconds: float, us: int = 0) -> int:
    return HOUR + round(seconds * S) + us


@pytest.fixture(scope="module")
def world() -> Iterator[ThreadedWorld]:
    with threaded_world(policy="eager") as world:
        yield world


class Edges:
    """Runs one plan over some batches, and checks its output and the order of the output."""

    def __init__(self, spark: Any, tmp_path: Path, target: str) -> None:
        self.spark, self.target, self.checkpoint = spark, target, tmp_path / "checkpoint"
        self.feed = FileFeed(tmp_path / "feed", SCHEMA)
        self.right = FileFeed(tmp_path / "right", SCHEMA)
        self.merge = f"{MERGE}-{tmp_path.name}"

    def run(self, stream: Any, batches: list[list[int | tuple[int, str]]], **options: Any) -> list[Any]:
        """Return all elements of the output in one list."""
        for rows in batches:
            self.feed.put(*(row_of(row) for row in rows))
        options = {"merge": self.merge, "replica": "a", "servers": self.target} | options
        with recorded(self.target, self.merge) as recorder:
            query = run_to_end(publish(stream, **options), self.checkpoint)
            assert query.exception() is None
            return recorder.until_stable(last_stable(self.checkpoint))


def row_of(row: int | tuple[int, str]) -> dict[str, Any]:
    ts, name = row if isinstance(row, tuple) else (row, "x")
    return {"ts": ts, "name": name}


def last_stable(checkpoint: Path) -> int:
    """Return the last stable of the query."""
    from lmerge.spark.spool.spool import Spool

    batches = sorted(int(path.name) for path in (checkpoint / "commits").iterdir() if path.name.isdigit())
    stable = Spool(f"{checkpoint}/lmerge").last_stable(batches[-1] + 1)
    assert stable > NEG_INF, "no stable was published"
    return stable


def earliest_after_stable(elements: list[Any]) -> list[tuple[int, int]]:
    """Return each stable point followed by rows, with the earliest Vs between it and the next one."""
    found: list[tuple[int, int]] = []
    stable, earliest = None, None
    for element in [*elements, Stable(2**62)]:
        if isinstance(element, Stable):
            if stable is not None and earliest is not None:
                found.append((stable, earliest))
            stable, earliest = element.vc, None
        elif isinstance(element, Insert | Adjust):
            earliest = element.vs if earliest is None else min(earliest, element.vs)
    return found


def assert_exact(elements: list[Any]) -> None:
    """Check that no row came below a stable point, and one came right at a stable point."""
    found = earliest_after_stable(elements)
    assert all(earliest >= stable for stable, earliest in found), found
    assert any(earliest == stable for stable, earliest in found), found


@pytest.fixture
def edges(spark: Any, tmp_path: Path, world: ThreadedWorld) -> Edges:
    return Edges(spark, tmp_path, world.target)


def test_rows_without_state_are_let_in_from_the_watermark_on_and_dropped_below_it(edges: Edges) -> None:
    """batch   W     rows                                  stable after
    0       -     100
    1       90    90 - 1 us: no stable yet                90
    2       90    90: the edge; 90 - 1 us: late
    """
    stream = edges.feed.timed(edges.spark, "ts").withWatermark("ts", "10 seconds")
    batches: list[list[int | tuple[int, str]]] = [
        [t(100)],
        [(t(90, -US), "early")],
        [(t(90), "edge"), (t(90, -US), "late")],
        [t(101)],
    ]
    elements = edges.run(stream, batches, vs="ts")
    names = [element.payload for element in elements if isinstance(element, Insert)]
    assert [sum(part in name for name in names) for part in (b"early", b"edge", b"late")] == [1, 1, 0]
    assert_exact(elements)


def windows(edges: Edges) -> Any:
    """Return counts in windows of ten seconds that begin 1 us after round times, so one can end right after W."""
    from pyspark.sql import functions

    window = functions.window("ts", "10 seconds", "10 seconds", "1 microsecond")
    return edges.feed.timed(edges.spark, "ts").withWatermark("ts", "10 seconds").groupBy(window, "name").count()


def window_batches() -> list[list[int | tuple[int, str]]]:
    """batch   W     rows                                                          stable after (W - 10 s + 1 us)
    0       -     110
    1       100   95, of [90 + 1 us, 100 + 1 us), which ends right after W        90 + 1 us
    2       100   96, of the same; 90 and 85: Spark drops them
    3       100   200                                                             90 + 1 us
    4       190   201
    """
    return [[t(110)], [t(95)], [t(96), t(90), t(85)], [t(200)], [t(201)], [t(230)]]


def test_windows_in_append_mode_come_out_above_the_watermark_less_their_length(edges: Edges) -> None:
    elements = edges.run(windows(edges), window_batches(), vs="window.start", ve="window.end")
    inserts = {element.vs: element.payload for element in elements if isinstance(element, Insert)}
    assert sorted(inserts) == [t(90, US), t(100, US), t(190, US), t(200, US)]
    assert all(isinstance(element, Insert | Stable) for element in elements)
    assert_exact(elements)


def test_windows_in_update_mode_are_revised_above_the_watermark_less_their_length(edges: Edges) -> None:
    elements = edges.run(windows(edges), window_batches(), vs="window.start", ve="window.end", mode="update")
    published = [element for element in elements if not isinstance(element, Stable) and element.vs == t(90, US)]
    assert [type(element) for element in published].count(Insert) == 2, "a first count, and a second"
    assert_exact(elements)


def test_rows_without_duplicates_come_out_above_the_watermark(edges: Edges) -> None:
    """Batch 2 runs with W = 90 and accepts rows later than 90, the watermark of batch 1."""
    stream = edges.feed.timed(edges.spark, "ts").withWatermark("ts", "10 seconds")
    batches: list[list[int | tuple[int, str]]] = [
        [t(100)],
        [(t(95), "b")],
        [(t(90, US), "edge"), (t(90), "late"), (t(96), "b")],
        [(t(101), "c")],
    ]
    unique = stream.dropDuplicatesWithinWatermark(["name"])
    elements = edges.run(unique, batches, vs="ts", allow=("dedup-within-watermark", "dedup-first"))
    names = b" ".join(element.payload for element in elements if isinstance(element, Insert))
    assert b"edge" in names
    assert b"late" not in names
    assert_exact(elements)


def test_an_interval_join_brings_out_rows_as_old_as_its_condition_allows(edges: Edges) -> None:
    """left.ts <= right.ts <= left.ts + 5 s: a right row right above W meets a left one 5 s older."""
    from pyspark.sql import functions

    left = edges.feed.timed(edges.spark, "ts").withWatermark("ts", "10 seconds")
    right = (
        edges.right.timed(edges.spark, "ts")
        .withColumnRenamed("ts", "at")
        .withColumnRenamed("name", "other")
        .withWatermark("at", "10 seconds")
    )
    condition = functions.expr("name = other AND at >= ts AND at <= ts + INTERVAL 5 SECONDS")
    right_rows: list[list[int | tuple[int, str]]] = [[t(100)], [t(100)], [(t(90, US), "edge")], [t(101)]]
    for rows in right_rows:
        edges.right.put(*(row_of(row) for row in rows))
    batches: list[list[int | tuple[int, str]]] = [[t(100), (t(85, US), "edge")], [t(100)], [t(100)], [t(101)]]
    elements = edges.run(left.join(right, condition), batches, vs="ts", allow=())
    assert any(b"edge" in element.payload for element in elements if isinstance(element, Insert))
    assert_exact(elements)


def test_windows_of_windows_follow_the_last_ones(edges: Edges) -> None:
    """Chained aggregations, which Spark allows in append mode only.

    The second one gets the closed groups of the first, and closes its own by the same watermark.
    """
    from pyspark.sql import functions

    inner = windows(edges)
    outer = inner.groupBy(
        functions.window(functions.window_time("window"), "20 seconds", "20 seconds", "1 microsecond")
    ).agg(functions.sum("count").alias("total"))
    elements = edges.run(outer, window_batches(), vs="window.start", ve="window.end")
    found = earliest_after_stable(elements)
    assert found
    assert all(earliest >= stable for stable, earliest in found), found


def test_a_stateful_processor_is_as_late_as_the_user_declares(edges: Edges) -> None:
    """transformWithState can output any time. This one outputs the time of its rows, which Spark accepts above W."""
    from processors import Echo

    provider = "spark.sql.streaming.stateStore.providerClass"
    edges.spark.conf.set(provider, "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider")
    stream = edges.feed.timed(edges.spark, "ts").withWatermark("ts", "10 seconds")
    out = stream.groupBy("name").transformWithState(
        statefulProcessor=Echo(),
        outputStructType="ts timestamp, name string, n long",
        outputMode="Append",
        timeMode="EventTime",
    )
    batches: list[list[int | tuple[int, str]]] = [[t(100)], [t(95)], [(t(90, US), "edge")], [t(101)]]
    elements = edges.run(out, batches, vs="ts", stable_lag="0 seconds", allow=("udf",))
    edges.spark.conf.unset(provider)
    assert any(b"edge" in element.payload for element in elements if isinstance(element, Insert))
    found = earliest_after_stable(elements)
    assert all(earliest >= stable for stable, earliest in found), found


def test_the_stable_point_moves_though_only_empty_batches_run(edges: Edges) -> None:
    stream = edges.feed.timed(edges.spark, "ts").withWatermark("ts", "10 seconds")
    elements = edges.run(stream, [[t(100)], [], [], []], vs="ts")
    assert Stable(t(90)) in elements


@pytest.mark.parametrize("plan", ["rows", "windows"])
def test_a_late_row_that_a_too_small_lag_makes_is_an_error_or_is_dropped(edges: Edges, plan: str) -> None:
    """The proofs above depend on this: with a stable one microsecond later, the sink reports a late row."""
    stream = (
        windows(edges) if plan == "windows" else edges.feed.timed(edges.spark, "ts").withWatermark("ts", "10 seconds")
    )
    vs = "window.start" if plan == "windows" else "ts"
    writer: Callable[..., Any] = publish
    options = {"merge": edges.merge, "replica": "a", "servers": edges.target, "vs": vs, "late": "fail"}
    for rows in window_batches() if plan == "windows" else [[t(100)], [t(95)], [t(90)], [t(101)]]:
        edges.feed.put(*(row_of(row) for row in rows))
    prepared = writer(stream, **options, mode="update" if plan == "windows" else "append")
    rule = 10 * S - 1 if plan == "windows" else 0
    with pytest.raises(Exception, match="stable"):
        run_to_end(prepared.option("stable_lag_us", rule - 1), edges.checkpoint)
