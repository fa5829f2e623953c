"""The merge as a Spark query, over files: after every batch it equals the service's own core."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from merging_world import FIELDS, InputBatches, Output, Row, Twin, cut, plan_of, row_of, rows_of, streams
from read_world import servers

from lmerge.core.batch import Batch
from lmerge.core.elements import INF, Adjust, Event, Insert, Stable
from lmerge.core.tdb import Tdb
from lmerge.errors import UsageError
from lmerge.spark.merging.shard import MergePlan
from lmerge.testing.streams.merge_inputs import present, reference

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

IN = pa.schema([(name, pa.int64()) for name in ("order", "vs", "ve", "vold")])
IN = IN.append(pa.field("kind", pa.string())).append(pa.field("payload", pa.string()))


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
        self.feeds = [FileFeed(folder / f"in{at}", FIELDS) for at in range(len(inputs))]
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
        checkpoint = self.folder / "checkpoint"
        merged = merge(inputs, checkpoint=str(checkpoint), **self.merging)
        run_patiently(merged.writeStream.foreachBatch(keep), checkpoint)


def assert_means_what_the_twin_means(query: MergingQuery, inputs: Sequence[InputBatches], plan: MergePlan) -> Output:
    output, twin = Output(), Twin(plan)
    for at in range(max(map(len, inputs))):
        expected = twin.batch({number: one[at] for number, one in enumerate(inputs) if at < len(one)})
        assert output.batch(query.given[at]) == expected, f"batch {at}"
    return output


@pytest.mark.parametrize(("algorithm", "shards"), [pytest.param("r3", 2, marks=pytest.mark.long), ("r4", 3)])
def test_a_query_goes_on_exactly_after_a_failed_batch_and_a_restart(
    spark: SparkSession, tmp_path: Path, algorithm: str, shards: int
) -> None:
    """Two inputs with adjusts and retractions; one starts a batch later than the other, and ends a batch earlier."""
    random = Random(7)
    one, other = streams(random, algorithm, 2, count=60, invented=0.3)
    inputs = [cut(random, one, 5), cut(random, other, 4, first=1)]
    query = MergingQuery(spark, tmp_path, inputs, algorithm=algorithm, shards=shards)
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


def test_a_query_reports_why_an_input_has_ended(spark: SparkSession, tmp_path: Path) -> None:
    random = Random(9)
    one, other = streams(random, "r3", 2)
    inputs = [cut(random, one, 2), [other[:10], [Adjust(b"nobody", 10**6, 10**6 + 5, 10**6 + 9), *other[10:]]]]
    query = MergingQuery(spark, tmp_path, inputs, algorithm="r3", shards=1)
    query.put(2)
    query.run()
    output = assert_means_what_the_twin_means(query, inputs, plan_of("r3", 1, "01"))
    (reason,) = output.ended
    assert "unknown-event" in reason


def test_times_may_be_timestamps_and_order_may_be_done_without(spark: SparkSession, tmp_path: Path) -> None:
    from pyspark.sql.functions import timestamp_micros
    from spark_world import FileFeed

    from lmerge.spark.merging.query import MergeInput, merge

    feed = FileFeed(tmp_path / "in", FIELDS)
    feed.put(*[row_of(e, 0) for e in (Stable(9), Adjust(b"x", 5, 9, 8), Insert(b"x", 5, 9), Insert(b"y", 7, INF))])
    rows = feed.stream(spark)
    for name in ("vs", "ve", "vold"):
        rows = rows.withColumn(name, timestamp_micros(name))
    given: list[Row] = []
    merged = merge(
        {"only": MergeInput(rows.drop("order"), properties=("key",))},
        shards=2,
        order=None,
        checkpoint=str(tmp_path / "checkpoint"),
    )
    run_patiently(
        merged.writeStream.foreachBatch(lambda batch, _: given.extend(row.asDict() for row in batch.collect())),
        tmp_path / "checkpoint",
    )
    output = Output()
    assert output.batch(given) == ([Event(5, b"x", 8), Event(7, b"y", INF)], 9)


@pytest.mark.parametrize("shards", [1, 2])
def test_forms_mix_and_one_merge_feeds_another(spark: SparkSession, tmp_path: Path, shards: int) -> None:
    """Rows, files and the frames of another merge of the same query: the table of any of them, at each batch's end."""
    from spark_world import FileFeed

    from lmerge.spark import element_files, merge

    random = Random(5)
    events = reference(random, 60)
    rows, files, other = ([*cut(random, present(random, events), 4)] for _ in range(3))
    feeds = [FileFeed(tmp_path / name, FIELDS) for name in ("rows", "other")]
    (tmp_path / "files").mkdir()
    numbered = rows_of(files)
    for at in range(4):
        for feed, batches in zip(feeds, (rows_of(rows), rows_of(other))):
            feed.put(*batches[at])
        table = pa.Table.from_pylist(numbered[at], schema=IN)
        pq.write_table(table, tmp_path / "files" / f"{at}.parquet")
        os.utime(tmp_path / "files" / f"{at}.parquet", (at + 1, at + 1))
    checkpoint, output = str(tmp_path / "checkpoint"), Output()

    def keep(batch: DataFrame, _: int) -> None:
        output.batch(row.asDict() for row in batch.collect())

    first = merge(
        {"rows": feeds[0].stream(spark), "other": feeds[1].stream(spark)},
        checkpoint=checkpoint,
        name="first",
        shards=shards,
        envelope="frames",
    )
    second = element_files(spark, str(tmp_path / "files"), maxFilesPerTrigger=1)
    merged = merge({"first": first, "files": second}, checkpoint=checkpoint, shards=shards)
    run_patiently(merged.writeStream.foreachBatch(keep), tmp_path / "checkpoint")
    assert output.ended == []
    assert output.tdb.stable_point == INF
    assert output.tdb.events() == events


