"""The bounded queue of one merge: batches and steps, in the order in which they came.

A publisher whose batch finds no room waits. Its stream is not read meanwhile, and HTTP/2 flow control holds the
replica. Steps (attach, leave, subscribe) are few and always find room.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import NamedTuple, Protocol, TypeAlias

from lmerge.core.batch import AnyBatch
from lmerge.core.inputs import InputRole
from lmerge.errors import LmergeError
from lmerge.wire.generated import lmerge_pb2 as pb


class PublisherSession(Protocol):
    """The stream of a publisher: what the hub calls of it."""

    def acknowledge(self, sequence: int, stable_point: int, joined: bool) -> None:
        """Send an ack: everything up to ``sequence`` is merged. ``joined``: whether the input counts."""

    def fast_forward(self, until: int) -> None:
        """V.D: send feedback: events that end before ``until`` are not needed any more."""

    def change_role(self, role: InputRole) -> None:
        """Ask the input to attach again in this role."""

    def end(self, error: LmergeError, detached: pb.PublishResponse.Detached | None = None) -> None:
        """End the stream: the hub has ended its input."""


class Work(NamedTuple):
    """A batch, or a piece of one. ``sequence`` is acked once it is merged; it is 0 for all pieces but the last."""

    session: PublisherSession
    batch: AnyBatch
    sequence: int
    number: int  # the batch's own sequence, for messages
    index_base: int
    wire_bytes: int
    received_s: float  # when its message was read, on the loop's clock


Step: TypeAlias = Callable[[], Awaitable[None] | None]
"""Something that the hub does in a turn. If it returns an awaitable, the hub awaits that before anything else."""


class Inbox:
    """The queue. ``wake`` is set while something waits."""

    def __init__(self, elements_max: int, bytes_max: int) -> None:
        self.elements = 0
        self.wake = asyncio.Event()
        self._bytes = 0
        self._elements_max = elements_max
        self._bytes_max = bytes_max
        self._items: deque[Work | Step] = deque()
        self._waiting: deque[asyncio.Future[None]] = deque()  # publishers that wait for room
        self._empty: asyncio.Future[None] | None = None

    def __len__(self) -> int:
        return len(self._items)

    def put(self, item: Work | Step) -> None:
        """Queue a batch, after ``room``, or a step."""
        if isinstance(item, Work):
            self.elements += item.batch.count
            self._bytes += item.wire_bytes
        self._items.append(item)
        self.wake.set()

    @property
    def bytes(self) -> int:
        """The bytes of the batches that wait, as they came on the wire."""
        return self._bytes

    async def room(self) -> None:
        """Wait until there is room for a batch."""
        while self._is_full:
            room: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(room)
            await room

    async def emptied(self) -> None:
        """Wait until the queue is empty and no publisher waits for room."""
        while self._items or self._waiting:
            self._empty = asyncio.get_running_loop().create_future()
            self.put(lambda: None)
            await self._empty

    def take_batches(self, elements: int) -> list[Work]:
        """Take the batches before the next step, until they have ``elements`` elements. None if a step is next."""
        taken: list[Work] = []
        items = self._items
        while items and elements > 0:
            work = items[0]
            if not isinstance(work, Work):
                break
            items.popleft()
            elements -= work.batch.count or 1
            self.elements -= work.batch.count
            self._bytes -= work.wire_bytes
            taken.append(work)
        return taken

    def take_step(self) -> Step:
        """Take the step that is next."""
        step = self._items.popleft()
        assert not isinstance(step, Work)
        return step

    def settle(self) -> None:
        """After a turn: wake the publishers that wait for room, and ``emptied``."""
        if not self._is_full:
            while self._waiting:
                room = self._waiting.popleft()
                if not room.done():
                    room.set_result(None)
        if not self._items:
            self.wake.clear()
            if self._empty is not None and not self._empty.done():
                self._empty.set_result(None)

    @property
    def _is_full(self) -> bool:
        return self.elements >= self._elements_max or self._bytes >= self._bytes_max
