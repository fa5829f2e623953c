"""The merge as a Spark query, over files: after every batch it equals the service's own core."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from merging_world import InputBatches, Output, Row, Twin, cut, plan_of, row_of, rows_of, streams

from lmerge.core.elements import INF, Adjust, Event, Insert, Stable
from lmerge.errors import UsageError
from lmerge.spark.merging.shard import MergePlan

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SCHEMA = "kind string, payload string, vs long, ve long, vold long, `order` long"
PROVIDER = "spark.sql.streaming.stateStore.providerClass"
STORES = "org.apache.spark.sql.execution.streaming.state"


@pytest.fixture
def session(spark: SparkSession) -> Iterator[SparkSession]:
    """Give a session with the state store that the merge needs."""
    spark.conf.set(PROVIDER, f"{STORES}.RocksDBStateStoreProvider")
    yield spark
    spark.conf.unset(PROVIDER)


def run_patiently(writer: Any, checkpoint: Path) -> None:
    """Run to the end. On a busy machine Python may not start within Spark's ten seconds; then it is run once more."""
    from spark_world import run_to_end

    for _ in range(5):
        try:
            run_to_end(writer, checkpoint)
            return
        except Exception as problem:
            if "failed to connect back" not in str(problem):
                raise
    raise AssertionError("Python processes do not start")


class MergingQuery:
    """Inputs as folders of files, one for each batch, and the output of their merge."""

    def __init__(self, spark: SparkSession, folder: Path, inputs: Sequence[InputBatches], **merging: Any) -> None:
        from spark_world import FileFeed

        self.spark, self.folder, self.merging = spark, folder, merging
        self.feeds = [FileFeed(folder / f"in{at}", SCHEMA) for at in range(len(inputs))]
        self.rows = [rows_of(one) for one in inputs]
        self.given: dict[int, list[Row]] = {}
        self._put = 0

    def put(self, batches: int) -> None:
        """Add the next batches, each with its rows in disorder."""
        random = Random(self._put)
        for at in range(self._put, self._put + batches):
            for feed, rows in zip(self.feeds, self.rows):
                if at < len(rows):
                    feed.put(*random.sample(rows[at], len(rows[at])))
        self._put += batches

    def run(self, fails_at: int | None = None) -> None:
        """Run the query over all present rows. It can be made to fail at a batch, whose rows are then discarded."""
        from lmerge.spark.merging.query import merge

        def keep(rows: DataFrame, batch: int) -> None:
            given = [row.asDict() for row in rows.collect()]
            if batch == fails_at:
                raise RuntimeError(f"made to fail at batch {batch}")
            assert batch not in self.given
            self.given[batch] = given

        inputs = [feed.stream(self.spark) for feed in self.feeds]
        run_patiently(merge(inputs, **self.merging).writeStream.foreachBatch(keep), self.folder / "checkpoint")


def assert_means_what_the_twin_means(query: MergingQuery, inputs: Sequence[InputBatches], plan: MergePlan) -> Output:
    output, twin = Output(), Twin(plan)
    for at in range(max(map(len, inputs))):
        expected = twin.batch({number: one[at] for number, one in enumerate(inputs) if at < len(one)})
        assert output.batch(query.given[at]) == expected, f"batch {at}"
    return output


@pytest.mark.parametrize(("algorithm", "shards"), [pytest.param("r3", 2, marks=pytest.mark.long), ("r4", 3)])
def test_a_query_goes_on_exactly_after_a_failed_batch_and_a_restart(
    session: SparkSession, tmp_path: Path, algorithm: str, shards: int
) -> None:
    """Two inputs with adjusts and retractions; one starts a batch later than the other, and ends a batch earlier."""
    random = Random(7)
    one, other = streams(random, algorithm, 2, count=60, invented=0.3)
    inputs = [cut(random, one, 5), cut(random, other, 4, first=1)]
    query = MergingQuery(session, tmp_path, inputs, algorithm=algorithm, shards=shards)
    query.put(3)
    with pytest.raises(Exception, match="made to fail at batch 2"):
        query.run(fails_at=2)
    assert sorted(query.given) == [0, 1]
    query.put(2)
    query.run()
    plan = plan_of(algorithm, shards, "01")
    output = assert_means_what_the_twin_means(query, inputs, plan)
    assert output.tdb.stable_point == INF
    assert output.ended == []


