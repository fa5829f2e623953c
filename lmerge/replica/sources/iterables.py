"""Python objects as a source: lists, generators, functions that return them, and asynchronous ones.

Items are rows (mappings), changes (``lmerge.temporal.changes.Change``) and stable points (int), in any mixture. A
position is the number of items that were taken. A restart calls a function again and passes over that many items; an
object that is no function goes on with what it has left.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final, TypeAlias

from lmerge.core.elements import INF
from lmerge.errors import UsageError
from lmerge.replica.sources.declared import Chunk, Position, RowSource, SourceContext, SourceReader
from lmerge.replica.sources.row_changes import RowChanges, RowShape, shape_of
from lmerge.replica.sources.value_forms import python_value
from lmerge.temporal.changes import Change
from lmerge.temporal.running import Item

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
    def counts_items(self) -> bool:  # type: ignore[override]  # a function gives them again
        return callable(self.items)

    def open(self, context: SourceContext, position: Position) -> SourceReader:
        """Return a reader."""
        return ItemsReader(self, context, position)


class ItemsReader(SourceReader):
    """Reads items. Those that are there at once come together, asynchronous ones one by one."""

    def __init__(self, source: PythonItems, context: SourceContext, position: Position) -> None:
        shape = shape_of(source) if source.time or source.start else RowShape("", None, False, None)
        self._changes = RowChanges(context, source.where, shape, python_value)
        self._has_times = bool(shape.start)
        self._release = source.releases
        self._taken = int(position or 0)
        self._items = source.items() if callable(source.items) else source.items
        self._passes_over = self._taken if callable(source.items) else 0
        self._chunk_items = 1 if source.is_live else ITEMS_PER_CHUNK
        self._is_closed = False

    def chunks(self) -> Iterator[Chunk]:
        """Yield the items, and the end of the stream."""
        given = islice(self._synchronous(), self._passes_over, None)
        while not self._is_closed:
            begin, taken = self._taken, list(islice(given, self._chunk_items))
            items = [self._item(one, begin + index) for index, one in enumerate(taken)]
            releases = None if self._release is None else list(map(self._release, taken))
            self._taken += len(taken)
            if len(taken) < self._chunk_items:
                if releases:
                    releases.append(releases[-1])
                ended = bool(items) and items[-1] == INF
                yield Chunk([*items, *([] if ended else [INF])], begin, self._taken, releases or None)
                return
            yield Chunk(items, begin, self._taken, releases)

    def close(self) -> None:
        """Take no more items."""
        self._is_closed = True

    def _synchronous(self) -> Iterator[Given]:
        if isinstance(self._items, Iterable):
            return iter(self._items)
        if isinstance(self._items, AsyncIterable):
            return _run_through(self._items)
        raise UsageError(f"{self._changes.source}: {self._items!r:.64} is not iterable")

    def _item(self, given: Given, at: int) -> Item:
        if isinstance(given, Change):
            return given
        if isinstance(given, int) and not isinstance(given, bool):
            return given
        place = f"item {at}"
        if not isinstance(given, Mapping):
            raise self._changes.error(place, f"{given!r:.64} is no row, no change and no stable point")
        if not self._has_times:
            raise self._changes.error(place, "it is a row, and the source declares no columns of times")
        return self._changes.change(given, place)


def _run_through(items: AsyncIterable[Given]) -> Iterator[Given]:
    """Yield what an asynchronous iterable has, in a loop of its own."""
    loop = asyncio.new_event_loop()
    iterator = items.__aiter__()

    async def following() -> Given:
        return await iterator.__anext__()

    try:
        while True:
            try:
                yield loop.run_until_complete(following())
            except StopAsyncIteration:
                return
    finally:
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()
