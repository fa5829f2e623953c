"""The EventIndex (V.C): the live events of one group, in order of their end, then their start.

Windows read it where they need old members: for modules over a set, for windows that begin inside an event, and where
clipped lifetimes change with a window's ends. Its order is that of Figure 11.

Events that come as columns stay columns until something asks for one of them by its row.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from sortedcontainers import SortedList

from lmerge.core.elements import INF
from lmerge.temporal.changes import Change, Lifetime
from lmerge.temporal.columns import RowBlock
from lmerge.temporal.values import OrderKey


class _Block(NamedTuple):
    """Events as columns, which are not empty, with their first end, the last one, and the last one that is finite."""

    rows: RowBlock
    first: int
    last: int
    last_finite: int | None


class EventIndex:
    """Events by (end, start, row), a multiset."""

    __slots__ = ("_blocks", "_entries", "_key")

    def __init__(self, key: OrderKey) -> None:
        self._key = key
        self._entries: SortedList[tuple[Any, ...]] = SortedList()
        self._blocks: list[_Block] = []

    def __len__(self) -> int:
        return len(self._entries) + sum(len(block.rows) for block in self._blocks)

    def apply(self, change: Change) -> None:
        """Replace the event as it was by the event as it is."""
        row, vs, old, new = change
        key, entries = self._key(row), self._by_row()
        if old > vs:
            entries.remove((old, vs, key, row))
        if new > vs:
            entries.add((new, vs, key, row))

    def insert(self, inserts: Iterable[Change]) -> None:
        """Add new events."""
        key = self._key
        self._entries.update([(new, vs, key(row), row) for row, vs, _, new in inserts])

    def insert_block(self, rows: RowBlock) -> None:
        """Add new events as columns."""
        first, last, last_finite = rows.ends()
        if first is not None and last is not None:
            self._blocks.append(_Block(rows, first, last, last_finite))

    def _by_row(self) -> SortedList[tuple[Any, ...]]:
        """Return the entries of all events, those that came as columns among them."""
        blocks, self._blocks = self._blocks, []
        for block in blocks:
            self.insert(Change(row, vs, vs, ve) for row, vs, ve in block.rows.events())
        return self._entries

    def overlapping(self, start: int, end: int) -> Iterator[Lifetime]:
        """Yield the events whose lifetimes overlap ``[start, end)``, in order of their end."""
        for ve, vs, _, row in self._by_row().irange((start + 1,)):
            if vs < end:
                yield Lifetime(row, vs, ve)

    def overlapping_blocks(self, start: int, end: int) -> Sequence[RowBlock] | None:
        """Return what ``overlapping`` yields as columns, or None if not all events are columns."""
        if self._entries:
            return None
        found = [block.rows.overlapping(start, end) for block in self._blocks if block.last > start]
        return [rows for rows in found if len(rows)]

    @property
    def first_end(self) -> int | None:
        """The smallest end, or None without events."""
        firsts = [block.first for block in self._blocks]
        return min([self._entries[0][0], *firsts] if self._entries else firsts, default=None)

    @property
    def last_end(self) -> int | None:
        """The largest end, or None without events."""
        lasts = [block.last for block in self._blocks]
        return max([self._entries[-1][0], *lasts] if self._entries else lasts, default=None)

    @property
    def last_finite_end(self) -> int | None:
        """The largest end that is not +inf, or None without one."""
        lasts = [block.last_finite for block in self._blocks if block.last_finite is not None]
        index = self._entries.bisect_left((INF,)) - 1
        return max([self._entries[index][0], *lasts] if index >= 0 else lasts, default=None)

    def drop_ended(self, until: int) -> int:
        """Drop the events that end at or before ``until``; return how many."""
        until = min(until, INF)  # behind the last window of a grid it is no time any more
        count: int = self._entries.bisect_left((until + 1,))
        del self._entries[:count]
        blocks, self._blocks = self._blocks, []
        for block in blocks:
            if block.first > until:
                self._blocks.append(block)
                continue
            rows = block.rows.ending_after(until)
            count += len(block.rows) - len(rows)
            self.insert_block(rows)
        return count

    def __iter__(self) -> Iterator[Lifetime]:
        return (Lifetime(row, vs, ve) for ve, vs, _, row in self._by_row())
