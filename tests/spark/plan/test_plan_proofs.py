"""What is derived from a plan, proved with rows at the edges.

The proof runs the query. After batch N every later row must have Vs at or above the rule's stable of batch N, and one
row must come so near that a rule with a shorter lag would be wrong.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import pytest
from plan_world import Build, S, functions, tumbling

from lmerge.spark.plan.promises import explain_plan
from lmerge.spark.sink.watermark import batch_watermark_us

ROWS_A_BATCH: list[Any] = [
    # Event times in seconds, and the watermark that the batch runs with: the latest time before it, less 5 s. Its late
    # rows are those at or below the watermark of the batch BEFORE it, so a row a microsecond above that comes out.
    [3, 8, 14],  # 0
    [17, 26, 9],  # 9
    [31, 9.000001, 9, 8.5, 20.999999, 16],  # 21
    [45, 21.000001, 21, 25, 30, 26],  # 26
    [46, 26.000001, 26, 40],  # 40
    [90, 40.000001, 40, 11],  # 41
    [91, 41.000001, 41, 85, 85.000001],  # 85
]


class Proof(NamedTuple):
    name: str
    build: Build
    vs: str
    mode: str = "append"
    near_us: int = 10 * S  # how near to the rule at least one row must come


PROOFS = [
    Proof("window-append", lambda df, f: tumbling(df, f), "window.start"),
    Proof("window-end-append", lambda df, f: tumbling(df, f), "window.end"),
    Proof("window-update", lambda df, f: tumbling(df, f), "window.start", "update"),
    Proof(
        "hopping-update",
        lambda df, f: df.groupBy(f.window("ts", "20 seconds", "10 seconds")).count(),
        "window.start",
        "update",
    ),
    Proof("dedup", lambda df, f: df.dropDuplicates(["k", "ts"]), "ts", near_us=0),
    Proof(
        "session-end",
        lambda df, f: df.groupBy(f.session_window("ts", "2 seconds"), "k").count(),
        "session_window.end",
        near_us=5 * S,
    ),
    Proof(
        "chained",
        lambda df, f: tumbling(df, f).groupBy(f.window("window", "20 seconds")).agg(f.sum("n").alias("n")),
        "window.start",
        near_us=20 * S,
    ),
    Proof(
        "self-join",
        lambda df, f: df.alias("a").join(
            df.withColumnRenamed("ts", "rt").withColumnRenamed("k", "rk").select("rt", "rk"),
            f.expr("k = rk and rt >= ts and rt <= ts + interval 6 seconds"),
        ),
        "ts",
        near_us=6 * S,
    ),
]


@pytest.mark.parametrize("proof", PROOFS, ids=[proof.name for proof in PROOFS])
def test_no_row_comes_out_below_the_stable_point(spark: Any, tmp_path: Path, proof: Proof) -> None:
    from spark_world import FileFeed

    f = functions()
    feed = FileFeed(tmp_path / "in", "k string, ts long, n int")
    for number, times in enumerate(ROWS_A_BATCH):
        feed.put(*({"k": "a", "ts": round(t * S), "n": number} for t in times))
    df = proof.build(feed.timed(spark, "ts").withWatermark("ts", "5 seconds"), f)
    facts = explain_plan(df, proof.vs, None, proof.mode)
    assert facts.stable is not None
    assert facts.stable.exact
    given: list[tuple[int, int]] = []

    def take(rows: Any, batch: int) -> None:
        given.extend((batch, row.vs) for row in rows.select(f.unix_micros(f.expr(proof.vs)).alias("vs")).collect())

    checkpoint = tmp_path / "checkpoint"
    writer = df.writeStream.foreachBatch(take).outputMode(proof.mode)
    query = writer.option("checkpointLocation", str(checkpoint)).start()
    try:
        query.processAllAvailable()
    finally:
        query.stop()
    last = max(batch for batch, _ in given)
    distances = []
    for batch in range(last):
        watermark_us = batch_watermark_us(str(checkpoint), batch)
        if watermark_us is not None:
            stable = watermark_us - facts.stable.distance_us
            distances += [vs - stable for later, vs in given if later > batch]
    assert distances, "no row came after a watermark"
    assert min(distances) >= 0
    assert min(distances) <= proof.near_us


class Gathering(NamedTuple):
    """``identifying``: expressions that identify rows; ``declared``: the same as a user would name it."""

    name: str
    build: Build
    identifying: tuple[str, ...]
    gathered: bool
    vs: str = "window.start"
    declared: tuple[str, ...] | None = None


GATHERINGS = [
    Gathering("windows", lambda df, f: tumbling(df, f), ("window.start", "k"), gathered=True),
    Gathering(
        "windows-projected",
        lambda df, f: tumbling(df, f).where("n > 0").selectExpr("window", "n", "k AS c"),
        ("window.start", "c"),
        gathered=True,
    ),
    Gathering(
        "dedup",
        lambda df, f: df.dropDuplicates(["k", "ts"]).select("k", "ts"),
        ("k", "ts"),
        gathered=True,
        vs="ts",
        declared=("k", "ts"),
    ),
    Gathering(
        "dedup-coarser", lambda df, f: df.dropDuplicates(["k", "ts"]), ("k",), gathered=False, vs="ts", declared=("k",)
    ),
    Gathering("coarser", lambda df, f: tumbling(df, f), ("k",), gathered=False, declared=("k",)),
    Gathering("moved", lambda df, f: tumbling(df, f).repartition("n"), ("window.start", "k"), gathered=False),
    Gathering("stateless", lambda df, f: df, ("k",), gathered=False, vs="ts", declared=("k",)),
    Gathering("union", lambda df, f: df.union(df), ("k",), gathered=False, vs="ts", declared=("k",)),
]


@pytest.mark.parametrize("case", GATHERINGS, ids=[case.name for case in GATHERINGS])
def test_rows_of_a_key_are_gathered_only_where_the_plan_does_it(spark: Any, tmp_path: Path, case: Gathering) -> None:
    from spark_world import FileFeed

    f = functions()
    feed = FileFeed(tmp_path / "in", "k string, ts long, n int")
    for number, times in enumerate(ROWS_A_BATCH[:4]):
        feed.put(*({"k": k, "ts": round(t * S), "n": number} for t in times for k in "abcd"))
    df = case.build(feed.timed(spark, "ts").withWatermark("ts", "5 seconds"), f)
    assert explain_plan(df, case.vs, None, "update", keys=case.declared).gathered == case.gathered
    if not case.gathered:
        return
    partitions: dict[str, set[int]] = {}

    def take(rows: Any, batch: int) -> None:
        key, at = f.struct(*map(f.expr, case.identifying)).alias("key"), f.spark_partition_id().alias("at")
        for row in rows.select(key, at).collect():
            partitions.setdefault(str(row.key), set()).add(row.at)

    writer = df.writeStream.foreachBatch(take).outputMode("update").trigger(availableNow=True)
    writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start().awaitTermination()
    assert len(set.union(*partitions.values())) > 1
    assert {len(at) for at in partitions.values()} == {1}
