"""Reads a slice of the merged stream straight from a server, for a task of a query.

What was decided between two times is the same at every server (``decided_events``). So any server that reaches ``high``
can be read, and another can take over in the middle: rows are returned as far as they are decided, and the next server
is asked for the later ones. A server is left when its stream ends, when it does not retain ``low`` any more, when it is
in another epoch of the merge, or when it stands still for some seconds. The others are tried in turn, until nothing has
come for ``giveUpAfter``.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any, Final

import grpc
import grpc.aio

from lmerge.client.connection import streams
from lmerge.client.connection.background import background_loop, run_blocking
from lmerge.client.connection.faults import error_of, is_retryable, naming
from lmerge.client.connection.streams import connector_of
from lmerge.client.subscribe.reader import last_stable
from lmerge.core.batch import AnyBatch
from lmerge.core.elements import NEG_INF, show_time
from lmerge.core.engines import selection
from lmerge.errors import LmergeError, MergeReset, OutOfRange, ServerGone, Unavailable, UnknownMerge
from lmerge.spark.source.decided_events import DecidedEvents
from lmerge.spark.source.envelope_rows import Range, rows
from lmerge.spark.source.merge_queries import ANEW, query_servers
from lmerge.spark.source.options import ReadOptions
from lmerge.time_limit import time_limit
from lmerge.wire.engine_frames import frames_of
from lmerge.wire.generated import lmerge_pb2 as pb
from lmerge.wire.limits import UNLIMITED
from lmerge.wire.token import format_token

_log: Final = logging.getLogger(__name__)

# A server that sends no element for this time is left for another: its replicas may be gone, or it hangs.
STALL_S: Final = 3.0
# Elements that come within this time are processed together, but no more of them than the next number.
MOMENT_S: Final = 0.2
ELEMENTS_AT_ONCE: Final = 131_072
# The pause after a round in which no server could continue.
PAUSE_S: Final = 0.1


@dataclass(frozen=True)
class Slice:
    """The rows of ``requested`` with low <= Ve < high, in ``epoch`` of the merge.

    ``first``: servers that have reached ``high`` before, to be tried first.
    """

    requested: Range
    low: int
    high: int
    first: tuple[str, ...] = ()
    epoch: int = 0

    @property
    def is_last(self) -> bool:
        """Whether the events that continue belong to this slice."""
        return self.high == self.requested.end


def slice_tables(options: ReadOptions, envelope: str, part: Slice) -> Iterator[Any]:
    """Read the rows of a slice, in order, as tables.

    Raises ServerGone, OutOfRange, MergeReset or UnknownMerge if no server has them, and other errors at once.
    """
    position = part.low
    attempts = _Attempts(options, part.epoch)
    while True:
        for target in dict.fromkeys((*part.first, *options.servers)):
            events = DecidedEvents(position)
            source = _Source(options, target, part, max(position, attempts.skip_to), attempts.accepts_loss)
            try:
                for batches in source.portions():
                    for batch in batches:
                        events.add(batch)
                    upto = max(position, min(events.stable_point, part.high))
                    if upto == position and not source.is_over:
                        attempts.check(position)
                        continue
                    attempts.has_come_on()
                    events.settle(upto)
                    table = rows(
                        envelope, part.requested, events, position, upto, is_last=source.is_over and part.is_last
                    )
                    events.forget(upto)
                    position = upto
                    yield table
                    if source.is_over:
                        return
            except LmergeError as problem:
                attempts.note(problem)
            finally:
                source.close()
        attempts.next_round(position)


class _Attempts:
    """Counts rounds over the servers and decides when to give up."""

    def __init__(self, options: ReadOptions, epoch: int) -> None:
        self.accepts_loss = False
        self.skip_to = NEG_INF  # events that end before it are lost
        self._options = options
        self._epoch = epoch
        self._problems: list[LmergeError] = []
        self._came_on_s = time.monotonic()

    def has_come_on(self) -> None:
        """Note that rows were decided."""
        self._came_on_s = time.monotonic()
        self._problems.clear()

    def note(self, problem: LmergeError) -> None:
        """Note why a server could not continue. Raises the problem if no other server could continue either."""
        if not isinstance(problem, Unavailable | OutOfRange | UnknownMerge):
            raise problem
        self._problems.append(problem)

    def check(self, position: int) -> None:
        """Raise ServerGone if nothing was decided for too long."""
        if time.monotonic() - self._came_on_s >= self._options.give_up_s:
            why = "; ".join(map(str, self._problems)) or "elements come, but no stable point"
            raise ServerGone(f"{self._what(position)}, after {self._options.give_up_s:g} s: {why}")

    def next_round(self, position: int) -> None:
        """Prepare the next round after all servers were tried. Raises the problem if another round cannot help."""
        if self._problems and all(isinstance(problem, OutOfRange) for problem in self._problems):
            answers = query_servers(self._options).going_on(self._epoch, self._options)
            too_old = [problem for problem in self._problems if not isinstance(problem, MergeReset)]
            if not too_old:
                raise MergeReset(f"{self._what(position)}: {self._problems[0]}; {ANEW}")
            if self._options.fails_on_loss or self.accepts_loss:
                raise OutOfRange(
                    f"{self._what(position)}: {too_old[0]}; failOnDataLoss=false continues without what was lost"
                )
            _log.warning("%s: %s; it is left out", self._what(position), too_old[0])
            self.accepts_loss = True
            if answers.found:
                self.skip_to = answers.retained_from
        else:
            self.check(position)
            time.sleep(PAUSE_S)
        self._problems.clear()

    def _what(self, position: int) -> str:
        return f"cannot read {self._options} from {show_time(position)} on"


class _Source:
    """One subscription to one server. It begins at ``begin`` and is left at the end of the slice."""

    def __init__(self, options: ReadOptions, target: str, part: Slice, begin: int, accepts_loss: bool) -> None:
        self.is_over = False  # its stable point has reached ``high``
        self._options = options
        self._target = target
        self._epoch = part.epoch
        self._begin = begin
        self._high = part.high
        self._accepts_loss = accepts_loss
        self._has_begun = False
        self._is_silent = False
        self._read = frames_of(selection.best()).read_subscribe
        self._exits = AsyncExitStack()
        self._call: Any = None
        self._next: Future[list[AnyBatch]] | None = None

    def portions(self) -> Iterator[list[AnyBatch]]:
        """Read batches until the slice is over, one portion ahead of the caller. Raises LmergeError."""
        self._fetch()
        while self._next is not None:
            portion = self._next.result()
            self._next = None
            self.is_over = any(last_stable(batch) >= self._high for batch in portion)
            if not self.is_over:
                self._fetch()
            yield portion

    def close(self) -> None:
        """Leave the server."""
        if self._next is not None:
            self._next.cancel()
            self._next = None
        run_blocking(self._exits.aclose(), background_loop())

    def _fetch(self) -> None:
        self._next = asyncio.run_coroutine_threadsafe(self._portion(), background_loop())

    async def _portion(self) -> list[AnyBatch]:
        try:
            if self._call is None:
                await self._open()
            return await self._some()
        except grpc.aio.AioRpcError as broken:
            raise self._error_of(broken) from None

    async def _open(self) -> None:
        connector = connector_of(self._options.security)
        channel = await self._exits.enter_async_context(connector.channel(self._target))
        token = format_token(self._options.merge, self._begin, self._epoch)
        self._call = streams.subscribe(
            channel,
            pb.SubscribeRequest(
                merge=self._options.merge,
                subscriber="spark",
                resume_token=token,
                snapshot_if_too_old=self._accepts_loss,
            ),
        )
        self._exits.callback(self._call.cancel)

    async def _some(self) -> list[AnyBatch]:
        """Read some elements: up to a number, to the end of the slice, or for a moment."""
        if self._is_silent:
            raise ServerGone(f"the server at {self._target} sends nothing more")
        now_s = asyncio.get_running_loop().time
        began_s = now_s()
        batches: list[AnyBatch] = []
        count = 0
        while count < ELEMENTS_AT_ONCE:
            try:
                async with time_limit(STALL_S):  # ends the call if time is up
                    data = await self._call.read()
            except asyncio.TimeoutError:
                self._is_silent = True
                return batches
            if data is grpc.aio.EOF:
                raise ServerGone(f"the server at {self._target} has ended the stream")
            batch = self._batch(data)
            if batch is not None:
                batches.append(batch)
                count += batch.count
                if last_stable(batch) >= self._high:
                    break
            if batches and now_s() - began_s >= MOMENT_S:
                break
            if now_s() - began_s >= STALL_S:
                raise ServerGone(f"the server at {self._target} stands still")
        return batches

    def _batch(self, data: bytes) -> AnyBatch | None:
        response = self._read(data)
        if not isinstance(response, pb.SubscribeResponse):
            return response.decode(UNLIMITED)
        if response.WhichOneof("message") == "snapshot_begin":
            self._has_begun = True
            begin = response.snapshot_begin
            if begin.epoch != self._epoch:  # a token of -inf is accepted in every epoch
                raise MergeReset(
                    f"the server at {self._target} is in epoch {begin.epoch} of the merge, and this query "
                    f"reads epoch {self._epoch}"
                )
            complete_from = begin.complete_from if begin.HasField("complete_from") else begin.stable_point
            if complete_from > self._begin and not self._accepts_loss:
                raise OutOfRange(f"the server at {self._target} has what ends from {show_time(complete_from)} on")
        return None

    def _error_of(self, broken: Any) -> LmergeError:
        code, details = broken.code(), broken.details()
        if code is grpc.StatusCode.RESOURCE_EXHAUSTED and self._has_begun:  # cut off because this reader was too slow
            return ServerGone(f"{details} (server {self._target})")
        if is_retryable(code, was_let_in=self._has_begun):
            return ServerGone(f"the server at {self._target} cannot be reached: {details}")
        return naming(error_of(code, details, self._target, trailing=broken.trailing_metadata()), self._target)
