"""Union (sheet O3): the multiset sum of its inputs.

An input that lags holds the stable point, which is the least of the inputs'. One that has ended is at +inf and holds
nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lmerge.core.elements import INF, NEG_INF
from lmerge.temporal.changes import Delta
from lmerge.temporal.errors import PlanError
from lmerge.temporal.operators.operator import Due, PlanOperator
from lmerge.temporal.values import OrderKey


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
