"""Modules of windows with their SQL: over rows ``(a, b)``, one for each way in which a result can depend on time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lmerge.temporal.changes import Lifetime
from lmerge.temporal.values import Values
from lmerge.temporal.windows.kinds import WindowDescriptor
from lmerge.temporal.windows.module import IncrementalModule, ModuleState, WindowModule
from lmerge.testing.canonical import windows

LONGEST = 1000
"""Counted of an event without an end."""


class CountAndSum(IncrementalModule):
    """Depends on no time."""

    def begin(self) -> ModuleState:
        return [0, 0]

    def add(self, state: ModuleState, event: Lifetime) -> ModuleState:
        return [state[0] + 1, state[1] + event.row[1]]

    def remove(self, state: ModuleState, event: Lifetime) -> ModuleState:
        return [state[0] - 1, state[1] - event.row[1]]

    def result(self, state: ModuleState, window: WindowDescriptor) -> Sequence[Values]:
        return [tuple(state)]


class SumOfDurations(IncrementalModule):
    """Depends on starts and ends, as they are clipped."""

    reads_events = True

    def begin(self) -> ModuleState:
        return 0

    def add(self, state: ModuleState, event: Lifetime) -> ModuleState:
        return state + min(event.ve, LONGEST) - event.vs

    def remove(self, state: ModuleState, event: Lifetime) -> ModuleState:
        return state - min(event.ve, LONGEST) + event.vs

    def result(self, state: ModuleState, window: WindowDescriptor) -> Sequence[Values]:
        return [(state,)]


class CountByLength(WindowModule):
    """Depends on the window."""

    reads_window = True

    def compute(self, events: Sequence[Lifetime], window: WindowDescriptor) -> Sequence[Values]:
        return [(len(events), window.start, window.end)]


class EachWithCount(WindowModule):
    """Gives every event back from the window's start on, with the number of events beside it."""

    reads_events = True
    stamps = True

    def compute(self, events: Sequence[Lifetime], window: WindowDescriptor) -> Sequence[Lifetime]:
        cut_left = [Lifetime((len(events), *row), max(vs, window.start), ve) for row, vs, ve in events]
        return [event for event in cut_left if event.vs < event.ve]


@dataclass(frozen=True)
class QueriedModule:
    """A module, the columns of its results, and each of these as an aggregate over a window's events in SQL.

    A module that stamps has its results from ``over_members`` instead: one for each event.
    """

    operator: WindowModule
    columns: Sequence[str]
    computed: Sequence[str]
    over_members: bool = False

    def results(self, members: str, keys: Sequence[str], passed: Sequence[str]) -> str:
        """Return the query of a window's results, with the last end of its events as they are, ``last_end``."""
        pairs = list(zip(self.columns, self.computed, strict=True))
        if not self.over_members:
            return windows.grouped(members, keys, [*pairs, ("last_end", "max(own_ve)")], passed)
        over = f"OVER (PARTITION BY {', '.join([*keys, 'window_start'])})"
        chosen = [f"{expression.replace('OVER_WINDOW', over)} AS {name}" for name, expression in pairs]
        lifetime = "greatest(vs, window_start) AS result_start, ve AS result_end"
        chosen = [*keys, *chosen, *passed, "window_start", "window_end", f"max(own_ve) {over} AS last_end", lifetime]
        return f"SELECT * FROM (SELECT {', '.join(chosen)} FROM ({members})) WHERE result_start < result_end"


MODULES: dict[str, QueriedModule] = {
    "no time": QueriedModule(CountAndSum(), ("n", "s"), ("count(*)", "sum(b)")),
    "durations": QueriedModule(SumOfDurations(), ("d",), (f"sum(least(ve, {LONGEST}) - vs)",)),
    "the window": QueriedModule(
        CountByLength(), ("n", "first", "last"), ("count(*)", "any_value(window_start)", "any_value(window_end)")
    ),
    "own lifetimes": QueriedModule(
        EachWithCount(), ("n", "ra", "rb"), ("count(*) OVER_WINDOW", "a", "b"), over_members=True
    ),
}
