"""A Spark replica: a driver of its own that publishes the rig's table until it is killed.

``python -m bench.rig.spark_replica PIPE``, started by ``spark_fleet``, which is also the supervisor that starts it
again. All processes that come of it carry ``LIFE`` in their environment, so that a kill can mean all of them.
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
    """``folder``: of this replica, with its checkpoint. ``every_ms``: from one batch to the next. ``epoch_s``: the
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


def run(spec: SparkReplicaSpec, told: Connection) -> None:
    """Publish; tells ("batch", number, milliseconds) after each batch."""
    os.environ[LIFE] = spec.life
    scratch = spec.folder / "scratch"
    scratch.mkdir(parents=True, exist_ok=True)
    spark = session(scratch, starts_fast=True)
    register(spark)
    for source in (TableSource, GatedSource):
        spark.dataSource.register(source)
    spark.streams.addListener(Teller(told))
    table = spark.readStream.format(NAME).options(events_per_s=spec.events_per_s, epoch_s=spec.epoch_s).load()
    writer = publish(
        table.withWatermark("vs", "0 seconds"), servers=spec.servers, merge=spec.merge, replica=spec.name, vs="vs",
        ve="ve", late="drop",
    )
    writer = writer.option("checkpointLocation", str(spec.folder / "checkpoint")).option("path", str(spec.folder))
    writer.trigger(processingTime=f"{spec.every_ms} milliseconds").start().awaitTermination()


class Teller(StreamingQueryListener):
    """Tells of batches that are done."""

    def __init__(self, told: Connection) -> None:
        self._told = told

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802  # Spark's names, here and below
        pass

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802
        progress = event.progress
        self._told.send(("batch", progress.batchId, float(progress.durationMs["triggerExecution"])))

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802
        pass

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
        pass


if __name__ == "__main__":
    pipe = Connection(int(sys.argv[1]))
    run(pipe.recv(), pipe)
