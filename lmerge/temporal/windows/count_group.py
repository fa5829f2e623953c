"""Count windows of one group: from each distinct start (or end) to the N-th from there (III.B.4, departure D11).

Events are kept by the point that is counted. A window is there for every point, and is complete with the N-th one. It
spans the points from its own to that one, inclusive. An event without an end has no end to count.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from sortedcontainers import SortedDict

from lmerge.core.elements import INF
from lmerge.temporal.changes import Change, Lifetime
from lmerge.temporal.values import Values
from lmerge.temporal.windows.group import WindowEntry, WindowGroup, WindowRules
from lmerge.temporal.windows.kinds import CountedEnd, CountWindows


class CountGroup(WindowGroup):
    """The windows from each point, and the events of each point."""

    def __init__(self, key: Values, rules: WindowRules) -> None:
        super().__init__(key, rules)
        assert isinstance(rules.kind, CountWindows)
        self._count = rules.kind.count
        self._by_ends = rules.kind.by is CountedEnd.ENDS
        self._points: SortedDict[int, list[Lifetime]] = SortedDict()

    def apply(self, change: Change, begun: int) -> None:
        """Move the event between points, or change its lifetime in the windows of its point."""
        row, vs, old, new = change
        if self._by_ends or old == vs or new == vs:
            if old > vs:
                self._take(old if self._by_ends else vs, Lifetime(row, vs, old))
            if new > vs:
                self._put(new if self._by_ends else vs, Lifetime(row, vs, new))
        elif vs in self._points:  # else all windows of the event are closed
            self._points[vs].remove(Lifetime(row, vs, old))
            self._points[vs].append(Lifetime(row, vs, new))
            for entry in self._over(vs):
                self._replace(entry, row, vs, old, new)

    def members(self, entry: WindowEntry) -> Iterable[Lifetime]:
        """Yield the events whose points a window has."""
        for point in self._points.irange(entry.start, entry.end, inclusive=(True, False)):
            yield from self._points[point]

    def is_complete(self, entry: WindowEntry) -> bool:
        """Whether a window has N points."""
        return entry.end < INF

    def closes_at(self, entry: WindowEntry) -> int:
        """Return the end of a complete window, or the first time at which its events cannot change, if later."""
        return self._after_members(entry, entry.end)

    def prune(self, stable: int) -> None:
        """Drop the points before the first window."""
        first = self.windows.keys()[0] if self.windows else INF
        while self._points and self._points.keys()[0] < min(first, stable):
            self._points.popitem(0)

    @property
    def live(self) -> int:
        """The number of events whose points are kept."""
        return sum(map(len, self._points.values()))

    def kept(self) -> Iterable[Lifetime]:
        """Yield the events whose points are kept."""
        return (event for events in self._points.values() for event in events)

    def keep(self, event: Lifetime) -> None:
        """Take an event that ``kept`` has yielded into a new group."""
        self._points.setdefault(event.ve if self._by_ends else event.vs, []).append(event)

    def _put(self, point: int, event: Lifetime) -> None:
        if point == INF:
            return
        if point in self._points:
            self._points[point].append(event)
            for entry in self._over(point):
                self._enter(entry, *event)
            return
        self._points[point] = [event]
        self.windows[point] = WindowEntry(point, INF)
        self._restructure(point)

    def _take(self, point: int, event: Lifetime) -> None:
        if point == INF:
            return
        events = self._points[point]
        events.remove(event)
        if events:
            for entry in self._over(point):
                self._leave(entry, *event)
            return
        del self._points[point]
        del self.windows[point]
        self.touched.add(point)
        self._restructure(point)

    def _restructure(self, point: int) -> None:
        """Give the windows whose N points reach ``point`` their ends and states anew: up to N-1 before it, and its own.

        A window beyond reach keeps its events: between it and ``point`` lie N others.
        """
        last = self._points.bisect_right(point) - 1
        for index in range(max(0, last - self._count + 1), last + 1):
            start = self._points.keys()[index]
            entry = self.windows.get(start)
            if entry is None:  # closed: its N points are before the stable point
                continue
            is_complete = index + self._count <= len(self._points)
            entry.end = self._points.keys()[index + self._count - 1] + 1 if is_complete else INF
            self._rebuild(entry)

    def _over(self, point: int) -> Iterator[WindowEntry]:
        """Yield the windows that have a point, complete or not."""
        last = self._points.bisect_right(point) - 1
        for index in range(max(0, last - self._count + 1), last + 1):
            entry = self.windows.get(self._points.keys()[index])
            if entry is not None:
                yield entry
