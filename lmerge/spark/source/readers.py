"""``readStream`` and ``read`` of ``format("lmerge")``: the methods that Spark calls, and in which process.

====================  =============================  ===============================================================
call                  where                          what it does
====================  =============================  ===============================================================
``schema``            a Python worker of the driver  asks a server for the merge's schema
``latestOffset`` ...  one worker, as long as the     follows the merge (``feed``) and returns how far a batch goes
``partitions``        query runs                     cuts a batch into tasks, with their rows in them if they are few
``read``              executors                      rows as Arrow batches: those of the task, or from a server by
                                                     token (``slice_reader``)
====================  =============================  ===============================================================

An offset is a resume token: ``{"token": "flights@1357023600000000"}`` means that every event that ends before was read.
It is valid at any server of the merge. A batch holds what was decided from one token to the other, which is the same
for every reader at every time (``envelope_rows``). So a batch that Spark runs again has the same rows. A token names
the merge's epoch. A query whose merge was reset therefore ends with MergeReset: the new epoch does not continue what it
has read.

Spark does not write down where a query began, and asks again when it runs the first batch again. "Now" would then be
another moment. So a query that begins ``latest`` or ``earliest`` begins with an offset that holds only this name, and
with an empty batch whose end is the moment meant. A time is the same moment whenever it is asked for; the end of the
first batch names its epoch.

Only what servers retain can be read again. The query ends if no server retains what it needs (``failOnDataLoss``).
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from lmerge.core.elements import INF, NEG_INF, show_time
from lmerge.errors import ServerGone, Unavailable, UnknownMerge, UsageError
from lmerge.spark.sink.workers import begin_task
from lmerge.spark.skipping import skipped_until
from lmerge.spark.source.columns import Layout
from lmerge.spark.source.envelope_rows import FINAL, TABLE, Range
from lmerge.spark.source.feed import Feed
from lmerge.spark.source.frame_rows import element_count
from lmerge.spark.source.merge_queries import Answers, query_servers
from lmerge.spark.source.options import (
    BINARY,
    COLUMNS,
    EARLIEST,
    LATEST,
    ReadOptions,
    any_options,
    batch_options,
    stream_options,
)
from lmerge.spark.source.slice_reader import PAUSE_S, Slice, slice_tables
from lmerge.wire.schema import Schema
from lmerge.wire.token import Token, format_token, read_token

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

# Rows travel inside their task up to this size; Spark warns of tasks above 1000 KiB.
INLINE_BYTES: Final = 768 * 1024
# The most tasks that carry their rows. A larger batch is read from the servers.
INLINE_MAX: Final = 4
# The number of rows that justify another task.
ROWS_PER_SLICE: Final = 50_000

Offset = dict[str, Any]


def schema(given: Mapping[str, str]) -> StructType:
    """Return the columns of a query with these options, batch or streaming.

    Raises UsageError, UnknownMerge or ServerGone.
    """
    options = any_options(given)
    payload = None
    if options.payload == COLUMNS:
        try:
            payload = _payload_schema(options, query_servers(options))
        except UnknownMerge as problem:
            raise UnknownMerge(
                f"{problem}; for a query that waits for it, set .schema(...) or payload=binary"
            ) from None
    return Layout(options.envelope, payload, options.time_type).struct_type()


def stream_reader(given: Mapping[str, str], schema: StructType) -> LmergeStreamReader:
    """Return the reader for ``DataSource.streamReader``. Raises UsageError naming the option."""
    return LmergeStreamReader(dict(given), schema)


def batch_reader(given: Mapping[str, str], schema: StructType) -> LmergeBatchReader:
    """Return the reader for ``DataSource.reader``. Raises UsageError naming the option."""
    return LmergeBatchReader(dict(given), schema)


class Position(NamedTuple):
    """An offset. ``at``: its time; None: ``latest`` or ``earliest``, not resolved yet. ``fresh``: see ``Range``.

    ``epoch``: of the merge; None: any.
    """

    at: int | None
    fresh: bool
    epoch: int | None

    @classmethod
    def parse(cls, offset: Offset, options: ReadOptions) -> Position:
        """Read an offset. Raises UsageError if it belongs to another merge or envelope."""
        what = f"cannot continue reading {options}: the checkpoint is of"
        if offset.get("envelope", options.envelope) != options.envelope:
            raise UsageError(
                f"{what} envelope {offset['envelope']}, the query asks for {options.envelope}: they do "
                "not continue each other, so give the query another checkpoint"
            )
        if "token" in offset:
            try:
                token = read_token(str(offset["token"]), options.merge)
            except UsageError as problem:
                raise UsageError(f"{what} something else: {problem}") from None
            return cls(token.time, bool(offset.get("fresh", False)), token.epoch)
        begin = offset.get("from")
        if offset.get("merge") != options.merge or not (begin in (LATEST, EARLIEST) or isinstance(begin, int)):
            raise UsageError(f"{what} something else: {offset}")
        return cls(begin if isinstance(begin, int) else None, fresh=True, epoch=None)

    @property
    def is_resolved(self) -> bool:
        """Whether it is a time in one epoch. The time before everything is the same in all epochs."""
        return self.at == NEG_INF or (self.at is not None and self.epoch is not None)

    def offset(self, options: ReadOptions) -> Offset:
        """Return its JSON form."""
        if self.at is None or not self.is_resolved:
            begin = options.start if self.at is None else self.at
            return {"merge": options.merge, "from": begin, "envelope": options.envelope}
        offset: Offset = {"token": format_token(options.merge, self.at, self.epoch or 0), "envelope": options.envelope}
        return {**offset, "fresh": True} if self.fresh else offset


class ReadTask(InputPartition):
    """One task: a slice to read from a server, or the rows themselves in Arrow's stream format.

    It carries the options as the user gave them: secrets stay in files, and in the environment of each process.
    """

    def __init__(self, given: dict[str, str], layout: Layout, arrow_schema: Any, todo: Slice | bytes) -> None:
        super().__init__(None)
        self.given, self.layout, self.arrow_schema, self.todo = given, layout, arrow_schema, todo

    def __repr__(self) -> str:
        return f"ReadTask({self.todo if isinstance(self.todo, Slice) else f'{len(self.todo)} bytes'})"

    def batches(self, options: ReadOptions) -> Iterator[Any]:
        """Return its rows as record batches."""
        if isinstance(self.todo, Slice):
            tables = slice_tables(options, self.layout.envelope, self.todo)
        else:
            tables = iter([pa.ipc.open_stream(self.todo).read_all()])
        for table in tables:
            yield from self.layout.batches(table, self.arrow_schema)


class LmergeStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The reader of a streaming query. Raises UsageError naming the option."""

    def __init__(self, given: dict[str, str], schema: StructType) -> None:
        self._given = given
        self._schema = schema
        self._options = stream_options(given)
        self._planner = Planner(self._given, self._schema, self._options, self._options.envelope)
        self._feed: Feed | None = None
        self._there: Answers | None = None  # with availableNow: where the merge was when the query began
        self._away_since_s: float | None = None

    def __reduce__(self) -> Any:
        return stream_reader, (self._given, self._schema)  # to executors: without secrets, and not the feed

    def initialOffset(self) -> Offset:  # noqa: N802  # Spark's name, as those below
        """Return the first offset, which depends on the options only (see above)."""
        start = self._options.start
        at, epoch = (start.time, start.epoch) if isinstance(start, Token) else (None, None)
        return Position(at, fresh=True, epoch=epoch).offset(self._options)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadMaxRows(self._options.rows_max)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Store where the merge is when the query begins. Raises ServerGone if no server answers."""
        answers = query_servers(self._options)
        if not answers.found and answers.away:
            raise answers.problem(self._options)
        self._there = answers

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802
        """Return how far the next batch goes, or ``start`` if there is nothing new. Raises what has ended the feed."""
        options = self._options
        position = Position.parse(start, options)
        if not position.is_resolved:
            begin = self._begin(position.at)
            if begin is None:
                return start
            if position.at is None:
                return begin.offset(options)
            position = begin  # the end of the batch names the epoch
        assert position.at is not None
        end, epoch = self._end(position.at, position.epoch, limit)
        if end <= position.at:
            return start
        at = self._next_start(position.at, epoch)
        if at > position.at:
            end = max(at, self._end(at, epoch, limit)[0])
        offset = Position(end, fresh=False, epoch=epoch).offset(options)
        if at > position.at:
            offset["skipped"] = at
        gaps = [] if self._feed is None else [gap for gap in self._feed.gaps if position.at <= gap.start < end]
        return {**offset, "lost": [list(gap) for gap in gaps]} if gaps else offset

    def reportLatestOffset(self) -> Offset | None:  # noqa: N802
        """Return how far the merge was read ahead, for the query's progress."""
        if self._feed is None:
            return None
        return Position(self._feed.stable_point, fresh=False, epoch=self._feed.epoch).offset(self._options)

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        """Return the tasks of a batch. An empty batch has none."""
        first, last = Position.parse(start, self._options), Position.parse(end, self._options)
        if first.at is None or last.at is None:
            return []
        requested = Range(max(first.at, end.get("skipped", first.at)), last.at, first.fresh)
        if requested.start >= requested.end:
            return []
        if self._feed is not None and self._feed.holds(requested):
            return self._planner.held(requested, self._feed)
        return self._planner.slices(requested, even_cuts(requested, self._options.partitions), (), last.epoch or 0)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Return the rows of one task. Runs in an executor."""
        assert isinstance(partition, ReadTask)
        begin_task()
        return partition.batches(stream_options(partition.given))

    def stop(self) -> None:
        """Stop following the merge, at the end of the query."""
        if self._feed is not None:
            self._feed.close()
            self._feed = None

    def _begin(self, at: int | None) -> Position | None:
        """Return the moment that the first offset means, ``at`` if that is a time; None: no server answers now.

        Raises ServerGone and UnknownMerge.
        """
        answers = query_servers(self._options).of_epoch(None)
        if answers.found:
            if at is None:
                at = answers.retained_from if self._options.start == EARLIEST else answers.stable_point
            return Position(at, fresh=True, epoch=answers.epoch)
        if not answers.away:
            if not self._options.waits_for_merge:
                raise answers.problem(self._options)
            return Position(NEG_INF if at is None else at, fresh=True, epoch=0)  # no merge yet: all of it is read
        now_s = time.monotonic()
        if self._away_since_s is None:
            self._away_since_s = now_s
        if now_s - self._away_since_s >= self._options.give_up_s:
            raise answers.problem(self._options)
        return None

    def _next_start(self, at: int, epoch: int | None) -> int:
        """Return where the query continues: later than ``at`` if the merge that it feeds is ahead, up to this merge."""
        options = self._options
        if options.skip_to is None:
            return at
        until = skipped_until(options.skip_to) - options.skip_slack_us
        if until <= at:
            return at
        until = max(at, min(until, self._present(epoch).stable_point))
        if self._feed is not None and self._feed.stable_point < until:
            self.stop()  # the next feed begins there: servers send nothing before it
        return until

    def _present(self, epoch: int | None) -> Answers:
        """Return the state of the merge, or its state when an availableNow query began. Raises MergeReset."""
        now = query_servers(self._options).going_on(epoch, self._options)
        if self._there is None:
            return now
        return min(now, self._there.going_on(epoch, self._options), key=lambda answers: answers.stable_point)

    def _end(self, at: int, epoch: int | None, limit: ReadLimit) -> tuple[int, int | None]:
        """Return how far a batch from ``at`` on goes, and in which epoch.

        Raises what has ended the feed, and MergeReset.
        """
        if isinstance(limit, ReadAllAvailable):
            present = self._present(epoch)
            return present.stable_point, present.epoch
        rows_max = limit.max_rows if isinstance(limit, ReadMaxRows) else self._options.rows_max
        feed = self._feed
        if feed is None or not feed.goes_on_from(at):
            self.stop()
            self._feed = feed = Feed(self._options, at, epoch)
        return self._end_for(feed, at, epoch, rows_max), feed.epoch

    def _end_for(self, feed: Feed, start: int, epoch: int | None, rows_max: int) -> int:
        if self._there is None:
            return feed.end_for(self._options.envelope, start, INF, rows_max)
        target = self._there.going_on(epoch, self._options).stable_point
        if start < target and not feed.wait_beyond(start, target, self._options.give_up_s):
            raise ServerGone(
                f"cannot read {self._options}: it was at {show_time(target)} when the query began, "
                f"and does not reach that within {self._options.give_up_s:g} s"
            )
        return feed.end_for(self._options.envelope, start, target, rows_max)


class LmergeBatchReader(DataSourceReader):
    """The reader of a batch query: the table as of one stable point. Raises UsageError naming the option."""

    def __init__(self, given: dict[str, str], schema: StructType) -> None:
        self._given = given
        self._schema = schema
        self._options = batch_options(given)

    def __reduce__(self) -> Any:
        return batch_reader, (self._given, self._schema)

    def partitions(self) -> list[InputPartition]:
        """Return the tasks. Raises UnknownMerge, ServerGone, MergeReset; UsageError if ``asOf`` is in the future."""
        options = self._options
        answers = query_servers(options)
        if not answers.found:
            raise answers.problem(options)
        for token in (options.as_of, options.since):
            if isinstance(token, Token) and token.epoch is not None:
                answers = answers.going_on(token.epoch, options)
        answers = answers.of_epoch(None)
        now = answers.stable_point
        at = now if options.as_of is None else options.as_of.time
        if at > now:
            raise UsageError(f"cannot read {options} as of {show_time(at)}: it is at {show_time(now)}")
        if at == NEG_INF:
            return []
        since = at
        if options.since is not None:
            since = options.since.time if isinstance(options.since, Token) else answers.retained_from
        requested = Range(min(since, at), at, fresh=True, current_ends=True)
        planner = Planner(self._given, self._schema, options, TABLE if options.envelope == FINAL else options.envelope)
        first = sorted(answers.found, key=lambda answer: answer.retained_from)
        targets = tuple(answer.target for answer in first)
        return planner.slices(requested, even_cuts(requested, options.partitions), targets, answers.epoch or 0)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Return the rows of one task. Runs in an executor."""
        if not isinstance(partition, ReadTask):
            return iter(())  # Spark makes one task of its own if there is none
        begin_task()
        return partition.batches(batch_options(partition.given))


