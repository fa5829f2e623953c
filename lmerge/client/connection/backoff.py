"""The wait before the next attempt to connect.

Exponential with full jitter: attempt n waits a random time between 0 and ``min(cap, first * 2**n)``. Many clients that
lost one server at the same moment then come back spread over the whole interval instead of together.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

from lmerge import clock


@dataclass
class Backoff:
    """Waits in seconds.

    ``first_s`` is short because a replica that reconnects fast leaves no gap in redundancy; ``cap_s`` is short because
    a lone durable server that comes back should have its clients within a second: its output stands still until one
    publisher and the reader are there.
    """

    first_s: float = 0.05
    cap_s: float = 0.5
    random: Random = field(default_factory=lambda: clock.random)
    attempts: int = 0

    def next_s(self) -> float:
        """Return the wait before the next attempt."""
        bound = min(self.cap_s, self.first_s * 2.0 ** min(self.attempts, 32))
        self.attempts += 1
        return self.random.uniform(0, bound)

    def reset(self) -> None:
        """Begin again at ``first_s``, after an attempt that succeeded."""
        self.attempts = 0
