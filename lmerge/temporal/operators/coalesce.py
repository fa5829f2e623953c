"""Coalesce: equal rows whose lifetimes overlap or meet become one event (sheet O16).

For every row the output has the longest stretches in which at least one copy of it is valid, once each. So a multiset
becomes a set of rows at each time: how many copies overlap is lost, that there is one is kept. In SQL it is "gaps and
islands" over the union of the copies' lifetimes, where an island goes on if the next lifetime starts at its end.

The start of a stretch before the stable point cannot change, and its end only at or behind it, so the output is stable
where the input is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lmerge.core.calendar import Calendar
from lmerge.core.elements import INF, NEG_INF
from lmerge.temporal.changes import Change, Delta
from lmerge.temporal.operators.lifetimes import plus
from lmerge.temporal.operators.operator import Due, PlanOperator, row_of_state, state_of_row
from lmerge.temporal.operators.presence import RowPresence
from lmerge.temporal.values import OrderKey, Values


class CoalesceOperator(PlanOperator):
    """Rows while they are present."""

    def __init__(self, name: str, key: OrderKey) -> None:
        super().__init__(name, key)
        self._rows: dict[Values, RowPresence] = {}
        # [a time at which the presence of a row changes, the row]: behind it, that change is final.
        self._due = Calendar()
        self._input_stable = NEG_INF

    def step(self, deltas: Sequence[Delta]) -> Delta:
        """Take a batch: add and take away copies of rows, and emit how their runs change."""
        (delta,) = deltas
        changes: list[Change] = []
        for row, _, old, new in delta.changes:
            presence = self._rows.get(row)
            if presence is None:
                presence = self._rows[row] = RowPresence(row)
            low, high = min(old, new), max(old, new)
            changes += presence.change(low, high, 1 if new > old else -1)
            self._due.add([low, row])
            self._due.add([high, row])
            if not len(presence):
                del self._rows[row]
        if delta.stable is not None:
            self._move_stable(delta.stable)
        return self._emit_merged(changes, delta.stable)

    def fast_forward(self, t: int) -> list[int]:
        """Learn that the consumer needs no event that ends before ``t``; the input is needed as it is.

        An event that ends before ``t`` can be where a run begins that goes on behind ``t``.
        """
        super().fast_forward(t)
        return [NEG_INF]

    def next_due(self) -> Due:
        """Return the first stable point at which a run can be final."""
        return Due(plus(self._due.first_due(), 1))

    def live(self) -> int:
        """Return the number of runs that are not final."""
        return sum(map(len, self._rows.values()))

    def state(self) -> dict[str, Any]:
        """Return what the operator has to know to go on, as plain values."""
        rows = sorted(self._rows.items(), key=lambda item: self._key(item[0]))
        kept = [[state_of_row(row), presence.state()] for row, presence in rows]
        return super().state() | {"input_stable": self._input_stable, "rows": kept}

    def restore(self, state: dict[str, Any]) -> None:
        """Take a state that ``state`` has returned. The operator is a new one."""
        super().restore(state)
        self._input_stable = state["input_stable"]
        for plain, kept in state["rows"]:
            row = row_of_state(plain)
            self._rows[row] = presence = RowPresence(row)
            presence.restore(kept)
            for t in presence.times:
                self._due.add([t, row])

    def check(self) -> None:
        """Assert the invariants of every row."""
        self._due.check()
        for presence in self._rows.values():
            assert len(presence)
            presence.check()

    def _move_stable(self, stable: int) -> None:
        self._input_stable = max(self._input_stable, stable)
        if stable == INF:
            self._rows.clear()
            return
        for _, row in self._due.pop_below(self._input_stable):
            presence = self._rows.get(row)
            if presence is not None and presence.forget_before(self._input_stable):
                del self._rows[row]
