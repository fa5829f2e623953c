"""Cleanse (sheet O14; VI.D and IV.G.2 of the paper): an ordered stream of final events, by waiting.

An event is released when it is fully frozen and no event that starts before it can still come or change. So the output
has inserts alone, in the order of (start, row), whatever the input's disorder and revisions are. The price is latency
and memory: one long lifetime holds everything behind it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import takewhile
from typing import Any

from sortedcontainers import SortedList

from lmerge.core.elements import INF, NEG_INF
from lmerge.temporal.changes import Change, Delta, Lifetime
from lmerge.temporal.event_index import EventIndex
from lmerge.temporal.operators.operator import Due, PlanOperator, row_of_state, state_of_row
from lmerge.temporal.values import OrderKey


class CleanseOperator(PlanOperator):
    """Final events in order. ``purged``: how many were dropped because the consumer does not need them."""

    def __init__(self, name: str, key: OrderKey) -> None:
        super().__init__(name, key)
        self.purged = 0
        self._input_stable = NEG_INF
        self._live = EventIndex(key)
        self._starts: SortedList[int] = SortedList()  # of live events
        self._frozen: SortedList[tuple[int, Any, int, Any]] = SortedList()  # (start, order, end, row): not released yet

    def step(self, deltas: Sequence[Delta]) -> Delta:
        """Take a batch; release what its stable has freed."""
        (delta,) = deltas
        for change in delta.changes:
            self._live.apply(change)
            if change.is_insert:
                self._starts.add(change.vs)
            elif change.new == change.vs:
                self._starts.remove(change.vs)
        if delta.stable is None:
            return self._emit([], None)
        self._input_stable = max(self._input_stable, delta.stable)
        self._freeze()
        free = self._free
        count = len(self._frozen) if free == INF else self._frozen.bisect_left((free,))
        released = [Change(row, vs, vs, ve) for vs, _, ve, row in self._frozen[:count]]
        del self._frozen[:count]
        return self._emit(released, free)

    def fast_forward(self, t: int) -> list[int]:
        """Learn that the consumer needs no event that ends before ``t``; return the same for the input."""
        needed = super().fast_forward(t)
        kept = [entry for entry in self._frozen if entry[2] >= self.fast_forwarded]
        self.purged += len(self._frozen) - len(kept)
        self._frozen = SortedList(kept)
        return needed

    def next_due(self) -> Due:
        """Return the first stable point at which an event is final, or begins to hold the others."""
        first_end = self._live.first_end
        dues = [INF if first_end is None else min(INF, first_end + 1)]
        if self._starts and self._starts[0] >= self._input_stable:
            dues.append(self._starts[0] + 1)
        if self._free > self.stable:
            dues.append(self._input_stable + 1)
        return Due(min(dues))

    def live(self) -> int:
        """Return the number of events that wait."""
        return len(self._live) + len(self._frozen)

    def state(self) -> dict[str, Any]:
        """Return what the operator has to know to go on, as plain values."""
        frozen = [[state_of_row(row), vs, ve] for vs, _, ve, row in self._frozen]
        events = [[state_of_row(row), vs, ve] for row, vs, ve in self._live]
        return super().state() | {"input_stable": self._input_stable, "live": events, "frozen": frozen}

    def restore(self, state: dict[str, Any]) -> None:
        """Take a state that ``state`` has returned. The operator is a new one."""
        super().restore(state)
        self._input_stable = state["input_stable"]
        for row, vs, ve in state["live"]:
            self._live.apply(Change(row_of_state(row), vs, vs, ve))
            self._starts.add(vs)
        self._keep_frozen(Lifetime(row_of_state(row), vs, ve) for row, vs, ve in state["frozen"])

    def check(self) -> None:
        """Assert that what waits could not be released."""
        assert list(self._starts) == sorted(event.vs for event in self._live)
        assert all(event.ve >= self._input_stable for event in self._live)
        assert all(entry[2] < self._input_stable and entry[0] >= self.stable for entry in self._frozen)

    @property
    def _free(self) -> int:
        """The time before which events are released: nothing that starts before it can come or change."""
        return min(self._input_stable, self._starts[0]) if self._starts else self._input_stable

    def _freeze(self) -> None:
        """Move the events that have become final out of the live ones."""
        until = INF if self._input_stable == INF else self._input_stable - 1
        final = list(takewhile(lambda event: event.ve <= until, self._live))
        self._live.drop_ended(until)
        for event in final:
            self._starts.remove(event.vs)
        needed = [event for event in final if event.ve >= self.fast_forwarded]
        self.purged += len(final) - len(needed)
        self._keep_frozen(needed)

    def _keep_frozen(self, events: Iterable[Lifetime]) -> None:
        for row, vs, ve in events:
            self._frozen.add((vs, self._key(row), ve, row))
