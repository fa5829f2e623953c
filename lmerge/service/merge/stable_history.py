"""When the output of a merge passed which stable point: how long an input is behind, in seconds of the server's clock.

Units of stream time differ from stream to stream, seconds do not. A stuck input falls behind by one second a second.
The history reaches back to the first stable point in a bounded number of moments: the older a moment, the further apart
it may be from the next. So a lag is too small by at most a sixteenth of itself, however long it is.

    moments     1 h ago ... 4 min . . . 1 min . . . 4 s . . 1 s . now
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Final

# The distance of two moments, as a part of their age: the largest error of a lag.
_ERROR: Final = 1 / 16
# Moments that are kept before they are thinned. A month of moments with this error needs about 400.
_MOMENTS: Final = 1024


class StableHistory:
    """The history of one merge. Times are the event loop's, in seconds; they do not decrease."""

    def __init__(self) -> None:
        self._points: list[int] = []  # ascending
        self._reached_s: list[float] = []  # when each was reached
        self._thin_at = _MOMENTS

    def note(self, now_s: float, stable_point: int) -> None:
        """Note the stable point of the output, once a turn."""
        if self._points and stable_point <= self._points[-1]:
            return
        self._points.append(stable_point)
        self._reached_s.append(now_s)
        if len(self._points) >= self._thin_at:
            self._thin(now_s)

    def behind_s(self, stable_point: int, now_s: float) -> float:
        """Return how long ago the output passed ``stable_point``, in seconds; 0 if it has not."""
        passed = bisect_right(self._points, stable_point)
        return now_s - self._reached_s[passed] if passed < len(self._points) else 0.0

    def _thin(self, now_s: float) -> None:
        """Drop a moment if those beside it are close enough for their age. The first and the last stay."""
        kept = [0]
        for at in range(1, len(self._points) - 1):
            age_s = now_s - self._reached_s[at]
            if self._reached_s[at + 1] - self._reached_s[kept[-1]] > age_s * _ERROR:
                kept.append(at)
        kept.append(len(self._points) - 1)
        self._points = [self._points[at] for at in kept]
        self._reached_s = [self._reached_s[at] for at in kept]
        self._thin_at = max(_MOMENTS, 2 * len(kept))
