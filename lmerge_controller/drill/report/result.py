"""The result of one drill, as all reports read it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from lmerge_controller.drill.judging.verdict import DrillVerdict
from lmerge_controller.drill.judging.watched import WatchVerdict
from lmerge_controller.drill.scenario import DrillScenario

PASSED_CODE: Final = 0
FAILED_CODE: Final = 1
REFUSED_CODE: Final = 2


class DrillStatus(str, Enum):
    """How a drill ended. ``refused``: nothing was broken, because it would not have been survived, or cannot be."""

    PASSED = "passed"
    FAILED = "failed"
    REFUSED = "refused"


@dataclass(frozen=True)
class DrillResult:
    """One drill. ``reasons``: why it failed or was refused. ``verdict`` None: it did not come to one.

    ``began_at``: wall seconds since the epoch. ``began_s``, ``ended_s``: monotonic, as the times of the verdict.
    ``stream_ended_s``: when the probe was ordered to end; what came later is no pause. ``watched``: the user's streams.
    """

    scenario: DrillScenario
    target: str
    status: DrillStatus
    reasons: tuple[str, ...]
    began_at: float
    began_s: float
    ended_s: float
    verdict: DrillVerdict | None = None
    stream_ended_s: float = float("inf")
    watched: tuple[WatchVerdict, ...] = ()

    @property
    def seconds(self) -> float:
        """How long it took."""
        return self.ended_s - self.began_s


def exit_code(results: Sequence[DrillResult]) -> int:
    """Return 0 if all drills passed, 1 if one failed, 2 if none failed and one was refused."""
    statuses = {result.status for result in results}
    if DrillStatus.FAILED in statuses:
        return FAILED_CODE
    return REFUSED_CODE if DrillStatus.REFUSED in statuses else PASSED_CODE
