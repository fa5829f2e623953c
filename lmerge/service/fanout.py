"""One subscriber's queue of ready messages: the same bytes for all subscribers, bounded for each.

The hub encodes an output batch once (``encoded``) and offers the bytes to everyone. Each subscription's own task takes
from its queue and writes; a queue that is full cuts that subscriber off, by name, and nobody waits for it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator, Sequence

from lmerge.core.batch import AnyBatch
from lmerge.errors import LmergeError, SubscriberTooSlow
from lmerge.wire.frames import Frames, groups
from lmerge.wire.generated import lmerge_pb2 as pb
from lmerge.wire.limits import BatchLimits


class Subscriber:
    """What waits for one subscriber. One task takes; the hub offers.

    ``cut`` holds the error once the queue has overflowed: whatever waits is dropped then. ``quiet``: nothing was
    offered since the hub last looked.
    """

    def __init__(self, name: str, peer: str, queue_bytes_max: int) -> None:
        self.name = name
        self.peer = peer
        self.queued_bytes = 0
        self.sent_elements = 0
        self.quiet = False
        self.cut: asyncio.Future[LmergeError] = asyncio.get_running_loop().create_future()
        self._queue_bytes_max = queue_bytes_max
        self._messages: deque[tuple[bytes, int]] = deque()
        self._finished: LmergeError | None = None
        self._wake = asyncio.Event()

    def offer(self, message: bytes, elements: int) -> bool:
        """Queue a message. False: it does not fit, and the subscriber is cut off."""
        if self.queued_bytes + len(message) > self._queue_bytes_max:
            self._overflow()
            return False
        self._messages.append((message, elements))
        self.queued_bytes += len(message)
        self.quiet = False
        self._wake.set()
        return True

    def finish(self, error: LmergeError) -> None:
        """Nothing more will be offered; ``take`` raises ``error`` after what is queued."""
        self._finished = self._finished or error
        self._wake.set()

    async def take(self) -> bytes:
        """The next message; waits for one. Raises the error of ``finish`` when there will be none."""
        while not self._messages:
            if self._finished is not None:
                raise self._finished
            await self._wake.wait()
            self._wake.clear()
        message, elements = self._messages.popleft()
        self.queued_bytes -= len(message)
        self.sent_elements += elements
        return message

    def _overflow(self) -> None:
        if not self.cut.done():
            self.cut.set_result(SubscriberTooSlow(
                f"subscriber {self.name!r} was cut off: {self.queued_bytes} bytes waited for it to read, and the limit "
                f"is {self._queue_bytes_max}; subscribe again for a fresh snapshot"
            ))
        self._messages.clear()
        self.queued_bytes = 0


def encoded(batches: Sequence[AnyBatch], frames: Frames, limits: BatchLimits) -> Iterator[tuple[bytes, int]]:
    """The messages that carry ``batches`` to a subscriber, each with its number of elements."""
    for group in groups(batches, limits):
        yield frames.encode_subscribe(group), sum(batch.count for batch in group)


def progress(stable_point: int) -> bytes:
    """The message that says: still alive, and this far."""
    return pb.SubscribeResponse(progress=pb.SubscribeResponse.Progress(stable_point=stable_point)).SerializeToString()
