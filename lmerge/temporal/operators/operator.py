"""What every operator is: a step from batches of its inputs to one batch of its output.

``PlanOperator.step`` takes one ``Delta`` of each input and returns one. Its contract, which the laws in
tests/temporal check for every operator:

* Its output reconstitutes to the operator's SQL over what its inputs reconstitute to, as far as its form allows.
* No change is below its own stable point, and the stable point is as far forward as that allows.
* The output of a batch is the difference between what was emitted and what must be, in the order of ``changes``.
* What the batches were before makes no difference to the table and the stable point behind a batch.

State is plain values: ``state`` and ``restore`` give and take numbers, text, bytes, lists and dicts with text keys.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from decimal import Decimal
from typing import Any, NamedTuple

import msgpack

from lmerge.core.elements import INF, NEG_INF
from lmerge.errors import LmergeError
from lmerge.temporal.changes import Change, Delta, Lifetime, merged, ordered
from lmerge.temporal.values import OrderKey, Values, canonical_float


class Due(NamedTuple):
    """Until when time alone makes no difference to an operator: see ``PlanOperator.next_due``."""

    stable: int
    mark: int = INF


class PlanOperator(ABC):
    """An operator that runs. ``stable``: of its output.

    ``name`` is that of its node in the plan, for messages and metrics. ``fast_forwarded``: its consumer needs no event
    that ends before it. ``purged``: how many events it has dropped for that reason.
    """

    inputs: int = 1
    purged: int = 0

    def __init__(self, name: str, key: OrderKey) -> None:
        self.name = name
        self.stable = NEG_INF
        self.fast_forwarded = NEG_INF
        self._key = key

    @abstractmethod
    def step(self, deltas: Sequence[Delta]) -> Delta:
        """Take a batch of each input, and return the batch of the output.

        Inputs are legal streams: they have been checked where they entered the plan. Raises LmergeError, for example
        where a user's function fails. Then nothing of the step is emitted, and the operator cannot go on.
        """

    def mark_of(self, mark: int) -> int:
        """Return the watermark of the output at one of the inputs."""
        return mark

    def fast_forward(self, t: int) -> list[int]:
        """Learn that the consumer needs no event that ends before ``t``; return the same for each input.

        The output may lack such events from now on. Events that end at or after ``t`` stay as they are.
        """
        self.fast_forwarded = max(self.fast_forwarded, t)
        return [self.fast_forwarded] * self.inputs

    def state(self) -> dict[str, Any]:
        """Return what the operator has to know to go on, as plain values."""
        return {"stable": self.stable, "fast_forwarded": self.fast_forwarded}

    def restore(self, state: dict[str, Any]) -> None:
        """Take a state that ``state`` has returned. The operator is a new one."""
        self.stable, self.fast_forwarded = state["stable"], state["fast_forwarded"]

    def packed_state(self) -> bytes:
        """Return ``state`` as MessagePack. A native operator makes no object of each value."""
        packed: bytes = msgpack.packb(self.state())
        return packed

    def restore_packed(self, state: bytes) -> None:
        """Take a state that ``packed_state`` has returned. The operator is a new one."""
        self.restore(msgpack.unpackb(state))

    def check(self) -> None:  # noqa: B027  (an operator without state has nothing to assert)
        """Assert the invariants of the state. Tests call it after each step."""

    def next_due(self) -> Due:
        """Return until when the operator need not see time, if nothing changes.

        As long as the least stable point of its inputs is below ``stable`` and the watermark below ``mark``, it emits
        nothing and drops nothing, and its output's stable point is that of an operator without events. A time that it
        has reached means the next one. An operator that does not state it is due at every time.
        """
        return Due(NEG_INF, NEG_INF)

    def live(self) -> int:
        """Return the number of events that the operator keeps."""
        return 0

    def sizes(self) -> dict[str, int]:
        """Return what the operator keeps besides events, by kind, such as groups."""
        return {}

    @property
    def is_idle(self) -> bool:
        """Whether the operator is as one that has had no events."""
        return not self.live()

    @property
    def skipped(self) -> int:
        """How often an event was left out after feedback, and not evaluated."""
        return 0

    @property
    def failed(self) -> int:
        """How many events were dropped because an expression had no value for their rows."""
        return 0

    def held_by(self) -> object:
        """Return what holds the output's stable point behind its inputs', as text by ``str``; None if nothing does."""
        return None

    def _emit(self, changes: list[Change], stable: int | None) -> Delta:
        """Return the output of a step, in order, and move the stable point if ``stable`` is beyond it."""
        if stable is None or stable <= self.stable:
            stable = None
        else:
            self.stable = stable
        return Delta(ordered(changes, self._key), stable)

    def _emit_merged(self, changes: list[Change], stable: int | None) -> Delta:
        """Return the output of a step as ``_emit``, from changes in which an event may change several times."""
        return self._emit(merged(changes), stable)


def state_of_row(row: Any) -> Any:
    """Return a row as plain values: tuples become lists, and a decimal a dict with its digits."""
    if isinstance(row, tuple):
        return [state_of_row(value) for value in row]
    return {"decimal": str(row)} if isinstance(row, Decimal) else row


def row_of_state(state: Any) -> Any:
    """Return the row of plain values that ``state_of_row`` has returned."""
    if isinstance(state, (list, tuple)):
        return tuple(row_of_state(value) for value in state)
    if isinstance(state, dict):
        return Decimal(state["decimal"])
    return canonical_float(state) if isinstance(state, float) else state


def state_of_event(event: Lifetime) -> list[Any]:
    """Return an event as plain values."""
    return [state_of_row(event.row), event.vs, event.ve]


def event_of_state(state: list[Any]) -> Lifetime:
    """Return the event of plain values that ``state_of_event`` has returned."""
    row, vs, ve = state
    return Lifetime(row_of_state(row), vs, ve)


def raise_first(failures: Sequence[tuple[Values, LmergeError]], key_order: OrderKey) -> None:
    """Raise the failure of the first group by its key; of one group's the first. The order of events decides nothing.

    ``failures``: with the keys of their groups.
    """
    if failures:
        raise min(failures, key=lambda failure: key_order(failure[0]))[1]
