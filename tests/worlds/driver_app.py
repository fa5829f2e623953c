"""A driver in its own process, to be killed: ``python driver_app.py SCRATCH SERVERS PLAN``.

It publishes the rows of the feed in SCRATCH/feed to the end, with places to stop in SCRATCH/hooks.
"""

from __future__ import annotations

import sys
from pathlib import Path

import spark_world
from hooks import hook

SCHEMA = "ts long, name string, n long"


def main(scratch: Path, servers: str, plan: str) -> None:
    spark = spark_world.session(scratch)
    hook(spark)
    writer = spark_world.PLANS[plan](spark, spark_world.FileFeed(scratch / "feed", SCHEMA), servers)
    query = writer.option("path", str(scratch / "hooks")).option("checkpointLocation", str(scratch / "checkpoint"))
    query.trigger(availableNow=True).start().awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3])
