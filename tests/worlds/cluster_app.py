"""A driver whose executors are other processes: ``python cluster_app.py SCRATCH SERVERS [MASTER]``.

It publishes the rows of the feed in SCRATCH/feed to the end, reads the merge into SCRATCH/read, and records the engine
and source of its executors. It also tries a spool that is another folder for each process. Places to stop are in
SCRATCH/hooks.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import spark_world
from driver_world import HOUR, SCHEMA, started
from hooks import hook, reach

MASTER = "local-cluster[2,1,1024]"


def main(scratch: Path, servers: str, master: str = MASTER) -> None:
    spark = spark_world.cluster_session(scratch, master, spark_cores_max="2")
    hook(spark)
    feed = spark_world.FileFeed(scratch / "feed", SCHEMA)
    writer = spark_world.publish_counts(spark, feed, servers).option("path", str(scratch / "hooks"))
    started(writer, scratch).awaitTermination()
    note(
        scratch,
        "executors",
        [
            row.asDict()
            for row in spark.range(4)
            .repartition(2)
            .mapInArrow(whereabouts, "engine string, source string")
            .distinct()
            .collect()
        ],
    )
    note(scratch, "read", read(spark, scratch, servers))
    note(scratch, "unshared", unshared(spark, scratch, servers, feed))
    spark.stop()


def whereabouts(batches: Iterator[Any]) -> Iterator[Any]:
    """Return the engine and the source of lmerge. Runs in an executor."""
    import pyarrow as pa

    import lmerge
    from lmerge.core.engines import selection

    assert any(batch.num_rows for batch in batches)
    yield pa.RecordBatch.from_pylist([{"engine": selection.best(), "source": lmerge.__file__}])


def read(spark: Any, scratch: Path, servers: str) -> list[dict[str, Any]]:
    """Return the final events of the merge from a sink. Each task reads its own range of time from a server."""
    rows = (
        spark.readStream.format("lmerge")
        .options(
            servers=servers, merge=spark_world.MERGE, timeType="long", startingOffsets=str(HOUR - 1), partitions="2"
        )
        .load()
    )
    stopping = rows.mapInArrow(Stop(str(scratch / "hooks")), rows.schema)
    writer = stopping.writeStream.format("json").option("checkpointLocation", str(scratch / "reading"))
    writer.trigger(once=True).start(str(scratch / "read")).awaitTermination()
    return [row.asDict() for row in spark.read.schema(rows.schema).json(str(scratch / "read")).collect()]


class Stop:
    """Passes rows on in a task, with the place ``read`` after the first batch of them."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        for batch in batches:
            yield batch
            reach(Path(self.folder), "read", int(context.getLocalProperty("streaming.sql.batchId") or 0))


def unshared(spark: Any, scratch: Path, servers: str, feed: spark_world.FileFeed) -> str:
    """Return the error of a query whose executors have another folder than the driver, by a relative path."""
    from lmerge.spark import Running

    writer = spark_world.publish_flights(spark, feed, servers, merge="unshared", running=Running(spool="here"))
    query = writer.option("checkpointLocation", str(scratch / "other")).trigger(availableNow=True).start()
    try:
        query.awaitTermination()
    except Exception as problem:
        return str(problem)
    return ""


def note(scratch: Path, name: str, content: Any) -> None:
    (scratch / f"{name}.json").write_text(json.dumps(content))


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
