"""A driver whose source is silent, in its own process: ``python idle_app.py SCRATCH SERVERS``.

It publishes the rows of the feed in SCRATCH/feed, of which there may be none. When SCRATCH/stop appears, it stops its
session, not its query, makes SCRATCH/stopped, and waits until that is removed. Then it goes on with another session.
"""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from typing import Any

import spark_world

SCHEMA = "ts long, name string, n long"


def start(scratch: Path, servers: str) -> Any:
    spark = spark_world.session(scratch)
    writer = spark_world.publish_flights(spark, spark_world.FileFeed(scratch / "feed", SCHEMA), servers)
    writer.option("checkpointLocation", str(scratch / "checkpoint")).start()
    return spark


def wait_while(claim: bool, path: Path) -> None:
    pause = threading.Event()
    while path.exists() is claim:
        pause.wait(0.05)


def main(scratch: Path, servers: str) -> None:
    spark = start(scratch, servers)
    wait_while(False, scratch / "stop")
    spark.stop()
    (scratch / "stopped").touch()
    wait_while(True, scratch / "stopped")
    start(scratch, servers)
    wait_while(True, scratch)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
