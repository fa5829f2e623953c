"""A publisher's connection to one server: attach, prelude, batches up, acks down, and again after a loss.

The publisher has one link for each of its servers. Each link has its lane of the outbox, its incarnation and its role,
and none waits for another. A connection always begins with the prelude: the live events as they are at that moment.
Elements that are published afterwards follow in order. ``outbox`` describes what is kept for which server.

How a connection ends, and what then:

    lost: the server or the network has gone        attach again after a while (``backoff``), for as long as it takes
    the server drains                               the same
    dropped: too slow, or it must join elsewhere    attach again, as a newer incarnation
    the server changes the input's role             attach again at once, in that role
    a status that no other attempt can change       the publisher fails, whatever its other links do: a broken promise
                                                    is one on every server, and a name is fenced by its owner
    left                                            the publisher was closed, and the server has merged everything

A batch that has been staged at the server is committed there instead of being sent, as long as ``Trust`` allows it. A
server that does not hold the staged batch after all ends the connection, and the next prelude holds what it lacks.

An incarnation is the time in microseconds at which the publisher was made, plus one for each attempt: a process that
starts later fences one that started before, on machines whose clocks agree to within the time a restart takes.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeAlias

import grpc
import grpc.aio

from lmerge.client.connection import streams
from lmerge.client.connection.backoff import Backoff
from lmerge.client.connection.faults import ending_of, error_of, is_retryable, naming
from lmerge.client.connection.outage import ServerOutage
from lmerge.client.connection.streams import Connector
from lmerge.client.publish.outbox import Item, Lane, Outbox, Skip, StagedBatches, Taken
from lmerge.client.publish.payload_encoder import RowEncoder
from lmerge.core.batch import AnyBatch
from lmerge.core.elements import NEG_INF
from lmerge.core.inputs import InputRole
from lmerge.errors import LmergeError, ServerGone
from lmerge.linger import Linger
from lmerge.time_limit import time_limit
from lmerge.wire.frames import Frames, groups
from lmerge.wire.generated import lmerge_pb2 as pb
from lmerge.wire.limits import BatchLimits

# How long after a message the next one is made: too short to be noticed, and it makes messages 10-100 times rarer. One
# after a pause is sent at once.
APART_S: Final = 0.002
# The distance where the process is late anyway: see ``linger``.
APART_MAX_S: Final = 0.010
# At this size a message is sent without a wait: it costs little more than its elements.
ENOUGH_BYTES: Final = 64 * 2**10
# What one message holds at most: large enough to amortise gRPC, small enough for the server's turns.
BATCH_LIMITS: Final = BatchLimits(elements=8192)
# The time that a server may take to accept, to send its last message, or to take the publisher's.
CLOSE_S: Final = 30.0
# The most staged batches that are sent to a server that has lost several in a row, before it may commit again.
DISTRUST_MAX: Final = 64

_ROLES: Final = {InputRole.ACTIVE: pb.ROLE_ACTIVE, InputRole.OBSERVE: pb.ROLE_OBSERVE}


@dataclass(frozen=True)
class PublisherIdentity:
    """The merge, replica, promises and schema of a publisher: the same on every server."""

    merge: str
    replica: str
    properties: frozenset[str]
    encoder: RowEncoder
    join_at: int | None

    def __str__(self) -> str:
        return f"publisher {self.replica!r} of merge {self.merge!r}"


class Trust:
    """Decides whether a server may commit a staged batch.

    A server that does not hold it costs a connection: the first such loss is taken for a restart; after more of them in
    a row the next 1, 3, 7 .. batches are sent in full.
    """

    def __init__(self) -> None:
        self._losses = 0
        self._to_send = 0

    def may_commit(self) -> bool:
        """Return whether the server may commit this batch."""
        self._to_send -= 1
        return self._to_send < 0

    def kept(self) -> None:
        """Record that the server has committed a batch."""
        self._losses = 0

    def broken(self) -> None:
        """Record that the connection was lost instead."""
        self._to_send = min(DISTRUST_MAX, 2**self._losses - 1)
        self._losses += 1


# What is sent as one message: batches that become one, a skip, or a commit.
Step: TypeAlias = list[AnyBatch] | Skip | StagedBatches


class LinkOwner(Protocol):
    """The calls of a link to its publisher."""

    @property
    def is_closing(self) -> bool: ...
    def moved(self) -> None:
        """Note that something was sent, acked, accepted or lost."""

    def limits_changed(self) -> None:
        """Note that a server has declared its limits, such as the size of a payload."""

    def interest_changed(self) -> None:
        """Note that a server has sent a fast-forward, or has gone."""

    def role_is(self, role: InputRole) -> None:
        """Note that a server has given the input another role."""

    def gives_up(self) -> bool:
        """Return whether no server has been reachable for too long."""


class PublisherLink:
    """The connection to ``target``. ``run`` ends when it has left, and raises a LmergeError that is final."""

    def __init__(
        self,
        target: str,
        identity: PublisherIdentity,
        outbox: Outbox,
        frames: Frames,
        connector: Connector,
        owner: LinkOwner,
        *,
        role: InputRole,
        incarnation: int,
        report_after_s: float | None,
    ) -> None:
        self.target = target
        self.role = role
        self.incarnation = incarnation
        self.algorithm = ""
        self.algorithm_reason = ""
        self.joined = False
        self.is_connected = False  # accepted, and not lost since
        self.was_tried = False  # an attempt has succeeded or failed
        self.sessions = 0  # connections that were accepted
        self.payload_bytes_max: int | None = None  # of the server, once it has declared it
        self.needed_from = NEG_INF  # this server needs no event that ends before
        self.away_since_s = asyncio.get_running_loop().time()
        self.lane: Lane = outbox.lane()
        self._identity = identity
        self._outbox = outbox
        self._frames = frames
        self._connector = connector
        self._owner = owner
        self._outage = ServerOutage(str(identity), target, report_after_s)
        self._limits = BATCH_LIMITS
        self._wake = asyncio.Event()  # there may be something to send
        self._sleeps = False  # the writer waits for ``_wake``
        self._start_again = asyncio.Event()  # the connection must start again
        self._reconnects_at_once = False
        self._in_flight: deque[tuple[int, int]] = deque()  # (sequence, published)
        self._sequence = 0
        self._committed = 0  # the last sequence that was a commit, until it is acked
        self._may_commit = False
        self._trust = Trust()

    @property
    def sleeps(self) -> bool:
        """Whether elements that are put now need a ``nudge``. Any thread may read it, after it has put them."""
        return self._sleeps

    def nudge(self) -> None:
        """Wake the writer: there may be something to send, or to do."""
        self._wake.set()
        if self.lane.was_dropped:
            self._start_again.set()

    async def run(self) -> None:
        """Connect, and connect again, until the publisher has left. Raises a LmergeError that is final."""
        with self._outage:
            async with self._connector.channel(self.target) as channel:
                await self._run(channel)

    async def _run(self, channel: Any) -> None:
        backoff = Backoff()
        while True:
            self._outage.attempt()
            error = await self._session(channel)
            was_connected, self.was_tried = self.is_connected, True
            self._connection_lost()
            if error is None:
                return
            if was_connected:
                backoff.reset()
            if self._owner.gives_up():
                raise error
            self.incarnation += 1
            if not self._reconnects_at_once:
                await asyncio.sleep(backoff.next_s())

    def _connection_lost(self) -> None:
        if self.is_connected:
            self.away_since_s = asyncio.get_running_loop().time()
        self.is_connected = self.joined = False
        self.needed_from = NEG_INF
        if self._committed:
            self._trust.broken()
            self._committed = 0
        self.lane.disconnected()
        self._owner.moved()
        self._owner.interest_changed()

    async def _session(self, channel: Any) -> LmergeError | None:
        """Run one connection until it is lost (returns the error) or left (None). Raises a final LmergeError."""
        self._start_again.clear()
        self._reconnects_at_once = False
        call = streams.publish(channel)
        try:
            prelude = await self._attach(call)
            if prelude is None:
                return self._server_gone("it took too long to accept")
            await self._exchange(call, prelude)
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
            pass  # the status holds the reason
        finally:
            call.cancel()
        if self._start_again.is_set():
            return self._server_gone("the connection starts again")
        code, details = await call.code(), await call.details()
        if code is grpc.StatusCode.OK and self._owner.is_closing:
            return None
        error = error_of(code, details, self.target, attached=self.is_connected)
        if code is grpc.StatusCode.OK or is_retryable(code, was_let_in=self.is_connected):
            if not isinstance(error, ServerGone):
                return self._server_gone("the server ended the stream")
            self._outage.failed(details or code.name)
            return error
        raise naming(error, self.target)

    def _server_gone(self, why: str) -> ServerGone:
        self._outage.failed(why)
        return ServerGone(f"{self._identity}, server {self.target}: {why}")

    async def _attach(self, call: Any) -> Taken | None:
        """Attach, wait for the answer and return the prelude; None: attach again."""
        identity, lane = self._identity, self.lane
        join_at = max(lane.join_at(), NEG_INF if identity.join_at is None else identity.join_at)
        attach = pb.Attach(
            merge=identity.merge,
            replica=identity.replica,
            incarnation=self.incarnation,
            properties=sorted(identity.properties),
            role=_ROLES[self.role],
            schema=identity.encoder.message,
        )
        if join_at > NEG_INF:
            attach.join_at = join_at
        self._sequence = 0
        self._in_flight.clear()
        await call.write(pb.PublishRequest(attach=attach).SerializeToString())
        try:
            async with time_limit(CLOSE_S):
                response = await call.read()
        except asyncio.TimeoutError:
            return None
        if response is grpc.aio.EOF:
            raise asyncio.InvalidStateError
        accepted = response.accepted
        self.incarnation = accepted.incarnation
        prelude = lane.restart()
        if prelude is None:
            return None
        self.algorithm, self.algorithm_reason = accepted.algorithm, accepted.algorithm_reason
        self.joined = accepted.joined
        self._apply_limits(accepted.limits)
        lane.note_stable(accepted.stable_point)
        self.sessions += 1
        self.is_connected = self.was_tried = True
        self._outage.reached()
        self._owner.moved()
        return prelude

    async def _exchange(self, call: Any, prelude: Taken) -> None:
        """Write and read until either ends or the connection must start again. Raises the error that ended it."""
        reader = asyncio.ensure_future(self._read(call))
        writer = asyncio.ensure_future(self._write(call, prelude))
        again = asyncio.ensure_future(self._start_again.wait())
        try:
            await asyncio.wait((reader, writer, again), return_when=asyncio.FIRST_COMPLETED)
            if writer.done() and not isinstance(writer.exception(), LmergeError):
                # It has left, or the stream is broken: the server's last message, such as the reason, is still unread.
                await asyncio.wait((reader, again), timeout=CLOSE_S, return_when=asyncio.FIRST_COMPLETED)
            for task in (reader, writer):
                if task.done():
                    task.result()
        finally:
            for waiting in (reader, writer, again):
                waiting.cancel()
            await asyncio.gather(reader, writer, again, return_exceptions=True)

    async def _write(self, call: Any, prelude: Taken) -> None:
        """Send what waits, then leave if the publisher closes."""
        await self._send(call, prelude)
        loop = asyncio.get_running_loop()
        linger = Linger(APART_S, APART_MAX_S)
        due_s = loop.time()
        while True:
            if self.lane.waiting_bytes < ENOUGH_BYTES and not self._owner.is_closing:
                await asyncio.sleep(due_s - loop.time())
            began_s = max(due_s, loop.time())
            taken = self.lane.take()
            self._owner.moved()  # there is room
            if taken is not None:
                await self._send(call, taken)
                ended_s = loop.time()
                linger.took(ended_s - began_s)
                due_s = ended_s + linger.seconds
            elif self._owner.is_closing:
                await call.write(pb.PublishRequest(leave=pb.PublishRequest.Leave()).SerializeToString())
                await call.done_writing()
                return
            await self._more()

    async def _more(self) -> None:
        """Wait until there may be something to send."""
        self._wake.clear()
        self._sleeps = True  # before ``waits`` is read: what is put later is followed by a nudge
        if not self.lane.waits and not self._owner.is_closing:
            await self._wake.wait()
        self._sleeps = False

    async def _send(self, call: Any, taken: Taken) -> None:
        steps = list(self._steps(taken.items))
        numbered = sum(not isinstance(step, Skip) for step in steps)
        in_flight = numbered > 0 or bool(self._in_flight)
        if in_flight:  # first: the ack can overtake the write's return
            self._in_flight.append((self._sequence + numbered, taken.published))
        for step in steps:
            await call.write(self._encoded(step))
        if not in_flight:
            self._acked_to(taken.published)

    def _steps(self, items: Sequence[Item]) -> Iterator[Step]:
        """Yield the messages for ``items``, in order."""
        batches: list[AnyBatch] = []
        for item in items:
            if isinstance(item, StagedBatches) and not self._is_committed_there(item):
                batches += item.all_batches
            elif isinstance(item, Skip | StagedBatches):
                yield from groups(batches, self._limits)
                batches = []
                yield item
            else:
                batches.append(item)
        yield from groups(batches, self._limits)

    def _is_committed_there(self, item: StagedBatches) -> bool:
        """Return whether the server is asked to commit what was staged, instead of receiving it."""
        return self._may_commit and self.target in item.staged.holders and self._trust.may_commit()

    def _encoded(self, step: Step) -> bytes:
        if isinstance(step, Skip):
            return pb.PublishRequest(skip=pb.PublishRequest.Skip(until=step.until)).SerializeToString()
        self._sequence += 1
        if not isinstance(step, StagedBatches):
            return self._frames.encode_publish(self._sequence, step)
        staged = step.staged
        commit = pb.PublishRequest.Commit(
            sequence=self._sequence,
            query=staged.query,
            batch=staged.batch,
            elements=step.elements,
            payload_bytes=step.payload_bytes,
            stable=None if step.stable is None else step.stable.vs[0],
            parts=[pb.PublishRequest.Commit.Part(partition=part, attempt=attempt) for part, attempt in staged.parts],
        )
        self._committed = self._sequence
        return pb.PublishRequest(commit=commit).SerializeToString()

    async def _read(self, call: Any) -> None:
        """Read acks, feedback and the end. Raises the LmergeError that ended the input for good."""
        while True:
            response = await call.read()
            if response is grpc.aio.EOF:
                return
            kind = response.WhichOneof("message")
            if kind == "ack":
                self.joined = response.ack.joined
                self.lane.note_stable(response.ack.stable_point)
                if 0 < self._committed <= response.ack.sequence:
                    self._committed = 0
                    self._trust.kept()
                while self._in_flight and self._in_flight[0][0] <= response.ack.sequence:
                    self._acked_to(self._in_flight.popleft()[1])
                self._owner.moved()
            elif kind == "fast_forward":
                self.needed_from = max(self.needed_from, response.fast_forward.until)
                self.lane.note_stable(max(self.lane.needs, self.needed_from))  # a fast-forward may come before the ack
                self._owner.interest_changed()
            elif kind == "change_role":
                self.role = InputRole.OBSERVE if response.change_role.role == pb.ROLE_OBSERVE else InputRole.ACTIVE
                self._owner.role_is(self.role)
                self._reconnects_at_once = True
                self._start_again.set()
            elif kind == "detached":
                raise naming(ending_of(self._identity.replica, response.detached, self.target), self.target)

    def _apply_limits(self, limits: pb.Limits) -> None:
        """Keep to the server's limits, where it has declared them."""
        mine = BATCH_LIMITS
        self._limits = BatchLimits(
            elements=min(mine.elements, limits.batch_elements or mine.elements),
            payload_bytes=limits.payload_bytes or mine.payload_bytes,
            message_bytes=limits.message_bytes or mine.message_bytes,
        )
        self._may_commit = limits.staged_bytes > 0
        self.payload_bytes_max = self._limits.payload_bytes
        self._owner.limits_changed()

    def _acked_to(self, published: int) -> None:
        self.lane.acked = max(self.lane.acked, published)
        self._owner.moved()
