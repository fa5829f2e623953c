"""The life of an input, and who is told to fast-forward. Pure: the hub asks, and acts.

    JOINING --> JOINED <--> SKIPPING        OBSERVING
        \\          \\            \\              \\
         `---------> LEAVING -> gone <------------'

An input is *joining* until MaxStable has reached its join_at (V.B), *skipping* from skip(t) until its own stable point
has reached t: what it left out it cannot say, and until then nobody knows whether it has come so far. *Held*: joined,
but its stable point is too far ahead of the others' (``core.lead``). *Leaving*: it has said so, and its last batches
wait to be merged. What a merge survives is said by ``redundancy``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from lmerge.core.elements import INF, NEG_INF
from lmerge.core.inputs import OBSERVE
from lmerge.core.merge import InputStatus

JOINING: Final = "joining"
JOINED: Final = "joined"
SKIPPING: Final = "skipping"
HELD: Final = "held"
LEAVING: Final = "leaving"
OBSERVING: Final = "observing"


@dataclass(slots=True)
class InputLifecycle:
    """What the server knows of one incarnation and the core does not. Times are those of the stream."""

    leaving: bool = False
    skipped_until: int | None = None
    fast_forwarded_to: int | None = None

    def state(self, status: InputStatus) -> str:
        """The word for it."""
        if self.leaving:
            return LEAVING
        if status.role == OBSERVE:
            return OBSERVING
        if status.state == JOINED and self.skipped_until is not None and status.stable_point < self.skipped_until:
            return SKIPPING
        return HELD if status.held else status.state

    def may_skip(self, until: int, status: InputStatus, stable_point: int) -> bool:
        """Whether an input may leave out what ends before ``until``: nothing the merge, at ``stable_point``, can want.

        Nobody counts on a joining input for what ends before its join_at.
        """
        promised_from = NEG_INF if status.join_at is None or status.state == JOINED else status.join_at
        return until <= max(stable_point, promised_from)


def to_fast_forward(lives: Iterable[tuple[InputStatus, InputLifecycle]], stable_point: int, lag: int) -> list[str]:
    """V.D: the inputs behind the merge's stable point by more than ``lag`` that have not been told so yet.

    An observer is not among them: it is there to be compared.
    """
    if stable_point in (NEG_INF, INF):  # nothing is behind yet; nothing is left to be done
        return []
    return [
        status.name
        for status, life in lives
        if status.role != OBSERVE and not life.leaving and status.stable_point < stable_point - lag
        and (life.fast_forwarded_to is None or life.fast_forwarded_to < stable_point)
    ]
