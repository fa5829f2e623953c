"""A subscriber's connection to one server: subscribe, read, and again after a loss.

It feeds the follower, which decides what the reader receives and where the next subscription must begin.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final, Protocol

import grpc
import grpc.aio

from lmerge.client.connection import streams
from lmerge.client.connection.backoff import Backoff
from lmerge.client.connection.outage import ServerOutage
from lmerge.client.connection.streams import Connector
from lmerge.client.subscribe.follower import BROKEN, Follower
from lmerge.core.batch import AnyBatch
from lmerge.core.elements import INSERT
from lmerge.errors import MergeReset
from lmerge.wire.engine_frames import frames_of
from lmerge.wire.generated import lmerge_pb2 as pb
from lmerge.wire.generated import lmerge_pb2_grpc as pb_grpc
from lmerge.wire.limits import UNLIMITED

# A server that has not answered for so long counts as away; the attempt goes on.
ANSWER_S: Final = 3.0


class SourceLinkOwner(Protocol):
    """The calls of a source link to its subscriber."""

    @property
    def is_open(self) -> bool: ...
    def request(self, begin: int | None) -> pb.SubscribeRequest:
        """Return the request for a subscription that begins at ``begin``."""

    def epoch_problem(self, epoch: int, target: str) -> MergeReset | None:
        """Return why a server in this epoch of the merge cannot serve; None: it is the reader's epoch, or the first."""

    def has_begun(self, schema: pb.Schema | None) -> None:
        """Note that a snapshot has begun."""

    @property
    def lacks_schema(self) -> bool: ...
    def notify(self) -> None:
        """Note that there may be something for the reader, or that a source must be asked again."""

    async def wait_for_room(self) -> None:
        """Wait until the reader has taken enough."""

    def connection_ended(self, source: SourceLink, problem: grpc.aio.AioRpcError | None) -> None:
        """Note that a connection has ended. Raises what ends the subscriber."""


class SourceLink:
    """The connection to ``target``. ``run`` ends when the stream is complete, and raises what ends the subscriber."""

    def __init__(
        self, target: str, follower: Follower, connector: Connector, owner: SourceLinkOwner, outage: ServerOutage
    ) -> None:
        self.target = target
        self.sessions = 0  # connections that have delivered anything
        self.has_answered = False  # whether the present connection has delivered anything
        self.last_received_s = asyncio.get_running_loop().time()  # or the start, as long as nothing came
        self.refusal: Exception | None = None  # why the server does not serve; another one may
        self._follower = follower
        self._connector = connector
        self._owner = owner
        self._outage = outage
        self._must_ask_again = False
        self._silence_error: Exception | None = None
        self._call: Any = None
        self._asked_schema = False
        self._read = frames_of(follower.engine).read_subscribe

    def ask_again(self) -> None:
        """Drop the present subscription and begin where the reader is now."""
        self._must_ask_again = True
        if self._call is not None:
            self._call.cancel()

    async def run(self) -> None:
        """Subscribe, and subscribe again, until the stream is complete."""
        with self._outage:
            async with self._connector.channel(self.target) as channel:
                await self._run(channel)

    async def _run(self, channel: Any) -> None:
        backoff = Backoff()
        follower = self._follower
        while self._owner.is_open and not follower.is_complete:
            await self._owner.wait_for_room()  # after a cut for slow reading this waits for the reader
            self._outage.attempt(channel)
            problem = await self._session(channel)
            if follower.is_complete or follower.sources[self.target].state == BROKEN:
                return
            if self._must_ask_again:
                continue
            self._outage.failed(self._why_ended(problem))
            if self.has_answered:
                backoff.reset()
                self.last_received_s = asyncio.get_running_loop().time()
                follower.lost(self.target)
            else:
                follower.failed(self.target)
            self._owner.notify()
            self._owner.connection_ended(self, problem)
            self.has_answered = False
            await asyncio.sleep(backoff.next_s())

    def _why_ended(self, problem: grpc.aio.AioRpcError | None) -> str:
        if problem is not None:
            return problem.details() or problem.code().name
        return "the server ended the stream" if self.refusal is None else str(self.refusal)

    async def _session(self, channel: Any) -> grpc.aio.AioRpcError | None:
        """Run one subscription until it ends; return the status with which it ended, if any."""
        self.has_answered = self._asked_schema = self._must_ask_again = False
        begin = self._follower.final_to
        self._follower.asked(self.target, begin)
        self._call = call = streams.subscribe(channel, self._owner.request(begin))
        timer = asyncio.get_running_loop().call_later(ANSWER_S, self._on_silence)
        try:
            async for data in call:
                timer.cancel()
                if not await self._take(data, channel):
                    return None
                self._outage.reached()
                if self._must_ask_again or self._follower.is_complete:
                    return None
                await self._owner.wait_for_room()
        except grpc.aio.AioRpcError as broken:
            return broken
        except asyncio.CancelledError:
            if self._silence_error is not None:
                raise self._silence_error from None
            if not self._must_ask_again or not self._owner.is_open:
                raise
        finally:
            timer.cancel()
            call.cancel()
        return None

    def _on_silence(self) -> None:
        if not self._owner.is_open or self.has_answered:
            return
        if self._outage.answers():
            self._outage.reached()  # there is nothing for this reader yet
        try:
            self._follower.failed(self.target)
        except Exception as error:  # a gap that is not accepted: raised where the connection is waited for
            self._silence_error = error
            self._call.cancel()
        self._owner.notify()

    async def _take(self, data: bytes, channel: Any) -> bool:
        """Take one message; return whether to go on."""
        response = self._read(data)
        if not self.has_answered:
            self.has_answered = True
            self.refusal = None
            self.sessions += 1
        if not isinstance(response, pb.SubscribeResponse):
            batch = response.decode(UNLIMITED)
            if self._owner.lacks_schema and not self._asked_schema and INSERT in batch.kinds:
                await self._ask_schema(channel)
            self._deliver(batch)
            return True
        kind = response.WhichOneof("message")
        if kind == "snapshot_begin":
            begin = response.snapshot_begin
            self.refusal = self._owner.epoch_problem(begin.epoch, self.target)
            if self.refusal is not None:
                self.has_answered = False  # nothing for this reader
                return False
            self._owner.has_begun(begin.schema if begin.HasField("schema") else None)
            complete_from = begin.complete_from if begin.HasField("complete_from") else None
            self._follower.begin(self.target, begin.stable_point, complete_from)
        elif kind == "snapshot_end":
            self._follower.end(self.target)
            self._owner.notify()
        return True

    def _deliver(self, batch: AnyBatch) -> None:
        if batch.count:
            self._follower.take(self.target, batch)
            self._owner.notify()

    async def _ask_schema(self, channel: Any) -> None:
        """Ask for the schema that the snapshot lacked: the first publisher declares it before the first insert."""
        self._asked_schema = True
        stub: Any = pb_grpc.LmergeStub(channel)
        merge = self._owner.request(None).merge
        described = await stub.DescribeMerge(pb.DescribeMergeRequest(merge=merge))
        if described.HasField("schema"):
            self._owner.has_begun(described.schema)
