"""``readStream`` and ``read`` of ``format("lmerge")``: what Spark calls, in which process.

====================  =============================  ===============================================================
call                  where                          what it does
====================  =============================  ===============================================================
``schema``            a Python worker of the driver  asks a server for the merge's schema
``latestOffset`` ...  one worker, as long as the     follows the merge (``feed``) and says how far a batch goes
``partitions``        query runs                     cuts a batch into tasks, with their rows in them if they are few
``read``              executors                      rows as Arrow batches: those of the task, or from a server by
                                                     token (``reading``)
====================  =============================  ===============================================================

An offset is a resume token: ``{"token": "flights@1357023600000000"}`` says that every event that ends before was read.
It is valid at any server of the merge, and a batch holds what was decided from one token to the other. That is the same
whoever reads it, and when (``envelope_rows``): so a batch that Spark runs again has the rows that it had. A token names
the merge's epoch, so a query whose merge was reset ends with MergeReset: what it has read does not go on.

Spark does not write down where a query began, and asks again when it runs the first batch again. "Now" would be another
moment then. So a query that begins ``latest`` or ``earliest`` begins with an offset that says just that, and an empty
batch whose end is the moment meant. A time is the same moment whenever it is asked for; the end of the first batch
names the epoch that it is of.

Only what servers retain can be read again. What they do not have any more ends the query (``failOnDataLoss``).
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
from lmerge.spark.sink.workers import freeze_loaded
from lmerge.spark.skipping import skipped_until
from lmerge.spark.source.columns import Layout
from lmerge.spark.source.envelope_rows import FINAL, TABLE, Range
from lmerge.spark.source.feed import Feed
from lmerge.spark.source.merge_queries import Answers, ask
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

# Rows go with their task up to this size; Spark warns of tasks above 1000 KiB.
INLINE_BYTES: Final = 768 * 1024
# Tasks that carry their rows; more is read from the servers.
INLINE_MAX: Final = 4
# Rows for which a task of its own is worth while.
ROWS_PER_SLICE: Final = 50_000

Offset = dict[str, Any]


def schema(given: Mapping[str, str]) -> StructType:
    """The columns of a query with these options, batch or streaming. Raises UsageError, UnknownMerge or ServerGone."""
    options = any_options(given)
    payload = None
    if options.payload == COLUMNS:
        try:
            payload = _payload_schema(options, ask(options))
        except UnknownMerge as problem:
            raise UnknownMerge(f"{problem}; a query that shall wait for it needs .schema(...), or payload=binary"
                               ) from None
    return Layout(options.envelope, payload, options.time_type).struct_type()


def stream_reader(given: Mapping[str, str], schema: StructType) -> LmergeStreamReader:
    """For ``DataSource.streamReader``. Raises UsageError naming the option."""
    return LmergeStreamReader(dict(given), schema)


def batch_reader(given: Mapping[str, str], schema: StructType) -> LmergeBatchReader:
    """For ``DataSource.reader``. Raises UsageError naming the option."""
    return LmergeBatchReader(dict(given), schema)


class Position(NamedTuple):
    """An offset. ``at`` None: a word for a moment that is not known yet. ``fresh``: see ``Range``. ``epoch``: of the
    merge; None: any.
    """

    at: int | None
    fresh: bool
    epoch: int | None

    @classmethod
    def parse(cls, offset: Offset, options: ReadOptions) -> Position:
        """Raises UsageError if it belongs to another merge or envelope."""
        what = f"cannot go on reading {options}: the checkpoint is of"
        if offset.get("envelope", options.envelope) != options.envelope:
            raise UsageError(f"{what} envelope {offset['envelope']}, the query asks for {options.envelope}: they do "
                             "not go on from each other, so give the query another checkpoint")
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
    def is_known(self) -> bool:
        """Whether the moment is known, in one epoch: before everything is the same in all of them."""
        return self.at == NEG_INF or (self.at is not None and self.epoch is not None)

    def offset(self, options: ReadOptions) -> Offset:
        """Its JSON form."""
        if self.at is None or not self.is_known:
            begin = options.start if self.at is None else self.at
            return {"merge": options.merge, "from": begin, "envelope": options.envelope}
        offset: Offset = {"token": format_token(options.merge, self.at, self.epoch or 0), "envelope": options.envelope}
        return {**offset, "fresh": True} if self.fresh else offset


class Task(InputPartition):
    """One task: a slice to read from a server, or the rows themselves in Arrow's stream format.

    It carries options as they were given: secrets stay in files, and in the environment of each process.
    """

    def __init__(self, given: dict[str, str], layout: Layout, wanted: Any, todo: Slice | bytes) -> None:
        super().__init__(None)
        self.given, self.layout, self.wanted, self.todo = given, layout, wanted, todo

    def __repr__(self) -> str:
        return f"Task({self.todo if isinstance(self.todo, Slice) else f'{len(self.todo)} bytes'})"

    def batches(self, options: ReadOptions) -> Iterator[Any]:
        """Its rows as record batches."""
        if isinstance(self.todo, Slice):
            tables = slice_tables(options, self.layout.envelope, self.todo)
        else:
            tables = iter([pa.ipc.open_stream(self.todo).read_all()])
        for table in tables:
            yield from self.layout.batches(table, self.wanted)


class LmergeStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """See above. Raises UsageError naming the option."""

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
        """Depends on the options only: see above."""
        start = self._options.start
        at, epoch = (start.time, start.epoch) if isinstance(start, Token) else (None, None)
        return Position(at, fresh=True, epoch=epoch).offset(self._options)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadMaxRows(self._options.rows_max)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Raises ServerGone if no server tells how far the merge is."""
        answers = ask(self._options)
        if not answers.known and answers.away:
            raise answers.problem(self._options)
        self._there = answers

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802
        """How far the next batch goes; ``start`` if there is nothing new. Raises what has ended the feed."""
        options = self._options
        position = Position.parse(start, options)
        if not position.is_known:
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
        at = self._wanted_from(position.at, epoch)
        if at > position.at:
            end = max(at, self._end(at, epoch, limit)[0])
        offset = Position(end, fresh=False, epoch=epoch).offset(options)
        if at > position.at:
            offset["skipped"] = at
        gaps = [] if self._feed is None else [gap for gap in self._feed.gaps if position.at <= gap.start < end]
        return {**offset, "lost": [list(gap) for gap in gaps]} if gaps else offset

    def reportLatestOffset(self) -> Offset | None:  # noqa: N802
        """For the query's progress: how far the merge is, as far as was read ahead."""
        if self._feed is None:
            return None
        return Position(self._feed.stable_point, fresh=False, epoch=self._feed.epoch).offset(self._options)

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        """The tasks of a batch; none if it is empty."""
        first, last = Position.parse(start, self._options), Position.parse(end, self._options)
        if first.at is None or last.at is None:
            return []
        asked = Range(max(first.at, end.get("skipped", first.at)), last.at, first.fresh)
        if asked.start >= asked.end:
            return []
        if self._feed is not None and self._feed.holds(asked):
            return self._planner.held(asked, self._feed)
        return self._planner.slices(asked, even_cuts(asked, self._options.partitions), (), last.epoch or 0)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """In an executor: the rows of one task."""
        assert isinstance(partition, Task)
        freeze_loaded()
        return partition.batches(stream_options(partition.given))

    def stop(self) -> None:
        """The query has ended."""
        if self._feed is not None:
            self._feed.close()
            self._feed = None

    def _begin(self, at: int | None) -> Position | None:
        """The moment that the first offset means, ``at`` if that is a time; None: nobody tells it now. Raises
        ServerGone and UnknownMerge.
        """
        answers = ask(self._options).of_epoch(None)
        if answers.known:
            if at is None:
                at = answers.retained_from if self._options.start == EARLIEST else answers.stable_point
            return Position(at, fresh=True, epoch=answers.epoch)
        if not answers.away:
            if not self._options.waits_for_merge:
                raise answers.problem(self._options)
            return Position(NEG_INF if at is None else at, fresh=True, epoch=0)  # all of it is still to come
        now_s = time.monotonic()
        if self._away_since_s is None:
            self._away_since_s = now_s
        if now_s - self._away_since_s >= self._options.give_up_s:
            raise answers.problem(self._options)
        return None

    def _wanted_from(self, at: int, epoch: int | None) -> int:
        """Where the query goes on: later than ``at`` if the merge that it feeds is ahead, but not beyond this one."""
        options = self._options
        if options.skip_to is None:
            return at
        until = skipped_until(options.skip_to) - options.skip_slack_us
        if until <= at:
            return at
        until = max(at, min(until, self._present(epoch).stable_point))
        if self._feed is not None and self._feed.stable_point < until:
            self.stop()  # another begins there: servers need not send what is before
        return until

    def _present(self, epoch: int | None) -> Answers:
        """Where the merge is, or was when an availableNow query began. Raises MergeReset."""
        now = ask(self._options).going_on(epoch, self._options)
        if self._there is None:
            return now
        return min(now, self._there.going_on(epoch, self._options), key=lambda answers: answers.stable_point)

    def _end(self, at: int, epoch: int | None, limit: ReadLimit) -> tuple[int, int | None]:
        """How far a batch from ``at`` on goes, and in which epoch, if anything is new. Raises what has ended the feed,
        and MergeReset.
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
            raise ServerGone(f"cannot read {self._options}: it was at {show_time(target)} when the query began, "
                             f"and does not come there within {self._options.give_up_s:g} s")
        return feed.end_for(self._options.envelope, start, target, rows_max)


class LmergeBatchReader(DataSourceReader):
    """The table as of one stable point. Raises UsageError naming the option."""

    def __init__(self, given: dict[str, str], schema: StructType) -> None:
        self._given = given
        self._schema = schema
        self._options = batch_options(given)

    def __reduce__(self) -> Any:
        return batch_reader, (self._given, self._schema)

    def partitions(self) -> list[InputPartition]:
        """The tasks. Raises UnknownMerge, ServerGone, MergeReset, and UsageError if asked for the future."""
        options = self._options
        answers = ask(options)
        if not answers.known:
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
        asked = Range(min(since, at), at, fresh=True, as_said=True)
        planner = Planner(self._given, self._schema, options, TABLE if options.envelope == FINAL else options.envelope)
        first = sorted(answers.known, key=lambda known: known.retained_from)
        targets = tuple(known.target for known in first)
        return planner.slices(asked, even_cuts(asked, options.partitions), targets, answers.epoch or 0)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """In an executor: the rows of one task."""
        if not isinstance(partition, Task):
            return iter(())  # Spark makes one task where there is none
        freeze_loaded()
        return partition.batches(batch_options(partition.given))


class Planner:
    """Makes tasks."""

    def __init__(self, given: dict[str, str], schema: StructType, options: ReadOptions, envelope: str) -> None:
        self._given = given
        self._schema = schema
        self._options = options
        self._envelope = envelope
        self._known: tuple[Layout, Any] | None = None

    def held(self, asked: Range, feed: Feed) -> list[InputPartition]:
        """Tasks for what the feed has: with their rows, if these are few."""
        table = feed.rows(self._envelope, asked)
        pieces = -(-table.nbytes // INLINE_BYTES)
        if pieces > INLINE_MAX:
            parts = min(self._options.partitions, -(-table.num_rows // ROWS_PER_SLICE))
            return self.slices(asked, feed.cuts(asked, parts), feed.ahead(), feed.epoch or 0)
        each = -(-table.num_rows // max(pieces, 1))
        return [self._task(_as_stream(table.slice(at, each))) for at in range(0, table.num_rows, max(each, 1))]

    def slices(
        self, asked: Range, cuts: Sequence[int], first: tuple[str, ...], epoch: int
    ) -> list[InputPartition]:
        """Tasks that read ``epoch`` of the merge from servers, those of ``first`` before others."""
        bounds = [asked.start, *cuts, asked.end]
        return [self._task(Slice(asked, low, high, first, epoch)) for low, high in pairwise(bounds)]

    def _task(self, todo: Slice | bytes) -> Task:
        layout, wanted = self._layout()
        return Task(self._given, layout, wanted, todo)

    def _layout(self) -> tuple[Layout, Any]:
        """What rows look like, and the Arrow schema that Spark wants. Raises UsageError if they do not fit."""
        if self._known is None:
            from pyspark.sql.pandas.types import to_arrow_schema

            layout = Layout(self._envelope, _patient_schema(self._options), self._options.time_type)
            wanted = to_arrow_schema(self._schema, timezone="UTC")
            layout.check(wanted)
            self._known = layout, wanted
        return self._known


def even_cuts(asked: Range, parts: int) -> list[int]:
    """Times that cut a range evenly, if it has two ends; ascending, all different."""
    length = asked.end - asked.start
    if asked.start == NEG_INF or asked.end == INF or length <= 0:
        return []
    parts = min(parts, length)
    return [asked.start + length * part // parts for part in range(1, parts)]


def _payload_schema(options: ReadOptions, answers: Answers) -> Schema | None:
    """What the payloads hold; None: they are read as they are. Raises UnknownMerge or ServerGone."""
    if not answers.known:
        raise answers.problem(options)
    return next((known.schema for known in answers.known if known.schema is not None), None)


def _patient_schema(options: ReadOptions) -> Schema | None:
    """The same for a query that runs: servers that are away are waited for."""
    if options.payload == BINARY:
        return None
    until_s = time.monotonic() + options.give_up_s
    while True:
        try:
            return _payload_schema(options, ask(options))
        except (Unavailable, UnknownMerge):
            if time.monotonic() >= until_s:
                raise
            time.sleep(PAUSE_S)


def _as_stream(table: Any) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())
