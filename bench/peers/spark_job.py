"""The job in PySpark: ``dropDuplicatesWithinWatermark`` over a union, in Structured Streaming.

Variants: ``micro-batches`` reads one file of each input per trigger. ``one batch`` takes everything at once, so that no
state expires: the most that this engine can do, not a stream.
"""

from __future__ import annotations

import platform
import tempfile
import time
from functools import reduce
from pathlib import Path

import pyspark
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import timestamp_millis

from bench.peers.job import DELAY_MS, INPUTS, serve

spark = (
    SparkSession.builder.master("local[2]")
    .config("spark.driver.memory", "6g")
    .config("spark.sql.shuffle.partitions", 2)
    .config("spark.ui.enabled", "false")
    .config("spark.ui.showConsoleProgress", "false")
    .config("spark.log.level", "ERROR")
    .getOrCreate()
)


def input_stream(data: Path, at: int, variant: str) -> DataFrame:
    reader = spark.readStream.schema("vs LONG, payload STRING, ve LONG")
    if variant == "micro-batches":
        reader = reader.option("maxFilesPerTrigger", 1)
    rows = reader.parquet(str(data / "segments" / str(at)))
    return rows.withColumn("time", timestamp_millis("vs")).withWatermark("time", f"{DELAY_MS} milliseconds")


def run(data: Path, variant: str, output: Path | None) -> float:
    began = time.perf_counter()
    inputs = [input_stream(data, at, variant) for at in range(INPUTS)]
    merged = reduce(DataFrame.union, inputs).dropDuplicatesWithinWatermark(["vs", "payload"])
    with tempfile.TemporaryDirectory() as checkpoint:
        writer = merged.writeStream.trigger(availableNow=True).option("checkpointLocation", checkpoint)
        if output is None:
            query = writer.format("noop").start()
        else:
            query = writer.format("parquet").option("path", str(output)).start()
        query.awaitTermination()
        return time.perf_counter() - began


if __name__ == "__main__":
    serve(run, {"pyspark": pyspark.__version__, "python": platform.python_version()})
