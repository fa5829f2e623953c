"""Final events alone (E10): each event of a stream comes once, when nothing can change it any more.

For consumers that cannot take anything back, such as what switches a machine off. The output has inserts alone, in the
order in which events become final: unlike cleanse (``cleanse``) none waits for another one that started before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from typing import Any

from sortedcontainers import SortedList

from lmerge.core.elements import INF, NEG_INF
from lmerge.temporal.changes import Change, Delta
from lmerge.temporal.event_index import EventIndex
from lmerge.temporal.operators.operator import PlanOperator, event_of_state, state_of_event
from lmerge.temporal.values import OrderKey


class FinalOperator(PlanOperator):
    """Events that are fully frozen. The stable point stays at the least start of an event that still waits."""

    def __init__(self, name: str, key: OrderKey) -> None:
        super().__init__(name, key)
        self._input_stable = NEG_INF
        self._live = EventIndex(key)
        self._starts: SortedList[int] = SortedList()  # of live events

    def step(self, deltas: Sequence[Delta]) -> Delta:
        """Take a batch; emit the events that its stable freezes."""
        (delta,) = deltas
        for change in delta.changes:
            self._live.apply(change)
            if change.is_insert:
                self._starts.add(change.vs)
            elif change.new == change.vs:
                self._starts.remove(change.vs)
        if delta.stable is None:
            return self._emit([], None)
        stable = self._input_stable = max(self._input_stable, delta.stable)
        until = INF if stable == INF else stable - 1
        final = list(takewhile(lambda event: event.ve <= until, self._live))
        self._live.drop_ended(until)
        for event in final:
            self._starts.remove(event.vs)
        free = min(stable, self._starts[0]) if self._starts else stable
        return self._emit([Change(row, vs, vs, ve) for row, vs, ve in final], free)

    def live(self) -> int:
        """Return the number of events that wait."""
        return len(self._live)

    def state(self) -> dict[str, Any]:
        """Return what the operator has to know to go on, as plain values."""
        events = [state_of_event(event) for event in self._live]
        return super().state() | {"input_stable": self._input_stable, "live": events}

    def restore(self, state: dict[str, Any]) -> None:
        """Take a state that ``state`` has returned. The operator is a new one."""
        super().restore(state)
        self._input_stable = state["input_stable"]
        for row, vs, ve in map(event_of_state, state["live"]):
            self._live.apply(Change(row, vs, vs, ve))
            self._starts.add(vs)

    def check(self) -> None:
        """Assert that what waits can still change."""
        assert list(self._starts) == sorted(event.vs for event in self._live)
        assert all(event.ve >= self._input_stable for event in self._live)
