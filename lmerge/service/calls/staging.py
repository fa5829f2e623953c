"""One call of Stage: a worker stages one part, and its publisher commits it later (STAGE in ``lmerge.proto``).

A part is checked as it comes, like what a publisher sends, and is kept in the form in which a merge takes it. So what a
commit takes from ``staged_parts`` is well formed. A call that ends early stages nothing. To gRPC, a worker that was
killed looks like one that has half-closed, so a part declares its number of batches.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any, Final

from google.protobuf.message import DecodeError
from grpc.aio import EOF

from lmerge.core.batch import AnyBatch
from lmerge.errors import InvalidBatch, LimitExceeded, Unavailable, Undecodable, UsageError
from lmerge.service.call_context import StageContext
from lmerge.service.merge.registry import Registry
from lmerge.service.merge.staged_parts import ArrivingPart, PartKey, PartOwner
from lmerge.service.security.guard import staging
from lmerge.service.settings import Settings
from lmerge.time_limit import time_limit
from lmerge.wire.engine_frames import frames_of
from lmerge.wire.frames import Message, Received
from lmerge.wire.generated import lmerge_pb2 as pb
from lmerge.wire.limits import UNLIMITED
from lmerge.wire.names import check_name

# Distinguishes, for the worker, a payload that cannot be published at all from a part that cannot be kept here.
LIMIT_KEY: Final = "lmerge-limit"
PAYLOAD_LIMIT: Final = "payload"
# The server sends this when it accepts batches. A refused call has initial metadata too, but gRPC leaves them empty.
TAKES: Final = ("lmerge-takes", "batches")
# How many further messages of a refused part are read. A worker that is cut off in the middle of a write would get an
# error about that instead of the reason.
_READ_ON_MESSAGES: Final = 8


class StageCall:
    """One call of Stage. ``run`` returns the answer, or raises the LmergeError with which the call ends."""

    def __init__(self, context: StageContext, registry: Registry, settings: Settings) -> None:
        self._context = context
        self._registry = registry
        self._settings = settings
        self._frames = frames_of(settings.resolved_engine)
        self._who = "a part"
        self._refusal: UsageError | None = None

    async def run(self) -> pb.StageResponse:
        """Receive the part, within the time that a call may last."""
        limit_s = self._settings.stage_timeout_s
        try:
            async with time_limit(limit_s):
                return await self._receive()
        except asyncio.TimeoutError:
            late = Unavailable(f"{self._who} cannot be staged: it has not come within {limit_s:g} s")
            raise self._refusal or late from None

    async def _receive(self) -> pb.StageResponse:
        opened = await self._read_open()
        owner = PartOwner(opened.merge, opened.replica)
        for what, name in (("merge", opened.merge), ("replica", opened.replica), ("query", opened.query)):
            check_name(what, name)
        key = PartKey(opened.query, opened.batch, opened.partition, opened.attempt)
        self._who = f"{key} of {owner}"
        loop = asyncio.get_running_loop()
        with staging(*owner):
            staged = self._registry.staging_for(opened.merge)
            try:
                with staged.arriving(owner, key, loop.time()) as arriving:
                    await self._context.send_initial_metadata((TAKES,))
                    await self._read_batches(arriving, opened.batches)
                    self._registry.staging_for(opened.merge)  # raises if the server has begun to drain
                    part = arriving.finish(loop.time())
            except UsageError as error:
                self._refusal = error
                await self._read_on()
                raise
        return pb.StageResponse(elements=part.elements, bytes=part.bytes, limits=self._settings.limits_message())

    async def _read_open(self) -> pb.StageRequest.Open:
        data = await self._read()
        if data is None:
            raise UsageError("nothing can be staged: the stream ended before an open came")
        try:
            request = pb.StageRequest.FromString(bytes(data))
        except DecodeError:
            raise Undecodable(f"{self._who}: a message of {len(data)} bytes is not a StageRequest") from None
        if request.WhichOneof("message") != "open":
            came = request.WhichOneof("message") or "nothing known"
            raise UsageError(f"nothing can be staged: {came} came where open was due")
        return request.open

    async def _read_batches(self, arriving: ArrivingPart, batches: int) -> None:
        expected = 1
        while (data := await self._read()) is not None:
            if expected > batches:
                raise InvalidBatch(f"{self._who}: a message came after its last batch, number {batches}")
            try:
                received = self._frames.read_publish(data)  # the same field in both requests
            except DecodeError:
                raise Undecodable(f"{self._who}: a message of {len(data)} bytes is not a StageRequest") from None
            if isinstance(received, pb.PublishRequest):
                raise InvalidBatch(f"{self._who}: a message came that is no batch, where batch {expected} was due")
            if received.sequence != expected:
                raise InvalidBatch(f"{self._who}: batch {received.sequence} came where batch {expected} was due")
            arriving.add(self._decoded(received), len(data))
            expected += 1
        if expected <= batches:
            raise InvalidBatch(f"{self._who}: it ended after {expected - 1} of {batches} batches")

    async def _read_on(self) -> None:
        for _ in range(_READ_ON_MESSAGES):
            if await self._context.read() is EOF:
                return

    async def _read(self) -> Message | None:
        """Read one message; None at the end."""
        data: Any = await self._context.read()
        if data is EOF:
            return None
        message: Message = data
        if len(message) > self._settings.message_bytes:
            raise LimitExceeded(
                f"{self._who}: a message of {len(message)} bytes is above the limit of {self._settings.message_bytes}"
            )
        return message

    def _decoded(self, received: Received) -> AnyBatch:
        limits = self._settings.batch_limits
        try:
            return received.decode(limits)
        except UsageError as error:
            if isinstance(error, LimitExceeded) and _has_large_payload(received, limits.elements):
                self._context.set_trailing_metadata(((LIMIT_KEY, PAYLOAD_LIMIT),))
            raise type(error)(f"{self._who}, batch {received.sequence}: {error}") from None


def _has_large_payload(received: Received, elements_max: int) -> bool:
    """Whether a batch above a limit has a payload that is too large, and not too many elements."""
    try:
        received.decode(replace(UNLIMITED, elements=elements_max))
    except UsageError:
        return False
    return True
