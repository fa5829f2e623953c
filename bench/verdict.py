"""Decides whether a figure of this commit is worse than that of another one, by samples taken in turns in one run.

The *spread* of two samples is the larger of their ranges (max - min). A figure is worse if its median is worse by more
than the spread. So equal samples are never worse, and a shift of all values by more than their range always is.
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
    """The result of a comparison. ``outcome``: WORSE, BETTER, SAME or MISSING. ``ratio``: the median now to the median
    before; ``spread``: in parts of the median before; both are 0 if the figure is missing.
    """

    outcome: str
    ratio: float
    spread: float


def judge(before: Sequence[float], now: Sequence[float], *, more_is_better: bool) -> FigureVerdict:
    """Compare two samples. If one is empty, the figure is MISSING, which is no judgement of either commit."""
    if not before or not now:
        return FigureVerdict(MISSING, 0.0, 0.0)
    middle = median(before)
    change = median(now) - middle
    spread = max(max(before) - min(before), max(now) - min(now))
    ratio, part = (median(now) / middle, spread / abs(middle)) if middle else (0.0, 0.0)
    if abs(change) <= spread:
        return FigureVerdict(SAME, ratio, part)
    return FigureVerdict(BETTER if (change > 0) == more_is_better else WORSE, ratio, part)
