"""Leaving out what nobody wants any more (V.D): a query that is behind catches up without the work that is in vain.

    CHECKPOINT = "/data/trips/b"
    trips = lmerge.spark.skip_to(trips.withWatermark("ts", "10 seconds"), ve="until", checkpoint=CHECKPOINT)
    scored = trips.withColumn("score", score("features"))                      # the expensive part
    lmerge.spark.publish(scored, ...).option("checkpointLocation", CHECKPOINT).start()

A server that has come further with the others' help tells the replica so: ``fast_forward(t)``, nothing that ends before
t is of interest. With several servers the least counts. The query's agent (``committer``) hears it, tells the servers
that it will ``skip(t)``, so that the replica does not count as redundant until it has come to t, and writes t into the
manifest of the batch that is committed next.

**As of a batch.** Batch N leaves out what the manifest of batch N-1 says. So a task that is tried again, and a batch
that runs again, leave out the same rows, all tasks of a batch agree, and no row was left out before servers were told:

    batch   the end of its rows   servers say        it leaves out what ends before
    4       10:00 to 10:05                           nothing: all of it is worked out
    5       10:05 to 10:10        12:00, meanwhile   nothing
    6       10:10 to 10:15        12:01, meanwhile   12:00: all of it
    7       10:15 to 10:20                           12:01

After a restart batch N finds the same manifest. A batch is never so long that this matters, if its size has a limit, as
that of a query which can fall behind should (``maxOffsetsPerTrigger``, ``maxFilesPerTrigger``).

**What is left out.** A row, before the expensive part, if all that becomes of it ends before t: ``skip_to``. What still
becomes of others, such as a window that has lost some of its rows, the sink leaves out (``elements``), and what it
remembers of it. State of the user's own, and sources of the user's own, ask for t: ``skipped_until``.

**Alone.** A server says t only if it has itself decided on all that ends before. So what only this replica has is never
left out: as long as it is alone, it is the one that moves the merge's stable point.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext

from lmerge.errors import UsageError
from lmerge.spark.options import VE, WANTED, spool_in
from lmerge.spark.plan.tree import is_connect
from lmerge.spark.spool.spool import Spool

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


def skip_to(
    df: DataFrame, ve: str | Column, *, checkpoint: str | None = None, spool: str | None = None
) -> DataFrame:
    """``df`` without the rows that nobody wants any more, when servers have told the query that it is behind.

    Say it behind the watermark, which rows that are left out should still move, and before the expensive part. ``ve``:
    name or expression, a timestamp or a whole number of microseconds: when the last event ends that a row can be a part
    of, for good. For a row that is an event its end, for a row that is counted in windows the end of the last of them;
    a row where it is null stays. ``checkpoint``: that of the query, as in its ``checkpointLocation``; or ``spool``, as
    ``publish`` was told. Raises UsageError; a query that runs with another checkpoint ends with one.
    """
    from pyspark.sql import functions

    if is_connect(df):
        raise UsageError("cannot skip in a Spark Connect session: its plan does not tell publish that rows are left "
                         "out, nor are all of its tasks told to which batch they belong")
    place = _place(checkpoint, spool)
    end = functions.expr(ve) if isinstance(ve, str) else ve
    kind = df.select(end.alias(VE)).schema[VE].dataType.simpleString()
    if kind == "timestamp":
        end = functions.unix_micros(end)
    elif kind not in ("bigint", "int"):
        raise UsageError(f"cannot skip: ve ({ve}) is {kind}; it must be a timestamp or a whole number of microseconds "
                         "since the epoch")
    return df.where(_wanted(place)(end.cast("bigint")))


def skipped_until(checkpoint: str | None = None, *, spool: str | None = None) -> int:
    """Nobody wants events that end before, in microseconds since the epoch; -2**63 if somebody wants all.

    In a task of the query, such as in the state of a ``transformWithState``, it is that of the task's batch, the same
    whenever the batch runs. On the driver, such as in ``latestOffset`` of a data source, it is that of the batch that
    comes next; what a source makes of it belongs into the offset, as ``partitions`` may be asked again. ``checkpoint``,
    ``spool``: as for ``skip_to``. Raises UsageError if it is the checkpoint of no query that publishes.
    """
    place, context = _place(checkpoint, spool), TaskContext.get()
    names = ("spark.jobGroup.id", "streaming.sql.batchId")
    run, batch = (None if context is None else context.getLocalProperty(name) for name in names)
    if run is None or batch is None:
        return Spool(place).skips_next()
    return _as_of(place, run, int(batch))


@lru_cache(maxsize=8)
def _as_of(place: str, run: str, batch: int) -> int:
    """Asked for every few rows. Of one run: who begins anew with an empty folder counts batches anew, too."""
    return Spool(place).skips_to(batch)


def _wanted(place: str) -> Any:
    """The filter, as Spark runs it.

    It says of itself that it is not deterministic: so the optimizer moves no other filter across it, and it does not
    move below a watermark. What the lint has to say of that does not apply: replicas may differ by what nobody wants.
    """
    from pyspark.sql.pandas.functions import arrow_udf

    as_udf: Any = arrow_udf  # its type knows no pyarrow
    def wanted(ends: pa.Array) -> pa.Array:
        return pc.fill_null(pc.greater_equal(ends, skipped_until(spool=place)), True)

    wanted.__name__ = WANTED
    return as_udf(wanted, "boolean").asNondeterministic()


def _place(checkpoint: str | None, spool: str | None) -> str:
    if (checkpoint is None) == (spool is None):
        raise UsageError("cannot skip: give checkpoint, the query's checkpointLocation, or the spool that it publishes "
                         "with, and not both")
    return spool if spool is not None else spool_in(str(checkpoint))
