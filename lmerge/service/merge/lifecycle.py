r"""The states of an input, and the choice of the inputs that get feedback. Pure: the hub calls these, and acts.

    JOINING --> JOINED <--> SKIPPING        OBSERVING
        \          \            \              \
         `---------> LEAVING -> gone <------------'

- *joining*: MaxStable has not reached the input's join_at yet (V.B).
- *skipping*: from skip(t) until the input's own stable point has reached t. It cannot deliver what it left out, and
  before that stable point the server cannot determine how far it has come.
- *held*: joined, but its stable point is too far ahead of the others' (``core.lead``).
- *leaving*: it has sent its leave, and its last batches wait to be merged. It is no stand-in for the others any more;
  what it has delivered still counts.

``redundancy`` computes how many losses a merge survives.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from lmerge.core.elements import INF, NEG_INF
from lmerge.core.inputs import InputRole, JoinState
from lmerge.core.merge import InputStatus
from lmerge.text_enum import TextEnum


class LifeState(TextEnum):
    """The states of an attached input. The texts are those of statuses."""

    JOINING = "joining"
    JOINED = "joined"
    SKIPPING = "skipping"
    HELD = "held"
    LEAVING = "leaving"
    OBSERVING = "observing"


@dataclass(slots=True)
class InputLifecycle:
    """What the server records of one incarnation, and the core does not. Times are those of the stream."""

    leaving: bool = False
    skipped_until: int | None = None
    fast_forwarded_to: int | None = None

    def state(self, status: InputStatus) -> LifeState:
        """Return its state."""
        return LifeState.LEAVING if self.leaving else self._staying(status)

    def counts(self, status: InputStatus) -> bool:
        """Whether what it has delivered is compared with the others' as an equal's, up to its last batch."""
        return self._staying(status) in (LifeState.JOINED, LifeState.HELD)

    def _staying(self, status: InputStatus) -> LifeState:
        """Return its state if it did not leave."""
        if status.role is InputRole.OBSERVE:
            return LifeState.OBSERVING
        if status.state is JoinState.JOINING:
            return LifeState.JOINING
        if self.skipped_until is not None and status.stable_point < self.skipped_until:
            return LifeState.SKIPPING
        return LifeState.HELD if status.held else LifeState.JOINED

    def may_skip(self, until: int, status: InputStatus, stable_point: int) -> bool:
        """Whether an input may leave out what ends before ``until``: the merge, at ``stable_point``, needs none of it.

        The merge does not rely on a joining input for what ends before its join_at.
        """
        promised_from = NEG_INF if status.join_at is None or status.state is JoinState.JOINED else status.join_at
        return until <= max(stable_point, promised_from)


def to_fast_forward(lives: Iterable[tuple[InputStatus, InputLifecycle]], stable_point: int, lag: int) -> list[str]:
    """V.D: return the inputs more than ``lag`` behind the merge's stable point that have had no feedback for it.

    An observer is not among them: it is attached to be compared.
    """
    if stable_point in (NEG_INF, INF):  # at -inf no input is behind; at +inf nothing is left to do
        return []
    return [
        status.name
        for status, life in lives
        if status.role is not InputRole.OBSERVE
        and not life.leaving
        and status.stable_point < stable_point - lag
        and (life.fast_forwarded_to is None or life.fast_forwarded_to < stable_point)
    ]
