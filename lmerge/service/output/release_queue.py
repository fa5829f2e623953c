"""From what a merge says to what others hear of it: in order, and only once it cannot be taken back.

A turn of the hub hands over, in one order, what it has to say: messages for subscribers, and *effects* (an ack, an
accepted attach, a subscriber's place in the fan-out, the end of a stream). Without a store they are released when the
turn ends. With one they wait until everything that belongs to them, and to all before them, is committed: turns go on
meanwhile, and what has come together by the end of a commit is the next one (group commit). Too much that waits holds
the hub, and through it the publishers.

``stable_point`` is the one that was released: acks, feedback and progress speak of no other, as publishers forget by
it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple, Protocol, TypeAlias

from lmerge.service.output.fanout import Fanout
from lmerge.service.output.transaction import Changes

# A turn that waits costs something even if it has said nothing.
_GROUP_BYTES: Final = 1024

Effect: TypeAlias = Callable[[], None]
QueuedMessage: TypeAlias = tuple[bytes, int]
"""A message, and how many elements are in it."""


class OutputCommitter(Protocol):
    """Where changes are made durable. ``commit`` returns when they are, however long it takes."""

    async def commit(self, changes: list[Changes]) -> None: ...


class CommitGroup(NamedTuple):
    """What one turn has handed over."""

    entries: list[QueuedMessage | Effect]
    stable_point: int
    changes: Changes


class ReleaseQueue:
    """The way out of one merge. ``after``: called when a turn has been released. One task hands over."""

    def __init__(
        self, fanout: Fanout, after: Effect, committer: OutputCommitter | None = None, waiting_bytes_max: int = 0
    ) -> None:
        self.changes = Changes()
        self.waiting_bytes = 0
        self._fanout = fanout
        self._after = after
        self._committer = committer
        self._waiting_bytes_max = waiting_bytes_max
        self._entries: list[QueuedMessage | Effect] = []
        self._groups: deque[CommitGroup] = deque()
        self._wake = asyncio.Event()
        self._settled = asyncio.Event()
        self._settled.set()
        self._room = asyncio.Event()
        self._room.set()

    @property
    def stable_point(self) -> int:
        return self._fanout.stable_point

    def emit(self, data: bytes, elements: int) -> None:
        """A message to all who subscribe at this point."""
        self._entries.append((data, elements))

    def then(self, effect: Effect) -> None:
        """Something that is to happen at this point."""
        self._entries.append(effect)

    def end_turn(self, stable_point: int) -> None:
        """Hand over what the turn has said."""
        entries, self._entries = self._entries, []
        group = CommitGroup(entries, stable_point, self.changes.take())
        if not self._groups and not group.changes:
            self._out(group)
            return
        assert self._committer is not None, "changes, and no store"
        self._groups.append(group)
        self.waiting_bytes += group.changes.bytes + _GROUP_BYTES
        self._settled.clear()
        self._wake.set()
        if self.waiting_bytes >= self._waiting_bytes_max:
            self._room.clear()

    async def room(self) -> None:
        """Wait while too much waits to be committed."""
        await self._room.wait()

    async def settled(self) -> None:
        """Wait until everything that was handed over is released."""
        await self._settled.wait()

    async def run(self) -> None:
        """Commit and release, for ever. Only where there is a store; raises what the committer raises."""
        assert self._committer is not None
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._groups:
                ready = list(self._groups)
                await self._committer.commit([group.changes for group in ready if group.changes])
                for group in ready:
                    self._groups.popleft()
                    self.waiting_bytes -= group.changes.bytes + _GROUP_BYTES
                    self._out(group)
                if self.waiting_bytes < self._waiting_bytes_max:
                    self._room.set()
            self._settled.set()

    def _out(self, group: CommitGroup) -> None:
        self._fanout.stable_point = group.stable_point
        for entry in group.entries:
            if isinstance(entry, tuple):
                self._fanout.offer(*entry)
            else:
                entry()
        self._after()
