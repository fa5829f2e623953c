"""Open sources as the run of a plan takes from them: at once, or by a thread where the next item may take long.

A feed has a chunk of the source, of which a part has been taken. So its position is that of the chunk and a number of
items, and steps can be as small as their computation requires.
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from itertools import islice
from typing import Any, Final, TypeAlias

from lmerge.core.elements import INF, NEG_INF
from lmerge.replica.pacing import PaceClock
from lmerge.replica.sources.declared import Chunk, PhysicalSource, Position, SourceReader
from lmerge.temporal.columns import ColumnDelta
from lmerge.temporal.running import Item

# What a thread reads ahead: enough to hide the cost of reading, little enough to slow the sender down. Both are reached
# before it waits, because a live source often has a chunk for each item.
READ_AHEAD_CHUNKS: Final = 4
READ_AHEAD_ITEMS: Final = 4_096

FeedPosition: TypeAlias = "list[Any] | None"
"""A position of a reader, and the items behind it that were taken, as JSON values."""


class SourceFeed(ABC):
    """A source that is read. ``position``: where a run before has stopped; None: at its beginning."""

    def __init__(self, name: str, source: PhysicalSource, reader: SourceReader, position: FeedPosition = None) -> None:
        self.name, self.source, self.reader = name, source, reader
        self.has_ended = False
        self.items = 0  # taken
        self.last_start = NEG_INF  # the latest one of the items that were taken with the end
        self.taken_s = time.monotonic()
        self._chunk: Chunk | None = None
        self._taken = 0  # items of the chunk
        self._latest: int | None = None  # of the chunk, until it is taken
        self._begin = position
        self._passes_over = opened_at(source, position)[1]
        self._at = NEG_INF  # the release of the last item that was taken
        self._needed_from = NEG_INF

    @property
    def is_live(self) -> bool:
        """Whether other sources do not wait for this one."""
        return self.source.is_live

    @property
    def position(self) -> FeedPosition:
        """Where a restart begins: a position of the reader, and items that it passes over."""
        if self._chunk is None:
            return self._begin
        return [self._chunk.end, 0] if self._is_used_up() else [self._chunk.begin, self._taken]

    def next_release(self) -> int | None:
        """Return when the next item is released, in time of the stream; None: there is none at present.

        Raises what the reader has raised.
        """
        while not self.has_ended and self._is_used_up():
            following = self._following()
            if following is None:
                return None
            self._chunk, self._latest = following, following.latest
            # Chunks of a run before can have been longer: in columns, or of another version.
            self._taken = min(self._passes_over, len(following.items))
            self._passes_over -= self._taken
        if self.has_ended or self._chunk is None:
            return None
        return self._at if self._taken == len(self._chunk.items) else self._release(self._chunk, self._taken)

    def take(self, limit: int, clock: PaceClock | None) -> list[Item] | ColumnDelta:
        """Return the next items, at most ``limit``, which are released by now. ``next_release`` has returned a time."""
        chunk, begin = self._chunk, self._taken
        assert chunk is not None
        now = INF if clock is None else clock.now()
        end = min(len(chunk.items), begin + limit)
        if isinstance(chunk.items, list):
            items = chunk.items[begin : self._take_released(chunk, end, now)]
            self.has_ended = bool(items) and items[-1] == INF
            if self.has_ended:
                self.last_start = max((one.vs for one in items if not isinstance(one, int)), default=NEG_INF)
            found: list[Item] | ColumnDelta = items
        else:
            if clock is not None:
                end = begin + chunk.items.released(begin, end, now)
            if end > begin:
                self._at, self._taken = max(self._at, chunk.items.latest_release(begin, end)), end
            found = chunk.items.part(begin, end)
        self.items += len(found)
        self.taken_s = time.monotonic()
        return found

    def _take_released(self, chunk: Chunk, end: int, now: int) -> int:
        """Take items up to ``end`` that are released by ``now``; return the place behind them."""
        while self._taken < end:
            at = self._release(chunk, self._taken)
            if at > now:
                break
            self._at = max(self._at, at)
            self._taken += 1
        return self._taken

    def fast_forward(self, t: int) -> None:
        """Learn that no event is needed that ends before ``t``."""
        self._needed_from = max(self._needed_from, t)
        self.reader.fast_forward(t)

    def count_unneeded(self) -> int:
        """Return how many of the next items come before an event that is needed; 0: none of them is an event."""
        if self._needed_from == NEG_INF or self._chunk is None:
            return 0
        if not isinstance(self._chunk.items, list):
            return self._chunk.items.unneeded(self._taken, self._needed_from)
        count, has_events = 0, False
        for item in islice(self._chunk.items, self._taken, None):
            if not isinstance(item, int):
                if max(item.old, item.new) >= self._needed_from:
                    break
                has_events = True
            count += 1
        return count if has_events else 0

    def take_latest(self) -> int | None:
        """Return the latest start of events that were left out here after feedback, once; None: none were."""
        latest, self._latest = self._latest, None
        return latest

    def close(self) -> None:
        """Close the source."""
        self.reader.close()

    @abstractmethod
    def _following(self) -> Chunk | None:
        """Return the next chunk; None: there is none at present, or ``has_ended`` is set."""

    def _is_used_up(self) -> bool:
        return self._chunk is None or (self._taken == len(self._chunk.items) and self._latest is None)

    def _release(self, chunk: Chunk, at: int) -> int:
        if chunk.releases is not None:
            return chunk.releases[at]
        if not isinstance(chunk.items, list):
            return chunk.items.release(at)
        item = chunk.items[at]
        if isinstance(item, int):
            return item if item < INF else self._at
        return item.vs if item.is_insert else max(self._at, item.vs)


class DirectFeed(SourceFeed):
    """A source whose next item is there at once: a file."""

    def __init__(self, name: str, source: PhysicalSource, reader: SourceReader, position: FeedPosition = None) -> None:
        super().__init__(name, source, reader, position)
        self._chunks: Iterator[Chunk] = reader.chunks()

    def close(self) -> None:
        """Close the source, and what its reader holds."""
        super().close()
        if isinstance(self._chunks, Generator):
            self._chunks.close()

    def _following(self) -> Chunk | None:
        found = next(self._chunks, None)
        self.has_ended = found is None
        return found


class ThreadedFeed(SourceFeed):
    """A source that is read by a thread. ``wake`` is set when there is something to take.

    Chunks that wait are taken as one: a live source has a chunk for each item, and a step costs more than an item.
    """

    def __init__(
        self,
        name: str,
        source: PhysicalSource,
        reader: SourceReader,
        position: FeedPosition = None,
        *,
        wake: threading.Event,
    ) -> None:
        super().__init__(name, source, reader, position)
        self._wake = wake
        self._is_closed = False
        self._waiting: deque[Chunk] = deque()
        self._waiting_items = 0
        self._last: BaseException | None = None  # what has ended the reader
        self._is_read = False
        self._changed = threading.Condition()
        self.thread = threading.Thread(target=self._read, name=f"source {name}", daemon=True)
        self.thread.start()

    def close(self) -> None:
        """Close the source; its thread ends."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()  # the thread may wait for room
        super().close()

    def _following(self) -> Chunk | None:
        with self._changed:
            found = self._joined()
            if found is not None:
                self._waiting_items -= len(found.items)
                self._changed.notify()
                return found
            if self._last is not None:
                raise self._last
            self.has_ended = self._is_read
            return None

    def _joined(self) -> Chunk | None:
        """Return the chunks that wait, as one, as far as they can be."""
        if not self._waiting:
            return None
        first = self._waiting.popleft()
        if not isinstance(first.items, list):
            return first
        items, releases = [*first.items], None if first.releases is None else [*first.releases]
        joined = first._replace(items=items, releases=releases)
        while self._waiting and len(items) < READ_AHEAD_ITEMS and self._continues(joined, self._waiting[0]):
            following = self._waiting.popleft()
            assert isinstance(following.items, list)
            items.extend(following.items)
            if releases is not None:
                releases.extend(following.releases or ())
            joined = joined._replace(end=following.end)
        return joined

    def _continues(self, chunk: Chunk, following: Chunk) -> bool:
        """Whether two chunks are one to a restart: it counts items, or both are at one position."""
        if not isinstance(following.items, list) or chunk.latest is not None or following.latest is not None:
            return False
        if (chunk.releases is None) != (following.releases is None) or chunk.end != following.begin:
            return False
        return self.source.counts_items or (chunk.begin == chunk.end and following.begin == following.end)

    def _read(self) -> None:
        last: BaseException | None = None
        try:
            for chunk in self.reader.chunks():
                if not self._keep(chunk):
                    return
                self._wake.set()
        except BaseException as problem:  # whatever it is: a thread that ends in silence would look like a slow source
            last = problem
        with self._changed:
            self._is_read, self._last = True, last
        self._wake.set()

    def _keep(self, chunk: Chunk) -> bool:
        """Keep a chunk when there is room; return False if the feed was closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_closed or self._has_room())
            if not self._is_closed:
                self._waiting.append(chunk)
                self._waiting_items += len(chunk.items)
            return not self._is_closed

    def _has_room(self) -> bool:
        return len(self._waiting) < READ_AHEAD_CHUNKS or self._waiting_items < READ_AHEAD_ITEMS


def earliest(feeds: Sequence[SourceFeed]) -> tuple[SourceFeed, int] | None:
    """Return the source whose next item comes first, and when that is; None: none has one at present."""
    found = [(release, at) for at, feed in enumerate(feeds) if (release := feed.next_release()) is not None]
    if not found:
        return None
    release, at = min(found)
    return feeds[at], release


def feed_of(
    name: str, source: PhysicalSource, reader: SourceReader, position: FeedPosition, wake: threading.Event
) -> SourceFeed:
    """Return the feed of a source that ``opened_at`` has opened."""
    if source.is_live:
        return ThreadedFeed(name, source, reader, position, wake=wake)
    return DirectFeed(name, source, reader, position)


def opened_at(source: PhysicalSource, position: FeedPosition) -> tuple[Position, int]:
    """Return where a reader begins and how many items are passed over."""
    if position is None:
        return None, 0
    return position[0], int(position[1]) if source.counts_items else 0
