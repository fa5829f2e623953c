"""A reader's side of Subscribe, for asyncio: snapshot, then deltas, across reconnects."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from types import TracebackType
from typing import Any, Final, NamedTuple

import grpc
import grpc.aio

from lmerge.client import streams
from lmerge.client.backoff import Backoff
from lmerge.client.faults import error_of, is_retryable
from lmerge.client.follower import Follower, SubscriptionGap
from lmerge.client.publisher import CHANNEL_OPTIONS
from lmerge.core.batch import AnyBatch
from lmerge.core.elements import ADJUST, INSERT, Element
from lmerge.core.engines import LiveTdb
from lmerge.errors import LmergeError, ServerGone, SubscriberTooSlow
from lmerge.wire.frames import frames_of
from lmerge.wire.generated import lmerge_pb2 as pb
from lmerge.wire.generated import lmerge_pb2_grpc as pb_grpc
from lmerge.wire.limits import BatchLimits
from lmerge.wire.rows import RowCodec
from lmerge.wire.schema import Schema

_LIMITS: Final = BatchLimits(elements=2**31, payload_bytes=2**31, message_bytes=2**31)  # the server's limits hold


class RowChange(NamedTuple):
    """An element with its payload decoded. ``op``: insert, adjust or stable; ``row`` None for a stable."""

    op: str
    row: dict[str, Any] | None
    vs: int
    ve: int
    vold: int


class AsyncSubscriber:
    """Reads the merged stream: ``async for element in subscriber``.

    ``batches()`` is the fast way. ``wait_for_merge``: a merge that does not exist yet is waited for, as subscribers are
    often started before the first replica; otherwise UnknownMerge. ``resync``: a subscriber that was cut off because it
    read too slowly starts again with a snapshot (counted in ``resyncs``); otherwise SubscriberTooSlow.
    ``give_up_after_s``: as for publishers. ``on_gap``: called with each SubscriptionGap.
    """

    def __init__(
        self, target: str, merge: str, *, name: str = "", wait_for_merge: bool = True, resync: bool = True,
        give_up_after_s: float | None = None, on_gap: Callable[[SubscriptionGap], None] | None = None,
    ) -> None:
        self.target, self.merge, self.name = target, merge, name
        self.wait_for_merge = wait_for_merge
        self.resync = resync
        self.schema: Schema | None = None
        self.reconnects = 0
        self.resyncs = 0
        self.follower = Follower()
        self._codec: RowCodec | None = None
        self._give_up_after_s = give_up_after_s
        self._on_gap = on_gap
        self._call: Any = None
        self._open = True
        self._closed = asyncio.Event()
        self._was_connected = False
        self._asked_schema = False
        self._heard = False  # whether the present connection has brought anything

    @property
    def tdb(self) -> LiveTdb:
        """The live table: the events that are not fully frozen, and the stable point."""
        return self.follower.table

    @property
    def stable_point(self) -> int:
        return self.follower.stable_point

    @property
    def gaps(self) -> list[SubscriptionGap]:
        """Stretches of time in which frozen events may be missing, oldest first; the very oldest as one (GAPS_MAX)."""
        return self.follower.gaps

    async def batches(self) -> AsyncIterator[AnyBatch]:
        """The stream in batches, until it is complete (stable(+inf)) or the subscriber is closed."""
        backoff = Backoff()
        lost_s = time.monotonic()
        async with grpc.aio.insecure_channel(self.target, options=CHANNEL_OPTIONS) as channel:
            while self._is_open():
                self._heard = self._asked_schema = False
                self._call = streams.subscribe(channel, self._request())
                problem: grpc.aio.AioRpcError | None = None
                try:
                    async for batch in self._responses(self._call, channel):
                        if batch.count:
                            yield batch
                        if self.follower.is_complete:
                            return
                except grpc.aio.AioRpcError as broken:
                    problem = broken
                except asyncio.CancelledError:
                    if self._is_open():
                        raise
                finally:
                    self._call.cancel()
                if not self._is_open():
                    return
                if self._heard:
                    self._was_connected = True
                    backoff.reset()
                    lost_s = time.monotonic()
                if problem is not None:
                    self._judge(problem, lost_s)
                with suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(self._closed.wait(), backoff.next_s())

    async def elements(self) -> AsyncIterator[Element]:
        """The stream element by element."""
        async for batch in self.batches():
            for element in batch.elements():
                yield element

    def __aiter__(self) -> AsyncIterator[Element]:
        return self.elements()

    async def rows(self) -> AsyncIterator[RowChange]:
        """The stream with payloads decoded by the schema that the publishers declared. Raises InvalidRow."""
        async for batch in self.batches():
            for change in self.decoded(batch):
                yield change

    def decoded(self, batch: AnyBatch) -> list[RowChange]:
        """The elements of a batch as row changes."""
        names = {INSERT: "insert", ADJUST: "adjust"}
        return [
            RowChange(names.get(kind, "stable"), self._decode(payload) if kind in names else None, vs, ve, vold)
            for kind, vs, ve, vold, payload in batch.rows()
        ]

    def close(self) -> None:
        """End the subscription; the iteration ends, also one that waits in another task."""
        self._open = False
        self._closed.set()
        if self._call is not None:
            self._call.cancel()

    async def __aenter__(self) -> AsyncSubscriber:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _is_open(self) -> bool:
        return self._open

    def _request(self) -> pb.SubscribeRequest:
        # A merge that was there before the connection broke is waited for: its server may have been restarted.
        wait = self.wait_for_merge or self._was_connected
        return pb.SubscribeRequest(merge=self.merge, subscriber=self.name, wait_for_merge=wait)

    async def _responses(self, call: Any, channel: Any) -> AsyncIterator[AnyBatch]:
        follower = self.follower
        read = frames_of(follower.engine).read_subscribe
        async for data in call:
            response = read(data)
            if not self._heard:
                self._heard = True
                self.reconnects += self._was_connected
            if not isinstance(response, pb.SubscribeResponse):
                batch = response.decode(_LIMITS)
                if self.schema is None and not self._asked_schema and INSERT in batch.kinds:
                    await self._ask_schema(channel)
                yield follower.take(batch)
                continue
            kind = response.WhichOneof("message")
            if kind == "snapshot_begin":
                begin = response.snapshot_begin
                if begin.HasField("schema"):
                    self.schema, self._codec = Schema.from_message(begin.schema), None
                gap = follower.begin(begin.stable_point)
                if gap is not None and self._on_gap is not None:
                    self._on_gap(gap)
            elif kind == "snapshot_end":
                yield follower.end()

    async def _ask_schema(self, channel: Any) -> None:
        """The snapshot of a merge without publishers had none; the first of them has declared it before it inserted."""
        self._asked_schema = True
        stub: Any = pb_grpc.LmergeStub(channel)
        described = await stub.DescribeMerge(pb.DescribeMergeRequest(merge=self.merge))
        if described.HasField("schema"):
            self.schema = Schema.from_message(described.schema)

    def _judge(self, problem: grpc.aio.AioRpcError, lost_s: float) -> None:
        """Go on (return) or raise."""
        code, details = problem.code(), problem.details()
        if code is grpc.StatusCode.RESOURCE_EXHAUSTED and self._heard:  # cut off; before that it is another limit
            if not self.resync:
                raise SubscriberTooSlow(details or "cut off") from None
            self.resyncs += 1
            return
        error: LmergeError = error_of(code, details, self.target)
        if not is_retryable(code):
            raise error from None
        if self._give_up_after_s is not None and time.monotonic() - lost_s >= self._give_up_after_s:
            raise ServerGone(str(error)) from None

    def _decode(self, payload: bytes) -> dict[str, Any] | None:
        if self._codec is None and self.schema is not None:
            self._codec = RowCodec(self.schema)
        return {"payload": payload} if self._codec is None else self._codec.decode(payload)
