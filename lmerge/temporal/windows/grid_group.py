"""Hopping and tumbling windows of one group: a grid that does not depend on events (III.B.1, III.B.2).

Only windows that have begun (start at or before the watermark) exist: an event without an end belongs to infinitely
many (departure D13).

An incremental module has all that it needs of an event in the states of the windows, so the event itself is kept only
while windows can still begin in it: while it ends at or behind the next start of the grid. One that ends exactly there
is in no later window, but can be the last finite end, where the windows of an event without an end stop.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from lmerge.core.elements import INF, NEG_INF, show_time
from lmerge.errors import LimitExceeded, UsageError
from lmerge.temporal.changes import Change, Lifetime
from lmerge.temporal.columns import RowBlock
from lmerge.temporal.values import Values
from lmerge.temporal.windows.group import WindowEntry, WindowGroup, WindowRules
from lmerge.temporal.windows.kinds import Hopping
from lmerge.temporal.windows.module import IncrementalModule


class GridGroup(WindowGroup):
    """The windows of a grid with events."""

    def __init__(self, key: Values, rules: WindowRules) -> None:
        super().__init__(key, rules)
        assert isinstance(rules.kind, Hopping)
        self._grid = rules.kind
        self.keeps_members = not isinstance(rules.module, IncrementalModule)

    def apply(self, change: Change, begun: int) -> None:
        """Change the membership of the event in the windows that begin before the later of its two ends."""
        row, vs, old, new = change
        if self._grid.first_over(vs) <= NEG_INF:
            raise UsageError(
                f"{change} starts at {show_time(vs)}, where {self._grid.shown} has no first window: give the windows "
                "since="
            )
        self._keep(change, begun)
        # A module that sees ends is affected in every window of the event, others from the changed part on (D7).
        since = vs if self.rules.sees_ends else min(old, new)
        for start in self._starts(self._grid.first_over(since), min(max(old, new), begun + 1)):
            was, now = vs < old > start, vs < new > start
            entry = self._entry(start)
            if was and now:
                self._replace(entry, row, vs, old, new)
            elif now:
                self._enter(entry, row, vs, new)
            elif was:
                self._leave(entry, row, vs, old)
            if not (entry.events or self.rules.keeps_empty):
                del self.windows[start]

    def placed(self, inserts: Sequence[Change], begun: int) -> Mapping[int, Any] | None:
        """Return the rows of new events by the starts of their windows, or None if an event must be applied by itself.

        That is one that ``apply`` refuses. What is returned is for ``insert``.
        """
        grid, found = self._grid, dict[int, list[Values]]()
        until, most = begun + 1, self.rules.windows_max * grid.hop
        for row, vs, _, new in inserts:
            first, last = grid.first_over(vs), min(new, until)
            if first <= NEG_INF or last - first > most:
                return None
            for start in range(first, last, grid.hop):
                if start in found:
                    found[start].append(row)
                else:
                    found[start] = [row]
        return found

    def insert(self, inserts: Sequence[Change], windows: Mapping[int, Any], begun: int) -> None:
        """Do as ``apply`` for new events, which are placed in ``windows``. No state of the module reads lifetimes."""
        reach = NEG_INF if self.keeps_members else self._grid.start_above(begun)
        self.events.insert([change for change in inserts if change.new >= reach])
        for start, rows in windows.items():
            self._enter_all(self._entry(start), rows)

    def insert_blocks(self, kept: RowBlock, windows: Mapping[int, RowBlock], begun: int) -> None:
        """Do as ``insert`` for new events as columns. ``kept``: those that the group keeps."""
        self.events.insert_block(kept)
        for start, block in windows.items():
            self._enter_block(self._entry(start), block)

    def blocks(self, entry: WindowEntry) -> Sequence[RowBlock] | None:
        """Return the events that overlap a window as columns, or None if not all events of the group are."""
        return self.events.overlapping_blocks(entry.start, entry.end)

    def _keep(self, change: Change, begun: int) -> None:
        """Keep the event as it is in place of the event as it was."""
        if self.keeps_members:
            self.events.apply(change)
            return
        row, vs, old, new = change
        reach = self._grid.start_above(begun)
        if old >= reach or new >= reach:
            self.events.apply(Change(row, vs, old if old >= reach else vs, new if new >= reach else vs))

    def advance(self, before: int, begun: int) -> None:
        """Let windows begin inside events that live on, or all windows of the grid if those without events are kept."""
        last = INF if self.rules.keeps_empty else self.events.last_end
        if last is None:
            return
        for start in self._starts(self._grid.start_above(before), min(last, begun + 1)):
            if self.rules.keeps_empty:
                self._entry(start)
                self.touched.add(start)
            for row, vs, ve in self.events.overlapping(start, start + self._grid.size):
                self._enter(self._entry(start), row, vs, ve)
        if not self.keeps_members:
            self.events.drop_ended(self._grid.start_above(begun) - 1)

    def goes_on(self, begun: int) -> bool:
        """Whether an event ends at or behind the next start of the grid, or windows without events are kept."""
        if self.rules.keeps_empty:
            return True
        last = self.events.last_end
        return last is not None and last >= self._grid.start_above(begun)

    def members(self, entry: WindowEntry) -> Iterable[Lifetime]:
        """Yield the events that overlap a window."""
        return self.events.overlapping(entry.start, entry.end)

    def closes_at(self, entry: WindowEntry) -> int:
        """Return the end of a window, or the first time at which none of its events can change, if that is later."""
        return self._after_members(entry, entry.end)

    def prune(self, stable: int) -> None:
        """Drop the events that have ended before the stable point and before the first window that can change."""
        if not self.keeps_members:
            return
        first = self._grid.first_over(stable)
        if self.windows:
            first = min(first, self.windows.keys()[0])
        self.events.drop_ended(min(stable - 1, first))

    @property
    def first_end(self) -> int | None:
        """The smallest end of an event that is kept until it has ended, and longer than its windows."""
        return self.events.first_end if self.keeps_members else None

    @property
    def is_empty(self) -> bool:
        """Whether nothing is left of the group. A grid that keeps windows without events goes on."""
        return super().is_empty and not self.rules.keeps_empty

    def _entry(self, start: int) -> WindowEntry:
        entry: WindowEntry | None = self.windows.get(start)
        if entry is None:
            entry = self.windows[start] = WindowEntry(start, min(INF, start + self._grid.size))
        return entry

    def _starts(self, first: int, until: int) -> range:
        return starts_of(self._grid, first, until, self.rules.windows_max)


def starts_of(grid: Hopping, first: int, until: int, windows_max: int) -> range:
    """Return the starts of windows from ``first`` to below ``until``. Raises LimitExceeded if they are too many."""
    count = max(0, -((first - until) // grid.hop))
    if count > windows_max:
        raise LimitExceeded(
            f"a step would open {count} windows of {grid.shown} in one group, more than {windows_max} (windows_max)"
        )
    return range(first, until, grid.hop)
