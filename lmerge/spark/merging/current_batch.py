"""Which batch of which query a task belongs to. Spark gives it to each task as a local property."""

from __future__ import annotations

from typing import NamedTuple

from pyspark import TaskContext

from lmerge.errors import UsageError


class CurrentBatch(NamedTuple):
    """The batch of a task. ``query``: the id that its checkpoint has. ``run``: new whenever the query is started.

    ``part``: the partition.
    """

    query: str
    run: str
    number: int
    part: int


def current_batch() -> CurrentBatch:
    """Return the batch of the task that calls this. Raises UsageError outside of a batch of a streaming query."""
    context = TaskContext.get()
    batch = None if context is None else context.getLocalProperty("streaming.sql.batchId")
    if context is None or batch is None:
        raise UsageError("cannot merge: these rows belong to no batch of a streaming query")
    query, run = (context.getLocalProperty(name) or "" for name in ("sql.streaming.queryId", "spark.jobGroup.id"))
    return CurrentBatch(query, run, int(batch), context.partitionId())
