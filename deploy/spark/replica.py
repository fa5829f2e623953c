"""A replica for a cluster: ``spark-submit replica.py update`` or ``spark-submit replica.py append``.

Both plans count the departures of each carrier in windows of five seconds and come to the same table: ``update``
publishes each count at once and revises it, ``append`` publishes it once, when the watermark has passed its window.
Two replicas of one plan, one of each, or a cutover from one to the other: all of them give one stream.

LMERGE_SERVERS     the servers of the merge, HOST:PORT,HOST:PORT
LMERGE_REPLICA     the name of this replica; its checkpoint is the folder of this name
LMERGE_MERGE       the merge; without: departures
LMERGE_ROLE        active, or observe: compared, and never emitted. The controller sets all four
DEPARTURES         where the rows are, as a URI that every executor can read
CHECKPOINTS        a folder that the driver and all executors share, as a URI
LMERGE_CA, LMERGE_TOKEN_FILE   files at the same path on driver and executors; without: no encryption
"""

from __future__ import annotations

import os
import sys

from pyspark.sql import SparkSession
from pyspark.sql.functions import window

import lmerge.spark


def main(plan: str) -> None:
    replica = os.environ["LMERGE_REPLICA"]
    spark = SparkSession.builder.appName(replica).getOrCreate()
    departures = spark.readStream.schema("ts timestamp, carrier string").json(os.environ["DEPARTURES"])
    counts = departures.withWatermark("ts", "2 seconds").groupBy(window("ts", "5 seconds"), "carrier").count()
    query = (
        lmerge.spark.publish(
            counts,
            servers=os.environ["LMERGE_SERVERS"],
            merge=os.environ.get("LMERGE_MERGE", "departures"),
            replica=replica,
            mode=plan,
            vs="window.start",
            ve="window.end",
            running=lmerge.spark.Running(role=os.environ.get("LMERGE_ROLE", "active")),
            security=lmerge.Security(ca=os.environ.get("LMERGE_CA"), token_file=os.environ.get("LMERGE_TOKEN_FILE")),
        )
        .option("checkpointLocation", f"{os.environ['CHECKPOINTS']}/{replica}")
        .start()
    )
    query.awaitTermination()


if __name__ == "__main__":
    main(sys.argv[1])
