"""Helpers of the service's tests: a real server on a free port, and peers that use the bare protocol."""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any

import grpc

from lmerge.core.batch import Batch
from lmerge.core.elements import INF, Adjust, Element, Event, Insert, Stable
from lmerge.core.merge import Merge
from lmerge.core.merge_config import MergeConfig
from lmerge.core.session import AdmitLine, AttachLine, DetachLine, ElementLine, ExcuseLine, parse_line
from lmerge.core.tdb import Tdb
from lmerge.service.merge.hub import Hub
from lmerge.service.server import Server
from lmerge.service.settings import Settings
from lmerge.wire.codec import decode_batch, encode_batch
from lmerge.wire.generated import lmerge_pb2 as pb
from lmerge.wire.generated import lmerge_pb2_grpc as pb_grpc

EOF = grpc.aio.EOF
UNLIMITED = [("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1)]
MERGE = "flights"


def ins(payload: str | bytes, vs: int, ve: int = INF) -> Insert:
    return Insert(payload.encode() if isinstance(payload, str) else payload, vs, ve)


def adj(payload: str, vs: int, vold: int, ve: int) -> Adjust:
    return Adjust(payload.encode(), vs, vold, ve)


def stable(vc: int) -> Stable:
    return Stable(vc)


def batch_message(elements: Iterable[Element]) -> pb.Batch:
    return encode_batch(Batch.of(elements))


class World:
    """A server and a channel to it: ``async with World(policy="eager") as world``."""

    def __init__(self, **settings: Any) -> None:
        settings.setdefault("http_port", None)
        self.server = Server(Settings(**settings))

    async def __aenter__(self) -> World:
        await self.server.start()
        self.channel = self.new_channel()
        self.stub = pb_grpc.LmergeStub(self.channel)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.channel.close()
        await self.server.stop(1.0)

    def new_channel(self) -> grpc.aio.Channel:
        """Return a channel with its own connection."""
        options = [*UNLIMITED, ("grpc.use_local_subchannel_pool", 1)]
        return grpc.aio.insecure_channel(f"127.0.0.1:{self.server.port}", options=options)

    async def publisher(self, replica: str, merge: str = MERGE, stub: Any = None, **attach: Any) -> RawPublisher:
        """Attach a publisher; return it when it is accepted."""
        publisher = RawPublisher((stub or self.stub).Publish())
        await publisher.attach(replica, merge, **attach)
        publisher.accepted = (await publisher.call.read()).accepted
        assert publisher.accepted.algorithm
        return publisher

    async def refused(self, replica: str, merge: str = MERGE, **attach: Any) -> Ending:
        """Attempt an attach that is refused; return how the stream ends."""
        publisher = RawPublisher(self.stub.Publish())
        await publisher.attach(replica, merge, **attach)
        return await publisher.ending()

    async def subscriber(
        self, merge: str = MERGE, name: str = "", *, wait: bool = False, stub: Any = None, **request: Any
    ) -> RawReader:
        """Subscribe; return the subscriber when it has read its snapshot."""
        reader = RawReader(self.subscribe(merge, name, wait=wait, stub=stub, **request))
        await reader.read_snapshot()
        return reader

    def subscribe(
        self, merge: str = MERGE, name: str = "", *, wait: bool = False, stub: Any = None, **request: Any
    ) -> Any:
        asked = pb.SubscribeRequest(merge=merge, subscriber=name, wait_for_merge=wait, **request)
        return (stub or self.stub).Subscribe(asked)

    async def describe(self, merge: str = MERGE) -> pb.DescribeMergeResponse:
        return await self.stub.DescribeMerge(pb.DescribeMergeRequest(merge=merge))

    async def described(self, claim: Callable[[pb.DescribeMergeResponse], bool], merge: str = MERGE) -> None:
        """Describe the merge until ``claim`` holds."""
        while not claim(await self.describe(merge)):
            pass


# The details that gRPC's client, not the server, makes up when a message is written to a call that has ended.
WRITTEN_TOO_LATE = "Internal error from Core"


def retried_without_status(call: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    """Repeat ``call`` while gRPC has lost the server's status.

    A server may refuse a call before it has read a message of it. If the client writes at that moment, its gRPC either
    raises that the call has finished or makes up a status of its own; the server's is gone. A refused call has changed
    nothing, so another one shows how the server answers.
    """

    @functools.wraps(call)
    async def again(*args: Any, **kwargs: Any) -> Any:
        while True:
            try:
                return await call(*args, **kwargs)
            except asyncio.InvalidStateError:
                pass
            except grpc.aio.AioRpcError as error:
                if error.details() != WRITTEN_TOO_LATE:
                    raise

    return again


class Ending:
    """How a stream ended: its status, and the ``detached`` message before it, if there was one."""

    def __init__(self, error: grpc.RpcError | None, detached: pb.PublishResponse.Detached | None = None) -> None:
        self.code = grpc.StatusCode.OK if error is None else error.code()
        self.details = "" if error is None else error.details()
        self.detached = detached


class RawPublisher:
    """One call of Publish."""

    def __init__(self, call: Any) -> None:
        self.call = call
        self.accepted = pb.PublishResponse.Accepted()
        self.last_ack = pb.PublishResponse.Ack()
        self.fast_forwards: list[int] = []
        self.sequence = 0

    async def attach(self, replica: str, merge: str, **attach: Any) -> None:
        attach.setdefault("properties", ["key"])
        await self.write(attach=pb.Attach(merge=merge, replica=replica, **attach))

    async def write(self, **message: Any) -> None:
        await self.call.write(pb.PublishRequest(**message))

    async def send(self, *elements: Element) -> None:
        await self.send_message(batch_message(elements))

    async def send_message(self, message: pb.Batch, sequence: int | None = None) -> None:
        self.sequence += 1
        numbered = pb.PublishRequest.SequencedBatch(sequence=sequence or self.sequence, batch=message)
        await self.write(batch=numbered)

    async def acked(self, stable_point: int | None = None) -> pb.PublishResponse.Ack:
        """Read until the ack of the last batch; with ``stable_point``, until an ack that has it."""
        while self.last_ack.sequence < self.sequence or stable_point not in (None, self.last_ack.stable_point):
            message = await self.call.read()
            assert message is not EOF
            if message.WhichOneof("message") == "fast_forward":
                self.fast_forwards.append(message.fast_forward.until)
                continue
            assert message.WhichOneof("message") == "ack"
            assert message.ack.sequence >= self.last_ack.sequence
            self.last_ack = message.ack
        return self.last_ack

    async def merged(self, *elements: Element) -> pb.PublishResponse.Ack:
        await self.send(*elements)
        return await self.acked()

    async def leave(self) -> Ending:
        await self.write(leave=pb.PublishRequest.Leave())
        await self.call.done_writing()
        return await self.ending()

    async def ending(self) -> Ending:
        """Read until the stream ends. ``detached``: the broken promise, if that ended it."""
        detached = None
        try:
            while (message := await self.call.read()) is not EOF:
                assert detached is None, "detached must be the last message"
                if message.WhichOneof("message") == "detached":
                    detached = None if message.detached.status else message.detached
                    await self.call.done_writing()
                elif message.WhichOneof("message") == "ack":
                    self.last_ack = message.ack
        except grpc.RpcError as error:
            return Ending(error, detached)
        return Ending(None, detached)


class RawReader:
    """One call of Subscribe. Its elements go into ``tdb``, which raises if the stream is not legal."""

    def __init__(self, call: Any) -> None:
        self.call = call
        self.tdb = Tdb("subscription")
        self.elements: list[Element] = []
        self.begin = pb.SubscribeResponse.SnapshotBegin()
        self.snapshot: list[Element] = []
        self.snapshot_batches = 0

    async def read_snapshot(self) -> None:
        message = await self.call.read()
        assert message.WhichOneof("message") == "snapshot_begin"
        self.begin = message.snapshot_begin
        while (message := await self.call.read()).WhichOneof("message") == "batch":
            self._apply(message)
            self.snapshot_batches += 1
        assert message.WhichOneof("message") == "snapshot_end"
        self.snapshot, self.elements = self.elements, []

    async def read(self) -> str:
        """Read one message; return its kind."""
        message = await self.call.read()
        assert message is not EOF
        self._apply(message)
        return str(message.WhichOneof("message"))

    async def until_stable(self, vc: int) -> list[Event]:
        """Read until the stream's stable point is ``vc``; return the events of the TDB."""
        while self.tdb.stable_point < vc:
            await self.read()
        assert self.tdb.stable_point == vc
        return self.tdb.events()

    async def ending(self) -> Ending:
        try:
            while (message := await self.call.read()) is not EOF:
                self._apply(message)
        except grpc.RpcError as error:
            return Ending(error)
        return Ending(None)

    def _apply(self, message: pb.SubscribeResponse) -> None:
        if message.WhichOneof("message") == "batch":
            batch = decode_batch(message.batch)
            self.elements += batch.elements()
            self.tdb.apply_batch(batch)


def replayed(path: Path, policy: str) -> list[Element]:
    """Return the output of the core for a recorded session."""
    merge = Merge(MergeConfig(policy=policy))
    output: list[Element] = []
    for number, text in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        line = parse_line(text, number)
        if isinstance(line, AttachLine):
            outcome = merge.attach(line.input, line.properties, join_at=line.join_at, role=line.role)
        elif isinstance(line, AdmitLine):
            outcome = merge.admit(line.input)
        elif isinstance(line, ExcuseLine):
            outcome = merge.excuse(line.input)
        elif isinstance(line, DetachLine):
            outcome = merge.detach(line.input)
        else:
            assert isinstance(line, ElementLine)
            assert line.input is not None
            kind, vs, ve, vold, payload = line.row
            outcome = merge.apply(line.input, Batch(bytes([kind]), [vs], [ve], [vold], [payload]))
        output += outcome.batch.elements()
    return output


class Gate:
    """Holds a merge at work: ``method`` runs, but its thread does not return until ``open``."""

    def __init__(self, hub: Hub, method: str = "apply") -> None:
        self.entered = asyncio.Event()
        self.threads: set[str] = set()
        self._opened = threading.Event()
        self._loop = asyncio.get_running_loop()
        self._method = getattr(hub.state.merge, method)
        setattr(hub.state.merge, method, self._held)

    def open(self) -> None:
        self._opened.set()

    def _held(self, *arguments: Any) -> Any:
        outcome = self._method(*arguments)
        self.threads.add(threading.current_thread().name)
        self._loop.call_soon_threadsafe(self.entered.set)
        assert self._opened.wait(60), "the gate was not opened"
        return outcome
