"""Spark for the benchmarks: a session, the times of its batches, and a sink and a source in Python of minimal cost.

The Python workers of Spark import this module by its name; ``session`` sets PYTHONPATH so that they find it.
"""

from __future__ import annotations

import logging
import os
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from lmerge.spark.java import use_java
from lmerge_replicas.spark.session import log_option

ROOT = Path(__file__).parents[2]
PROGRESS_MAX = 2_000  # batches of a query that Spark keeps
_LOOK_S = 0.05
SOCKETS = "spark.python.unix.domain.socket.enabled"  # see docs/spark.md, What a batch costs
# For a plan that runs a few dozen times: on two cores, optimised compilation takes longer than it saves.
_STARTS_FAST = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto"


def session(folder: Path, *, starts_fast: bool = False, **more: str) -> SparkSession:
    """Return a quiet session on two cores with its files in ``folder``, configured as docs/spark.md recommends.

    ``more``: settings, with _ for each dot. Raises UsageError if there is no Java.
    """
    paths = [str(ROOT), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(paths))
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    use_java()
    java = f"{log_option(folder, 'off')} -Dderby.system.home={folder}"
    settings = {
        "spark.master": "local[2]",
        "spark.driver.memory": "1g",
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": f"{java} {_STARTS_FAST}" if starts_fast else java,
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.local.dir": str(folder / "local"),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.sql.streaming.numRecentProgressUpdates": str(PROGRESS_MAX),
        SOCKETS: "true",
        **{name.replace("_", "."): value for name, value in more.items()},
    }
    if starts_fast:
        settings |= {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
    builder = SparkSession.builder.appName("bench")
    for name, value in settings.items():
        builder = builder.config(name, value)
    warnings.filterwarnings("ignore", message=".*pandas")
    logging.getLogger("py4j").setLevel(logging.ERROR)
    spark = builder.getOrCreate()
    for source in (EmptySink, ReadySource):
        spark.dataSource.register(source)
    return spark


@contextmanager
def scratch_session(**more: Any) -> Iterator[tuple[SparkSession, Path]]:
    """Yield a session and a temporary folder for its files and others; ``more``: as for ``session``."""
    with tempfile.TemporaryDirectory(prefix="lmerge-bench-", ignore_cleanup_errors=True) as scratch:
        spark = session(Path(scratch), **more)
        try:
            yield spark, Path(scratch)
        finally:
            spark.stop()


def by_turns(works: Mapping[str, Callable[[], float]], repeats: int) -> dict[str, list[float]]:
    """Return the results of each function. Each repeat calls all, so that other load on the machine hits all alike."""
    found: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(repeats):
        for name, work in works.items():
            found[name].append(work())
    return found


# The times of a query's batches, by Spark's own clock.


def batches_of(query: Any) -> list[dict[str, Any]]:
    """Return the progress of each batch that had rows, in order."""
    return [one for one in query.recentProgress if one["numInputRows"] > 0]


def run_to_end(writer: Any, checkpoint: Path) -> list[dict[str, Any]]:
    """Run a query over all available rows and return its batches. Raises the error that ended it."""
    query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    query.awaitTermination()
    return batches_of(query)


def run_steadily(writer: Any, checkpoint: Path, trigger: str, count: int) -> list[dict[str, Any]]:
    """Run a query for ``count`` batches, one each ``trigger``, and return them. Raises the error that ended it."""
    query = writer.option("checkpointLocation", str(checkpoint)).trigger(processingTime=trigger).start()
    try:
        while len(batches_of(query)) < count:
            query.awaitTermination(_LOOK_S)
    finally:
        query.stop()
    return batches_of(query)[:count]


def batch_ms(batches: Sequence[dict[str, Any]]) -> list[float]:
    """Return the milliseconds of each batch, from its trigger to Spark's note that it is done."""
    return [float(one["durationMs"]["triggerExecution"]) for one in batches]


def rows_per_s(batches: Sequence[dict[str, Any]]) -> float:
    """Return the rows a second while these batches ran."""
    return float(sum(one["numInputRows"] for one in batches)) / sum(batch_ms(batches)) * 1e3


# A sink and a source in Python of minimal cost.


class EmptySink(DataSource):
    """A sink in Python that drops its Arrow batches."""

    @classmethod
    def name(cls) -> str:
        return "bench_empty"

    def streamWriter(self, schema: Any, overwrite: bool) -> EmptyWriter:  # noqa: N802  # Spark's name
        return EmptyWriter()


class EmptyWriter(DataSourceStreamArrowWriter):
    """The writer of ``EmptySink``."""

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        for _ in iterator:
            pass
        return WriterCommitMessage()

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803  # Spark's name
        pass

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803  # Spark's name
        pass


class ReadySource(DataSource):
    """A source in Python of prepared Arrow batches: ``rows`` in all, ``rows_max`` in a batch of the query."""

    @classmethod
    def name(cls) -> str:
        return "bench_ready"

    def schema(self) -> str:
        return "carrier string, flight bigint, delay double, minutes bigint, vs timestamp, ve timestamp"

    def streamReader(self, schema: Any) -> ReadyReader:  # noqa: N802  # Spark's name
        return ReadyReader(int(self.options["rows"]), int(self.options["rows_max"]))


class Stretch(InputPartition):
    """A partition: rows by number."""

    def __init__(self, first: int, end: int) -> None:
        super().__init__(None)
        self.first, self.end = first, end


class ReadyReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The reader of ``ReadySource``; offsets are numbers of rows."""

    def __init__(self, rows: int, rows_max: int) -> None:
        self._rows, self._rows_max = rows, rows_max

    def initialOffset(self) -> dict[str, int]:  # noqa: N802  # Spark's name, as those below
        return {"row": 0}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadMaxRows(self._rows_max)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        pass

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802
        rows = self._rows if isinstance(limit, ReadAllAvailable) else self._rows_max
        return {"row": min(self._rows, start["row"] + rows)}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        middle = (start["row"] + end["row"]) // 2
        return [Stretch(start["row"], middle), Stretch(middle, end["row"])]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        assert isinstance(partition, Stretch)
        batch = _ready_batch()
        for at in range(partition.first, partition.end, batch.num_rows):
            yield batch.slice(0, min(batch.num_rows, partition.end - at))


@lru_cache
def _ready_batch(rows: int = 10_000) -> Any:
    times = pa.array(range(rows)).cast(pa.timestamp("us", "UTC"))
    return pa.record_batch({**small_columns(range(rows)), "vs": times, "ve": times})


def small_columns(numbers: Sequence[int]) -> dict[str, Any]:
    """Return four small columns of a flight, a row for each number; their schema is ``SMALL``."""
    codes = ("UA", "AA", "DL", "B6", "WN", "EV", "MQ", "US")
    make: Callable[..., Any] = pa.array
    return {
        "carrier": make([codes[number % 8] for number in numbers]),
        "flight": make([number % 8_500 for number in numbers], pa.int64()),
        "delay": make([float(number * 7 % 331 - 30) for number in numbers]),
        "minutes": make([number * 13 % 600 for number in numbers], pa.int64()),
    }


SMALL = {"carrier": "string?", "flight": "int?", "delay": "float?", "minutes": "int?"}
