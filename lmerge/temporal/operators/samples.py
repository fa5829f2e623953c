"""Samples of a signal by key and time: what edge events and as-of joins are made of (sheets O13, O16).

A sample is an event of which only the start and the row count: it holds until the next sample of its key, whatever its
own end. Of two samples of one key at one time the later one in the order of rows holds, in whatever order they come.
"""

from __future__ import annotations

from typing import Any

from sortedcontainers import SortedDict

from lmerge.core.elements import INF
from lmerge.temporal.operators.operator import row_of_state, state_of_row
from lmerge.temporal.values import OrderKey, Values


class Samples:
    """The samples of one key, by time. ``key``: the order of rows."""

    def __init__(self, key: OrderKey) -> None:
        self._key = key
        self._rows: SortedDict[int, list[Values]] = SortedDict()

    def __len__(self) -> int:
        return sum(map(len, self._rows.values()))

    def add(self, t: int, row: Values) -> None:
        """Add a sample at ``t``."""
        self._rows.setdefault(t, []).append(row)

    def remove(self, t: int, row: Values) -> None:
        """Remove a sample that is there."""
        rows = self._rows[t]
        rows.remove(row)
        if not rows:
            del self._rows[t]

    def at(self, t: int) -> list[Values]:
        """Return the rows at ``t``, in the order in which they came."""
        rows: list[Values] = self._rows.get(t, [])
        return rows

    def holder(self, t: int) -> Values | None:
        """Return the row that holds from ``t`` on, or None without a sample at ``t``."""
        rows = self._rows.get(t)
        return max(rows, key=self._key) if rows else None

    def next_after(self, t: int) -> int:
        """Return the time of the first sample behind ``t``, or +inf without any."""
        index = self._rows.bisect_right(t)
        return self._rows.keys()[index] if index < len(self._rows) else INF

    def last_before(self, t: int) -> int | None:
        """Return the time of the last sample before ``t``."""
        index = self._rows.bisect_left(t)
        return self._rows.keys()[index - 1] if index else None

    def drop_before(self, t: int, lasts: int | None) -> None:
        """Drop the samples before ``t``, but for the last one if it still holds at ``t``: it does so for ``lasts``."""
        while (last := self.last_before(t)) is not None and self._rows.keys()[0] < last:
            self._rows.popitem(0)
        if last is not None and lasts is not None and last + lasts <= t:
            self._rows.popitem(0)

    @property
    def first(self) -> int | None:
        """The time of the first sample."""
        return self._rows.keys()[0] if self._rows else None

    @property
    def order(self) -> tuple[int, Any]:
        """The place of the first sample in the order of time and row. No two keys have the same."""
        t, rows = self._rows.peekitem(0)
        return t, min(map(self._key, rows))

    def state(self) -> list[Any]:
        """Return the samples as plain values, in the order of time and row."""
        return [[t, [state_of_row(row) for row in sorted(rows, key=self._key)]] for t, rows in self._rows.items()]

    def restore(self, state: list[Any]) -> None:
        """Take what ``state`` has returned."""
        for t, rows in state:
            self._rows[t] = [row_of_state(row) for row in rows]

    def check(self, stable: int) -> None:
        """Assert that at most one time before the stable point is kept, and that no time is without a row."""
        assert all(self._rows.values())
        assert sum(t < stable for t in self._rows) <= 1
