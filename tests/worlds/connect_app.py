"""A client of Spark Connect with a server of its own: ``python connect_app.py SCRATCH SERVERS``.

Its results are in SCRATCH/connect.json.
"""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import spark_world
from driver_world import SCHEMA
from spark_world import MERGE, FileFeed, publish_counts, publish_flights, run_to_end


def main(scratch: Path, servers: str) -> None:
    warnings.simplefilter("ignore")
    spark = session(scratch)
    feed = FileFeed(scratch / "feed", SCHEMA)
    from lmerge.spark import explain, skip_to

    by_hand: dict[str, Any] = {
        "properties": ["key"],
        "stable_lag": "10 seconds",
        "keys": ["window.start", "name"],
        "allow": ["unread"],
    }
    results = {
        "session": type(spark).__module__,
        "append": error_of(lambda: publish_flights(spark, feed, servers, merge="refused")),
        "update": error_of(lambda: publish_counts(spark, feed, servers, merge="refused", properties=["key"])),
        "skip": error_of(lambda: skip_to(feed.timed(spark, "ts"), "ts", checkpoint=str(scratch))),
        "explain": explain(feed.timed(spark, "ts"), "ts", properties=[], stable_lag_us=0),
    }
    run_to_end(publish_counts(spark, feed, servers, **by_hand), scratch / "updates")
    inserts: dict[str, Any] = {"properties": ["insert-only"], "stable_lag": "0 seconds", "allow": ["unread"]}
    run_to_end(publish_flights(spark, feed, servers, merge="appended", **inserts), scratch / "appends")
    rows = spark.readStream.format("lmerge").options(servers=servers, merge=MERGE, startingOffsets="earliest").load()
    run_to_file(rows, scratch / "read")
    results["read"] = str(spark.read.schema(rows.schema).json(str(scratch / "read")).count())
    results["now"] = str(spark.read.format("lmerge").options(servers=servers, merge=MERGE).load().columns)
    (scratch / "connect.json").write_text(json.dumps(results))
    spark.stop()


def session(scratch: Path) -> Any:
    """Return a session whose server is in a JVM of this process, at a free port."""
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.remote("local[2]")
    for name, value in spark_world.settings(scratch).items():
        if name != "spark.master":
            builder = builder.config(name, value)
    return builder.getOrCreate()


def run_to_file(rows: Any, folder: Path) -> None:
    writer = rows.writeStream.format("json").option("checkpointLocation", f"{folder}-checkpoint")
    writer.trigger(availableNow=True).start(str(folder)).awaitTermination()


def error_of(work: Callable[[], Any]) -> str:
    """Return the error with which ``work`` is refused."""
    try:
        work()
    except Exception as problem:
        return f"{type(problem).__name__}: {problem}"
    return "taken"


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
