"""Metrics of the queries of a Spark driver and of its JVM, for Prometheus.

Spark reports each batch to a listener in the driver's Python: its rows, its duration and the watermark. The heap and
the garbage collections of the JVM are read when Prometheus scrapes. With Spark Connect the JVM is elsewhere, and has no
listener here; its own server exports it.

``export_metrics`` serves them. ``publish`` calls it by itself if LMERGE_METRICS_PORT is set in the driver's
environment. What a query has published is known to its agent and to the servers: they report it by input.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from pyspark.sql.streaming.listener import StreamingQueryListener

from lmerge.client.metrics import LOOPBACK, MetricsPort, export
from lmerge.errors import UsageError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_QUERY: Final = ["query"]


@dataclass(slots=True)
class QueryFigures:
    """What a query has reported so far. Sums are of the batches that this driver has seen."""

    batches: int = 0
    input_rows: int = 0
    batch_seconds: float = 0.0
    last_batch_s: float = 0.0
    batch_id: int = -1
    watermark_s: float | None = None  # since the epoch
    reported_s: float = 0.0  # since the epoch

    def note(self, progress: Any) -> None:
        """Add the progress of one trigger, as Spark reports it."""
        took_s = progress.durationMs.get("triggerExecution", 0) / 1000
        self.reported_s = _seconds(progress.timestamp)
        watermark = progress.eventTime.get("watermark")
        if watermark is not None:
            self.watermark_s = _seconds(watermark)
        self.input_rows += progress.numInputRows
        self.batch_seconds += took_s
        self.last_batch_s = took_s
        if progress.batchId != self.batch_id:
            self.batch_id = progress.batchId
            self.batches += 1


class QueryFigureListener(StreamingQueryListener):
    """Collects the figures of the queries of a session, by name or, without a name, by id. A query that ends goes."""

    def __init__(self) -> None:
        self._figures: dict[str, QueryFigures] = {}
        self._names: dict[str, str] = {}  # run -> label
        self._lock = threading.Lock()

    def figures(self) -> list[tuple[str, QueryFigures]]:
        """Return the figures of the queries that run, by label."""
        with self._lock:
            return sorted(self._figures.items())

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802  # Spark's names, here and below
        with self._lock:
            label = event.name or str(event.id)
            self._names[str(event.runId)] = label
            self._figures[label] = QueryFigures()

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802
        with self._lock:
            label = self._names.get(str(event.progress.runId))
            if label is not None:
                self._figures[label].note(event.progress)

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802
        pass

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
        with self._lock:
            label = self._names.pop(str(event.runId), None)
            if label is not None and label not in self._names.values():
                self._figures.pop(label, None)


class SparkMetrics(Collector):
    """Collects the metrics of a session. ``registry``: where it registers itself. Raises UsageError for Connect."""

    def __init__(self, spark: SparkSession, registry: CollectorRegistry) -> None:
        if type(spark).__module__.startswith("pyspark.sql.connect"):
            raise UsageError("cannot export metrics of Spark here: with Spark Connect its JVM is elsewhere")
        self._spark = spark
        self._listener = QueryFigureListener()
        spark.streams.addListener(self._listener)
        registry.register(self)

    def close(self) -> None:
        """Stop listening to the session."""
        self._spark.streams.removeListener(self._listener)

    def describe(self) -> Iterable[Metric]:
        """Return nothing: ``collect`` gives the names."""
        return ()

    def collect(self) -> Iterator[Metric]:
        yield from _query_families(self._listener.figures())
        yield from _jvm_families(self._spark)


def export_metrics(spark: SparkSession, port: int, host: str = LOOPBACK) -> MetricsPort:
    """Serve the metrics of a session's queries, of its JVM and of this process. ``port`` 0: any free one.

    Raises AddressInUse; UsageError with Spark Connect.
    """
    registry = CollectorRegistry()
    SparkMetrics(spark, registry)
    return export(registry, port, host)


def _query_families(figures: list[tuple[str, QueryFigures]]) -> Iterator[Metric]:
    batches = CounterMetricFamily("lmerge_spark_batches", "Batches of the query in this driver", labels=_QUERY)
    rows = CounterMetricFamily("lmerge_spark_input_rows", "Rows that its batches have read", labels=_QUERY)
    seconds = CounterMetricFamily("lmerge_spark_batch_seconds", "Time that its triggers took", labels=_QUERY)
    last = GaugeMetricFamily("lmerge_spark_last_batch_seconds", "Time that the last trigger took", labels=_QUERY)
    number = GaugeMetricFamily("lmerge_spark_batch_number", "Number of the last batch", labels=_QUERY)
    watermark = GaugeMetricFamily(
        "lmerge_spark_watermark_timestamp_seconds", "Watermark of the last batch", labels=_QUERY
    )
    reported = GaugeMetricFamily(
        "lmerge_spark_progress_timestamp_seconds", "When the last trigger began", labels=_QUERY
    )
    for label, found in figures:
        batches.add_metric([label], found.batches)
        rows.add_metric([label], found.input_rows)
        seconds.add_metric([label], found.batch_seconds)
        if not found.reported_s:
            continue  # it has reported nothing yet
        last.add_metric([label], found.last_batch_s)
        number.add_metric([label], found.batch_id)
        reported.add_metric([label], found.reported_s)
        if found.watermark_s is not None:
            watermark.add_metric([label], found.watermark_s)
    yield from (batches, rows, seconds, last, number, watermark, reported)


def _jvm_families(spark: SparkSession) -> Iterator[Metric]:
    from py4j.protocol import Py4JError

    heap = GaugeMetricFamily("lmerge_spark_heap_bytes", "Heap of the driver's JVM", labels=["kind"])
    runs = CounterMetricFamily("lmerge_spark_gc_collections", "Garbage collections of the JVM", labels=["collector"])
    seconds = CounterMetricFamily("lmerge_spark_gc_seconds", "Time that they took", labels=["collector"])
    jvm: Any = vars(spark).get("_jvm")
    with suppress(Py4JError, OSError):  # the session has ended
        factory = jvm.java.lang.management.ManagementFactory
        usage = factory.getMemoryMXBean().getHeapMemoryUsage()
        for kind, value in (("used", usage.getUsed()), ("committed", usage.getCommitted()), ("max", usage.getMax())):
            heap.add_metric([kind], value)
        for bean in factory.getGarbageCollectorMXBeans():
            runs.add_metric([bean.getName()], bean.getCollectionCount())
            seconds.add_metric([bean.getName()], bean.getCollectionTime() / 1000)
    yield from (heap, runs, seconds)


def _seconds(timestamp: str) -> float:
    """Return Spark's text of a moment, such as 2026-01-31T00:00:00.000Z, as seconds since the epoch."""
    return datetime.fromisoformat(timestamp.replace("Z", "+00:00")).timestamp()
