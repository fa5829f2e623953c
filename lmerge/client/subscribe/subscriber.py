"""A reader's side of Subscribe, for asyncio: one merged stream out of one server or several, across breaks.

Each server has a connection of its own (``connection``); the ``follower`` merges their streams into one, and the
``reader`` records how far it was read. docs/high-availability.md lists which failure is noticed after how long.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, NamedTuple

import grpc
import grpc.aio

from lmerge.client.connection.faults import error_of, is_retryable, naming
from lmerge.client.connection.outage import REPORT_AFTER_S, ServerOutage
from lmerge.client.connection.streams import Connector, connector_of, parse_targets
from lmerge.client.subscribe.checkpoint import dump, parse_resume
from lmerge.client.subscribe.connection import SourceLink
from lmerge.client.subscribe.envelope_methods import AsyncEnvelopes
from lmerge.client.subscribe.follower import AWAY, Follower, SubscriptionGap
from lmerge.client.subscribe.reader import ResumePoint
from lmerge.core.batch import AnyBatch
from lmerge.core.elements import ADJUST, INSERT, NEG_INF, Element, show_time
from lmerge.core.engines.selection import LiveTdb
from lmerge.errors import MergeReset, OutOfRange, ServerGone, SubscriberTooSlow, UnknownMerge, UsageError
from lmerge.wire.generated import lmerge_pb2 as pb
from lmerge.wire.names import check_name
from lmerge.wire.rows import RowCodec
from lmerge.wire.schema import Schema
from lmerge.wire.token import format_token

READ_AHEAD_BATCHES: Final = 16

ERROR: Final = "error"
SNAPSHOT: Final = "snapshot"


@dataclass(frozen=True)
class SubscriberLimits:
    """How long a subscriber waits, and how far it reads ahead.

    - ``give_up_after_s``: after so many seconds without any server the iteration raises ServerGone; None: never.
    - ``read_ahead_batches``: batches that wait for the reader; None: 16, or 64 if the subscriber blocks. Beyond, the
      servers' queues fill, and at last the servers cut the subscriber off.
    - ``report_after_s``: after so many seconds without a server, one line of log has the reason; None: never.
    """

    give_up_after_s: float | None = None
    read_ahead_batches: int | None = None
    report_after_s: float | None = REPORT_AFTER_S


_LIMITS: Final = SubscriberLimits()


class RowChange(NamedTuple):
    """An element with its payload decoded. ``op``: insert, adjust or stable; ``row`` None for a stable."""

    op: str
    row: dict[str, Any] | None
    vs: int
    ve: int
    vold: int


class SourceStatus(NamedTuple):
    """One server of a subscriber.

    ``state``: connecting, joining, joined, away or broken; ``lag``: how far its stable point is behind the reader's, in
    units of time; None: there is no stable point yet.
    """

    target: str
    state: str
    complete_from: int
    stable_point: int
    lag: int | None


class AsyncSubscriber(AsyncEnvelopes):
    """Reads the merged stream: ``async for element in subscriber``.

    ``batches()`` is the fast way. ``targets``: a server, or several as ``"h1:7171,h2:7171"`` or a list; the stream goes
    on as long as one of them does. ``wait_for_merge``: a merge that does not exist yet is waited for, as subscribers
    are often started before the first replica; otherwise UnknownMerge. ``resync``: a subscriber that was cut off
    because it read too slowly subscribes again (counted in ``resyncs``); otherwise SubscriberTooSlow. ``on_gap``:
    called with each SubscriptionGap. ``policy``: how the local merge of several servers shows events; None: lazy.
    ``limits``: how long the subscriber waits, and how far it reads ahead. ``security``: how to connect; None: without
    encryption.

    ``epoch``: that of the merge, None until it is known. An administrator who resets a merge begins a new one, in which
    no earlier stream goes on. Then MergeReset is raised, as soon as no server goes on with the epoch that was read.

    ``resume``: a ``token`` (the reader has every event that ends before; it receives those that were live then again)
    or the bytes of a ``checkpoint()`` (it has the live events too, and receives nothing twice). ``if_too_old``: what to
    do if no server has what came since: ``"error"`` raises OutOfRange, ``"snapshot"`` goes on and reports the gap.
    """

    def __init__(
        self,
        targets: str | Iterable[str],
        merge: str,
        *,
        name: str = "",
        resume: str | bytes | None = None,
        if_too_old: str = ERROR,
        wait_for_merge: bool = True,
        resync: bool = True,
        on_gap: Callable[[SubscriptionGap], None] | None = None,
        policy: str | None = None,
        limits: SubscriberLimits = _LIMITS,
        security: Connector | None = None,
    ) -> None:
        self.targets = parse_targets(targets)
        self.target = ",".join(self.targets)
        self.merge, self.name = merge, name
        self.wait_for_merge = wait_for_merge
        self.resync = resync
        if if_too_old not in (ERROR, SNAPSHOT):
            raise UsageError(f"unknown if_too_old {if_too_old!r}; it is error or snapshot")
        check_name("merge", merge)
        if name:
            check_name("subscriber", name)
        self.schema: Schema | None = None
        self.resumed = resume
        self.resyncs = 0
        self.on_taken: Callable[[AnyBatch], None] | None = None  # called with each batch that the reader takes
        resume_point, self.epoch = (None, None) if resume is None else parse_resume(resume, merge)
        self.follower = Follower(self.targets, policy=policy, resume_point=resume_point, on_gap=self._accept_gap)
        self.links: list[SourceLink] = []
        self._codec: RowCodec | None = None
        self._give_up_after_s = limits.give_up_after_s
        self._report_after_s = limits.report_after_s
        self.read_ahead_batches = limits.read_ahead_batches or READ_AHEAD_BATCHES
        self._on_gap = on_gap
        self._refuses_gaps = resume is not None and if_too_old == ERROR  # until it has begun
        self._connector = connector_of(security)
        self._open = True
        self._was_connected = False
        self._tasks: list[asyncio.Task[None]] = []
        self._more = asyncio.Event()  # there may be something to hand over, or to end with
        self._room = asyncio.Event()
        self._failure: Exception | None = None
        self._on_more: Callable[[], None] = self._more.set

    # The state.

    @property
    def tdb(self) -> LiveTdb:
        """The live table as far as it was read: the events that are not fully frozen, and the stable point."""
        return self.follower.reader.seen()

    @property
    def stable_point(self) -> int:
        """The last stable that was read."""
        return self.follower.reader.stable_point

    @property
    def token(self) -> str:
        """The token from which a reader that keeps its own live events can resume, at any server.

        The reader has the final result for every event that ends before.
        """
        return format_token(self.merge, max(self.follower.since, self.stable_point), self.epoch or 0)

    def checkpoint(self) -> bytes:
        """Return the bytes from which any reader can resume, at any server: the token and the live events as read."""
        stable_point, events = self.follower.reader.position()
        return dump(self.merge, ResumePoint(stable_point, self.follower.since, events), self.epoch or 0)

    @property
    def gaps(self) -> list[SubscriptionGap]:
        """Stretches of time in which frozen events may be missing, oldest first; the very oldest as one (GAPS_MAX)."""
        return self.follower.gaps

    @property
    def reconnects(self) -> int:
        """Connections that were made again, to all servers together."""
        return sum(max(0, link.sessions - 1) for link in self.links)

    @property
    def sources(self) -> list[SourceStatus]:
        """The servers and their present states."""
        final_to = self.follower.final_to
        return [
            SourceStatus(
                s.name,
                s.state,
                s.complete_from,
                s.stable_point,
                None
                if final_to is None or NEG_INF in (final_to, s.stable_point)
                else max(0, final_to - s.stable_point),
            )
            for s in self.follower.sources.values()
        ]

    # Reading.

    def batches(self) -> AsyncIterator[AnyBatch]:
        """Iterate over the stream in batches, until it is complete (stable(+inf)) or the subscriber is closed."""
        return self._read(None)

    def elements(self) -> AsyncIterator[Element]:
        """Iterate over the stream element by element."""
        return self._read(lambda batch: batch.elements())

    def __aiter__(self) -> AsyncIterator[Element]:
        return self.elements()

    def rows(self) -> AsyncIterator[RowChange]:
        """Iterate over the stream with payloads decoded by the schema that publishers declared. Raises InvalidRow."""
        return self._read(self.decoded)

    def decoded(self, batch: AnyBatch) -> list[RowChange]:
        """Return the elements of a batch as row changes."""
        names = {INSERT: "insert", ADJUST: "adjust"}
        return [
            RowChange(names.get(kind, "stable"), self._decode(payload) if kind in names else None, vs, ve, vold)
            for kind, vs, ve, vold, payload in batch.rows()
        ]

    def close(self) -> None:
        """End the subscription; the iteration ends, also one that waits in another task."""
        self._open = False
        for task in self._tasks:
            task.cancel()
        self._on_more()

    async def __aenter__(self) -> AsyncSubscriber:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # What the blocking subscriber uses as well.

    def start(self, on_more: Callable[[], None] | None = None) -> None:
        """Connect. ``on_more`` is called when there may be something to take, or the stream has ended."""
        if self._tasks or not self._open:
            return
        if on_more is not None:
            self._on_more = on_more
        called = f" {self.name!r}" if self.name else ""
        client = f"subscriber{called} of merge {self.merge!r}"
        self.links = [
            SourceLink(target, self.follower, self._connector, self, ServerOutage(client, target, self._report_after_s))
            for target in self.targets
        ]
        loop = asyncio.get_running_loop()
        self._tasks = [
            loop.create_task(self._guarded(link), name=f"subscriber to {link.target}") for link in self.links
        ]

    def take(self, *, at_once: bool = True) -> AnyBatch | None:
        """Return the next batch for the reader, None if there is none now. Any thread may call it."""
        batch = self.follower.reader.take(at_once=at_once)
        if batch is not None and self.on_taken is not None:
            self.on_taken(batch)
        return batch

    def made_room(self) -> None:
        """Note that the reader has taken a batch."""
        self._room.set()

    def has_ended(self) -> bool:
        """Return whether nothing more will come. Raises what ended the subscriber. Any thread may call it."""
        failure = self._failure
        ended = not self._open or self.follower.is_complete or all(task.done() for task in self._tasks)
        if self.follower.reader.waiting:
            return False  # read last: a batch may have come since the reader found none, even the end
        if failure is not None:
            raise failure
        return ended

    # The calls of the connections: see ``connection.SourceLinkOwner``.

    @property
    def is_open(self) -> bool:
        return self._open

    @property
    def lacks_schema(self) -> bool:
        return self.schema is None

    def request(self, begin: int | None) -> pb.SubscribeRequest:
        # A merge that was there before the connection broke is waited for: its server may have been restarted.
        return pb.SubscribeRequest(
            merge=self.merge,
            subscriber=self.name,
            wait_for_merge=self.wait_for_merge or self._was_connected,
            resume_token="" if begin is None else format_token(self.merge, begin, self.epoch or 0),
            snapshot_if_too_old=not self._refuses_gaps,
        )

    def epoch_problem(self, epoch: int, target: str) -> MergeReset | None:
        if self.epoch is None:
            self.epoch = epoch
        if self.epoch == epoch:
            return None
        return MergeReset(
            f"merge {self.merge!r} is in epoch {epoch} at server {target}, and this reader in epoch {self.epoch}: all "
            "servers of a merge are to be reset together"
        )

    def has_begun(self, schema: pb.Schema | None) -> None:
        self._was_connected = True
        if schema is not None:
            self.schema, self._codec = Schema.from_message(schema), None

    def notify(self) -> None:
        follower = self.follower
        if follower.reader.waiting:
            self._refuses_gaps = False
        for name in follower.to_ask_again():
            self.links[self.targets.index(name)].ask_again()
        self._on_more()

    async def wait_for_room(self) -> None:
        waiting = self.follower.reader.waiting
        while len(waiting) >= self.read_ahead_batches:
            self._room.clear()
            await self._room.wait()

    def connection_ended(self, source: SourceLink, problem: grpc.aio.AioRpcError | None) -> None:
        if problem is not None:
            self._handle_status(source, problem)
        others = [link for link in self.links if link.refusal is None and not self._is_away(link)]
        if source.refusal is not None and not others:
            raise source.refusal
        if self._give_up_after_s is not None and not any(link.has_answered for link in self.links):
            last_s = max(link.last_received_s for link in self.links)
            if asyncio.get_running_loop().time() - last_s >= self._give_up_after_s:
                details = "it ended the stream" if problem is None else problem.details() or "no details"
                raise ServerGone(f"the server at {source.target} cannot be reached: {details}")

    # Tasks.

    async def _guarded(self, link: SourceLink) -> None:
        """Run one connection. Its error ends the subscriber; the end of the stream does not."""
        try:
            await link.run()
        except Exception as error:
            if self._failure is None:
                self._failure = error
        finally:
            self._on_more()

    async def _read(self, items_of: Callable[[AnyBatch], Iterable[Any]] | None) -> AsyncIterator[Any]:
        """Yield the batches, or the items of each, one by one."""
        self.start()
        reader = self.follower.reader
        try:
            while self._open:
                batch = self.take(at_once=items_of is None)
                if batch is None:
                    self._more.clear()
                    if self.has_ended():
                        return
                    await self._more.wait()
                    continue
                self.made_room()
                if items_of is None:
                    yield batch
                    continue
                for seen, item in enumerate(items_of(batch), 1):
                    reader.see(seen)
                    yield item
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    # The ends of connections.

    def _handle_status(self, source: SourceLink, problem: grpc.aio.AioRpcError) -> None:
        """Count a cut-off, or note why the server does not serve, or raise."""
        code, details = problem.code(), problem.details()
        if code is grpc.StatusCode.RESOURCE_EXHAUSTED and source.has_answered:
            # Cut off. Before anything was received the status means another limit.
            if not self.resync:
                raise SubscriberTooSlow(f"{details or 'cut off'} (server {source.target})") from None
            self.resyncs += 1
            return
        if is_retryable(code, was_let_in=source.has_answered):
            return
        error = naming(error_of(code, details, source.target, trailing=problem.trailing_metadata()), source.target)
        if not isinstance(error, UnknownMerge | OutOfRange):
            raise error from None
        source.refusal = error

    def _is_away(self, link: SourceLink) -> bool:
        return self.follower.sources[link.target].state == AWAY

    def _accept_gap(self, gap: SubscriptionGap) -> None:
        if self._refuses_gaps:
            raise OutOfRange(
                f"cannot resume merge {self.merge!r} at {show_time(gap.start)}: no server has what ended before "
                f"{show_time(gap.end)}"
            )
        if self._on_gap is not None:
            self._on_gap(gap)

    def _decode(self, payload: bytes) -> dict[str, Any] | None:
        if self._codec is None and self.schema is not None:
            self._codec = RowCodec(self.schema)
        return {"payload": payload} if self._codec is None else self._codec.decode(payload)
