"""When a process that ended is started again: exponential back-off, a rate limit, and a fresh start after a good run.

Pure: the caller gives the time. Used by the supervisor; a simulation uses it in virtual time.

    ended after 0.1 s    wait 0.2 s     the first wait is short: a killed replica is missed until it is back
    ended after 0.1 s    wait 0.4 s     it doubles, up to the bound
    ended after 60 s     wait 0.2 s     it had run well: this is a new failure
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

MINUTE_S = 60.0


@dataclass(frozen=True)
class RestartRule:
    """How soon a process is started again, in seconds.

    ``first_s``: the first wait. ``cap_s``: the longest wait of the back-off. ``ran_well_s``: a run of this length
    begins the waits anew. ``per_minute_max``: the starts in any minute; a limit of its own, because a process that runs
    well and dies, again and again, has no back-off. Raises ValueError if a value is not possible.
    """

    first_s: float = 0.2
    cap_s: float = 10.0
    ran_well_s: float = 10.0
    per_minute_max: int = 20

    def __post_init__(self) -> None:
        if not (0 < self.first_s <= self.cap_s and self.ran_well_s > 0 and self.per_minute_max >= 1):
            raise ValueError(f"not a rule for restarts: {self}")


@dataclass
class RestartPace:
    """The waits of one process. ``failures``: its ends in a row without a good run."""

    rule: RestartRule
    failures: int = 0
    _starts: deque[float] = field(default_factory=deque)

    def started(self, now_s: float) -> None:
        """Note a start, at a time that never goes back."""
        self._starts.append(now_s)
        while len(self._starts) > self.rule.per_minute_max:
            self._starts.popleft()

    def ended(self, now_s: float, ran_s: float) -> float:
        """Return how many seconds to wait before the next start. ``ran_s``: how long it ran; 0 if it did not start."""
        if ran_s >= self.rule.ran_well_s:
            self.failures = 0
        wait_s = min(self.rule.cap_s, self.rule.first_s * 2.0 ** min(self.failures, 32))
        self.failures += 1
        if len(self._starts) == self.rule.per_minute_max:
            wait_s = max(wait_s, self._starts[0] + MINUTE_S - now_s)
        return wait_s
