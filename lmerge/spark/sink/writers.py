"""The sink of ``format("lmerge")``: the methods that Spark calls, and in which process.

==============  ====================================  ========================================================
call            where                                 what it does
==============  ====================================  ========================================================
``__init__``    a Python worker of the driver, once   options are read; errors end ``start()``'s first batch
                a batch
``write``       an executor's Python worker, once a   rows to elements, into the spool, and staged at the
                partition and attempt                 servers
``commit``      a Python worker of the driver, from   hands the parts that won to the query's agent
                a pool that all sinks share           (``agent``), and waits for it
``abort``       the same                              removes the parts
==============  ====================================  ========================================================

A task finds its batch in local properties that Spark sets for the whole batch: ``streaming.sql.batchId``,
``sql.streaming.queryId``, and the run in ``spark.jobGroup.id``; or in the options of the batch (``update_sink``).
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from lmerge.client.connection.faults import error_of_kind
from lmerge.client.publish.stage import StageKey, Stager
from lmerge.errors import InvalidBatch, LimitExceeded, LmergeError, PermissionDenied, Unauthenticated, UsageError
from lmerge.spark.frames import Report, least
from lmerge.spark.options import BATCH, ELEMENTS, FRAMES, QUERY, RAW, RUN, SinkOptions, schema_of_text, sink_options
from lmerge.spark.sink import agent
from lmerge.spark.sink.committer import Commit
from lmerge.spark.sink.elements import RowPlan
from lmerge.spark.sink.partition_attempt import write_rows
from lmerge.spark.sink.watermark import query_id
from lmerge.spark.sink.workers import acknowledge_at_once, freeze_loaded
from lmerge.spark.spool.manifest import SpoolPart
from lmerge.spark.spool.spool import Spool

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

_log: Final = logging.getLogger(__name__)

# How long a server may take to stage a part. After that it is faster if the driver sends the part.
_STAGE_S: Final = 5.0
# Staged parts belong to one run: a later run may write other rows under the same numbers.
_REFUSED: Final = (InvalidBatch, LimitExceeded, PermissionDenied, Unauthenticated)
_NOTHING: Final[Mapping[str, str]] = {}


@dataclass(frozen=True)
class Written(WriterCommitMessage):
    """The report of one task to the driver.

    ``stable``: the largest stable among its rows. ``reports``: those of shards of a merge in them. ``holders``: servers
    on which the part is staged. ``late``: the number of rows that were left out, ``first_late`` one of them.
    """

    query: str
    run: str
    part: SpoolPart
    stable: int | None
    reports: tuple[Report, ...]
    holders: tuple[str, ...]
    late: int
    first_late: str


@dataclass(frozen=True)
class WriteTask:
    """The batch and partition to which a task's rows belong."""

    query: str
    run: str
    batch: int
    partition: int
    attempt: int

    @classmethod
    def current(cls, batch_options: Mapping[str, str] = _NOTHING) -> WriteTask:
        """Return the task of this process. ``batch_options`` take precedence over Spark's properties.

        Raises UsageError outside of a streaming query.
        """
        context = TaskContext.get()
        names = {QUERY: "sql.streaming.queryId", RUN: "spark.jobGroup.id", BATCH: "streaming.sql.batchId"}
        query, run, batch = (
            batch_options.get(option) or (None if context is None else context.getLocalProperty(name))
            for option, name in names.items()
        )
        if context is None or query is None or run is None or batch is None:
            raise UsageError("cannot publish: these rows belong to no batch of a streaming query")
        # Not the attempt's number: Spark counts from 0 again when it repeats a stage, while old tasks may still write.
        return cls(query, run, int(batch), context.partitionId(), context.taskAttemptId())


