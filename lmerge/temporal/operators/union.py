"""Union (sheet O3): the multiset sum of its inputs.

An input that lags holds the stable point, which is the least of the inputs'. One that has ended is at +inf and holds
nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from typing import Any

from lmerge.core.elements import INF, NEG_INF
from lmerge.errors import UsageError
from lmerge.temporal.changes import Change, Delta
from lmerge.temporal.errors import PlanError
from lmerge.temporal.operators.operator import Due, PlanOperator, row_of_state, state_of_row
from lmerge.temporal.values import OrderKey, Values, show_values


class UnionOperator(PlanOperator):
    """All events of ``inputs`` streams. Raises PlanError without any."""

    def __init__(self, name: str, key: OrderKey, inputs: int) -> None:
        super().__init__(name, key)
        if inputs < 1:
            raise PlanError(f"{name}: a union of {inputs} streams; it needs at least one")
        self.inputs = inputs
        self._stables = [NEG_INF] * inputs

    def step(self, deltas: Sequence[Delta]) -> Delta:
        """Take a batch of each input, and return their changes together."""
        changes = [change for delta in deltas for change in delta.changes]
        moved = False
        for at, delta in enumerate(deltas):
            if delta.stable is not None:
                self._stables[at] = max(self._stables[at], delta.stable)
                moved = True
        return self._emit_merged(changes, min(self._stables) if moved else None)

    def next_due(self) -> Due:
        """Return that time makes no difference."""
        return Due(INF)

    def state(self) -> dict[str, Any]:
        """Return what the operator has to know to go on, as plain values."""
        return super().state() | {"stables": list(self._stables)}

    def restore(self, state: dict[str, Any]) -> None:
        """Take a state that ``state`` has returned. The operator is a new one."""
        super().restore(state)
        self._stables = list(state["stables"])

    def check(self) -> None:
        """Assert that the output's stable point is the least of the inputs'."""
        assert self.stable == min(self._stables)


class DisjointUnionOperator(UnionOperator):
    """A union whose inputs differ in the values of some columns, which is checked: so it keeps a key of its inputs.

    ``part_of``: these values of a row; ``part_key``: their order; ``shown``: their names. What is checked is what the
    key needs: no two inputs have events with equal values and one start. Values are kept until the output's stable
    point has passed their start, behind which nothing can start there. Raises UsageError from ``step`` for an event
    that breaks it.
    """

    def __init__(
        self, name: str, key: OrderKey, inputs: int, part_of: Callable[[Values], Values], part_key: OrderKey, shown: str
    ) -> None:
        super().__init__(name, key, inputs)
        self._part_of, self._part_key, self._shown = part_of, part_key, shown
        self._inputs: dict[int, dict[Values, int]] = {}  # by start
        self._starts: list[int] = []  # a heap

    def step(self, deltas: Sequence[Delta]) -> Delta:
        """Take a batch of each input, and return their changes together."""
        for at, delta in enumerate(deltas):
            for change in delta.changes:
                if change.is_insert:
                    self._note(at, change)
        found = super().step(deltas)
        while self._starts and (self._starts[0] < self.stable or self.stable == INF):
            del self._inputs[heappop(self._starts)]
        return found

    def next_due(self) -> Due:
        """Return the stable point behind which values of the first start are dropped."""
        return Due(min(INF, self._starts[0] + 1) if self._starts else INF)

    def live(self) -> int:
        """Return of how many events the values are kept; equal ones of one start count once."""
        return sum(map(len, self._inputs.values()))

    def state(self) -> dict[str, Any]:
        """Return what the operator has to know to go on, as plain values."""
        kept = [
            [start, state_of_row(part), at]
            for start in sorted(self._inputs)
            for part, at in sorted(self._inputs[start].items(), key=lambda item: self._part_key(item[0]))
        ]
        return super().state() | {"parts": kept}

    def restore(self, state: dict[str, Any]) -> None:
        """Take a state that ``state`` has returned. The operator is a new one."""
        super().restore(state)
        for start, part, at in state["parts"]:
            self._keep(start, row_of_state(part), at)

    def check(self) -> None:
        """Assert that values are kept for the starts that can still come."""
        super().check()
        assert sorted(self._starts) == sorted(self._inputs)
        assert all(start >= self.stable for start in self._starts)

    def _note(self, at: int, change: Change) -> None:
        part = self._part_of(change.row)
        other = self._keep(change.vs, part, at)
        if other != at:
            there = f"stream {other + 1} has an event of that start with {show_values(part)}, too"
            declared = f"its streams are declared disjoint by {self._shown}"
            raise UsageError(f"{self.name}: {declared}, and stream {at + 1} has {change}, where {there}")

    def _keep(self, start: int, part: Values, at: int) -> int:
        """Note that an input has these values at a start; return the first input that has them."""
        if start not in self._inputs:
            self._inputs[start] = {}
            heappush(self._starts, start)
        return self._inputs[start].setdefault(part, at)
