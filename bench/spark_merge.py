"""How many elements a second does a merge take as a Spark query, by shards, compared with the core alone?

Two inputs, 16-byte payloads, 20 % disorder, 1 % stables, 100,000 live events; R3; ``local[2]`` and as many shuffle
partitions as shards. Each batch reads one file of each input, once of 100,000 elements and once of 400,000, to show the
cost of a batch that does not depend on its size. Left out: the first batch, in which workers start, and the last, which
is smaller. Spark's figure includes everything: Parquet, packing, two shuffles, state, rows of the output; wall time.
Beside it: the core alone, on one thread, with batches as they come from the network, and a query that only reads the
same files.

Then the cost of state per batch, in two ways: a snapshot of the merge and its restore, against one read and one write
of Spark's map state for each node that changes.
"""

from __future__ import annotations

import os
import tempfile
import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import reduce
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

from bench.core_r3 import PROPERTIES, arrivals
from bench.harness import BenchReport, begin, bench_parser, timed
from bench.rig.spark import scratch_session
from lmerge.core.batch import AnyBatch
from lmerge.core.engines.selection import best
from lmerge.core.merge import Merge
from lmerge.core.merge_config import MergeConfig
from lmerge.core.snapshot import restored, snapshot_of
from lmerge.spark.merging.query import merge
from lmerge.spark.sink.columns import batch_of
from lmerge.testing.streams.large_inputs import LARGE, LargeInputs

SHARDS = (1, 2, 4)
REPEATS = 3
SPECS = [
    LargeInputs(replace(LARGE, events=6 * rows, alive=100_000), inputs=2, batch_rows=rows)
    for rows in (100_000, 400_000)
]
QUICK = [LargeInputs(replace(LARGE, events=20_000, alive=5_000), inputs=2, batch_rows=10_000)]
NODES = 20_000
KINDS = ("insert", "adjust", "stable")
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
SCHEMA = "`order` long, kind string, payload binary, vs long, ve long, vold long"


class Nodes(StatefulProcessor):
    """Does one read and one write of map state for each row, and returns the seconds that they took."""

    def init(self, handle: Any) -> None:
        self._nodes = handle.getMapState("nodes", "vs long, payload binary", "ends array<long>")

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Row]:  # noqa: N802, N803
        items = [(row.vs, bytes(row.payload)) for row in rows]
        began = time.perf_counter()
        for item in items:
            self._nodes.getValue(item)
            self._nodes.updateValue(item, ([item[0], item[0]],))
        yield Row(rows=len(items), seconds=time.perf_counter() - began)

    def close(self) -> None:
        pass


def write_inputs(folder: Path, inputs: Sequence[Sequence[AnyBatch]]) -> list[int]:
    """Write a folder of Parquet files per input, one file a batch. Return the number of elements of each batch."""
    counts = [0] * max(map(len, inputs))
    for number, batches in enumerate(inputs):
        where = folder / f"in{number}"
        where.mkdir()
        order = 0
        for at, batch in enumerate(batches):
            stables = [kind == 2 for kind in batch.kinds]
            table = pa.table(
                {
                    "order": pa.array(range(order, order + batch.count)),
                    "kind": [KINDS[kind] for kind in batch.kinds],
                    "payload": pa.array(batch.payloads, pa.binary(), mask=_mask(stables)),
                    "vs": pa.array(batch.vs),
                    "ve": pa.array(batch.ve),
                    "vold": pa.array(batch.vold),
                }
            )
            order += batch.count
            counts[at] += batch.count
            pq.write_table(table, where / f"{at:04}.parquet")
            os.utime(where / f"{at:04}.parquet", (at + 1, at + 1))
    return counts


def _mask(stables: list[bool]) -> Any:
    import numpy

    return numpy.array(stables)


def stream(spark: SparkSession, folder: Path) -> DataFrame:
    return spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(folder))


def spark_rate(spark: SparkSession, folder: Path, counts: list[int], shards: int | None) -> float:
    """Return elements a second of all batches but the first and the last; ``shards`` None: the query only reads."""
    inputs = [stream(spark, one) for one in sorted(folder.glob("in*"))]
    if shards is None:
        rows = reduce(DataFrame.unionAll, inputs)
    else:
        spark.conf.set("spark.sql.shuffle.partitions", str(shards))
        rows = merge(inputs, algorithm="r3", shards=shards)
    with tempfile.TemporaryDirectory(dir=folder) as checkpoint:
        writer = rows.writeStream.format("noop").option("checkpointLocation", checkpoint)
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        seconds = {one["batchId"]: one["durationMs"]["triggerExecution"] / 1e3 for one in query.recentProgress}
    ran = [at for at in range(1, len(counts) - 1) if at in seconds]
    took_s: float = sum(seconds[at] for at in ran)
    return sum(counts[at] for at in ran) / took_s


