"""A Spark replica: a driver of its own that publishes the rig's table until it is killed.

``python -m bench.rig.spark_replica PIPE``, started and restarted by ``spark_fleet``. All its child processes carry
``LIFE`` in their environment, so that a kill can find all of them.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from pyspark.sql.streaming.listener import StreamingQueryListener

from bench.rig.spark import session
from bench.rig.spark_gates import GatedSource
from bench.rig.spark_table import NAME, TableSource
from lmerge.spark import publish, register

LIFE = "LMERGE_BENCH_LIFE"


@dataclass(frozen=True)
class SparkReplicaSpec:
    """The parameters of a Spark replica.

    ``folder``: of this replica, with its checkpoint. ``every_ms``: from one batch to the next. ``epoch_s``: the
    monotonic time at which event 0 is due. ``life``: the mark of its processes.
    """

    name: str
    servers: str
    merge: str
    folder: Path
    events_per_s: int
    epoch_s: float
    every_ms: int
    life: str


def run(spec: SparkReplicaSpec, pipe: Connection) -> None:
    """Publish, and send ("batch", number, milliseconds) after each batch."""
    os.environ[LIFE] = spec.life
    scratch = spec.folder / "scratch"
    scratch.mkdir(parents=True, exist_ok=True)
    spark = session(scratch, starts_fast=True)
    register(spark)
    for source in (TableSource, GatedSource):
        spark.dataSource.register(source)
    spark.streams.addListener(BatchReports(pipe))
    table = spark.readStream.format(NAME).options(events_per_s=spec.events_per_s, epoch_s=spec.epoch_s).load()
    writer = publish(
        table.withWatermark("vs", "0 seconds"),
        servers=spec.servers,
        merge=spec.merge,
        replica=spec.name,
        vs="vs",
        ve="ve",
        late="drop",
    )
    writer = writer.option("checkpointLocation", str(spec.folder / "checkpoint")).option("path", str(spec.folder))
    writer.trigger(processingTime=f"{spec.every_ms} milliseconds").start().awaitTermination()


class BatchReports(StreamingQueryListener):
    """Sends a message for each batch that is done."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802  # Spark's names, here and below
        pass

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802
        progress = event.progress
        self._pipe.send(("batch", progress.batchId, float(progress.durationMs["triggerExecution"])))

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802
        pass

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
        pass


if __name__ == "__main__":
    pipe = Connection(int(sys.argv[1]))
    run(pipe.recv(), pipe)
