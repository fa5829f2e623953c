"""The wall clock and randomness of the service and the client, in one place. A simulation replaces both.

Durations are measured with the event loop's clock, never with this one: wall clocks jump.
"""

from __future__ import annotations

import random as _random
import time

#: For jitter and names; never for secrets.
random = _random.Random()


def wall_us() -> int:
    """Return the microseconds since the epoch."""
    return time.time_ns() // 1000
