"""A replica for a cluster: ``spark-submit replica.py NAME``; its other settings are in the environment.

SERVERS       the servers of the merge, HOST:PORT,HOST:PORT
DEPARTURES    where the rows are, as a URI that every executor can read
CHECKPOINTS   a folder that the driver and all executors share
LMERGE_CA, LMERGE_TOKEN_FILE   files at the same path on driver and executors; without: no encryption
"""

from __future__ import annotations

import os
import sys

from pyspark.sql import SparkSession
from pyspark.sql.functions import window

import lmerge.spark


def main(replica: str) -> None:
    spark = SparkSession.builder.appName(replica).getOrCreate()
    departures = spark.readStream.schema("ts timestamp, carrier string").json(os.environ["DEPARTURES"])
    counts = departures.withWatermark("ts", "2 seconds").groupBy(window("ts", "5 seconds"), "carrier").count()
    query = (
        lmerge.spark.publish(
            counts,
            servers=os.environ["SERVERS"],
            merge="departures",
            replica=replica,
            mode="update",
            vs="window.start",
            ve="window.end",
            security=lmerge.Security(ca=os.environ.get("LMERGE_CA"), token_file=os.environ.get("LMERGE_TOKEN_FILE")),
        )
        .option("checkpointLocation", f"{os.environ['CHECKPOINTS']}/{replica}")
        .start()
    )
    query.awaitTermination()


if __name__ == "__main__":
    main(sys.argv[1])
