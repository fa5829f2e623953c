"""Releases the output of a merge, in order, and only when it is committed.

A turn of the hub hands over, in one order, messages for subscribers and *effects*. An effect is an ack, an accepted
attach, a subscriber's place in the fan-out, or the end of a stream. Without a store all of them are released when the
turn ends. With a store they wait until the changes of their turn, and of all turns before it, are committed. The hub
begins further turns meanwhile. All turns that end during a commit are committed together next (group commit). If too
much waits, the hub waits, and so do the publishers.

``stable_point`` is that of the last released turn. Acks, feedback and progress use only this one, because publishers
forget events by it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple, Protocol, TypeAlias

from lmerge.service.output.fanout import Fanout
from lmerge.service.output.transaction import Changes

# A turn that waits costs this much even if it has emitted nothing.
_GROUP_BYTES: Final = 1024

Effect: TypeAlias = Callable[[], None]
QueuedMessage: TypeAlias = tuple[bytes, int, float]
"""A message, the number of elements in it, and when what caused it was received: see ``Fanout.offer``."""


class OutputCommitter(Protocol):
    """Makes changes durable. ``commit`` returns when they are durable, however long that takes."""

    async def commit(self, changes: list[Changes]) -> None: ...


class CommitGroup(NamedTuple):
    """What one turn has handed over: messages and effects in order, and the changes to commit before them."""

    entries: list[QueuedMessage | Effect]
    stable_point: int
    changes: Changes


class ReleaseQueue:
    """The release queue of one merge. ``after``: called when a turn has been released. One task hands over."""

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

    def emit(self, data: bytes, elements: int, received_s: float) -> None:
        """Add a message at this point, for all subscribers that are registered before it."""
        self._entries.append((data, elements, received_s))

    def then(self, effect: Effect) -> None:
        """Add an effect at this point."""
        self._entries.append(effect)

    def end_turn(self, stable_point: int) -> None:
        """Hand over the messages and effects of the turn."""
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
        """Wait until the bytes to be committed are below the limit."""
        await self._room.wait()

    async def settled(self) -> None:
        """Wait until everything that was handed over is released."""
        await self._settled.wait()

    async def run(self) -> None:
        """Commit and release, for ever. Only if there is a store. Raises what the committer raises."""
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
        self._fanout.reach(group.stable_point)
        for entry in group.entries:
            if isinstance(entry, tuple):
                self._fanout.offer(*entry)
            else:
                entry()
        self._after()
