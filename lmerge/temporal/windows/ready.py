"""Closed windows of the form ``final`` that wait for open ones before them, so that results come in order.

A window closes late if the module sees the ends of its events. On a grid all groups share one order, so that ties of a
start come in one batch. Snapshot and count windows of a group are in order within the group.
"""

from __future__ import annotations

from collections import defaultdict

from sortedcontainers import SortedDict, SortedList

from lmerge.core.elements import INF
from lmerge.temporal.values import Values
from lmerge.temporal.windows.group import WindowGroup, WindowRules
from lmerge.temporal.windows.kinds import Hopping


class ReadyWindows:
    """Windows that have not been emitted, by whether they are closed."""

    def __init__(self, rules: WindowRules) -> None:
        self._is_shared = isinstance(rules.kind, Hopping)
        self._unclosed: defaultdict[Values, SortedList[int]] = defaultdict(SortedList)
        # By scope: start -> groups, in the order in which they closed. The operator orders its output.
        self._closed: defaultdict[Values, SortedDict[int, dict[Values, WindowGroup]]] = defaultdict(SortedDict)
        self._is_closed: dict[tuple[Values, int], bool] = {}
        self._changed: dict[Values, None] = {}

    def note(self, group: WindowGroup, start: int, is_closed: bool) -> None:
        """Note that a window has events, and whether anything can still change it."""
        self.forget(group, start)
        scope = self._scope(group)
        self._is_closed[group.key, start] = is_closed
        if is_closed:
            self._closed[scope].setdefault(start, {})[group.key] = group
        else:
            self._unclosed[scope].add(start)

    def forget(self, group: WindowGroup, start: int) -> None:
        """Note that a window is not there any more."""
        was_closed = self._is_closed.pop((group.key, start), None)
        scope = self._scope(group)
        self._changed[scope] = None
        if was_closed is None:
            return
        if not was_closed:
            self._unclosed[scope].remove(start)
            return
        groups = self._closed[scope][start]
        del groups[group.key]
        if not groups:
            del self._closed[scope][start]

    def released(self) -> list[tuple[WindowGroup, int]]:
        """Remove and return the closed windows that no open one precedes, in order of their start."""
        found: list[tuple[WindowGroup, int]] = []
        for scope in self._changed:
            unclosed, closed = self._unclosed[scope], self._closed[scope]
            bound = unclosed[0] if unclosed else INF
            for start in list(closed.irange(maximum=bound, inclusive=(True, False))):
                for key, group in closed.pop(start).items():
                    del self._is_closed[key, start]
                    found.append((group, start))
            if not unclosed:
                del self._unclosed[scope]
            if not closed:
                del self._closed[scope]
        self._changed.clear()
        return found

    def _scope(self, group: WindowGroup) -> Values:
        return () if self._is_shared else group.key
