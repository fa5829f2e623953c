"""Where a row is present: how many copies of it are valid at each time, and the longest runs with at least one."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from sortedcontainers import SortedDict

from lmerge.temporal.changes import Change
from lmerge.temporal.values import Values


class RowPresence:
    """The lifetimes of all copies of one row, added up."""

    def __init__(self, row: Values) -> None:
        self.row = row
        # From each time to the next one: how many copies are valid. Before the first are none. Neighbours differ.
        self._copies: SortedDict[int, int] = SortedDict()
        # Start to end of the runs that are not final.
        self._runs: SortedDict[int, int] = SortedDict()

    def __len__(self) -> int:
        return len(self._runs)

    def change(self, low: int, high: int, copies: int) -> Iterator[Change]:
        """Add 1 or -1 copies from ``low`` to ``high``; yield how that changes the runs, one after the other."""
        self._split(low)
        self._split(high)
        times = list(self._copies.irange(low, high))
        for start, end in pairwise(times):
            before = self._copies[start]
            after = self._copies[start] = before + copies
            if not before:
                yield from self._fill(start, end)
            elif not after:
                yield from self._clear(start, end)
        for t in times:
            self._join(t)

    def forget_before(self, stable: int) -> bool:
        """Drop what nothing can change at a stable point; return whether nothing is left."""
        while self._runs and self._runs.peekitem(0)[1] < stable:
            self._runs.popitem(0)
        while len(self._copies) > 1 and self._copies.keys()[1] < stable:
            self._copies.popitem(0)
        if self._copies and not self._copies.peekitem(0)[1]:
            self._copies.popitem(0)
        return not self._runs

    @property
    def times(self) -> list[int]:
        """The times at which the number of copies changes."""
        return list(self._copies)

    def state(self) -> list[Any]:
        """Return copies and runs as plain values."""
        return [[*map(list, self._copies.items())], [*map(list, self._runs.items())]]

    def restore(self, state: list[Any]) -> None:
        """Take what ``state`` has returned."""
        self._copies.update(state[0])
        self._runs.update(state[1])

    def check(self) -> None:
        """Assert that the runs are the stretches with copies, from where these are still counted."""
        times, counts = list(self._copies), list(self._copies.values())
        assert all(before != after for before, after in pairwise([0, *counts])), "neighbours are equal"
        assert min(counts) >= 0
        assert counts[-1] == 0, "a copy is valid behind the end of all time"
        covered = [(start, end) for start, end, count in zip(times, times[1:], counts) if count]
        runs: list[list[int]] = []
        for start, end in covered:
            if runs and runs[-1][1] == start:
                runs[-1][1] = end
            else:
                runs.append([start, end])
        kept = [[max(start, times[0]), end] for start, end in self._runs.items() if end > times[0]]
        assert kept == runs, "the runs are not where the copies are"

    def _split(self, t: int) -> None:
        if t not in self._copies:
            index = self._copies.bisect_left(t)
            self._copies[t] = self._copies.peekitem(index - 1)[1] if index else 0

    def _join(self, t: int) -> None:
        index = self._copies.index(t)
        before = self._copies.peekitem(index - 1)[1] if index else 0
        if before == self._copies[t]:
            del self._copies[t]

    def _fill(self, start: int, end: int) -> Iterator[Change]:
        """Make a stretch without copies part of a run: it joins the runs on both sides."""
        last = end
        if end in self._runs:
            last = self._runs.pop(end)
            yield Change(self.row, end, last, end)
        index = self._runs.bisect_right(start)
        if index and self._runs.peekitem(index - 1)[1] == start:
            first = self._runs.peekitem(index - 1)[0]
            yield Change(self.row, first, start, last)
        else:
            first = start
            yield Change(self.row, start, start, last)
        self._runs[first] = last

    def _clear(self, start: int, end: int) -> Iterator[Change]:
        """Cut a stretch out of the run that has it."""
        first, last = self._runs.peekitem(self._runs.bisect_right(start) - 1)
        yield Change(self.row, first, last, start)
        if first == start:
            del self._runs[first]
        else:
            self._runs[first] = start
        if end < last:
            self._runs[end] = last
            yield Change(self.row, end, end, last)
