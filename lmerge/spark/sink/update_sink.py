"""Publishes in output mode ``update``, through ``foreachBatch`` and the same sink.

Spark does not let a data source written in Python take part in update mode ("does not support Update mode"), and an
aggregate's revisions come in no other mode. ``foreachBatch`` accepts every mode and gives the same guarantees: a batch
that failed comes again with the same rows and the same number. So the writer that ``publish`` returns in this mode
writes every batch with the batch half of the data source, which does what the streaming half does:

    stream thread of the JVM -> the process of the query: df.write.format("lmerge") -> executors: write -> commit

The writer keeps the options that the user sets on it (``checkpointLocation``), because Spark does not pass options to
``foreachBatch``.

With Spark Connect the process of the query is one of the server's, made for each run of the query. What it writes is a
job like any other, so Spark's properties do not identify the query to the tasks. The options of the batch do.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from lmerge.errors import UsageError
from lmerge.spark.options import BATCH, QUERY, RUN, sink_options
from lmerge.spark.plan.tree import is_connect
from lmerge.spark.sink import starts
from lmerge.spark.sink.query_ends import end_if_replaced, ends_itself
from lmerge.spark.sink.watermark import query_id
from lmerge.spark.spool.layout import token

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.readwriter import DataStreamWriter

# What ``start`` takes besides options.
_STARTS: Final = ("path", "format", "outputMode", "partitionBy", "queryName")


_RUN: Final = "spark.jobGroup.id"
# The pause between two checks of whether a replaced query has begun to stop, and the number of checks.
_LOOK_S: Final = 0.02
_STOP_LOOKS: Final = 500


class UpdateSink:
    """The function that ``foreachBatch`` calls for each batch."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = dict(options)
        self._identity: dict[str, str] | None = None

    def __call__(self, rows: DataFrame, batch: int) -> None:
        """Write and commit one batch. Raises what writing and committing raise."""
        if self._identity is None:
            self._identity = self._make_identity() if is_connect(rows) else {}
        batch_options = {**self._options, **self._identity, BATCH: str(batch)}
        writer = rows.write.format("lmerge").mode("append").options(**batch_options)
        if is_connect(rows):
            writer.save()
            return
        spark: Any = rows.sparkSession
        query, run = (spark.sparkContext.getLocalProperty(name) for name in ("sql.streaming.queryId", _RUN))
        if run:
            ends_itself(run)
        writer.save()
        if query and run:
            self._end_if_replaced(query, run)

    def _end_if_replaced(self, query: str, run: str) -> None:
        """End a replaced query here, where no batch is under way, so that Spark reports no error."""
        ending: Any = end_if_replaced(query, run, at_once=True)
        pause = threading.Event()
        for _ in range(_STOP_LOOKS if ending is not None else 0):
            if not ending.isActive:
                return
            pause.wait(_LOOK_S)

    def _make_identity(self) -> dict[str, str]:
        """Return the query's id and a token for this run, in a process that serves no other. Raises UsageError."""
        return {QUERY: query_id(sink_options(self._options).checkpoint), RUN: token()}


def publishing_writer(prepared: DataFrame, output_mode: str) -> DataStreamWriter:
    """Return a writer of ``prepared`` that publishes as its options declare.

    It uses the sink of ``format("lmerge")``, or ``foreachBatch`` in output mode ``update``. ``start`` raises UsageError
    if the options are wrong, before there is a query. Then the query attaches to the merge, with or without rows. With
    Spark Connect it attaches with its first batch: its agent can be started at the server alone.
    """
    writer = prepared.writeStream.outputMode(output_mode)
    if output_mode != "update":
        writer = writer.format("lmerge")
    kind: Any = type(writer)

    class PublishingWriter(kind):  # type: ignore[misc]  # Spark's class, or that of Spark Connect
        """Keeps its options for the sink."""

        given: dict[str, str]

        def option(self, key: str, value: Any) -> Any:
            self.given[key] = str(value).lower() if isinstance(value, bool) else str(value)
            return super().option(key, value)

        def options(self, **options: Any) -> Any:
            for name, value in options.items():
                self.option(name, value)
            return self

        def start(self, *positional: Any, **named: Any) -> Any:
            self.options(**{name: named.pop(name) for name in list(named) if name not in _STARTS})
            if positional or named.get("path") or named.get("format"):
                raise UsageError("cannot publish: start() of a writer that publishes takes no path and no format")
            attaches = not is_connect(prepared)
            if attaches:
                self.option("driver_pid", starts.driver_pid(prepared.sparkSession))
            sink_options(self.given)  # raises before there is a query
            if output_mode == "update":
                self.foreachBatch(UpdateSink(self.given))
            query = super().start(**named)
            if attaches:
                starts.attach_soon(query, prepared.sparkSession, sink_options(self.given))
            return query

    writer.__class__ = PublishingWriter
    vars(writer)["given"] = {}
    return writer
