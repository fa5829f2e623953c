"""Snapshot windows of one group: the longest stretches in which its events do not change (III.B.3).

Each start and each finite end of an event is an edge. Windows go from edge to edge; those without events are not kept.
A new edge splits the window that it falls into, and an edge that vanishes joins the two windows beside it, which then
have the same events. An incremental module has all that it needs in the states of the windows: a part of a window has
the state of the whole, so events are kept only where clipped lifetimes change with a window's ends. Equal results side
by side stay two events: the windows are what a query is about.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from sortedcontainers import SortedDict, SortedList

from lmerge.core.elements import INF
from lmerge.temporal.changes import Change, Lifetime
from lmerge.temporal.values import Values
from lmerge.temporal.windows.group import WindowEntry, WindowGroup, WindowRules
from lmerge.temporal.windows.module import IncrementalModule


class SnapshotGroup(WindowGroup):
    """The windows between edges, and how many events have each edge."""

    def __init__(self, key: Values, rules: WindowRules) -> None:
        super().__init__(key, rules)
        self._edges: SortedDict[int, int] = SortedDict()
        self.keeps_members = rules.follows_clipping or not isinstance(rules.module, IncrementalModule)

    def apply(self, change: Change, begun: int) -> None:
        """Split at the new edges, change the membership in between, then join at the edges that are left."""
        row, vs, old, new = change
        is_new, is_removed = old == vs, new == vs
        for edge in (vs, new) if is_new else () if is_removed else (new,):
            self._split(edge)
        for entry in self._between(min(old, new), max(old, new)):
            if new > old:
                self._enter(entry, row, vs, new)
            else:
                self._leave(entry, row, vs, old)
            if not entry.events:
                del self.windows[entry.start]
        if self.rules.sees_ends and not (is_new or is_removed):
            for start in list(self.windows.irange(vs, min(old, new), inclusive=(True, False))):
                self._replace(self.windows[start], row, vs, old, new)
        if self.keeps_members:
            self.events.apply(change)  # what is computed anew has the old events above, and the new ones below
        for edge in (vs, old) if is_removed else () if is_new else (old,):
            self._join(edge)

    def members(self, entry: WindowEntry) -> Iterable[Lifetime]:
        """Yield the events that overlap a window."""
        return self.events.overlapping(entry.start, entry.end)

    def closes_at(self, entry: WindowEntry) -> int:
        """Return the first time behind a window's end: at the end itself its edge can still move (departure D4)."""
        return self._after_members(entry, entry.end if entry.end == INF else entry.end + 1)

    def settles_at(self, entry: WindowEntry) -> int:
        """Return when row and start cannot change: behind the start, unless the result depends on the end."""
        return entry.start + 1 if self.rules.is_settled_early else self.closes_at(entry)

    def prune(self, stable: int) -> None:
        """Drop the events that have ended, but for those of windows that can still change."""
        until = stable - 1
        if self.windows:
            until = min(until, self.windows.keys()[0])
        self.events.drop_ended(until)
        while self._edges and self._edges.keys()[0] < stable:
            self._edges.popitem(0)

    @property
    def is_empty(self) -> bool:
        """Whether nothing is left of the group."""
        return super().is_empty and not self._edges

    def kept_edges(self, stable: int) -> list[list[int]]:
        """Return the edges from the stable point on, each with how many events have it."""
        return [[edge, self._edges[edge]] for edge in self._edges.irange(minimum=stable)]

    def keep_edges(self, edges: Iterable[Iterable[int]]) -> None:
        """Take the edges that ``kept_edges`` has returned."""
        self._edges.update(map(tuple, edges))

    def _split(self, edge: int) -> None:
        if edge == INF:
            return
        count = self._edges.get(edge, 0)
        self._edges[edge] = count + 1
        left = self._window_before(edge)
        if count or left is None or left.end <= edge:
            return
        right = WindowEntry(edge, left.end)
        right.events = left.events
        left.end = edge
        self.windows[edge] = right
        if self.rules.follows_clipping:
            self._rebuild(left)
            self._rebuild(right)
        else:
            module = self.rules.module
            if isinstance(module, IncrementalModule):
                right.state = module.copied(left.state)
            right.ends = None if left.ends is None else SortedList(left.ends)
        self.touched.update((left.start, edge))

    def _join(self, edge: int) -> None:
        if edge == INF:
            return
        count = self._edges[edge]
        if count > 1:
            self._edges[edge] = count - 1
            return
        del self._edges[edge]
        right = self.windows.pop(edge, None)
        if right is None:
            return
        self.touched.add(edge)
        left = self._window_before(edge)
        assert left is not None, "a window begins where no event has an edge"
        left.end = right.end
        if self.rules.follows_clipping:
            self._rebuild(left)
        self.touched.add(left.start)

    def _window_before(self, t: int) -> WindowEntry | None:
        """Return the window with the largest start before ``t``."""
        index = self.windows.bisect_left(t)
        return self.windows.peekitem(index - 1)[1] if index else None

    def _between(self, low: int, high: int) -> Iterator[WindowEntry]:
        """Yield the windows of ``[low, high)``, whose ends are edges; those without events are made."""
        starts = list(self._edges.irange(low, high, inclusive=(True, False)))
        for start, end in zip(starts, [*starts[1:], high]):
            entry = self.windows.get(start)
            if entry is None:
                entry = self.windows[start] = WindowEntry(start, end)
            yield entry
