"""The count in PySpark: ``groupBy(window, key).count()`` with a watermark, in append mode of Structured Streaming.

Variants: ``micro-batches`` reads one file per trigger. ``one batch`` takes everything at once: not a stream.
"""

from __future__ import annotations

import platform
import tempfile
import time
from pathlib import Path

import pyspark
from pyspark.sql import DataFrame
from pyspark.sql.functions import col, count, timestamp_millis, unix_millis, window

from bench.counts.definition import DELAY_MS, WINDOW_MS
from bench.peers.job import serve
from bench.peers.spark_job import spark


def run(data: Path, variant: str, output: Path | None) -> float:
    began = time.perf_counter()
    if variant == "one batch":
        rows = spark.read.parquet(str(data / "rows.parquet"))
        starts = (col("ts") - col("ts") % WINDOW_MS).alias("window_start")
        counted = rows.groupBy(starts, "key").agg(count("*").alias("n"))
        if output is None:
            counted.write.format("noop").mode("overwrite").save()
        else:
            counted.write.mode("append").parquet(str(output / "counts"))
        return time.perf_counter() - began
    rows = spark.readStream.schema("ts LONG, key STRING").option("maxFilesPerTrigger", 1)
    timed = rows.parquet(str(data / "segments")).withColumn("time", timestamp_millis("ts"))
    grouped = timed.withWatermark("time", f"{DELAY_MS} milliseconds").groupBy(
        window("time", f"{WINDOW_MS} milliseconds"), "key"
    )
    # In append mode what the watermark has not passed never comes out; complete output would keep all state.
    counted = grouped.agg(count("*").alias("n")).select(unix_millis("window.start").alias("window_start"), "key", "n")
    counts: dict[tuple[int, str], int] = {}
    with tempfile.TemporaryDirectory() as checkpoint:
        writer = counted.writeStream.trigger(availableNow=True).option("checkpointLocation", checkpoint)
        if output is None:
            query = writer.outputMode("update").format("noop").start()
        else:
            query = writer.outputMode("update").foreachBatch(lambda batch, _: keep(batch, counts)).start()
        query.awaitTermination()
    if output is not None:
        write(counts, output / "counts.csv")
    return time.perf_counter() - began


def keep(batch: DataFrame, counts: dict[tuple[int, str], int]) -> None:
    """Take what a micro-batch has updated."""
    counts.update(((row.window_start, row.key), row.n) for row in batch.toLocalIterator())


def write(counts: dict[tuple[int, str], int], path: Path) -> None:
    """Write the newest count of each window and key."""
    lines = (f"{start},{key},{n}\n" for (start, key), n in counts.items())
    path.write_text("window_start,key,n\n" + "".join(lines))


if __name__ == "__main__":
    serve(run, {"pyspark": pyspark.__version__, "python": platform.python_version()})
