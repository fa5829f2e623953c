"""Pauses of the output around faults: pure arithmetic over times of receipt.

Called by ``verdict``. The pause of a fault is the longest time without output that overlaps the fault's window. Of a
silence that began before the window only the part inside counts, so that each pause belongs to its fault. A silence
that goes on after the window counts to its end: it began under the fault.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import pairwise


def longest_pause_ms(times_s: Sequence[float], since_s: float, until_s: float, *, ended_s: float) -> float:
    """Return the longest pause, in milliseconds, that begins in [``since_s``, ``until_s``).

    ``times_s`` ascend. ``ended_s``: when the recording ended: a stream that never goes on pauses until then.
    """
    inner = times_s[bisect_left(times_s, since_s) : bisect_left(times_s, until_s)]
    after = times_s[bisect_left(times_s, until_s) :][:1]
    points = [since_s, *inner, *(after or [max(ended_s, since_s)])]
    return max(later - earlier for earlier, later in pairwise(points)) * 1e3


def percentile(values: Sequence[float], part: float) -> float:
    """Return the smallest value that at least ``part`` (0 to 1) of the values do not exceed. 0.0 if there are none."""
    if not values:
        return 0.0
    ordered = sorted(values)
    at = -int(-part * len(ordered) // 1) - 1  # the ceiling of part * n, as an index
    return ordered[min(max(at, 0), len(ordered) - 1)]


def gaps_ms(times_s: Sequence[float], since_s: float, until_s: float) -> list[float]:
    """Return the times between neighbours that both lie in [``since_s``, ``until_s``], in milliseconds."""
    inner = times_s[bisect_left(times_s, since_s) : bisect_left(times_s, until_s)]
    return [(later - earlier) * 1e3 for earlier, later in pairwise(inner)]
