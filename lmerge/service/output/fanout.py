"""The subscribers of one merge: all get the same bytes, each through a bounded queue.

An output batch is encoded once (``encoded``), and ``Fanout`` offers the bytes to all subscribers when they are
released. The task of each subscription takes from its queue and writes. If a queue is full, its subscriber is cut off
with a named error, and no other subscriber waits for it.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from lmerge.core.batch import AnyBatch
from lmerge.core.elements import NEG_INF
from lmerge.errors import LmergeError, SubscriberTooSlow
from lmerge.histogram import DurationCounts
from lmerge.service import log
from lmerge.service.output.output_pauses import OutputPauses
from lmerge.wire.frames import Frames, groups
from lmerge.wire.generated import lmerge_pb2 as pb
from lmerge.wire.limits import BatchLimits

# How a subscriber without a name is named in metrics. Its name in messages has its port too.
ANONYMOUS: Final = "anonymous"


class SubscriberQueue:
    """The queue of one subscriber. One task takes; the fan-out offers.

    ``cut`` holds the error once the queue has overflowed; what waits is dropped then. ``quiet``: nothing was offered
    since the last progress interval began. ``complete_from``: the time from which its output is promised to be
    complete, or from which it resumed.
    """

    def __init__(
        self, name: str, peer: str, queue_bytes_max: int, *, takes_marks: bool = False, epoch: int | None = None
    ) -> None:
        self.name = name
        self.peer = peer
        self.queued_bytes = 0
        self.sent_elements = 0
        self.quiet = False
        self.complete_from = NEG_INF
        self.takes_marks = takes_marks
        self.epoch = epoch  # of the merge, from its token
        self.has_left = False
        self.cut: asyncio.Future[LmergeError] = asyncio.get_running_loop().create_future()
        self._queue_bytes_max = queue_bytes_max
        self._messages: deque[tuple[bytes, int, float | None]] = deque()
        self._sending_s: float | None = None  # the time of ``offer`` of the message that is being written
        self._finished: LmergeError | None = None
        self._wake = asyncio.Event()

    @property
    def label(self) -> str:
        """Its name in metrics."""
        return ANONYMOUS if self.name.startswith(f"{ANONYMOUS} at ") else self.name

    def offer(self, message: bytes, elements: int, received_s: float | None = None) -> bool:
        """Queue a message. Return False if it does not fit: the subscriber is cut off then.

        ``received_s``: when what caused it was received, on the loop's clock; None: it is no output.
        """
        if self.queued_bytes + len(message) > self._queue_bytes_max:
            self._overflow()
            return False
        self._messages.append((message, elements, received_s))
        self.queued_bytes += len(message)
        self.quiet = False
        self._wake.set()
        return True

    def finish(self, error: LmergeError) -> None:
        """End the queue: ``take`` raises ``error`` after what is queued."""
        self._finished = self._finished or error
        self._wake.set()

    async def take(self) -> bytes:
        """Take the next message; wait for one. Raises the error of ``finish`` when there will be none."""
        while not self._messages:
            if self._finished is not None:
                raise self._finished
            await self._wake.wait()
            self._wake.clear()
        message, elements, self._sending_s = self._messages.popleft()
        self.queued_bytes -= len(message)
        self.sent_elements += elements
        return message

    def written(self) -> float | None:
        """Note that the message of the last ``take`` was written; return the ``received_s`` of its ``offer``."""
        received_s, self._sending_s = self._sending_s, None
        return received_s

    def lag_s(self, now_s: float) -> float:
        """Return how long ago the oldest output that it has not got was received, in seconds; 0 if it has all."""
        if self._sending_s is not None:
            return now_s - self._sending_s
        waiting_s = next((received_s for _, _, received_s in self._messages if received_s is not None), now_s)
        return now_s - waiting_s

    def _overflow(self) -> None:
        if not self.cut.done():
            self.cut.set_result(
                SubscriberTooSlow(
                    f"subscriber {self.name!r} was cut off: {self.queued_bytes} bytes waited for it to read, and the "
                    f"limit is {self._queue_bytes_max}; subscribe again for a fresh snapshot"
                )
            )
        self._messages.clear()
        self.queued_bytes = 0


class Fanout:
    """All subscribers of the merge ``name``. Sends progress to the quiet ones.

    ``stable_point``: that of the last stable that was offered, or the merge's at the start. ``stable_s``: when it moved
    last, on the loop's clock; at first the start. ``output_bytes``: the bytes of what was offered, once.
    ``delivered_bytes``: the bytes that were written, to all subscribers together. ``added_latency``: from the arrival
    of a batch to the end of the write of what it caused, for each message and subscriber.
    """

    def __init__(self, name: str, progress_interval_s: float, stable_point: int = NEG_INF) -> None:
        self.subscribers: dict[int, SubscriberQueue] = {}
        self.cut_off_count = 0
        self.pauses = OutputPauses()
        self.stable_point = stable_point
        self.stable_s = asyncio.get_running_loop().time()
        self.output_bytes = 0
        self.delivered_bytes = 0
        self.added_latency: Final = DurationCounts()
        self._name = name
        self._progress_interval_s = progress_interval_s
        self._timer: asyncio.TimerHandle | None = None

    def add(self, subscriber: SubscriberQueue) -> None:
        """Add a subscriber: it gets what is offered from now on. Not if it has left while its snapshot was made."""
        if subscriber.has_left:
            return
        self.subscribers[id(subscriber)] = subscriber
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._progress_interval_s, self._tick)

    def remove(self, subscriber: SubscriberQueue) -> None:
        subscriber.has_left = True
        self.subscribers.pop(id(subscriber), None)

    def reach(self, stable_point: int) -> None:
        """Note the stable point of what was offered."""
        if stable_point != self.stable_point:
            self.stable_point = stable_point
            self.stable_s = asyncio.get_running_loop().time()

    def offer(self, message: bytes, elements: int, received_s: float) -> None:
        """Offer a message to all subscribers; cut off those without room for it.

        ``received_s``: when the first batch of the turn that emitted it was received, on the loop's clock.
        """
        self.pauses.note(asyncio.get_running_loop().time())
        self.output_bytes += len(message)
        for subscriber in list(self.subscribers.values()):
            if not subscriber.offer(message, elements, received_s):
                self._cut_off(subscriber)

    def written(self, subscriber: SubscriberQueue, message_bytes: int) -> None:
        """Note that the last message taken from the queue of ``subscriber`` was written."""
        self.delivered_bytes += message_bytes
        received_s = subscriber.written()
        if received_s is not None:
            self.added_latency.observe(asyncio.get_running_loop().time() - received_s)

    def mark(self, message: bytes) -> None:
        """Offer a message to the subscribers that requested marks."""
        for subscriber in list(self.subscribers.values()):
            if subscriber.takes_marks and not subscriber.offer(message, 0):
                self._cut_off(subscriber)

    def finish(self, error: LmergeError, complete_from: int | None = None) -> None:
        """End all subscribers with ``error``, or only those that rely on times before ``complete_from``."""
        for subscriber in list(self.subscribers.values()):
            if complete_from is None or subscriber.complete_from < complete_from:
                self.remove(subscriber)
                subscriber.finish(error)

    def close(self) -> None:
        """Stop sending progress."""
        if self._timer is not None:
            self._timer.cancel()

    def _cut_off(self, subscriber: SubscriberQueue) -> None:
        self.cut_off_count += 1
        self.remove(subscriber)
        log.event(
            logging.WARNING, "subscriber cut off", merge=self._name, subscriber=subscriber.name, peer=subscriber.peer
        )

    def _tick(self) -> None:
        """Send progress to the subscribers that got nothing. Runs once per interval while there are subscribers."""
        self._timer = None
        if not self.subscribers:
            return
        message = progress(self.stable_point)
        for subscriber in list(self.subscribers.values()):
            if subscriber.quiet and not subscriber.queued_bytes:
                subscriber.offer(message, 0)
            subscriber.quiet = True
        self._timer = asyncio.get_running_loop().call_later(self._progress_interval_s, self._tick)


class Message(NamedTuple):
    """An encoded output batch, the number of its elements, and how many of them are inserts."""

    data: bytes
    elements: int
    inserts: int


def encoded(batches: Sequence[AnyBatch], frames: Frames, limits: BatchLimits) -> Iterator[Message]:
    """Encode ``batches`` as messages for subscribers."""
    for group in groups(batches, limits):
        elements = sum(batch.count for batch in group)
        yield Message(frames.encode_subscribe(group), elements, sum(b.counts(b.count)[0] for b in group))


def marks(supporters: Sequence[int]) -> bytes:
    """Return the message with the number of inputs that have each insert of the batch before it."""
    return pb.SubscribeResponse(marks=pb.SubscribeResponse.Marks(supporters=supporters)).SerializeToString()


def progress(stable_point: int) -> bytes:
    """Return the message that reports that the server is alive, and its stable point."""
    return pb.SubscribeResponse(progress=pb.SubscribeResponse.Progress(stable_point=stable_point)).SerializeToString()