def test_a_query_reports_why_an_input_has_ended(session: SparkSession, tmp_path: Path) -> None:
    random = Random(9)
    one, other = streams(random, "r3", 2)
    inputs = [cut(random, one, 2), [other[:10], [Adjust(b"nobody", 10**6, 10**6 + 5, 10**6 + 9), *other[10:]]]]
    query = MergingQuery(session, tmp_path, inputs, algorithm="r3", shards=1)
    query.put(2)
    query.run()
    output = assert_means_what_the_twin_means(query, inputs, plan_of("r3", 1, "01"))
    (reason,) = output.ended
    assert "unknown-event" in reason


def test_times_may_be_timestamps_and_order_may_be_done_without(session: SparkSession, tmp_path: Path) -> None:
    from pyspark.sql.functions import timestamp_micros
    from spark_world import FileFeed

    from lmerge.spark.merging.query import MergeInput, merge

    feed = FileFeed(tmp_path / "in", SCHEMA)
    feed.put(*[row_of(e, 0) for e in (Stable(9), Adjust(b"x", 5, 9, 8), Insert(b"x", 5, 9), Insert(b"y", 7, INF))])
    rows = feed.stream(session)
    for name in ("vs", "ve", "vold"):
        rows = rows.withColumn(name, timestamp_micros(name))
    given: list[Row] = []
    merged = merge({"only": MergeInput(rows.drop("order"), properties=("key",))}, shards=2, order=None)
    run_patiently(
        merged.writeStream.foreachBatch(lambda batch, _: given.extend(row.asDict() for row in batch.collect())),
        tmp_path / "checkpoint",
    )
    output = Output()
    assert output.batch(given) == ([Event(5, b"x", 8), Event(7, b"y", INF)], 9)


def test_shards_are_spread_evenly_and_the_first_is_always_the_same(spark: SparkSession) -> None:
    from lmerge.spark.merging.query import lanes, spark_hash

    theirs = spark.range(-50, 50).selectExpr("cast(id as int) i", "hash(cast(id as int)) h").collect()
    assert [spark_hash(row.i) for row in theirs] == [row.h for row in theirs]
    for shards in (1, 2, 3, 8, 64):
        assert lanes(shards)[0] == 0
        assert sorted(spark_hash(lane) % shards for lane in lanes(shards)) == list(range(shards))


def test_what_cannot_be_merged_is_refused_at_once(session: SparkSession, tmp_path: Path) -> None:
    from spark_world import FileFeed

    from lmerge.spark.merging.query import MergeInput, merge

    good = FileFeed(tmp_path / "in", SCHEMA).stream(session)
    cases: list[tuple[str, dict[str, Any]]] = [
        ("there are no inputs", {"inputs": []}),
        ("input '0' does not stream", {"inputs": [session.createDataFrame([], SCHEMA)]}),
        ("input '1' has no column 'order' .* order=None", {"inputs": [good, good.drop("order")]}),
        ("input '0' has no column 'vold'", {"inputs": [good.drop("vold")]}),
        ("column 'vs' of input '0' is string", {"inputs": [good.withColumn("vs", good.vs.cast("string"))]}),
        ("column 'payload' of input '0' is bigint", {"inputs": [good.withColumn("payload", good.vs)]}),
        ("by 'r2': it is r3 or r4", {"inputs": [good], "algorithm": "r2"}),
        ("1 to 1024 shards, not 0", {"inputs": [good], "shards": 0}),
        ("unknown policy 'shy'", {"inputs": [good], "policy": "shy"}),
        ("unknown closing 'none'", {"inputs": [good], "closing": "none"}),
        ("property", {"inputs": [MergeInput(good, properties=("tidy",))]}),
    ]
    for reason, given in cases:
        with pytest.raises(UsageError, match=reason):
            merge(**given)
    session.conf.set(PROVIDER, f"{STORES}.HDFSBackedStateStoreProvider")
    with pytest.raises(UsageError, match=r"needs the RocksDB state store.*spark\.conf\.set"):
        merge([good])
