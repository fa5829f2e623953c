"""Follows the ends of queries: notifies their agents, and ends queries that a cutover has replaced.

Spark does not notify a sink when its query stops. It notifies a listener in the process that made the session. The
listener calls the query's agent, which leaves the merge in good order. Without a listener (Spark Connect) the agent
stays until the server's JVM ends, or until a newer run of the query begins. Until then the merge has a silent input,
for which it does not wait.

The listener also ends a query after a cutover to another (``lmerge cutover``). The query's last commit has succeeded
and nothing has failed, so the query is stopped and does not fail. A query in output mode ``update`` is ended by its
sink, which runs in this process as well, at a point where no batch is under way.

A stop in the middle of a batch should be avoided. Spark interrupts the query's thread, which then writes errors about
the job. If that thread is just reporting Python's accumulators (each call of a data source does), the interrupt closes
its channel to this process, and PySpark's accumulator server prints a traceback that ends with EOFError.
"""

from __future__ import annotations

import atexit
import sys
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakSet

from pyspark.sql.streaming.listener import StreamingQueryListener

from lmerge.errors import LmergeError
from lmerge.spark.sink import agent

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Spark's last deliveries when the program ends take milliseconds, on a busy machine some seconds.
_PARTING_MS: Final = 10_000
# How often, and how many times, to check whether a query that is to end has a batch under way: some seconds in all.
_LOOK_S: Final = 0.005
_BETWEEN_LOOKS: Final = 2_000
_sessions: WeakSet[SparkSession] = WeakSet()
_self_ending: Final[set[str]] = set()  # runs whose sink ends them


def follow(spark: SparkSession, *, listens: bool) -> None:
    """Follow the queries of a session. ``listens``: with a listener, which Spark Connect does not have."""
    _sessions.add(spark)
    if listens:
        listener = QueryEnds()
        spark.streams.addListener(listener)
        atexit.register(_part, spark, listener)


class QueryEnds(StreamingQueryListener):
    """Notifies agents of the end of their queries, and ends queries that were cut over."""

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802  # Spark's names, here and below
        with suppress(OSError, LmergeError):
            agent.forget_end(str(event.id))  # of a run without a listener

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802
        if str(event.progress.runId) not in _self_ending:
            end_if_replaced(str(event.progress.id), str(event.progress.runId))

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802
        pass

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
        _self_ending.discard(str(event.runId))
        with suppress(OSError, LmergeError):
            agent.leave(str(event.id), str(event.runId))


def ends_itself(run: str) -> None:
    """Note that the sink of this run of a query calls ``end_if_replaced`` after each of its batches."""
    _self_ending.add(run)


def end_if_replaced(query_id: str, run: str, *, at_once: bool = False) -> Any | None:
    """Have the query stopped if it was cut over, print the reason, and return the query; None: it was not cut over.

    Does not wait. ``at_once``: no job of the query is under way; otherwise the stop waits for a moment without one.
    """
    reason = agent.end_of(query_id, run)
    # The session of a batch is a copy, which has no queries.
    found = (spark.streams.get(query_id) for spark in (list(_sessions) if reason else []))
    query = next((one for one in found if one is not None), None)
    if query is None:
        return None
    agent.forget_end(query_id)
    sys.stderr.write(f"lmerge: {reason}; this query ends\n")
    threading.Thread(target=_stop, args=(query, 0 if at_once else _BETWEEN_LOOKS), daemon=True).start()
    return query


def _part(spark: SparkSession, listener: QueryEnds) -> None:
    """Let Spark deliver the ends of queries and then remove the listener, before this Python ends.

    Otherwise the JVM, which outlives this process for a moment, logs that the listener does not answer.
    """
    from py4j.protocol import Py4JError

    context: Any = vars(spark.sparkContext).get("_jsc")
    if context is None:
        return  # the session was stopped, and has delivered everything
    with suppress(Py4JError, OSError):  # the JVM has ended
        bus = context.sc().listenerBus()
        with suppress(Py4JError):  # too much is under way
            bus.waitUntilEmpty(_PARTING_MS)
        spark.streams.removeListener(listener)
        bus.waitUntilEmpty(_PARTING_MS)  # a call that has begun


def _stop(query: Any, looks: int) -> None:
    """Stop the query between two batches if possible, as otherwise Spark logs that it cancels one.

    Where data waits, the next batch begins at once. So for half of the checks only the end of the data counts as a
    moment between batches.
    """
    from py4j.protocol import Py4JError

    pause = threading.Event()
    with suppress(Py4JError, OSError):  # the session has ended meanwhile, and the query with it
        for look in range(looks):
            status = query.status
            is_between = not status["isTriggerActive"] and (look > looks // 2 or not status["isDataAvailable"])
            if is_between or not query.isActive:
                break
            pause.wait(_LOOK_S)
        query.stop()
