"""The subscriber's ledger: the merged table, the contradictions in the stream, and the times of its batches.

Called by `run` in the thread that reads the subscription, one batch at a time. Every element is applied to a `Tdb`,
which refuses an element that contradicts earlier ones. Each refusal is counted.
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left
from itertools import pairwise
from statistics import median
from typing import NamedTuple

from lmerge.core.batch import AnyBatch
from lmerge.core.elements import ADJUST, INF, INSERT, STABLE, Event
from lmerge.core.tdb import Tdb
from lmerge.errors import InputViolation

CONTRADICTIONS_SHOWN_MAX = 5  # texts that are kept; all contradictions are counted


class Stall(NamedTuple):
    """Wall time between consecutive output batches, in milliseconds. ``at_s``: when the longest one began."""

    longest_ms: float
    median_ms: float
    at_s: float


class Ledger:
    """Applies output batches. Times are monotonic seconds, given by the caller."""

    def __init__(self) -> None:
        self.tdb = Tdb("output")
        self.inserts = 0
        self.adjusts = 0
        self.stables = 0
        self.contradictions = 0
        self.first_contradictions: list[str] = []
        self.longest_gap_s = 0.0
        # Frozen events, as columns: with 300,000 objects the garbage collector would pause the reader for 400 ms, and
        # the pause would be counted as one of the stream.
        self._vs, self._ve = array("q"), array("q")
        self._payloads: list[bytes] = []
        self._arrivals: list[float] = []
        self._stops: list[tuple[float, float]] = []  # when the replay clock stood still

    @property
    def elements(self) -> int:
        """The number of output elements so far."""
        return self.inserts + self.adjusts + self.stables

    @property
    def stable_point(self) -> int:
        """The stable point of the output."""
        return self.tdb.stable_point

    @property
    def is_complete(self) -> bool:
        """Whether the output has ended with ``stable(INF)``."""
        return self.tdb.stable_point == INF

    def take(self, batch: AnyBatch, at_s: float) -> None:
        """Apply one output batch that arrived at ``at_s``."""
        if not batch.count:
            return
        if self._arrivals and not self._was_stopped(self._arrivals[-1], at_s):
            self.longest_gap_s = max(self.longest_gap_s, at_s - self._arrivals[-1])
        self._arrivals.append(at_s)
        kinds = batch.kinds
        self.inserts += kinds.count(INSERT)
        self.adjusts += kinds.count(ADJUST)
        self.stables += kinds.count(STABLE)
        for row in batch.rows():
            try:
                self.tdb.apply_row(row)
            except InputViolation as violation:
                self.contradictions += 1
                if len(self.first_contradictions) < CONTRADICTIONS_SHOWN_MAX:
                    self.first_contradictions.append(str(violation))
        for event in self.tdb.take_frozen():
            self._vs.append(event.vs)
            self._ve.append(event.ve)
            self._payloads.append(event.payload)

    def replay_stops(self, at_s: float) -> None:
        """Note that the replay stops: gaps from here on are not counted."""
        self._stops.append((at_s, math.inf))

    def replay_goes_on(self, at_s: float) -> None:
        """Note that the replay continues."""
        self._stops[-1] = (self._stops[-1][0], at_s)

    def idle_s(self, now_s: float) -> float:
        """Return the seconds since the last output batch or the last stop of the replay.

        0 before the first batch, in a stop, and after the last batch.
        """
        if not self._arrivals or self.is_complete:
            return 0.0
        return max(now_s - max(self._arrivals[-1], self._stops[-1][1] if self._stops else -math.inf), 0.0)

    def events(self) -> list[Event]:
        """Return the merged table: all events, frozen and live."""
        return sorted([*map(Event, self._vs, self._payloads, self._ve), *self.tdb.events()])

    def stall(self, since_s: float = float("-inf"), until_s: float = float("inf")) -> Stall:
        """Return the longest and the median gap between consecutive output batches that touch ``[since_s, until_s]``.

        Gaps in which the replay stood still are left out.
        """
        arrivals = self._arrivals
        first = max(bisect_left(arrivals, since_s) - 1, 0)
        last = min(bisect_left(arrivals, until_s) + 1, len(arrivals))
        gaps = [
            (after - before, before)
            for before, after in pairwise(arrivals[first:last])
            if not self._was_stopped(before, after)
        ]
        if not gaps:
            return Stall(0.0, 0.0, 0.0)
        longest, at_s = max(gaps)
        return Stall(longest * 1000, median(gap for gap, _ in gaps) * 1000, at_s)

    def _was_stopped(self, since_s: float, until_s: float) -> bool:
        return any(stop < until_s and since_s < end for stop, end in self._stops)
