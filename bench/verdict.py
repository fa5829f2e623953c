"""Is a figure of this commit worse than that of another one? Samples of both, taken alternately in one run.

The *spread* of two samples is the larger of their ranges (max - min). A median that is worse by more than the spread is
worse; so equal samples never are, and a shift of all values by more than their range always is.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Final, NamedTuple

WORSE: Final = "WORSE"
BETTER: Final = "better"
SAME: Final = "same"
MISSING: Final = "missing"


class FigureVerdict(NamedTuple):
    """``ratio``: the median now to the median before; ``spread``: in parts of the median before. 0 where missing."""

    word: str
    ratio: float
    spread: float


def judge(before: Sequence[float], now: Sequence[float], *, more_is_better: bool) -> FigureVerdict:
    """Compare two samples. One that is empty is missing, which is no verdict on either commit."""
    if not before or not now:
        return FigureVerdict(MISSING, 0.0, 0.0)
    middle = median(before)
    change = median(now) - middle
    spread = max(max(before) - min(before), max(now) - min(now))
    ratio, part = (median(now) / middle, spread / abs(middle)) if middle else (0.0, 0.0)
    if abs(change) <= spread:
        return FigureVerdict(SAME, ratio, part)
    return FigureVerdict(BETTER if (change > 0) == more_is_better else WORSE, ratio, part)
