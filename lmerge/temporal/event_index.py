"""The EventIndex (V.C): the live events of one group, in order of their end, then their start.

Windows read it where they need old members: for modules over a set, for windows that begin inside an event, and where
clipped lifetimes change with a window's ends. Its order is that of Figure 11.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from sortedcontainers import SortedList

from lmerge.core.elements import INF
from lmerge.temporal.changes import Change, Lifetime
from lmerge.temporal.values import OrderKey


class EventIndex:
    """Events by (end, start, row), a multiset."""

    __slots__ = ("_entries", "_key")

    def __init__(self, key: OrderKey) -> None:
        self._key = key
        self._entries: SortedList[tuple[Any, ...]] = SortedList()

    def __len__(self) -> int:
        return len(self._entries)

    def apply(self, change: Change) -> None:
        """Replace the event as it was by the event as it is."""
        row, vs, old, new = change
        key = self._key(row)
        if old > vs:
            self._entries.remove((old, vs, key, row))
        if new > vs:
            self._entries.add((new, vs, key, row))

    def insert(self, inserts: Iterable[Change]) -> None:
        """Add new events."""
        key = self._key
        self._entries.update([(new, vs, key(row), row) for row, vs, _, new in inserts])

    def overlapping(self, start: int, end: int) -> Iterator[Lifetime]:
        """Yield the events whose lifetimes overlap ``[start, end)``, in order of their end."""
        for ve, vs, _, row in self._entries.irange((start + 1,)):
            if vs < end:
                yield Lifetime(row, vs, ve)

    @property
    def first_end(self) -> int | None:
        """The smallest end, or None without events."""
        return self._entries[0][0] if self._entries else None

    @property
    def last_end(self) -> int | None:
        """The largest end, or None without events."""
        return self._entries[-1][0] if self._entries else None

    @property
    def last_finite_end(self) -> int | None:
        """The largest end that is not +inf, or None without one."""
        index = self._entries.bisect_left((INF,)) - 1
        return self._entries[index][0] if index >= 0 else None

    def drop_ended(self, until: int) -> int:
        """Drop the events that end at or before ``until``; return how many."""
        count: int = self._entries.bisect_left((until + 1,))
        del self._entries[:count]
        return count

    def __iter__(self) -> Iterator[Lifetime]:
        return (Lifetime(row, vs, ve) for ve, vs, _, row in self._entries)
