"""Which inputs could carry the output alone now, and why each other input could not. ``survives_losses`` counts them.

An input can carry the output if it is joined and active, is neither leaving, skipping nor held, and has delivered
enough: its stable point has reached the stable point that the output had ``lag_s`` seconds ago. The bound is a time of
the server's clock, as units of stream time differ from stream to stream. Replicas whose batches come some seconds apart
all count. One that is stuck, or whose connection is half open, stops counting ``lag_s`` after the output went on
without it. Before the output's first stable point any element is enough.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable
from typing import Final

from lmerge.core.elements import NEG_INF, show_time
from lmerge.core.merge import InputStatus
from lmerge.service.merge.lifecycle import InputLifecycle, LifeState

# How many moments of the last ``lag_s`` are kept. What the output reached up to the next moment counts as reached.
_MOMENTS: Final = 16


class Redundancy:
    """The redundancy of one merge. ``lag_s``: see above. Times are the event loop's."""

    def __init__(self, lag_s: float) -> None:
        self._lag_s = lag_s
        self._stable_point = NEG_INF  # the output's
        self._since_s = -math.inf  # when it was reached
        self._past: deque[tuple[float, int]] = deque()  # earlier stable points, and when each was reached, oldest first

    def note(self, now_s: float, stable_point: int) -> None:
        """Note the stable point of the output, once a turn."""
        if stable_point == self._stable_point:
            return
        past = self._past
        if past and self._since_s < past[-1][0] + self._lag_s / _MOMENTS:
            past[-1] = (past[-1][0], self._stable_point)
        else:
            past.append((self._since_s, self._stable_point))
            while len(past) > 1 and past[1][0] <= now_s - self._lag_s:
                past.popleft()
        self._stable_point, self._since_s = stable_point, now_s

    def reached(self, now_s: float) -> int:
        """Return the stable point that the output had ``lag_s`` ago: an input must have reached it."""
        horizon_s = now_s - self._lag_s
        if self._since_s <= horizon_s:
            return self._stable_point
        return next((point for at_s, point in reversed(self._past) if at_s <= horizon_s), NEG_INF)

    def survives(self, lives: Iterable[tuple[InputStatus, InputLifecycle]], now_s: float) -> int:
        """Return how many inputs can be lost before the output stops: all but one of those that can carry it."""
        return max(0, sum(not self.lacks(status, life, now_s) for status, life in lives) - 1)

    def lacks(self, status: InputStatus, life: InputLifecycle, now_s: float) -> str:
        """Return why the input could not carry the output now. Empty if it could."""
        state = life.state(status)
        if state is not LifeState.JOINED:
            return _REASONS[state]
        if status.excused:
            return "it was excused: the others do not wait for it until it has a new stable point"
        if status.stable_point == NEG_INF:
            if self._stable_point == NEG_INF and status.inserts + status.adjusts > 0:
                return ""
            return "it has delivered no stable point" if status.inserts else "it has delivered nothing"
        reached = self.reached(now_s)
        if status.stable_point >= reached:
            return ""
        return (
            f"it lags: it is at {show_time(status.stable_point)}, and the output was at {show_time(reached)} already "
            f"{self._lag_s:g} s ago"
        )


_REASONS: Final = {
    LifeState.JOINING: "it is joining: the output has not come to its join_at",
    LifeState.SKIPPING: "it is skipping, and has not reached the time to which it skips",
    LifeState.LEAVING: "it is leaving",
    LifeState.OBSERVING: "it only observes",
    LifeState.HELD: "its stable point is held: it is too far ahead of the others'",
}
