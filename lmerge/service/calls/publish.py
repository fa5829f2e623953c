"""The stream of one publisher: attach, batches up, acks and feedback down (PUBLISH in ``lmerge.proto``).

A session has two tasks. The reader decodes batches and puts them into the merge's inbox; it stops reading while the
inbox is full. The writer sends the latest ack, the latest fast-forward and the latest change of role. The hub ends the
session when the input breaks a promise or is fenced.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Final, NamedTuple, TypeVar

from google.protobuf.message import DecodeError
from grpc import StatusCode
from grpc.aio import EOF

from lmerge.core.batch import EMPTY, AnyBatch, Batch
from lmerge.core.detaching import DetachCause
from lmerge.core.elements import Stable
from lmerge.core.inputs import INCARNATION_MAX, InputRole
from lmerge.core.properties import parse_properties
from lmerge.errors import InvalidBatch, LimitExceeded, LmergeError, Unavailable, Undecodable, UsageError
from lmerge.service.call_context import CallContext
from lmerge.service.merge.attachments import Accepted, AttachRequest
from lmerge.service.merge.hub import Hub
from lmerge.service.merge.registry import Registry
from lmerge.service.merge.staged_parts import PartOwner, PartSizes
from lmerge.service.security.guard import attaching
from lmerge.service.settings import Settings
from lmerge.service.status_codes import code_of
from lmerge.time_limit import time_limit
from lmerge.wire.frames import Message, Received
from lmerge.wire.generated import lmerge_pb2 as pb
from lmerge.wire.names import check_name
from lmerge.wire.schema import Schema

M = TypeVar("M")

_ROLES: Final = {
    pb.ROLE_UNSPECIFIED: InputRole.ACTIVE,
    pb.ROLE_ACTIVE: InputRole.ACTIVE,
    pb.ROLE_OBSERVE: InputRole.OBSERVE,
}
# How long the end of a stream without a leave waits for the cancellation that follows if the publisher has died. Both
# come in one packet. A publisher that half-closes instead of leaving is attached for so much longer.
_CANCELLATION_S: Final = 0.05
# Another attempt can help: the status alone ends the stream.
_RETRYABLE: Final = frozenset({StatusCode.UNAVAILABLE, StatusCode.INTERNAL, StatusCode.UNAUTHENTICATED})
_ROLE_NUMBERS: Final = {InputRole.ACTIVE: pb.ROLE_ACTIVE, InputRole.OBSERVE: pb.ROLE_OBSERVE}


class _Ack(NamedTuple):
    sequence: int
    stable_point: int
    joined: bool


class PublishSession:
    """One call of Publish. ``run`` returns when the publisher has left, or raises the error that ended it."""

    def __init__(self, context: CallContext, registry: Registry, settings: Settings) -> None:
        self._context = context
        self._registry = registry
        self._settings = settings
        self._batch_limits = settings.batch_limits
        self._who = "a publisher"
        self._owner = PartOwner("", "")
        self._sequence = 0
        self._ack: _Ack | None = None
        self._fast_forward: int | None = None
        self._role: InputRole | None = None
        self._detached: pb.PublishResponse.Detached | None = None
        self._ended: asyncio.Future[LmergeError] = asyncio.get_running_loop().create_future()
        self._is_writing = True
        self._wake = asyncio.Event()
        self._hurry = asyncio.Event()

    # Called by the hub.

    def acknowledge(self, sequence: int, stable_point: int, joined: bool) -> None:
        self._ack = _Ack(sequence, stable_point, joined)
        self._wake.set()

    def fast_forward(self, until: int) -> None:
        """V.D: send feedback: events that end before ``until`` are not needed any more."""
        self._fast_forward = until
        self._wake.set()

    def change_role(self, role: InputRole) -> None:
        """Ask the input to attach again in this role."""
        self._role = role
        self._wake.set()

    def end(self, error: LmergeError, detached: pb.PublishResponse.Detached | None = None) -> None:
        if not self._ended.done():
            self._detached = detached
            self._ended.set_result(error)

    # Called by the server.

    async def run(self) -> None:
        """Serve the stream. Raises the LmergeError that ended it."""
        attach = await self._read_attach()
        request = self._request(attach)
        attaching(attach.merge, attach.replica)
        hub = self._registry.for_publisher(attach.merge)
        try:
            try:
                accepted = await hub.inputs.attach(self, request)
            finally:
                self._registry.settle(hub)
            await self._serve_accepted(hub, accepted)
        finally:
            hub.inputs.gone(self, DetachCause.CONNECTION_ENDED, "its connection ended")

    async def _serve_accepted(self, hub: Hub, accepted: Accepted) -> None:
        await self._context.write(pb.PublishResponse(accepted=self._accepted(accepted)))
        reader, writer = asyncio.create_task(self._read(hub)), asyncio.create_task(self._write())
        try:
            await self._serve(hub, reader, writer)
        except LmergeError as error:
            await hub.inputs.leave(self, DetachCause.REFUSED, f"refused: {error}")
            with contextlib.suppress(asyncio.TimeoutError):
                async with time_limit(self._settings.end_read_timeout_s):
                    await self._finish(error, reader, writer)
            raise
        finally:
            reader.cancel()
            writer.cancel()
            await asyncio.gather(reader, writer, return_exceptions=True)

    async def _serve(self, hub: Hub, reader: asyncio.Task[bool], writer: asyncio.Task[None]) -> None:
        await asyncio.wait((reader, writer, self._ended), return_when=asyncio.FIRST_COMPLETED)
        if writer.done():
            writer.result()  # raises: the stream is broken
        if not self._ended.done() and reader.done() and not reader.result():
            # Of a peer that has died, gRPC may report the end of the stream before the cancellation of the call.
            await asyncio.wait((writer, self._ended), timeout=_CANCELLATION_S)
        if not self._ended.done() and reader.done():
            await hub.inputs.leave(self, DetachCause.LEFT, "left")
        if self._ended.done():
            raise self._ended.result()
        await self._stop_writing(writer)
        await self._write_ack()

    async def _stop_writing(self, writer: asyncio.Task[None]) -> None:
        """Let the message that is being written be the last one. gRPC takes no other one behind a cancelled write."""
        self._is_writing = False
        self._wake.set()
        self._hurry.set()
        await asyncio.wait((writer,))

    async def _finish(self, error: LmergeError, reader: asyncio.Task[bool], writer: asyncio.Task[None]) -> None:
        """Send the last ack, and what ended the stream for good. Return when the publisher has read it.

        A client of gRPC whose write fails at the moment when the call ends may lose the status. It would come back as
        if the connection had been lost, as a newer incarnation. So the reason is a message, and until the publisher
        closes its side what it writes is read and dropped.
        """
        await self._stop_writing(writer)
        await self._write_ack()
        code = code_of(error)
        if self._detached is None and code in _RETRYABLE:
            return
        ending = self._detached or pb.PublishResponse.Detached(message=str(error), status=code.value[0])
        await self._context.write(pb.PublishResponse(detached=ending))
        await asyncio.wait((reader,))
        if isinstance(reader.exception(), LmergeError):  # it raised what ended the stream
            while await self._context.read() is not EOF:
                pass

    async def _read_attach(self) -> pb.Attach:
        try:
            async with time_limit(self._settings.attach_timeout_s):
                data = await self._context.read()
        except asyncio.TimeoutError:
            raise UsageError(f"no attach came within {self._settings.attach_timeout_s} s") from None
        if data is EOF:
            raise UsageError("the stream ended before an attach came")
        request = self._parsed(data, lambda data: pb.PublishRequest.FromString(bytes(data)))
        if request.WhichOneof("message") != "attach":
            raise UsageError("the first message must be an attach")
        return request.attach

    def _request(self, attach: pb.Attach) -> AttachRequest:
        for what, name in (("merge", attach.merge), ("replica", attach.replica)):
            check_name(what, name)
        self._owner = PartOwner(attach.merge, attach.replica)
        self._who = str(self._owner)
        if attach.role not in _ROLES:
            raise UsageError(f"{self._who} cannot attach: unknown role {attach.role}")
        if attach.incarnation > INCARNATION_MAX:
            raise UsageError(f"{self._who} cannot attach: incarnation {attach.incarnation} is above {INCARNATION_MAX}")
        return AttachRequest(
            name=attach.replica,
            incarnation=attach.incarnation or None,
            properties=parse_properties(attach.properties),
            join_at=attach.join_at if attach.HasField("join_at") else None,
            role=_ROLES[attach.role],
            schema=self._schema(attach.schema) if attach.HasField("schema") else None,
        )

    def _schema(self, declared: pb.Schema) -> pb.Schema:
        """Check the declared schema; return it unchanged, as subscribers and the store get it."""
        try:
            Schema.from_message(declared)
        except UsageError as problem:
            raise UsageError(f"{self._who} cannot attach: the schema that it declares is invalid: {problem}") from None
        return declared

    def _accepted(self, accepted: Accepted) -> pb.PublishResponse.Accepted:
        return pb.PublishResponse.Accepted(**accepted._asdict(), limits=self._settings.limits_message())

    async def _read(self, hub: Hub) -> bool:
        """Read messages until the publisher leaves or half-closes. Return whether it has sent its leave.

        What comes when the session has ended is dropped.
        """
        read, time = hub.frames.read_publish, asyncio.get_running_loop().time
        while True:
            data = await self._context.read()
            if data is EOF:
                return False
            if self._ended.done():
                continue
            received_s = time()
            request = self._parsed(data, read)
            if not isinstance(request, pb.PublishRequest):
                await self._take(hub, request, len(data), received_s)
                continue
            kind = request.WhichOneof("message")
            if kind == "leave":
                hub.inputs.leaving(self)
                return True
            if kind == "skip":
                await hub.inputs.skip(self, request.skip.until)
            if kind == "commit":
                await self._commit(hub, request.commit, received_s)
            if kind == "attach":
                raise UsageError(f"{self._who}: a second attach came; a stream attaches once")

    async def _take(self, hub: Hub, received: Received, wire_bytes: int, received_s: float) -> None:
        self._must_be_due("batch", received.sequence)
        try:
            batch = received.decode(self._batch_limits)
        except UsageError as error:
            raise type(error)(f"{self._who}, batch {received.sequence}: {error}") from None
        self._sequence += 1
        await hub.put(self, self._sequence, batch, wire_bytes, received_s=received_s)

    async def _commit(self, hub: Hub, commit: pb.PublishRequest.Commit, received_s: float) -> None:
        """Queue the staged parts of a commit, and the stable behind them, as one batch."""
        self._must_be_due("commit", commit.sequence)
        listed = [(part.partition, part.attempt) for part in commit.parts]
        if len(set(listed)) < len(listed):
            raise InvalidBatch(f"{self._who}, commit {commit.sequence}: a part of it is listed twice")
        self._sequence += 1
        attached = hub.inputs.get(self._owner.replica)
        if attached is None or attached.session is not self:
            return  # it was fenced, or detached, and its stream is about to end: it may not take the parts
        declared = PartSizes(
            commit.elements if commit.HasField("elements") else None,
            commit.payload_bytes if commit.HasField("payload_bytes") else None,
        )
        staging = self._registry.staging
        try:
            parts = staging.take(
                self._owner, commit.query, commit.batch, listed, declared, asyncio.get_running_loop().time()
            )
        except Unavailable:
            hub.state.missed_commits += 1
            raise
        hub.state.staged_commits += 1
        batches: list[tuple[AnyBatch, int]] = [batch for part in parts for batch in part.batches]
        if commit.HasField("stable"):
            batches.append((Batch.of([Stable(commit.stable)]), 0))
        try:
            await self._put_all(hub, batches or [(EMPTY, 0)], received_s)
        finally:
            staging.give_back(self._owner, parts)

    async def _put_all(self, hub: Hub, batches: list[tuple[AnyBatch, int]], received_s: float) -> None:
        """Queue batches, each with its bytes on the wire, as one batch."""
        base = 0
        for at, (batch, wire_bytes) in enumerate(batches, 1):
            is_last = at == len(batches)
            await hub.put(self, self._sequence, batch, wire_bytes, received_s=received_s, base=base, is_last=is_last)
            base += batch.count

    def _must_be_due(self, what: str, sequence: int) -> None:
        expected = self._sequence + 1
        if sequence != expected:
            raise InvalidBatch(f"{self._who}: {what} {sequence} came where batch {expected} was due")

    def _parsed(self, data: Message, parse: Callable[[Message], M]) -> M:
        if len(data) > self._settings.message_bytes:
            raise LimitExceeded(
                f"{self._who}: a message of {len(data)} bytes is above the limit of {self._settings.message_bytes}"
            )
        try:
            return parse(data)
        except DecodeError:
            raise Undecodable(f"{self._who}: a message of {len(data)} bytes is not a PublishRequest") from None

    async def _write(self) -> None:
        """Send the latest updates, at most once per interval."""
        interval = self._settings.ack_interval_s
        loop = asyncio.get_running_loop()
        while True:
            await self._wake.wait()
            if not self._is_writing:
                return
            self._wake.clear()
            await self._write_updates()
            timer = loop.call_later(interval, self._hurry.set)
            await self._hurry.wait()
            timer.cancel()
            self._hurry.clear()

    async def _write_ack(self) -> None:
        ack, self._ack = self._ack, None
        if ack is not None:
            await self._context.write(pb.PublishResponse(ack=pb.PublishResponse.Ack(**ack._asdict())))

    async def _write_updates(self) -> None:
        await self._write_ack()
        until, self._fast_forward = self._fast_forward, None
        if until is not None:
            await self._context.write(pb.PublishResponse(fast_forward=pb.PublishResponse.FastForward(until=until)))
        role, self._role = self._role, None
        if role is not None:
            changed = pb.PublishResponse.ChangeRole(role=_ROLE_NUMBERS[role])
            await self._context.write(pb.PublishResponse(change_role=changed))