class LmergeStreamWriter(DataSourceStreamArrowWriter):
    """The writer of a streaming query's sink. Raises UsageError naming the option."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        self.options: SinkOptions = sink_options(options)
        self.batch_options = {name: options[name] for name in (QUERY, RUN, BATCH) if name in options}
        self.plan = row_plan(self.options, schema)
        freeze_loaded()
        acknowledge_at_once()

    def write(self, iterator: Iterator[Any]) -> Written:
        """Write one partition's rows. Raises LmergeError, naming batch and partition, if they cannot be published."""
        acknowledge_at_once()
        task, options = WriteTask.current(self.batch_options), self.options
        spool = _spool(options.spool)
        messages: list[bytes] = []
        on_message = messages.append if options.stages else None
        try:
            written = write_rows(spool, self.plan, task.batch, task.partition, task.attempt, iterator, on_message)
            holders = self._staged(task, messages)
        except LmergeError as error:
            where = f"partition {task.partition} of batch {task.batch} of {options}"
            raise error_of_kind(type(error), f"cannot write {where}: {error}") from error
        tally = written.tally
        freeze_loaded()
        found = written.stable, written.reports
        return Written(task.query, task.run, written.part, *found, holders, tally.late, tally.first_late)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803  # Spark's name
        """Have the agent publish the batch, and wait until a server has merged it. Raises what ended the publisher."""
        acknowledge_at_once()
        written = _written_parts(messages)
        query = written[0].query if written else query_id(self.options.checkpoint)
        reported = least([report for one in written for report in one.reports])
        stables = [stable for stable in (reported, *(one.stable for one in written)) if stable is not None]
        staged = [set(one.holders) for one in written if one.part.elements]
        agent.commit(
            query,
            self.options.driver_pid or os.getppid(),
            Commit(
                options=self.options,
                query=query,
                run=written[0].run if written else None,
                batch=batchId,
                parts=tuple(one.part for one in written),
                stable=max(stables, default=None),
                holders=frozenset(set.intersection(*staged) if staged else ()),
                late=sum(one.late for one in written),
                first_late=next((one.first_late for one in written if one.late), ""),
            ),
        )

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803  # Spark's name
        """Remove what was written. The next attempt replaces what was staged, or the server drops it."""
        _spool(self.options.spool).abort(batchId, [one.part for one in _written_parts(messages)])

    def _staged(self, task: WriteTask, messages: Sequence[bytes]) -> tuple[str, ...]:
        """Return the servers that have these messages staged. Raises the errors that the publisher would raise too."""
        if not messages:
            return ()
        key = StageKey(task.run, task.batch, task.partition, task.attempt)
        try:
            return tuple(_stager(self.options).stage(key, messages, _STAGE_S))
        except _REFUSED:
            raise
        except Exception as error:
            # The driver publishes what could not be staged, so only time is lost.
            _log.warning("%s could not be staged: %s", key, error)
            return ()


class LmergeBatchWriter(DataSourceArrowWriter):
    """The writer of one batch of a streaming query that is written by ``foreachBatch`` (``update_sink``)."""

    def __init__(self, writer: LmergeStreamWriter, batch: int) -> None:
        self._writer, self._batch = writer, batch

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        """Write one partition's rows, as the streaming writer does. The other methods do so too."""
        return self._writer.write(iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        self._writer.commit(messages, self._batch)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        self._writer.abort(messages, self._batch)


def row_plan(options: SinkOptions, schema: StructType) -> RowPlan:
    """Return how the rows become elements. Raises UsageError if they lack a column."""
    names = schema.fieldNames()
    enveloped = {ELEMENTS: ("kind", "payload", "vs"), FRAMES: ("frame",)}
    needed = enveloped.get(options.mode, (options.vs, *options.keys))
    missing = [name for name in needed if name not in names]
    if missing:
        what = FRAMES if options.mode == FRAMES else ELEMENTS
        hint = " (lmerge.spark.publish makes them from other rows)" if options.mode == ELEMENTS else ""
        raise UsageError(
            f"publishing to lmerge: {what} have the columns {', '.join(needed)}{hint}; there is no "
            f"{missing[0]!r} in {', '.join(names)}"
        )
    others = (options.vs, options.ve, options.kind)
    raw = next((name for name in names if name not in others), None) if options.schema == RAW else None
    return RowPlan(
        options.mode,
        schema_of_text(options.schema),
        options.vs,
        options.ve,
        options.keys,
        options.kind,
        options.late,
        options.replica,
        raw,
    )


def _written_parts(messages: Sequence[WriterCommitMessage | None]) -> list[Written]:
    """Return the reports of the tasks in order of partition. Tasks that failed have none."""
    return sorted((one for one in messages if isinstance(one, Written)), key=lambda one: one.part.partition)


@lru_cache(maxsize=8)
def _spool(uri: str) -> Spool:
    """Return the spool. Python workers are reused, so its folders are created only once."""
    return Spool(uri)


@lru_cache(maxsize=8)
def _stager(options: SinkOptions) -> Stager:
    return Stager(options.servers, options.merge, options.replica, options.security)
