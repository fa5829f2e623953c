"""Helpers for the tests of the connector: a quiet session, a source that gives one file a batch, servers, readers.

It also holds what Spark's processes must find (data sources, functions), as they import it by name.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lmerge
from lmerge.core.batch import Batch
from lmerge.core.elements import Event, Stable
from lmerge.core.tdb import Tdb

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
MERGE = "flights"
S = 1_000_000  # a second, in microseconds


def settings(scratch: Path) -> dict[str, str]:
    """Return the settings of a session for tests."""
    from lmerge_replicas.spark.session import log_option

    # Tests run each plan once or twice, so compiling it well costs more than it saves.
    quiet = f"{log_option(scratch, 'off')} -Dderby.system.home={scratch}"
    cheap = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    return {
        "spark.master": "local[2,3]",
        "spark.driver.memory": "1g",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": f"{quiet} {cheap}",
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.local.dir": str(scratch / "local"),
    }


def session(scratch: Path, **over: str) -> SparkSession:
    """Return a quiet session with its files in ``scratch``. ``over``: more settings, with ``_`` for dots in names."""
    from pyspark.sql import SparkSession

    paths = [str(HERE), str(ROOT), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(paths))
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    builder = SparkSession.builder.appName("tests")
    other = {name.replace("_", "."): value for name, value in over.items()}
    for name, value in (settings(scratch) | other).items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def cluster_session(scratch: Path, master: str, **over: str) -> SparkSession:
    """Return a session whose executors are small processes of one core. ``over``: as for ``session``."""
    executors = {
        "spark_executor_memory": "512m",
        "spark_executor_cores": "1",
        "spark_executor_extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    }
    return session(scratch, spark_master=master, **executors, **over)


class FileFeed:
    """A folder of JSON files. Spark reads one in each batch, in the order in which they were added."""

    def __init__(self, folder: Path, schema: str) -> None:
        self.folder, self.schema, self._count = folder, schema, 0
        folder.mkdir(parents=True, exist_ok=True)

    def put(self, *rows: Mapping[str, Any]) -> None:
        """Add one more batch."""
        self._count += 1
        path = self.folder / f"{self._count:05}.json"
        unseen = self.folder / f".{path.name}"
        unseen.write_text("".join(json.dumps(row) + "\n" for row in rows))
        os.utime(unseen, (self._count, self._count))  # the order of files is that of their times
        unseen.rename(path)

    def stream(self, spark: SparkSession) -> DataFrame:
        """Return the rows unchanged."""
        reader = spark.readStream.schema(self.schema).option("maxFilesPerTrigger", 1)
        return reader.json(str(self.folder))

    def timed(self, spark: SparkSession, *columns: str) -> DataFrame:
        """Return the rows with ``columns`` of microseconds as timestamps."""
        from pyspark.sql import functions

        stream = self.stream(spark)
        for name in columns:
            stream = stream.withColumn(name, functions.timestamp_micros(name))
        return stream


def run_to_end(writer: Any, checkpoint: Path) -> Any:
    """Run the query over all present rows, and return it when it has ended. Raises its exception."""
    query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    query.awaitTermination()
    return query


def table(elements: Sequence[Any]) -> list[Event]:
    """Return the events of the elements. Raises InputViolation if they are no legal stream."""
    tdb = Tdb("stream")
    tdb.apply_batch(Batch.of(elements))
    return tdb.events()


def unreachable_server() -> str:
    """Return an address at which no server listens."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{free.getsockname()[1]}"


class OutputRecorder:
    """Reads a merge in a thread, from its beginning. With one replica and policy eager these are its own elements."""

    def __init__(self, target: str, merge: str = MERGE) -> None:
        self.elements: list[Any] = []
        self._subscriber = lmerge.Subscriber(target, merge, wait_for_merge=True)
        self._grew = threading.Condition()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def until(self, claim: Callable[[list[Any]], Any]) -> list[Any]:
        """Wait until ``claim`` holds of the elements, and return them."""
        with self._grew:
            while not claim(self.elements):
                assert self._grew.wait(240), f"{len(self.elements)} elements, and no more: {self.elements[-5:]}"
            return list(self.elements)

    def until_stable(self, vc: int) -> list[Any]:
        return self.until(lambda elements: any(isinstance(e, Stable) and e.vc >= vc for e in elements))

    def close(self) -> None:
        self._subscriber.close()
        self._thread.join(10)

    def _read(self) -> None:
        for batch in self._subscriber.batches():
            with self._grew:
                self.elements += batch.elements()
                self._grew.notify_all()


@contextmanager
def recorded(target: str, merge: str = MERGE) -> Iterator[OutputRecorder]:
    recorder = OutputRecorder(target, merge)
    try:
        yield recorder
    finally:
        recorder.close()


def publish_flights(spark: SparkSession, feed: FileFeed, servers: str, **options: Any) -> Any:
    """Publish rows (ts, name, n) as events of a minute, with ten seconds of lateness."""
    from lmerge.spark import publish

    rows = (
        feed.timed(spark, "ts")
        .withWatermark("ts", "10 seconds")
        .selectExpr("ts", "ts + INTERVAL 1 MINUTE AS until", "name", "n")
    )
    given = {"merge": MERGE, "replica": "a", "vs": "ts", "ve": "until", "late": "drop"}
    return publish(rows, servers=servers, **(given | options))


def publish_counts(spark: SparkSession, feed: FileFeed, servers: str, mode: str = "update", **options: Any) -> Any:
    """Publish the number of rows of each name in each ten seconds, with revisions."""
    from pyspark.sql import functions

    from lmerge.spark import publish

    counts = (
        feed.timed(spark, "ts")
        .withWatermark("ts", "10 seconds")
        .groupBy(functions.window("ts", "10 seconds"), "name")
        .count()
    )
    given = {"merge": MERGE, "replica": "a", "vs": "window.start", "ve": "window.end", "mode": mode}
    return publish(counts, servers=servers, **(given | options))


PLANS: dict[str, Callable[..., Any]] = {"append": publish_flights, "update": publish_counts}


@contextmanager
def secure(folder: Path, **settings: Any) -> Iterator[Any]:
    """Run a SecureWorld whose loop runs in a thread."""
    from secure_world import SecureWorld

    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()

    def run(work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, loop).result(60)

    world = SecureWorld(folder, **settings)
    run(world.__aenter__())
    try:
        yield world
    finally:
        run(world.__aexit__())
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
