"""Leaves out events that are not needed any more (V.D), so that a query that is behind catches up with less work.

    CHECKPOINT = "/data/trips/b"
    trips = lmerge.spark.skip_to(trips.withWatermark("ts", "10 seconds"), ve="until", checkpoint=CHECKPOINT)
    scored = trips.withColumn("score", score("features"))                      # the expensive part
    lmerge.spark.publish(scored, ...).option("checkpointLocation", CHECKPOINT).start()

A server whose merge is ahead of the replica sends it the feedback ``fast_forward(t)``: nothing that ends before t is
needed. With several servers the smallest t counts. The query's agent (``committer``) receives it and announces
``skip(t)`` to the servers, so that the replica does not count as redundant until it has reached t. The agent then
writes t into the manifest of the next committed batch.

**As of a batch.** Batch N leaves out events by the t in the manifest of batch N-1. So a task that is tried again, and a
batch that runs again, leave out the same rows, and all tasks of a batch agree. No row is left out before it was
announced to the servers:

    batch   the end of its rows   servers' feedback  it leaves out what ends before
    4       10:00 to 10:05                           nothing: all of it is computed
    5       10:05 to 10:10        12:00, meanwhile   nothing
    6       10:10 to 10:15        12:01, meanwhile   12:00: all of it
    7       10:15 to 10:20                           12:01

After a restart batch N finds the same manifest. This delay of a batch does not matter if the size of a batch is limited
(``maxOffsetsPerTrigger``, ``maxFilesPerTrigger``), as it should be in a query that can fall behind.

**What is left out.** ``skip_to`` leaves out a row, before the expensive part, if all events made from it end before t.
The sink (``elements``) leaves out events that are still made from other rows, such as a window that has lost some of
its rows, and drops its state of them. The user's own state and sources ask for t with ``skipped_until``.

**Alone.** A server sends t only if it has itself decided on all that ends before. So events that only this replica has
are never left out: as long as it is alone, it moves the merge's stable point itself.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext

from lmerge.errors import UsageError
from lmerge.spark.options import SKIP_FILTER, VE, spool_in
from lmerge.spark.plan.tree import is_connect
from lmerge.spark.spool.spool import Spool

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


def skip_to(df: DataFrame, ve: str | Column, *, checkpoint: str | None = None, spool: str | None = None) -> DataFrame:
    """Return ``df`` without the rows that are not needed any more, once servers report that the query is behind.

    Apply it after the watermark, which the rows left out should still move, and before the expensive part. ``ve``: name
    or expression, a timestamp or a whole number of microseconds: the final end of the last event of which a row can be
    a part. For a row that is an event this is its end, for a row that is counted in windows the end of the last window.
    A row where it is null stays. ``checkpoint``: that of the query, as in its ``checkpointLocation``; or ``spool``, as
    in ``publish``. Raises UsageError; a query that runs with another checkpoint ends with one.
    """
    from pyspark.sql import functions

    if is_connect(df):
        raise UsageError(
            "cannot skip in a Spark Connect session: its plan does not show publish that rows are left "
            "out, and not all of its tasks have the number of their batch"
        )
    place = _place(checkpoint, spool)
    end = functions.expr(ve) if isinstance(ve, str) else ve
    kind = df.select(end.alias(VE)).schema[VE].dataType.simpleString()
    if kind == "timestamp":
        end = functions.unix_micros(end)
    elif kind not in ("bigint", "int"):
        raise UsageError(
            f"cannot skip: ve ({ve}) is {kind}; it must be a timestamp or a whole number of microseconds "
            "since the epoch"
        )
    return df.where(_skip_filter(place)(end.cast("bigint")))


def skipped_until(checkpoint: str | None = None, *, spool: str | None = None) -> int:
    """Return the time before which ended events are not needed, in microseconds since the epoch; -2**63: all are.

    In a task of the query, such as in the state of a ``transformWithState``, it is the time of the task's batch, the
    same whenever the batch runs. On the driver, such as in ``latestOffset`` of a data source, it is that of the next
    batch. A source must store what it derives from it in the offset, as ``partitions`` may be called again.
    ``checkpoint``, ``spool``: as for ``skip_to``. Raises UsageError if no query with this checkpoint publishes.
    """
    place, context = _place(checkpoint, spool), TaskContext.get()
    names = ("spark.jobGroup.id", "streaming.sql.batchId")
    run, batch = (None if context is None else context.getLocalProperty(name) for name in names)
    if run is None or batch is None:
        return Spool(place).skips_next()
    return _as_of(place, run, int(batch))


@lru_cache(maxsize=8)
def _as_of(place: str, run: str, batch: int) -> int:
    """Return the time for a batch. Cached, as tasks ask every few rows; by run, as an emptied folder restarts at 0."""
    return Spool(place).skips_to(batch)


def _skip_filter(place: str) -> Any:
    """Return the filter that Spark runs.

    It is declared nondeterministic. So the optimizer moves no other filter across it, and does not move it below a
    watermark. The lint's rule about that does not apply: replicas may differ in events that are not needed.
    """
    from pyspark.sql.pandas.functions import arrow_udf

    as_udf: Any = arrow_udf  # its type stub lacks pyarrow functions

    def is_needed(ends: pa.Array) -> pa.Array:
        return pc.fill_null(pc.greater_equal(ends, skipped_until(spool=place)), True)

    is_needed.__name__ = SKIP_FILTER
    return as_udf(is_needed, "boolean").asNondeterministic()


def _place(checkpoint: str | None, spool: str | None) -> str:
    if (checkpoint is None) == (spool is None):
        raise UsageError(
            "cannot skip: give checkpoint, the query's checkpointLocation, or the spool that it publishes "
            "with, and not both"
        )
    return spool if spool is not None else spool_in(str(checkpoint))
