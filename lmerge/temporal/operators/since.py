"""An operator whose results count from some start on: for a query that begins in the middle of its streams.

The operator has not had all events that it would have had from the start, so results that start earlier can be wrong
(``lmerge.temporal.plan.beginnings``). A start never changes, so what is left out never has to come back.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lmerge.temporal.changes import Delta
from lmerge.temporal.operators.operator import PlanOperator


class SinceOperator(PlanOperator):
    """The results of ``inner`` that start at or behind ``since``."""

    def __init__(self, inner: PlanOperator, since: int) -> None:
        super().__init__(inner.name, tuple)
        self.inputs = inner.inputs
        self._inner, self._since = inner, since

    def step(self, deltas: Sequence[Delta]) -> Delta:
        """Take a batch of each input, and return the batch of the output without what starts too early."""
        found = self._inner.step(deltas)
        self.stable = self._inner.stable
        return found._replace(changes=[change for change in found.changes if change.vs >= self._since])

    def mark_of(self, mark: int) -> int:
        """Return the watermark of the output at one of the inputs."""
        return self._inner.mark_of(mark)

    def fast_forward(self, t: int) -> list[int]:
        """Learn that the consumer needs no event that ends before ``t``; return the same for each input."""
        super().fast_forward(t)
        return self._inner.fast_forward(t)

    def state(self) -> dict[str, Any]:
        """Return what the operator has to know to go on, as plain values."""
        return self._inner.state()

    def restore(self, state: dict[str, Any]) -> None:
        """Take a state that ``state`` has returned. The operator is a new one."""
        super().restore(state)
        self._inner.restore(state)

    def check(self) -> None:
        """Assert the invariants of the state."""
        self._inner.check()

    def live(self) -> int:
        """Return the number of events that the operator keeps."""
        return self._inner.live()

    @property
    def skipped(self) -> int:
        """How often an event was left out after feedback, and not evaluated."""
        return self._inner.skipped

    @property
    def failed(self) -> int:
        """How many events were dropped because an expression had no value for their rows."""
        return self._inner.failed
