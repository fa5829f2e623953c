"""A replica's side of Publish, for asyncio: it feeds one server or several, reconnects, and loses nothing.

The publisher holds the elements (``outbox``) and a connection to each server (``link``). It goes on as long as one of
the servers is there; docs/high-availability.md lists which failure is noticed after how long.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import Any, Final

from lmerge import clock
from lmerge.client.connection.streams import Connector, connector_of, parse_targets
from lmerge.client.publish.arguments import Heartbeat, Origin, PublisherLimits
from lmerge.client.publish.fast_forward import FastForward
from lmerge.client.publish.link import CLOSE_S, PublisherIdentity, PublisherLink
from lmerge.client.publish.outbox import Outbox, Staged
from lmerge.client.publish.payload_encoder import RowEncoder
from lmerge.core.batch import AnyBatch
from lmerge.core.elements import ADJUST, INF, INSERT, NEG_INF, STABLE
from lmerge.core.inputs import InputRole
from lmerge.core.properties import parse_properties
from lmerge.errors import InvalidBatch, ServerGone, UsageError
from lmerge.wire.engine_frames import frames_of
from lmerge.wire.names import check_name

# How long opening and closing wait for a server that is not there: enough for a restart of its connection, and no more.
GRACE_S: Final = 1.0
_BEGINNING: Final = Origin()
_LIMITS: Final = PublisherLimits()


class AsyncPublisher:
    """Publishes one physical stream into a merge.

    ``targets``: a server, or several as ``"h1:7171,h2:7171"`` or a list; each gets the whole stream. ``properties``:
    what the stream promises; empty: nothing. ``schema``: payloads are rows of it (see ``lmerge.wire.schema``);
    ``"infer"``: that of the first rows, and the publisher connects when they come. ``role``: ``active`` or ``observe``;
    a server may change it. ``origin``: where the stream begins; by default at its beginning. ``on_fast_forward``:
    called with a time before which no event is needed any more, or a ``FastForward``. ``heartbeat``: stables of an idle
    source. ``limits``: what the publisher holds, and how long it waits. ``security``: how to connect; None: without
    encryption.

    A call on a publisher that has failed raises what ended it: InputViolation (with the server's message), InputTaken,
    StaleIncarnation (fenced), PropertiesTooWeak, InvalidBatch, LimitExceeded, PermissionDenied, ServerGone. The message
    names the server.
    """

    def __init__(
        self,
        targets: str | Iterable[str],
        merge: str,
        replica: str,
        *,
        properties: Iterable[str] = (),
        schema: Any = None,
        role: str = InputRole.ACTIVE,
        origin: Origin = _BEGINNING,
        on_fast_forward: Callable[[int], None] | None = None,
        heartbeat: Heartbeat | None = None,
        limits: PublisherLimits = _LIMITS,
        security: Connector | None = None,
    ) -> None:
        self.targets = parse_targets(targets)
        self.target = ",".join(self.targets)
        check_name("merge", merge)
        check_name("replica", replica)
        self.merge, self.replica = merge, replica
        self.properties = parse_properties(properties)
        if role not in tuple(InputRole):
            raise UsageError(f"unknown role {role!r}; it is active or observe")
        self.role = InputRole(role)
        self.encoder = RowEncoder(schema)
        self.join_at = origin.join_at
        self.outbox = Outbox(replica, bytes_max=limits.buffer_bytes_max, behind_events_max=limits.behind_events_max)
        if origin.seed is not None:
            self._publish_seed(origin.seed)
        self.links: list[PublisherLink] = []
        self._first_incarnation = clock.wall_us() if origin.incarnation is None else origin.incarnation
        self._on_fast_forward = on_fast_forward
        self._fast_forwarded_to = NEG_INF
        if isinstance(on_fast_forward, FastForward):
            on_fast_forward.bind(self.skip_now)
        self._give_up_after_s = limits.give_up_after_s
        self._report_after_s = limits.report_after_s
        self._heartbeat = heartbeat
        self._connector = connector_of(security)
        self._failure: Exception | None = None
        self._closing = False
        self._moved = asyncio.Event()  # something was sent or acked, or the publisher failed
        self._tasks: dict[asyncio.Task[None], PublisherLink | None] = {}
        self._has_started = False

    # What a user calls.

    async def open(self) -> AsyncPublisher:
        """Connect.

        Returns when a server has accepted the input and the others have been tried. Raises what ended the attempt.
        """
        self.start()
        if self._has_started:
            await self._wait_until(lambda: any(link.is_connected for link in self.links))
            await self._wait_until(lambda: all(link.was_tried for link in self.links), GRACE_S)
        return self

    def start(self) -> None:
        """Begin to connect, without waiting. A publisher that infers its schema begins at the first row."""
        if self._has_started or self._closing or self.encoder.is_pending:
            return
        self._has_started = True
        identity = PublisherIdentity(self.merge, self.replica, self.properties, self.encoder, self.join_at)
        frames = frames_of(self.outbox.live.engine)
        self.links = [
            PublisherLink(
                target,
                identity,
                self.outbox,
                frames,
                self._connector,
                self,
                role=self.role,
                incarnation=self._first_incarnation,
                report_after_s=self._report_after_s,
            )
            for target in self.targets
        ]
        for link in self.links:
            self._spawn(link.run(), f"publisher {self.replica} to {link.target}", link)
        if self._heartbeat is not None:
            self._spawn(self._run_heartbeat(self._heartbeat), f"heartbeat of {self.replica}", None)

    async def insert(self, payload: Any, vs: int, ve: int = INF) -> None:
        """Publish an insert of the event [vs, ve). ``payload``: bytes, text, or a row if there is a schema."""
        await self._put((INSERT, vs, ve, 0, self.encoder.encode(payload)))

    async def adjust(self, payload: Any, vs: int, vold: int, ve: int) -> None:
        """Publish an adjust: the event [vs, vold) becomes [vs, ve). ``ve == vs`` removes it."""
        await self._put((ADJUST, vs, ve, vold, self.encoder.encode(payload)))

    async def stable(self, vc: int) -> None:
        """Publish a stable element: no later element changes anything before ``vc``."""
        await self._put((STABLE, vc, 0, 0, b""))

    async def publish(
        self, batch: AnyBatch | Sequence[AnyBatch], staged: Staged | None = None, *, stable: int | None = None
    ) -> None:
        """Publish a whole batch, or several in a list or tuple, then ``stable``, as one.

        On a violation the elements before the offender have been published.

        ``staged``: the batches, without ``stable``, have been staged (``Stager``); servers that hold them receive only
        a commit. They must hold what the parts hold, part by part in the same order.
        """
        await self.ready()
        try:
            self.outbox.put_batches(batches_of(batch), stable, staged)
        finally:
            self.nudge()

    async def publish_rows(self, rows: Any, *, vs: str, ve: str | None = None) -> None:
        """Publish one insert per row: dicts, or an Arrow table or record batch.

        ``vs`` and ``ve`` name the columns of the lifetime, ``ve`` None: it does not end. They stay in the payload only
        if the schema has them.
        """
        await self.publish(self.encoder.inserts(rows, vs, ve))

    async def skip(self, until: int) -> None:
        """Leave out events that end before ``until`` from here on (V.D); ``FastForward`` does it for you.

        A server whose merge has not come so far treats the input as one that joins at ``until``.
        """
        await self.ready()
        self.skip_now(until)
        self.nudge()

    async def flush(self) -> None:
        """Wait until one server, and every connected server, has merged everything published so far."""
        self._raise_failure()
        published = self.outbox.published
        self.nudge()
        await self._wait_until(lambda: self._is_merged(published))

    async def close(self) -> None:
        """Send everything, leave, and wait until it is merged, as ``flush`` does. Raises what ended the publisher."""
        self._closing = True
        if not self._has_started:
            return
        self.nudge()
        if self._failure is None:
            await self._leave()
        await self._cancel()
        self._raise_failure()

    async def abort(self) -> None:
        """Drop the connections without leaving."""
        self._closing = True
        await self._cancel()

    async def __aenter__(self) -> AsyncPublisher:
        return await self.open()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            await self.close()
        else:
            await self.abort()

    # Properties.

    @property
    def is_open(self) -> bool:
        """Whether elements can be published."""
        return self._has_started and not self._closing and self._failure is None

    @property
    def failure(self) -> Exception | None:
        """What ended the publisher, if anything did."""
        return self._failure

    @property
    def joined(self) -> bool:
        """Whether the input counts as redundant at every server that is connected, and one is."""
        connected = [link for link in self.links if link.is_connected]
        return bool(connected) and all(link.joined for link in connected)

    @property
    def incarnation(self) -> int:
        """The newest of the present incarnations: each server counts for itself."""
        return max((link.incarnation for link in self.links), default=self._first_incarnation)

    @property
    def algorithm(self) -> str:
        """The algorithm of the merge, from the first server that has declared it."""
        return next((link.algorithm for link in self.links if link.algorithm), "")

    @property
    def algorithm_reason(self) -> str:
        """Why the merge runs its algorithm, as a server has reported it."""
        return next((link.algorithm_reason for link in self.links if link.algorithm), "")

    @property
    def merge_stable_point(self) -> int:
        """The stable point that all servers that count have acked: no event before it is kept."""
        return self.outbox.trimmed

    @property
    def reconnects(self) -> int:
        """Connections that were made again, to all servers together."""
        return sum(max(0, link.sessions - 1) for link in self.links)

    # What the blocking publisher uses as well.

    async def ready(self) -> None:
        """Wait until there is room. Raises what ended the publisher."""
        self._raise_failure()
        if self._closing:
            raise UsageError(f"{self._description()} is closed")
        if self.encoder.is_pending:
            raise UsageError(f"{self._description()} infers its schema: the first element must be a row")
        self.start()
        if self.outbox.is_full:
            await self._wait_until(lambda: self.outbox.has_room)

    @property
    def has_sleeping_links(self) -> bool:
        """Whether elements that have been put need a ``nudge``: a link waits for them. Any thread may call it."""
        return any(link.sleeps for link in self.links)

    def nudge(self) -> None:
        """Wake the links: there may be something to send."""
        for link in self.links:
            link.nudge()

    def skip_now(self, until: int) -> None:
        """``skip`` without waiting for room; any thread may call it. It is sent with the next elements."""
        self.outbox.skip(until)

    # The calls of the links: see ``link.LinkOwner``.

    @property
    def is_closing(self) -> bool:
        return self._closing

    def moved(self) -> None:
        self._moved.set()
        if any(link.lane.was_dropped for link in self.links):
            self.nudge()

    def limits_changed(self) -> None:
        reported = [link.payload_bytes_max for link in self.links if link.payload_bytes_max is not None]
        self.outbox.payload_bytes_max = min(reported)

    def interest_changed(self) -> None:
        if not all(link.was_tried for link in self.links):
            return  # a server that is still being called may need more
        until = min((link.needed_from for link in self.links if link.is_connected), default=NEG_INF)
        if until > self._fast_forwarded_to:
            self._fast_forwarded_to = until
            if self._on_fast_forward is not None:
                self._on_fast_forward(until)

    def role_is(self, role: InputRole) -> None:
        self.role = role

    def gives_up(self) -> bool:
        if self._give_up_after_s is None or any(link.is_connected for link in self.links):
            return False
        last_s = max(link.away_since_s for link in self.links)
        return asyncio.get_running_loop().time() - last_s >= self._give_up_after_s

    # Tasks.

    def _spawn(self, work: Any, name: str, link: PublisherLink | None) -> None:
        task = asyncio.get_running_loop().create_task(self._guarded(work), name=name)
        self._tasks[task] = link

    async def _guarded(self, work: Any) -> None:
        """Run ``work``. The next call of the user raises what ended it; the other tasks end too."""
        try:
            await work
        except asyncio.CancelledError:
            if self._failure is None and not self._closing:
                self._failure = UsageError(f"{self._description()} was cancelled")
            raise
        except Exception as error:
            if self._failure is None:
                self._failure = error
            for task in self._tasks:
                if task is not asyncio.current_task():
                    task.cancel()
        finally:
            self._moved.set()

    async def _leave(self) -> None:
        """Wait until every server that is there has been left, and one at least."""
        loop = asyncio.get_running_loop()
        closed_s = loop.time()
        running = {task: link for task, link in self._tasks.items() if link is not None}

        def done() -> bool:
            left = [task for task in running if task.done()]
            if self._failure is not None or len(left) == len(running):
                return True
            rest = [link for task, link in running.items() if not task.done()]
            recent = loop.time() < closed_s + GRACE_S
            return bool(left) and not any(
                link.is_connected or (recent and link.away_since_s > closed_s - GRACE_S) for link in rest
            )

        if not await self._wait_for(done, CLOSE_S):
            await self._cancel()
            raise ServerGone(f"{self._description()} could not leave {self.target} within {CLOSE_S:.0f} s")

    async def _cancel(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _run_heartbeat(self, heartbeat: Heartbeat) -> None:
        """Publish a stable when the stream had none for a while, so that an idle source delays no merge."""
        last = self.outbox.stable_point
        while True:
            await asyncio.sleep(heartbeat.every_s)
            if self.outbox.stable_point == last:
                t = heartbeat.stable_point()
                if t is not None and t > last:
                    self.outbox.put_row((STABLE, t, 0, 0, b""))
                    self.nudge()
            last = self.outbox.stable_point

    # The rest.

    async def _put(self, row: tuple[int, int, int, int, bytes]) -> None:
        await self.ready()
        self.outbox.put_row(row)
        self.nudge()

    def _publish_seed(self, seed: AnyBatch) -> None:
        if not seed.count or seed.kinds[-1] != STABLE or ADJUST in seed.kinds or STABLE in seed.kinds[:-1]:
            raise InvalidBatch(f"{self._description()} cannot begin: a seed is inserts and then one stable")
        self.outbox.seed(seed)

    def _is_merged(self, published: int) -> bool:
        merged = [link.lane.acked >= published for link in self.links]
        connected = [link.lane.acked >= published for link in self.links if link.is_connected]
        return any(merged) and all(connected)

    async def _wait_until(self, reached: Callable[[], bool], timeout_s: float | None = None) -> None:
        """Wait for ``reached``, or for ``timeout_s``. Raises what ended the publisher before."""

        def over() -> bool:
            return reached() or self._failure is not None or not self._has_started or self._is_over()

        await self._wait_for(over, timeout_s)
        if not reached() and (timeout_s is None or self._failure is not None):
            self._raise_failure()
            raise UsageError(f"{self._description()} is closed")

    def _is_over(self) -> bool:
        return all(task.done() for task in self._tasks)

    async def _wait_for(self, reached: Callable[[], bool], timeout_s: float | None) -> bool:
        """Wait for ``reached``; return False if it did not come in time."""
        loop = asyncio.get_running_loop()
        end_s = None if timeout_s is None else loop.time() + timeout_s
        while not reached():
            self._moved.clear()
            timer = None
            if end_s is not None:
                if loop.time() >= end_s:
                    return False
                # Conditions that depend on time are checked again as well.
                timer = loop.call_at(min(end_s, loop.time() + GRACE_S / 10), self._moved.set)
            await self._moved.wait()
            if timer is not None:
                timer.cancel()
        return True

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _description(self) -> str:
        return f"publisher {self.replica!r} of merge {self.merge!r}"


def batches_of(batch: AnyBatch | Sequence[AnyBatch]) -> Sequence[AnyBatch]:
    """Return the argument of ``publish`` as a sequence. Batches of either engine are no lists and no tuples."""
    return batch if isinstance(batch, list | tuple) else (batch,)
