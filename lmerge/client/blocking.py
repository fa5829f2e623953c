"""Publisher and Subscriber for code without asyncio. One background thread runs an event loop for all of them.

The blocking publisher puts elements into the outbox from the caller's thread, so an element costs no thread switch; the
loop is only woken. A process that forks must open its publishers and subscribers after the fork; those from before it
raise UsageError. At the end of the process whatever was not closed is dropped, as if the process had been killed.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any, Final, TypeVar

from lmerge.client.connection.background import background_loop, check_loop, is_current, run_blocking
from lmerge.client.publish.outbox import Staged
from lmerge.client.publish.publisher import AsyncPublisher, batches_of
from lmerge.client.subscribe.envelope_methods import Envelopes
from lmerge.client.subscribe.follower import SubscriptionGap
from lmerge.client.subscribe.subscriber import AsyncSubscriber, RowChange, SourceStatus, SubscriberLimits
from lmerge.core.batch import AnyBatch
from lmerge.core.elements import ADJUST, INF, INSERT, STABLE, Element
from lmerge.core.tdb import Tdb
from lmerge.errors import UsageError

T = TypeVar("T")

# Batches that wait for a slow reader in its own process. Beyond, the server's queue fills, and at last cuts it off.
READ_AHEAD_BATCHES: Final = 64
_LIMITS: Final = SubscriberLimits()


class Publisher:
    """Publishes one physical stream; see ``AsyncPublisher`` for the arguments and the errors.

    with lmerge.Publisher("localhost:7171", "flights", "a", properties=["key"]) as publisher:
        publisher.insert(b"UA 1545", vs=1, ve=9)
        publisher.stable(2)
    """

    def __init__(self, targets: str | Iterable[str], merge: str, replica: str, **options: Any) -> None:
        self._loop = background_loop()
        self._nudged = False

        async def make() -> AsyncPublisher:
            publisher = AsyncPublisher(targets, merge, replica, **options)
            publisher.start()
            return publisher

        self._async = run_blocking(make(), self._loop)
        self._outbox = self._async.outbox

    def open(self) -> Publisher:
        """Wait until the server has accepted the input. Raises what ended the attempt."""
        run_blocking(self._async.open(), self._loop)
        return self

    def insert(self, payload: Any, vs: int, ve: int = INF) -> None:
        """Publish an insert of the event [vs, ve). ``payload``: bytes, text, or a row if there is a schema."""
        self._put((INSERT, vs, ve, 0, self._async.encoder.encode(payload)))

    def adjust(self, payload: Any, vs: int, vold: int, ve: int) -> None:
        """Publish an adjust: the event [vs, vold) becomes [vs, ve). ``ve == vs`` removes it."""
        self._put((ADJUST, vs, ve, vold, self._async.encoder.encode(payload)))

    def stable(self, vc: int) -> None:
        """Publish a stable element: no later element changes anything before ``vc``."""
        self._put((STABLE, vc, 0, 0, b""))

    def publish(
        self, batch: AnyBatch | Sequence[AnyBatch], staged: Staged | None = None, *, stable: int | None = None
    ) -> None:
        """Publish a whole batch, or several and a stable as one; see ``AsyncPublisher.publish``."""
        self._ready()
        try:
            self._outbox.put_batches(batches_of(batch), stable, staged)
        finally:
            self._nudge()

    def publish_rows(self, rows: Any, *, vs: str, ve: str | None = None) -> None:
        """Publish one insert per row; see ``AsyncPublisher.publish_rows``."""
        self.publish(self._async.encoder.inserts(rows, vs, ve))

    def skip(self, until: int) -> None:
        """Leave out events that end before ``until`` from here on; see ``AsyncPublisher.skip``."""
        self._ready()
        self._async.skip_now(until)
        self._loop.call_soon_threadsafe(self._async.nudge)  # a link that does not wait may have to start again

    def flush(self) -> None:
        """Wait until one server, and every connected server, has merged everything published so far."""
        run_blocking(self._async.flush(), self._loop)

    def close(self) -> None:
        """Send everything, leave, and wait until it is merged."""
        run_blocking(self._async.close(), self._loop)

    def abort(self) -> None:
        """Drop the connection without leaving."""
        run_blocking(self._async.abort(), self._loop)

    @property
    def inner(self) -> AsyncPublisher:
        """The publisher of the background loop; for what only reads it, such as metrics."""
        return self._async

    @property
    def algorithm(self) -> str:
        """The algorithm of the merge, as a server has reported it: r0 to r4."""
        return self._async.algorithm

    @property
    def joined(self) -> bool:
        """Whether the input has joined at a server: its stables count there."""
        return self._async.joined

    @property
    def role(self) -> str:
        """The role of the input, as a server has reported it last."""
        return self._async.role

    @property
    def incarnation(self) -> int:
        """The incarnation with which the input attaches."""
        return self._async.incarnation

    @property
    def reconnects(self) -> int:
        """How often a connection was made again."""
        return self._async.reconnects

    @property
    def merge_stable_point(self) -> int:
        """The stable point that all servers that count have acked."""
        return self._async.merge_stable_point

    def __enter__(self) -> Publisher:
        return self.open()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        else:
            self.abort()

    def _put(self, row: tuple[int, int, int, int, bytes]) -> None:
        self._ready()
        self._outbox.put_row(row)
        self._nudge()

    def _ready(self) -> None:
        if self._outbox.is_full or not self._async.is_open or not is_current(self._loop):
            run_blocking(self._async.ready(), self._loop)

    def _nudge(self) -> None:
        """Wake the loop if a link waits, once for all elements that come before it runs."""
        if not self._nudged and self._async.has_sleeping_links:
            self._nudged = True
            self._loop.call_soon_threadsafe(self._wake)

    def _wake(self) -> None:
        self._nudged = False
        self._async.nudge()


class Subscriber(Envelopes):
    """Reads the merged stream; see ``AsyncSubscriber`` for the arguments and the errors.

    for element in lmerge.Subscriber("localhost:7171", "flights"):
        print(element)
    """

    _async: AsyncSubscriber

    def __init__(
        self, targets: str | Iterable[str], merge: str, *, limits: SubscriberLimits = _LIMITS, **options: Any
    ) -> None:
        if limits.read_ahead_batches is None:
            limits = replace(limits, read_ahead_batches=READ_AHEAD_BATCHES)
        self._async = AsyncSubscriber(targets, merge, limits=limits, **options)
        self._loop = background_loop()
        self._more = threading.Event()
        self._has_begun = False
        self._closed = False

    def batches(self) -> Iterator[AnyBatch]:
        """Iterate over the stream in batches, until it is complete or the subscriber is closed."""
        return self._read(at_once=True)

    def __iter__(self) -> Iterator[Element]:
        for batch in self._read(at_once=False):
            for seen, element in enumerate(batch.elements(), 1):
                self._async.follower.reader.see(seen)
                yield element

    def rows(self) -> Iterator[RowChange]:
        """Iterate over the stream with payloads decoded by the declared schema."""
        for batch in self._read(at_once=False):
            for seen, change in enumerate(self._async.decoded(batch), 1):
                self._async.follower.reader.see(seen)
                yield change

    def close(self) -> None:
        """End the subscription; an iteration in another thread ends too."""
        if not self._closed:
            self._closed = True
            self._loop.call_soon_threadsafe(self._async.close)
            self._more.set()

    @property
    def inner(self) -> AsyncSubscriber:
        """The subscriber of the background loop; for what only reads it, such as metrics."""
        return self._async

    @property
    def tdb(self) -> Tdb:
        """A copy of the live table as far as the stream was read."""
        check_loop(self._loop)
        return self._async.follower.reader.copied()

    @property
    def stable_point(self) -> int:
        """The last stable that was read."""
        return self._async.stable_point

    @property
    def epoch(self) -> int | None:
        """The epoch of the merge, None until it is known; see ``AsyncSubscriber``."""
        return self._async.epoch

    @property
    def token(self) -> str:
        """The token from which a reader that keeps its own live events can resume; see ``AsyncSubscriber``."""
        return self._async.token

    def checkpoint(self) -> bytes:
        """Return the bytes from which any reader can resume; see ``AsyncSubscriber``."""
        return self._async.checkpoint()

    @property
    def sources(self) -> list[SourceStatus]:
        """The servers and their present states."""

        async def ask() -> list[SourceStatus]:
            return self._async.sources

        return run_blocking(ask(), self._loop)

    @property
    def gaps(self) -> list[SubscriptionGap]:
        """The gaps of the stream so far, in order."""
        return self._async.gaps

    @property
    def reconnects(self) -> int:
        """How often a connection was made again."""
        return self._async.reconnects

    @property
    def resyncs(self) -> int:
        """How often the reader subscribed again because it read too slowly."""
        return self._async.resyncs

    def __enter__(self) -> Subscriber:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _read(self, *, at_once: bool) -> Iterator[AnyBatch]:
        if self._has_begun or self._closed:
            raise UsageError("a subscriber is read once: open another")
        self._has_begun = True

        async def start() -> None:
            self._async.start(self._more.set)

        run_blocking(start(), self._loop)
        subscriber, waiting = self._async, self._async.follower.reader.waiting
        try:
            while not self._closed:
                self._more.clear()
                batch = subscriber.take(at_once=at_once)
                if batch is None:
                    if subscriber.has_ended():
                        return
                    self._more.wait()
                    continue
                if len(waiting) == subscriber.read_ahead_batches - 1:
                    self._loop.call_soon_threadsafe(subscriber.made_room)
                yield batch
        finally:
            self.close()
