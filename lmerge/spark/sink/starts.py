"""Attaches a query to its merge when it starts, before it has rows.

Spark calls a sink with the first batch, and a query whose source is silent has none. So the writer that ``publish``
returns (``update_sink``) has the query's agent attach at once. A thread of the driver's Python waits for it, because
``start`` does not wait for servers. The thread then stays until the query ends. It notices what no listener learns:
that the session was stopped, which does not stop the session's queries.

A server can refuse to let the query attach. If a batch is under way, its commit meets the same error and ends the query
in Spark's way. A query without a batch has no place where an error could be raised: the thread gives it the exception
that Spark would give it, and stops it.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from lmerge.errors import LmergeError
from lmerge.spark.sink import agent
from lmerge.spark.sink.committer import RunStart, write_log
from lmerge.spark.sink.query_ends import end_if_replaced

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from lmerge.spark.options import SinkOptions

# How often the thread checks whether the query and its session go on.
_LOOK_S: Final = 1.0
# How often it checks whether a batch is under way. An idle query is between two triggers for some milliseconds.
_LOOK_AT_BATCH_S: Final = 0.005
# Spark's word for a query that has not come to its first trigger.
_INITIALIZING: Final = "Initializing sources"


def driver_pid(spark: SparkSession) -> int:
    """Return the process id of the driver's JVM, which outlives every process of the query except its agent."""
    java: Any = spark._jvm  # noqa: SLF001  # its only way out of PySpark, here and below
    return int(java.java.lang.ProcessHandle.current().pid())


def attach_soon(query: Any, spark: SparkSession, options: SinkOptions) -> None:
    """Have a query that has just started attach, and detach with its session. Does not wait."""
    run = StartedRun(query, spark, options)
    threading.Thread(target=run.follow, name=f"lmerge-{options.replica}", daemon=True).start()


class StartedRun:
    """One run of a query, from its start to its end."""

    def __init__(self, query: Any, spark: SparkSession, options: SinkOptions) -> None:
        self._query, self._spark, self._options = query, spark, options
        self._start = RunStart(options, str(query.id), str(query.runId))
        self._pause = threading.Event()

    def follow(self) -> None:
        """Attach, wait for the end of the query or its session, and leave."""
        try:
            self._attach()
            while self._is_running():
                self._pause.wait(_LOOK_S)
        finally:
            # The listener does so as well. It may have come before there was an agent, and does not come at all if the
            # session was stopped.
            with suppress(OSError, LmergeError):
                agent.leave(self._start.query, self._start.run)

    def _attach(self) -> None:
        assert self._options.driver_pid is not None
        while self._is_running():
            try:
                done = agent.attach(self._start.query, self._options.driver_pid, self._start, self._is_running)
            except LmergeError as error:
                if self._is_running() and self._is_between_batches():
                    self._end_with(error)
                    return
            else:
                if done is not None and done.ended:
                    end_if_replaced(self._start.query, self._start.run)
                return
            # The batch that is under way ends the query, or it has attached meanwhile.
            while self._is_running() and not self._is_between_batches():
                self._pause.wait(_LOOK_AT_BATCH_S)

    def _is_running(self) -> bool:
        """Whether the query has not ended, and its session has not been stopped."""
        context: Any = vars(self._spark.sparkContext).get("_jsc")
        try:
            return context is not None and not context.sc().isStopped() and bool(self._query.isActive)
        except _jvm_errors():  # the JVM has ended
            return False

    def _is_between_batches(self) -> bool:
        try:
            status = self._query.status
        except _jvm_errors():
            return False
        return not status["isTriggerActive"] and status["message"] != _INITIALIZING

    def _end_with(self, error: LmergeError) -> None:
        """End the query, with ``error`` as its exception."""
        try:
            _give_exception(self._query, self._spark, error)
        except _jvm_errors() as problem:  # another Spark, or one that has ended
            write_log(f"{error}; this query ends")
            write_log(f"its exception does not have this error: {problem!r:.200}")
        with suppress(*_jvm_errors()):
            self._query.stop()


def _jvm_errors() -> tuple[type[Exception], ...]:
    """Return the errors of calls to a JVM that has ended, or that has no such method."""
    from py4j.protocol import Py4JError

    return Py4JError, OSError


def _give_exception(query: Any, spark: SparkSession, error: LmergeError) -> None:
    """Set the exception of a query that still runs, as Spark does when a batch fails."""
    java: Any = spark._jvm  # noqa: SLF001
    kind = type(error)
    # The class stands before the text, as in errors of Spark's Python processes: see ``terminal``.
    text = f"the replica could not attach\n{kind.__module__}.{kind.__qualname__}: {error}\n"
    described = java.org.apache.spark.api.python.PythonUtils.toScalaMap(
        {"id": str(query.id), "runId": str(query.runId), "message": text}
    )
    cause = java.org.apache.spark.SparkException(text)
    failure = java.org.apache.spark.sql.streaming.StreamingQueryException("", cause, "", "", "STREAM_FAILED", described)
    execution: Any = query._jsq.streamingQuery()  # noqa: SLF001
    getattr(execution, "streamDeathCause_$eq")(failure)
