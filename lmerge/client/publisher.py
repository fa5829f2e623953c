"""A replica's side of Publish, for asyncio: it connects, reconnects, and loses nothing.

One task owns the connection. It sends what the outbox holds, in batches that grow with the load, and reads acks. When
the connection breaks it waits (see ``backoff``), attaches as a newer incarnation that joins at the merge's last known
stable point, says its live events again and goes on (see ``live``).

An incarnation is the time in microseconds at which the publisher was made, plus one for each reconnect: a process that
starts later fences one that started before, on machines whose clocks agree to within the time a restart takes.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any, Final

import grpc
import grpc.aio

from lmerge.client import streams
from lmerge.client.backoff import Backoff
from lmerge.client.encode import RowEncoder
from lmerge.client.faults import error_of, is_retryable, violation_of
from lmerge.client.outbox import OUTBOX_BYTES_MAX, Outbox
from lmerge.core.batch import AnyBatch
from lmerge.core.elements import ADJUST, INF, INSERT, NEG_INF, STABLE
from lmerge.core.properties import parse_properties
from lmerge.errors import LmergeError, ServerGone, UsageError
from lmerge.wire.frames import frames_of, groups
from lmerge.wire.generated import lmerge_pb2 as pb
from lmerge.wire.limits import BatchLimits

# A lone element waits this long for company: less than anybody notices, and it makes messages 10-100 times rarer.
LINGER_S: Final = 0.002
# What one message holds at most: large enough to amortise gRPC, small enough for the server's turns.
BATCH_LIMITS: Final = BatchLimits(elements=8192)
CLOSE_S: Final = 30.0
CHANNEL_OPTIONS: Final = [
    # A server that vanished without a word is noticed within the sum of the first two, however idle the stream is.
    # gRPC by itself pings an idle connection twice and then once a minute, and waits a minute for each answer.
    ("grpc.keepalive_time_ms", 10_000),  # not below what the server allows, 5 s: it ends those who ping too often
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.http2.ping_timeout_ms", 5_000),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.keepalive_permit_without_calls", 0),
    ("grpc.max_receive_message_length", 64 * 2**20),
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.min_reconnect_backoff_ms", 50),
    ("grpc.max_reconnect_backoff_ms", 2_000),
]


class AsyncPublisher:
    """Publishes one physical stream into a merge.

    ``properties``: what the stream promises; None of them: nothing. ``schema``: payloads are rows of it (see
    ``lmerge.wire.schema``). ``join_at``: the stream is right for every event with ``Ve >= join_at``; None: it starts at
    the beginning. ``role``: ``active`` or ``observe``. ``give_up_after_s``: after so long without a connection the
    publisher fails with ServerGone; None: never. ``buffer_bytes_max``: what is said and not sent may be so much; then
    saying more waits. ``on_fast_forward``: called with a time before which nothing is of interest any more.

    ``schema="infer"``: the schema is that of the first rows, and the publisher connects when they come.

    A call that finds the publisher failed raises what ended it: InputViolation (the server's words), InputTaken,
    StaleIncarnation (fenced), PropertiesTooWeak, InvalidBatch, LimitExceeded, ServerGone.
    """

    def __init__(
        self, target: str, merge: str, replica: str, *, properties: Iterable[str] = (), schema: Any = None,
        join_at: int | None = None, role: str = "active", incarnation: int | None = None,
        on_fast_forward: Callable[[int], None] | None = None, give_up_after_s: float | None = None,
        buffer_bytes_max: int = OUTBOX_BYTES_MAX,
    ) -> None:
        self.target, self.merge, self.replica = target, merge, replica
        self.properties = parse_properties(properties)
        if role not in ("active", "observe"):
            raise UsageError(f"unknown role {role!r}; it is active or observe")
        self.role = role
        self.encoder = RowEncoder(schema)
        self.join_at = join_at
        self.incarnation = incarnation if incarnation is not None else time.time_ns() // 1000
        self.algorithm = ""
        self.algorithm_reason = ""
        self.joined = False
        self.merge_stable_point = NEG_INF
        self.reconnects = 0
        self.outbox = Outbox(replica, bytes_max=buffer_bytes_max)
        self._on_fast_forward = on_fast_forward
        self._give_up_after_s = give_up_after_s
        self._failure: Exception | None = None
        self._limits = BATCH_LIMITS
        self._frames = frames_of(self.outbox.live.engine)
        self._sessions = 0  # connections that were accepted
        self._closing = False
        self._wake = asyncio.Event()  # there may be something to send
        self._moved = asyncio.Event()  # something was sent or acked, or the publisher failed
        self._connected = asyncio.Event()
        self._in_flight: deque[tuple[int, int]] = deque()  # (sequence, said)
        self._sequence = 0
        self._task: asyncio.Task[None] | None = None

    # What a user calls.

    async def open(self) -> AsyncPublisher:
        """Connect; returns when the server has accepted the input. Raises what ended the attempt."""
        self.start()
        if self._task is not None:
            await self._until(self._connected.is_set)
        return self

    def start(self) -> None:
        """Begin to connect, without waiting. A publisher that infers its schema begins at the first row."""
        if self._task is None and not self._closing and not self.encoder.is_pending:
            self._task = asyncio.get_running_loop().create_task(self._run(), name=f"publisher {self.replica}")

    async def insert(self, payload: Any, vs: int, ve: int = INF) -> None:
        """Say insert(payload, vs, ve). ``payload``: bytes, text, or a row if there is a schema."""
        await self._put((INSERT, vs, ve, 0, self.encoder.encode(payload)))

    async def adjust(self, payload: Any, vs: int, vold: int, ve: int) -> None:
        """Say adjust(payload, vs, vold, ve); ``ve == vs`` removes the event."""
        await self._put((ADJUST, vs, ve, vold, self.encoder.encode(payload)))

    async def stable(self, vc: int) -> None:
        """Say stable(vc)."""
        await self._put((STABLE, vc, 0, 0, b""))

    async def publish(self, batch: AnyBatch) -> None:
        """Say a whole batch. On a violation the elements before the offender have been said."""
        await self.ready()
        try:
            self.outbox.put_batch(batch)
        finally:
            self.nudge()

    async def publish_rows(self, rows: Any, *, vs: str, ve: str | None = None) -> None:
        """Say one insert per row (dicts, or an Arrow table or record batch); ``vs`` and ``ve`` name the columns of the
        lifetime, ``ve`` None: it does not end. They stay in the payload only if the schema has them.
        """
        await self.publish(self.encoder.inserts(rows, vs, ve))

    async def flush(self) -> None:
        """Wait until the server has merged everything said so far."""
        said = self.outbox.said
        self.nudge()
        await self._until(lambda: self.outbox.acked >= said)

    async def close(self) -> None:
        """Say everything, leave, and wait until it is merged. Raises what ended the publisher before."""
        self._closing = True
        if self._task is None:
            return
        self.nudge()
        if not self._task.done():
            _, pending = await asyncio.wait((self._task,), timeout=CLOSE_S)
            if pending:
                await self.abort()
                raise ServerGone(f"{self._who()} could not leave within {CLOSE_S:.0f} s")
        self._raise_failure()

    async def abort(self) -> None:
        """Drop the connection without leaving."""
        self._closing = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def __aenter__(self) -> AsyncPublisher:
        return await self.open()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            await self.close()
        else:
            await self.abort()

    # What the blocking publisher uses as well.

    async def ready(self) -> None:
        """Wait until there is room. Raises what ended the publisher."""
        self._raise_failure()
        if self._closing:
            raise UsageError(f"{self._who()} is closed")
        if self.encoder.is_pending:
            raise UsageError(f"{self._who()} infers its schema: the first that it says must be a row")
        self.start()
        if self.outbox.is_full:
            await self._until(lambda: not self.outbox.is_full)

    def nudge(self) -> None:
        """There may be something to send."""
        self._wake.set()

    @property
    def is_open(self) -> bool:
        """Whether elements can be said."""
        return self._task is not None and not self._closing and self._failure is None

    @property
    def failure(self) -> Exception | None:
        """What ended the publisher, if anything did."""
        return self._failure

    # The connection.

    async def _put(self, row: tuple[int, int, int, int, bytes]) -> None:
        await self.ready()
        self.outbox.put_row(row)
        self.nudge()

    async def _run(self) -> None:
        backoff = Backoff()
        lost_s = time.monotonic()
        try:
            async with grpc.aio.insecure_channel(self.target, options=CHANNEL_OPTIONS) as channel:
                while True:
                    self._connected.clear()
                    error = await self._session(channel)
                    if error is None:
                        return
                    if self._connected.is_set():  # it had been accepted: this is a new loss
                        lost_s = time.monotonic()
                        backoff.reset()
                    if self._give_up_after_s is not None and time.monotonic() - lost_s >= self._give_up_after_s:
                        raise error
                    self.incarnation += 1
                    await asyncio.sleep(backoff.next_s())
        except Exception as error:  # whatever it is, the next call of the user raises it
            self._failure = error
        finally:
            if self._failure is None and not self._closing:
                self._failure = UsageError(f"{self._who()} was cancelled")
            self._moved.set()

    async def _session(self, channel: Any) -> LmergeError | None:
        """One connection, until it is lost (the error) or left (None). Raises a final LmergeError."""
        call = streams.publish(channel)
        try:
            prelude = await self._attach(call)
            reader = asyncio.ensure_future(self._read(call))
            writer = asyncio.ensure_future(self._write(call, prelude))
            try:
                await asyncio.wait((reader, writer), return_when=asyncio.FIRST_COMPLETED)
                if writer.done() and not isinstance(writer.exception(), LmergeError):
                    # It has left, or the stream is broken: what the server said last, such as why, is still to be read.
                    await asyncio.wait((reader,), timeout=CLOSE_S)
                for task in (reader, writer):
                    if task.done():
                        task.result()
            finally:
                reader.cancel()
                writer.cancel()
                await asyncio.gather(reader, writer, return_exceptions=True)
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
            pass  # the status says why
        finally:
            call.cancel()
        code, details = await call.code(), await call.details()
        if code is grpc.StatusCode.OK and self._closing:
            return None
        error = error_of(code, details, self.target, attached=self._connected.is_set())
        if code is grpc.StatusCode.OK or is_retryable(code):
            return error if isinstance(error, ServerGone) else ServerGone(f"{self._who()}: the server ended the stream")
        raise error

    async def _attach(self, call: Any) -> tuple[list[AnyBatch], int] | None:
        """Attach and wait for the answer. What must be said first on a new connection, None on the first one."""
        join_at, trimmed = self.join_at, self.outbox.trimmed
        if self._sessions and trimmed > NEG_INF:  # kept: the events with Ve >= trimmed; right: those with Ve >= join_at
            join_at = trimmed if join_at is None else max(join_at, trimmed)
        attach = pb.Attach(
            merge=self.merge, replica=self.replica, incarnation=self.incarnation, properties=sorted(self.properties),
            role=pb.ROLE_OBSERVE if self.role == "observe" else pb.ROLE_ACTIVE, schema=self.encoder.message,
        )
        if join_at is not None:
            attach.join_at = join_at
        self._sequence = 0
        self._in_flight.clear()
        await call.write(pb.PublishRequest(attach=attach).SerializeToString())
        response = await call.read()
        if response is grpc.aio.EOF:
            raise asyncio.InvalidStateError
        accepted = response.accepted
        self.algorithm, self.algorithm_reason = accepted.algorithm, accepted.algorithm_reason
        self.incarnation = accepted.incarnation
        self.joined = accepted.joined
        self._keep_to(accepted.limits)
        prelude = self.outbox.restart() if self._sessions else None  # before the trim: it has to fit the join_at
        self._heard(accepted.stable_point)
        self._sessions += 1
        self.reconnects = self._sessions - 1
        self._connected.set()
        self._moved.set()
        return prelude

    async def _write(self, call: Any, prelude: tuple[list[AnyBatch], int] | None) -> None:
        """Send what there is, then leave if the publisher closes."""
        if prelude is not None:
            await self._send(call, *prelude)
        while True:
            taken = self.outbox.take()
            self._moved.set()  # there is room
            if taken is not None:
                await self._send(call, *taken)
                continue
            if self._closing:
                await call.write(pb.PublishRequest(leave=pb.PublishRequest.Leave()).SerializeToString())
                await call.done_writing()
                return
            self._wake.clear()
            if self.outbox.bytes == 0:
                await self._wake.wait()
                if not self._closing:
                    await asyncio.sleep(LINGER_S)

    async def _send(self, call: Any, batches: list[AnyBatch], said: int) -> None:
        pieces = list(groups(batches, self._limits))
        if not pieces:
            self._acked_to(said)
            return
        self._in_flight.append((self._sequence + len(pieces), said))  # first: the ack can overtake the write's return
        for piece in pieces:
            self._sequence += 1
            await call.write(self._frames.encode_publish(self._sequence, piece))

    async def _read(self, call: Any) -> None:
        """Acks, feedback, and the end."""
        while True:
            response = await call.read()
            if response is grpc.aio.EOF:
                return
            kind = response.WhichOneof("message")
            if kind == "ack":
                self.joined = response.ack.joined
                self._heard(response.ack.stable_point)
                while self._in_flight and self._in_flight[0][0] <= response.ack.sequence:
                    self._acked_to(self._in_flight.popleft()[1])
            elif kind == "fast_forward" and self._on_fast_forward is not None:
                self._on_fast_forward(response.fast_forward.until)
            elif kind == "detached":
                raise violation_of(self.replica, response.detached)

    def _keep_to(self, limits: pb.Limits) -> None:
        """The server's limits, where it has told them."""
        mine = BATCH_LIMITS
        self._limits = BatchLimits(
            elements=min(mine.elements, limits.batch_elements or mine.elements),
            payload_bytes=limits.payload_bytes or mine.payload_bytes,
            message_bytes=limits.message_bytes or mine.message_bytes,
        )
        self.outbox.payload_bytes_max = self._limits.payload_bytes

    def _acked_to(self, said: int) -> None:
        self.outbox.acked = max(self.outbox.acked, said)
        self._moved.set()

    def _heard(self, stable_point: int) -> None:
        if stable_point > self.merge_stable_point:
            self.merge_stable_point = stable_point
            self.outbox.heard(stable_point)

    async def _until(self, reached: Callable[[], bool]) -> None:
        """Wait for ``reached``. Raises what ended the publisher before."""
        while not reached():
            self._raise_failure()
            if self._task is None or self._task.done():
                raise UsageError(f"{self._who()} is closed")
            self._moved.clear()
            if not reached():
                await self._moved.wait()

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _who(self) -> str:
        return f"publisher {self.replica!r} of merge {self.merge!r}"
