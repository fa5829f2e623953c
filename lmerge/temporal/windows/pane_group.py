"""Hopping windows of one group that share the states of their parts: for users' modules that can merge them (M5).

A pane is as long as the hop. A window is the events that *started* in its panes, and those that are *carried* over its
start: that began before it and go on. So an event is added once where it starts, and once at each start of a window
inside it, and not in each of the windows that overlap. An event that spans panes is in no window twice.

A window's state is merged when its result is computed. So this is for the forms that compute a result once, ``final``
and ``settled``. Built-in aggregates do the same in the native core (``native/temporal/src/windows/panes.rs``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from sortedcontainers import SortedDict

from lmerge.core.elements import INF, NEG_INF, show_time
from lmerge.errors import UsageError
from lmerge.temporal.changes import Change, Lifetime
from lmerge.temporal.columns import RowBlock
from lmerge.temporal.values import Values
from lmerge.temporal.windows.grid_group import GridGroup
from lmerge.temporal.windows.group import WindowEntry, WindowRules
from lmerge.temporal.windows.kinds import Hopping
from lmerge.temporal.windows.module import MergeableModule, ModuleState
from lmerge.temporal.windows.policies import Form, Stamp

OVERLAP_MIN: Final = 4
"""With fewer windows over each time, merging costs as much as it saves."""


class Part:
    """The state of some events of a pane."""

    __slots__ = ("events", "state")

    def __init__(self, events: int = 0, state: ModuleState = None) -> None:
        self.events, self.state = events, state


class Pane:
    """The events that started in a pane, and those that are carried over its start."""

    __slots__ = ("carried", "started")

    def __init__(self) -> None:
        self.started, self.carried = Part(), Part()


class PaneGroup(GridGroup):
    """The windows of a grid with events, whose states are those of their panes."""

    def __init__(self, key: Values, rules: WindowRules) -> None:
        super().__init__(key, rules)
        assert isinstance(rules.module, MergeableModule)
        self._module = rules.module
        self._pane_grid = pane_grid(self._grid)
        self._panes: SortedDict[int, Pane] = SortedDict()

    @staticmethod
    def suits(rules: WindowRules) -> bool:
        """Whether windows share parts: results are computed once, and a state is that of rows that can be merged."""
        kind, module = rules.kind, rules.module
        if not (isinstance(kind, Hopping) and isinstance(module, MergeableModule) and module.is_users):
            return False
        is_once = rules.form in (Form.FINAL, Form.SETTLED) and rules.stamp is not Stamp.TIME_BOUND
        is_divided = kind.size % kind.hop == 0 and kind.size // kind.hop >= OVERLAP_MIN
        return is_once and is_divided and not (module.reads_events or rules.keeps_empty)

    def apply(self, change: Change, begun: int) -> None:
        """Change where the event started, if it is new or removed, and at the starts of windows between its ends."""
        row, vs, old, new = change
        if self._grid.first_over(vs) <= NEG_INF:
            raise UsageError(
                f"{change} starts at {show_time(vs)}, where {self._grid.shown} has no first window: give the windows "
                "since="
            )
        starts = self._starts(self._grid.first_over(min(old, new)), min(max(old, new), begun + 1))
        self._keep(change, begun)
        was_event, is_event = old > vs, new > vs
        pane = self._pane_grid.first_over(vs)
        if was_event != is_event and pane <= vs:
            self._change(self._pane(pane).started, row, is_event)
        for start in starts:
            was, now = was_event and old > start, is_event and new > start
            if was == now:
                continue
            if start > vs:
                self._change(self._pane(start).carried, row, now)
            self._count(start, 1 if now else -1)
        if new < old:
            self._drop_empty(min(pane, starts.start), old)

    def placed(self, inserts: Sequence[Change], begun: int) -> Mapping[int, Any] | None:
        """Return the rows of new events by pane, those that started in it and those that are carried over its start."""
        found: dict[int, tuple[list[Values], list[Values]]] = {}
        most = self.rules.windows_max * self._grid.hop
        behind = self._grid.start_above(begun)
        for row, vs, _, new in inserts:
            first, until = self._grid.first_over(vs), min(new, begun + 1)
            # An event can begin behind its stream's time: an operator before gave it that start. It is applied alone.
            if first <= NEG_INF or until - first > most or vs >= behind:
                return None
            for start in range(self._pane_grid.first_over(vs), until, self._grid.hop):
                started, carried = found.setdefault(start, ([], []))
                (started if start <= vs else carried).append(row)
        return found

    def insert(self, inserts: Sequence[Change], windows: Mapping[int, Any], begun: int) -> None:
        """Do as ``apply`` for new events, which are placed in ``windows``."""
        reach = self._grid.start_above(begun)
        self.events.insert([change for change in inserts if change.new >= reach])
        for start, (started, carried) in windows.items():
            pane = self._pane(start)
            for part, rows in ((pane.started, started), (pane.carried, carried)):
                if rows:
                    part.state = self._module.add_rows(self._state(part), rows)
                    part.events += len(rows)
            self._count_all(start, len(started), len(carried))

    def insert_blocks(self, kept: RowBlock, windows: Mapping[int, RowBlock], begun: int) -> None:
        """Do as ``insert`` for new events as columns. ``windows``: by pane."""
        self.events.insert_block(kept)
        for start, block in windows.items():
            pane = self._pane(start)
            carried, started = block.split(start)
            for part, rows in ((pane.started, started), (pane.carried, carried)):
                if len(rows):
                    part.state = self._module.add_block(self._state(part), rows)
                    part.events += len(rows)
            self._count_all(start, len(started), len(carried))

    def advance(self, before: int, begun: int) -> None:
        """Let windows begin inside events that live on."""
        last = self.events.last_end
        if last is not None:
            for start in self._starts(self._grid.start_above(before), min(last, begun + 1)):
                for row, vs, _ in self.events.overlapping(start, start + self._grid.size):
                    if vs < start:
                        self._change(self._pane(start).carried, row, True)
                    self._count(start, 1)
        self.events.drop_ended(self._grid.start_above(begun) - 1)

    def state(self, entry: WindowEntry) -> ModuleState:
        """Return the state of a window, merged from those of its panes."""
        module, state = self._module, self._module.begin()
        pane = self._panes.get(entry.start)
        if pane is not None and pane.carried.events:
            state = module.merge(state, pane.carried.state)
        for start in self._panes.irange(entry.start, entry.start + self._grid.size, (True, False)):
            started = self._panes[start].started
            if started.events:
                state = module.merge(state, started.state)
        return state

    def prune(self, stable: int) -> None:
        """Drop the panes before the first window, and before those that can still begin: none has events of them."""
        first = min(self.windows.keys()[0] if self.windows else INF, self._grid.start_above(stable))
        for start in list(self._panes.irange(maximum=first, inclusive=(True, False))):
            del self._panes[start]

    def state_of_window(self, entry: WindowEntry) -> Any:
        """Return None: a window has no state of its own."""
        return None

    def restore_window(self, entry: WindowEntry, state: Any) -> None:
        """Give a window no state."""

    def kept_parts(self) -> dict[str, Any]:
        """Return the panes, each with the numbers of its events and their states."""
        found = []
        for start, pane in self._panes.items():
            parts = [[part.events, self._module.state_of(part.state) if part.events else None] for part in _parts(pane)]
            found.append([start, *parts])
        return {"panes": found}

    def keep_parts(self, state: Mapping[str, Any]) -> None:
        """Take the panes that ``kept_parts`` has returned."""
        for start, *parts in state["panes"]:
            for part, (events, kept) in zip(_parts(self._pane(start)), parts, strict=True):
                part.events, part.state = events, self._module.restore(kept) if events else None

    def check(self) -> None:
        """Assert that windows count the events of their panes, and that no pane is kept that none of them has.

        Behind the last window there can be panes: of events that begin behind their stream's time.
        """
        last = self.windows.keys()[-1] if self.windows else NEG_INF
        assert all(start in self.windows for start in self._panes if start <= last), "a pane is kept without a window"
        for start, entry in self.windows.items():
            panes = self._panes.irange(start, start + self._grid.size, (True, False))
            found = sum(self._panes[at].started.events for at in panes)
            if start in self._panes:
                found += self._panes[start].carried.events
            assert found == entry.events, f"{entry.span} counts {entry.events} events of {found}"

    # One pane, and the windows over it.

    def _pane(self, start: int) -> Pane:
        pane: Pane | None = self._panes.get(start)
        if pane is None:
            pane = self._panes[start] = Pane()
        return pane

    def _state(self, part: Part) -> ModuleState:
        return part.state if part.events else self._module.begin()

    def _change(self, part: Part, row: Values, is_added: bool) -> None:
        event = Lifetime(row, NEG_INF, INF)
        if is_added:
            part.state = self._module.add(self._state(part), event)
            part.events += 1
            return
        left = self._module.remove(part.state, event)
        part.events -= 1
        part.state = left if part.events else None

    def _count_all(self, start: int, started: int, carried: int) -> None:
        """Count the new events of a pane in the windows that have it."""
        if started:
            for window in range(self._grid.first_over(start), start + 1, self._grid.hop):
                self._count(window, started)
        if carried:
            self._count(start, carried)

    def _count(self, start: int, events: int) -> None:
        entry = self._entry(start)
        entry.events += events
        self.touched.add(start)
        if not entry.events:
            del self.windows[start]

    def _drop_empty(self, first: int, last: int) -> None:
        """Drop the panes without events from one to another."""
        for start in list(self._panes.irange(first, last)):
            if not any(part.events for part in _parts(self._panes[start])):
                del self._panes[start]


def pane_grid(grid: Hopping) -> Hopping:
    """Return the grid of the panes of windows."""
    return Hopping(grid.hop, grid.hop, grid.offset, grid.since)


def _parts(pane: Pane) -> tuple[Part, Part]:
    return pane.started, pane.carried