def core_rate(order: list[tuple[str, AnyBatch]]) -> float:
    """Return the elements a second of the core alone, on the engine of the service."""

    def run() -> None:
        merging = Merge(MergeConfig("r3", track_live=False))
        for name in sorted({name for name, _ in order}):
            merging.attach(name, PROPERTIES["r3"])
        for name, batch in order:
            assert not merging.apply(name, batch).detached

    return sum(batch.count for _, batch in order) / timed(run)


def measure_state(report: BenchReport, spark: SparkSession, folder: Path, order: list[tuple[str, AnyBatch]]) -> None:
    """Measure microseconds per live event of a snapshot and of its restore, and per node of map state."""
    merging = Merge(MergeConfig("r3", track_live=False))
    for name in sorted({name for name, _ in order}):
        merging.attach(name, PROPERTIES["r3"])
    for name, batch in order[: len(order) // 2]:
        merging.apply(name, batch)
    data, live = snapshot_of(merging), merging.live_count
    taken = [timed(lambda: snapshot_of(merging)) / live * 1e6 for _ in range(REPEATS)]
    took = [timed(lambda: restored(data)) / live * 1e6 for _ in range(REPEATS)]
    snapshot = report.add(f"snapshot of {live:,} live events", taken, "us/event")
    restore = report.add(f"restore of {live:,} live events", took, "us/event")
    per_node: list[float] = []

    def keep(rows: DataFrame, _: int) -> None:
        per_node.extend(row.seconds / row.rows * 1e6 for row in rows.collect())

    spark.conf.set("spark.sql.shuffle.partitions", "1")
    rows = stream(spark, folder / "in0").where("kind = 'insert'").selectExpr("1 g", "vs", "payload", "`order` o")
    timed_nodes = (
        rows.where(f"o % {max(1, SPECS[0].batch_rows // NODES)} = 0")
        .groupBy("g")
        .transformWithState(Nodes(), "rows long, seconds double", "Append", "None")
    )
    with tempfile.TemporaryDirectory(dir=folder) as checkpoint:
        query = timed_nodes.writeStream.foreachBatch(keep).option("checkpointLocation", checkpoint)
        query.trigger(availableNow=True).start().awaitTermination()
    node = report.add("map state, a read and a write", per_node[1:] or per_node, "us/node")
    share = (snapshot.median + restore.median) / node.median
    report.note(f"a snapshot and a restore cost less where a batch changes {share:.1%} of the live events, or more")


def main() -> None:
    parser = bench_parser(__doc__, "spark_merge", "small")
    quick = parser.parse_args().quick
    specs, repeats = (QUICK, 1) if quick else (SPECS, REPEATS)
    warnings.filterwarnings("ignore", message=".*pandas", category=FutureWarning)
    report = begin((__doc__ or "").splitlines()[0])
    with scratch_session(spark_sql_streaming_stateStore_providerClass=ROCKSDB) as (spark, folder):
        orders = [measure_rates(report, spark, folder / str(at), spec, repeats) for at, spec in enumerate(specs)]
        measure_state(report, spark, folder / "0", orders[0])
    if not quick:
        report.save("spark_merge")


def measure_rates(
    report: BenchReport, spark: SparkSession, folder: Path, spec: LargeInputs, repeats: int
) -> list[tuple[str, AnyBatch]]:
    """Measure elements a second of the core and of Spark with batches of this size. Return them in order of arrival."""
    folder.mkdir()
    inputs = [list(batches) for batches in spec.batches()]
    counts = write_inputs(folder, inputs)
    order = [(name, _columns(batch)) for name, batch in arrivals(inputs)]
    alone = f"the core alone, {best()}, one thread, {spec.facets.events:,} events"
    core = report.add(alone, [core_rate(order) for _ in range(repeats)], "elements/s")
    of_size = f"Spark, 2 cores, {spec.inputs * spec.batch_rows:,} a batch"
    report.add(f"{of_size}, only read", [spark_rate(spark, folder, counts, None) for _ in range(repeats)], "elements/s")
    for shards in SHARDS:
        rates = [spark_rate(spark, folder, counts, shards) for _ in range(repeats)]
        row = report.add(f"{of_size}, {shards} shards", rates, "elements/s")
        report.note(f"{shards} shards / the core alone = {row.median / core.median:.3f}")
    return order


def _columns(batch: AnyBatch) -> AnyBatch:
    """Return a batch in the form of the best engine."""
    vs, ve, vold = (pa.array(column, pa.int64()) for column in (batch.vs, batch.ve, batch.vold))
    return batch_of(batch.kinds, vs, ve, vold, pa.array(batch.payloads, pa.binary()))


if __name__ == "__main__":
    main()