def test_frames_go_from_merges_through_a_merge_to_a_merge(spark: SparkSession, tmp_path: Path) -> None:
    """Two merges are read as frames, merged as frames, and published as frames: no element is a row of Spark."""
    from spark_world import recorded

    import lmerge
    from lmerge.spark import merge, register

    random = Random(8)
    events = reference(random, 80)
    checkpoint = tmp_path / "checkpoint"
    with servers() as world, recorded(world.target, "both") as recorder:
        for name in "ab":
            with lmerge.Publisher(world.target, name, "p") as publisher:
                publisher.publish(Batch.of(present(random, events)))
                publisher.flush()
        register(spark)
        inputs = {}
        for name in "ab":
            given = {"merge": name, "startingOffsets": f"{name}@-inf", "envelope": "frames", "maxRowsPerBatch": "25"}
            inputs[name] = spark.readStream.format("lmerge").options(servers=world.target, **given).load()
        merged = merge(inputs, checkpoint=str(checkpoint), shards=2, envelope="frames")
        published = {"servers": world.target, "merge": "both", "replica": "spark", "envelope": "frames"}
        run_patiently(merged.writeStream.format("lmerge").options(**published), checkpoint)
        elements = recorder.until_stable(INF)
    tdb = Tdb("both")
    for element in elements:
        tdb.apply(element)
    assert tdb.events() == events
    assert len({element.vc for element in elements if isinstance(element, Stable)}) > 2


def test_two_merges_of_one_name_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    from spark_world import FileFeed

    from lmerge.spark import merge

    feeds = [FileFeed(tmp_path / name, FIELDS) for name in "abc"]
    for at, feed in enumerate(feeds):
        feed.put(*[row_of(Insert(b"%d" % n, n, INF), n) for n in range(at + 1)])
    a, b, c = (feed.stream(spark) for feed in feeds)
    checkpoint = str(tmp_path / "checkpoint")
    first = merge({"a": a, "b": b}, checkpoint=checkpoint, shards=1)
    merged = merge({"a": first, "b": c}, checkpoint=checkpoint, shards=1)
    with pytest.raises(Exception, match="two merges of a query need different names"):
        run_patiently(merged.writeStream.format("noop"), tmp_path / "checkpoint")


def test_a_query_with_the_checkpoint_of_another_one_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    from spark_world import FileFeed

    from lmerge.spark.merging.query import merge

    feed = FileFeed(tmp_path / "in", FIELDS)
    feed.put(row_of(Insert(b"p", 1, INF), 0))
    first = merge([feed.stream(spark)], shards=1, checkpoint=str(tmp_path / "checkpoint"))
    run_patiently(first.writeStream.format("noop"), tmp_path / "checkpoint")
    second = merge([feed.stream(spark)], shards=1, checkpoint=str(tmp_path / "checkpoint"))
    with pytest.raises(Exception, match=r"is of the query .* `checkpoint=` must be the query's own"):
        run_patiently(second.writeStream.format("noop"), tmp_path / "of the second query")
    feed.put(row_of(Insert(b"q", 1, INF), 1))
    run_patiently(first.writeStream.format("noop"), tmp_path / "checkpoint")


def test_what_cannot_be_merged_is_refused_at_once(spark: SparkSession, tmp_path: Path) -> None:
    from spark_world import FileFeed

    from lmerge.spark.merging.query import MergeInput, merge

    good = FileFeed(tmp_path / "in", FIELDS).stream(spark)
    cases: list[tuple[str, dict[str, Any]]] = [
        ("there are no inputs", {"inputs": []}),
        ("input '0' does not stream", {"inputs": [spark.createDataFrame([], FIELDS)]}),
        ("input '1' has no column 'order' .* order=None", {"inputs": [good, good.drop("order")]}),
        ("input '0' has no column 'vold'", {"inputs": [good.drop("vold")]}),
        ("column 'vs' of input '0' is string", {"inputs": [good.withColumn("vs", good.vs.cast("string"))]}),
        ("column 'payload' of input '0' is bigint", {"inputs": [good.withColumn("payload", good.vs)]}),
        ("by 'r2': it is r3 or r4", {"inputs": [good], "algorithm": "r2"}),
        ("1 to 1024 shards, not 0", {"inputs": [good], "shards": 0}),
        ("unknown policy 'shy'", {"inputs": [good], "policy": "shy"}),
        ("unknown closing 'none'", {"inputs": [good], "closing": "none"}),
        ("cannot be a name of a merge", {"inputs": [good], "name": "a/b"}),
        ("unknown envelope 'rows'", {"inputs": [good], "envelope": "rows"}),
        ("of frames, which need a column of order", {"inputs": [good.selectExpr("payload frame")]}),
        ("property", {"inputs": [MergeInput(good, properties=("tidy",))]}),
    ]
    for reason, given in cases:
        with pytest.raises(UsageError, match=reason):
            merge(**({"checkpoint": "/x"} | given))
