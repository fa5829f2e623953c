"""Python objects as a source: lists, generators, functions that return them, and asynchronous ones.

Items are rows (mappings), changes (``lmerge.temporal.changes.Change``) and stable points (int), in any mixture. A
position is the number of items that were taken. A restart begins again, calls a function again, and passes over that
many items. What can be run through only once gives other items after a restart, so it allows no checkpoint.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final, TypeAlias

from lmerge.core.elements import INF
from lmerge.errors import LmergeError, UsageError
from lmerge.replica.sources.declared import Chunk, Position, RowSource, SourceContext, SourceReader
from lmerge.replica.sources.row_changes import RowChanges, RowShape, shape_of
from lmerge.replica.sources.value_forms import python_value
from lmerge.temporal.changes import Change
from lmerge.temporal.running import Item
from lmerge.temporal.runs.checked import ItemCheck
from lmerge.temporal.user_code import is_interrupt

ITEMS_PER_CHUNK: Final = 512

Given: TypeAlias = "Mapping[str, Any] | Item"
Items: TypeAlias = "Iterable[Given] | AsyncIterable[Given]"


@dataclass(frozen=True, kw_only=True)
class PythonItems(RowSource):
    """Items of Python. ``items``: an iterable, synchronous or not, or a function that returns one.

    ``is_waiting``: the next item may take long to come, so other sources do not wait for it; true for what is
    asynchronous. ``releases``: the time by which a paced item is released. Columns of times are needed for rows alone.
    """

    kind = "python"

    items: Items | Callable[[], Items]
    is_waiting: bool = False
    releases: Callable[[Given], int] | None = None

    def __post_init__(self) -> None:
        if self.time is not None or self.start is not None or self.end is not None:
            super().__post_init__()

    @property
    def where(self) -> str:
        return f"a Python {type(self.items).__name__}"

    @property
    def is_live(self) -> bool:  # type: ignore[override]  # it depends on the items here
        return self.is_waiting or isinstance(self.items, AsyncIterable)

    @property
    def no_checkpoint(self) -> str:
        if callable(self.items):
            return ""
        if isinstance(self.items, AsyncIterable):
            return "an asynchronous iterable is run through once: give a function that returns it, `items=lambda: ...`"
        if iter(self.items) is self.items:
            return "an iterator is run through once: give a list, or a function that returns it, `items=lambda: ...`"
        return ""

    def open(self, context: SourceContext, position: Position) -> SourceReader:
        """Return a reader."""
        return ItemsReader(self, context, position)


class ItemsReader(SourceReader):
    """Reads items. Those that are there at once come together, asynchronous ones one by one."""

    def __init__(self, source: PythonItems, context: SourceContext, position: Position) -> None:
        shape = shape_of(source) if source.time or source.start else RowShape("", None, False, None)
        self._changes = RowChanges(context, source.where, shape, python_value)
        self._check = ItemCheck(context.name, context.schema)
        self._has_times = bool(shape.start)
        self._release = source.releases
        self._taken = int(position or 0)
        with self._users_code(lambda: "its items cannot be made"):
            self._items = source.items() if callable(source.items) else source.items
        self._chunk_items = 1 if source.is_live else ITEMS_PER_CHUNK
        self._closed = threading.Event()
        self._own_loop: _OwnLoop | None = None

    def chunks(self) -> Iterator[Chunk]:
        """Yield the items, and the end of the stream."""
        with ExitStack() as held:
            with self._users_code(lambda: "its items cannot be read"):
                given = islice(self._synchronous(held), self._taken, None)
            yield from self._chunks_of(given)

    def _chunks_of(self, given: Iterator[Given]) -> Iterator[Chunk]:
        while not self._closed.is_set():
            begin, taken = self._taken, self._following(given)
            if self._closed.is_set():  # while it waited: this is no end of the stream
                return
            items = [self._item(one, begin + index) for index, one in enumerate(taken)]
            releases = self._releases(taken)
            self._taken += len(taken)
            if len(taken) < self._chunk_items:
                if releases:
                    releases.append(releases[-1])
                ended = bool(items) and items[-1] == INF
                yield Chunk([*items, *([] if ended else [INF])], begin, self._taken, releases or None)
                return
            yield Chunk(items, begin, self._taken, releases)

    def close(self) -> None:
        """Take no more items, and wait for none."""
        self._closed.set()
        if self._own_loop is not None:
            self._own_loop.stop()

    def _synchronous(self, held: ExitStack) -> Iterator[Given]:
        if isinstance(self._items, Iterable):
            return iter(self._items)
        if isinstance(self._items, AsyncIterable):
            self._own_loop = held.enter_context(closing(_OwnLoop(self._items)))
            return self._own_loop
        raise UsageError(f"{self._changes.source}: {self._items!r:.64} is not iterable")

    def _following(self, given: Iterator[Given]) -> list[Given]:
        """Return the items of the next chunk. Raises InvalidRow, which names the item that could not be read."""
        taken: list[Given] = []
        with self._users_code(lambda: f"item {self._taken + len(taken)}"):
            taken.extend(islice(given, self._chunk_items))
        return taken

    def _releases(self, taken: Sequence[Given]) -> list[int] | None:
        if self._release is None:
            return None
        releases: list[int] = []
        with self._users_code(lambda: f"the release of item {self._taken + len(releases)}"):
            releases.extend(map(self._release, taken))
        return releases

    @contextmanager
    def _users_code(self, place: Callable[[], str]) -> Iterator[None]:
        """Name the source and the place in what users' code raises, but for errors of lmerge and Ctrl-C."""
        try:
            yield
        except BaseException as error:
            if isinstance(error, LmergeError) or is_interrupt(error):
                raise
            raise self._changes.error(place(), f"it raised {type(error).__name__}: {error!s:.400}") from error

    def _item(self, given: Given, at: int) -> Item:
        if isinstance(given, Change):
            return self._check.change(given, at)
        if isinstance(given, int) and not isinstance(given, bool):
            return given
        place = f"item {at}"
        if not isinstance(given, Mapping):
            raise self._changes.error(place, f"{given!r:.64} is no row, no change and no stable point")
        if not self._has_times:
            raise self._changes.error(place, "it is a row, and the source declares no columns of times")
        return self._changes.change(given, place)


class _OwnLoop(Iterator[Given]):
    """Iterates over what an asynchronous iterable has, in an event loop of its own; ``stop`` is for other threads."""

    def __init__(self, items: AsyncIterable[Given]) -> None:
        self._iterator = items.__aiter__()
        self._loop = asyncio.new_event_loop()
        self._waits: asyncio.Task[Given] | None = None
        self._is_stopped = False

    def __next__(self) -> Given:
        if self._is_stopped:
            raise StopIteration
        self._waits = self._loop.create_task(self._following())
        try:
            return self._loop.run_until_complete(self._waits)
        except StopAsyncIteration:
            raise StopIteration from None
        except asyncio.CancelledError:
            if self._is_stopped:
                raise StopIteration from None
            raise

    def stop(self) -> None:
        """Stop to wait for the next item; there is none any more."""
        self._is_stopped = True
        with suppress(RuntimeError):  # it has been closed
            self._loop.call_soon_threadsafe(self._cancel)

    def close(self) -> None:
        """Let the asynchronous iterable clean up, and close the loop; by the thread that iterates.

        The garbage collector would do it in any thread, also in one whose own loop runs, where no other loop can.
        """
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.close()

    async def _following(self) -> Given:
        return await self._iterator.__anext__()

    def _cancel(self) -> None:
        if self._waits is not None:
            self._waits.cancel()