class Planner:
    """Makes tasks of ranges."""

    def __init__(self, given: dict[str, str], schema: StructType, options: ReadOptions, envelope: str) -> None:
        self._given = given
        self._schema = schema
        self._options = options
        self._envelope = envelope
        self._cached_layout: tuple[Layout, Any] | None = None

    def held(self, requested: Range, feed: Feed) -> list[InputPartition]:
        """Return tasks for a range that the feed holds: with their rows in them, if these are few."""
        table = feed.rows(self._envelope, requested)
        pieces = -(-table.nbytes // INLINE_BYTES)
        if pieces > INLINE_MAX:
            parts = min(self._options.partitions, -(-element_count(table) // ROWS_PER_SLICE))
            return self.slices(requested, feed.cuts(requested, parts), feed.ahead(), feed.epoch or 0)
        each = -(-table.num_rows // max(pieces, 1))
        return [self._task(_as_stream(table.slice(at, each))) for at in range(0, table.num_rows, max(each, 1))]

    def slices(self, requested: Range, cuts: Sequence[int], first: tuple[str, ...], epoch: int) -> list[InputPartition]:
        """Return tasks that read ``epoch`` of the merge from servers, those of ``first`` before others."""
        bounds = [requested.start, *cuts, requested.end]
        return [self._task(Slice(requested, low, high, first, epoch)) for low, high in pairwise(bounds)]

    def _task(self, todo: Slice | bytes) -> ReadTask:
        layout, arrow_schema = self._layout()
        return ReadTask(self._given, layout, arrow_schema, todo)

    def _layout(self) -> tuple[Layout, Any]:
        """Return the layout of rows and the Arrow schema that Spark reads. Raises UsageError if they do not fit."""
        if self._cached_layout is None:
            from pyspark.sql.pandas.types import to_arrow_schema

            layout = Layout(self._envelope, _patient_schema(self._options), self._options.time_type)
            arrow_schema = to_arrow_schema(self._schema, timezone="UTC")
            layout.check(arrow_schema)
            self._cached_layout = layout, arrow_schema
        return self._cached_layout


def even_cuts(requested: Range, parts: int) -> list[int]:
    """Return times that cut a range evenly, ascending and all different; none if an end of it is infinite."""
    length = requested.end - requested.start
    if requested.start == NEG_INF or requested.end == INF or length <= 0:
        return []
    parts = min(parts, length)
    return [requested.start + length * part // parts for part in range(1, parts)]


def _payload_schema(options: ReadOptions, answers: Answers) -> Schema | None:
    """Return the schema of the payloads; None: there is none. Raises UnknownMerge or ServerGone."""
    if not answers.found:
        raise answers.problem(options)
    return next((answer.schema for answer in answers.found if answer.schema is not None), None)


def _patient_schema(options: ReadOptions) -> Schema | None:
    """Return the same for a running query, which waits for servers that are away."""
    if options.payload == BINARY:
        return None
    until_s = time.monotonic() + options.give_up_s
    while True:
        try:
            return _payload_schema(options, query_servers(options))
        except (Unavailable, UnknownMerge):
            if time.monotonic() >= until_s:
                raise
            time.sleep(PAUSE_S)


def _as_stream(table: Any) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())
