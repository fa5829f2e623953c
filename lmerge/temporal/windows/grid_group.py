"""Hopping and tumbling windows of one group: a grid that does not depend on events (III.B.1, III.B.2).

Only windows that have begun (start at or before the watermark) exist: an event without an end belongs to infinitely
many (departure D13).
"""

from __future__ import annotations

from collections.abc import Iterable

from lmerge.core.elements import NEG_INF
from lmerge.errors import LimitExceeded, UsageError
from lmerge.temporal.changes import Change, Lifetime
from lmerge.temporal.values import Values
from lmerge.temporal.windows.group import WindowEntry, WindowGroup, WindowRules
from lmerge.temporal.windows.kinds import Hopping


class GridGroup(WindowGroup):
    """The windows of a grid with events."""

    def __init__(self, key: Values, rules: WindowRules) -> None:
        super().__init__(key, rules)
        assert isinstance(rules.kind, Hopping)
        self._grid = rules.kind

    def apply(self, change: Change, begun: int) -> None:
        """Change the membership of the event in the windows that begin before the later of its two ends."""
        row, vs, old, new = change
        if vs == NEG_INF:
            raise UsageError(f"{change} starts at -inf, where a grid of windows has no first one")
        self.events.apply(change)
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
            if not entry.events:
                del self.windows[start]

    def advance(self, before: int, begun: int) -> None:
        """Let windows begin inside events that live on."""
        last = self.events.last_end
        if last is None:
            return
        for start in self._starts(self._grid.start_above(before), min(last, begun + 1)):
            for row, vs, ve in self.events.overlapping(start, start + self._grid.size):
                self._enter(self._entry(start), row, vs, ve)

    def goes_on(self, begun: int) -> bool:
        """Whether an event reaches into a window that has not begun."""
        last = self.events.last_end
        return last is not None and last > self._grid.start_above(begun)

    def members(self, entry: WindowEntry) -> Iterable[Lifetime]:
        """Yield the events that overlap a window."""
        return self.events.overlapping(entry.start, entry.end)

    def closes_at(self, entry: WindowEntry) -> int:
        """Return the end of a window, or the first time at which none of its events can change, if that is later."""
        return self._after_members(entry, entry.end)

    def prune(self, stable: int) -> None:
        """Drop the events that have ended before the stable point and before the first window that can change."""
        first = self._grid.first_over(stable)
        if self.windows:
            first = min(first, self.windows.keys()[0])
        self.events.drop_ended(min(stable - 1, first))

    def _entry(self, start: int) -> WindowEntry:
        entry: WindowEntry | None = self.windows.get(start)
        if entry is None:
            entry = self.windows[start] = WindowEntry(start, start + self._grid.size)
        return entry

    def _starts(self, first: int, until: int) -> range:
        """Return the starts of windows from ``first`` to below ``until``. Raises LimitExceeded if they are too many."""
        count = max(0, -((first - until) // self._grid.hop))
        if count > self.rules.windows_max:
            raise LimitExceeded(
                f"a step would open {count} windows of {self._grid.shown} in one group, "
                f"more than {self.rules.windows_max} (windows_max)"
            )
        return range(first, until, self._grid.hop)
