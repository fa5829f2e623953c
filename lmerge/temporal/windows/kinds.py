"""The kinds of windows: how they divide the time axis (III.B).

``Hopping`` with ``hop == size`` is tumbling. ``Snapshots`` are the longest stretches without a start or an end.
``CountWindows`` span N distinct starts, or N distinct ends, of events. ``Sessions`` are runs of events without a gap.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from lmerge.core.elements import INF, NEG_INF, show_time
from lmerge.errors import UsageError
from lmerge.temporal.durations import show_duration
from lmerge.temporal.values import show_values


class WindowSpan(NamedTuple):
    """A window ``[start, end)``."""

    start: int
    end: int

    def __str__(self) -> str:
        return f"[{show_time(self.start)}, {show_time(self.end)})"


class WindowDescriptor(NamedTuple):
    """A window as a module gets it (IV.B): its ends, and the key of its group."""

    start: int
    end: int
    key: tuple[Any, ...] = ()

    def __str__(self) -> str:
        group = f" of group {show_values(self.key)}" if self.key else ""
        return f"[{show_time(self.start)}, {show_time(self.end)}){group}"


@dataclass(frozen=True, slots=True)
class Hopping:
    """A window of ``size`` every ``hop``, one of them beginning at ``offset``, at all times. Raises UsageError.

    ``since``: no window begins before it. A grid without it has no first window, so no event may start at -inf there.
    """

    size: int
    hop: int
    offset: int = 0
    since: int | None = None

    def __post_init__(self) -> None:
        _check_whole(size=self.size, hop=self.hop, offset=self.offset)
        if self.since is not None:
            _check_whole(since=self.since)
            if not NEG_INF < self.since < INF:
                raise UsageError(f"a hopping window begins since {show_time(self.since)}, which is no moment")
        for what, value in (("size", self.size), ("hop", self.hop)):
            if not 0 < value <= INF:
                raise UsageError(f"a hopping window has a {what} of {value}; it needs at least one unit of time")
        if not NEG_INF <= self.offset <= INF:
            raise UsageError(f"a hopping window has an offset of {self.offset}, which is no time")

    def start_above(self, t: int) -> int:
        """Return the smallest start of a window above ``t``."""
        if self.since is not None and t < self.since:
            t = self.since - 1
        return self.offset + self.hop * ((t - self.offset) // self.hop + 1)

    def first_over(self, vs: int) -> int:
        """Return the smallest start of a window that ends after ``vs``: the first one for an event from there."""
        return self.start_above(vs - self.size)

    @property
    def shown(self) -> str:
        """The window as text."""
        since = "" if self.since is None else f", since {show_time(self.since)}"
        if self.size == self.hop:
            return f"tumbling({show_duration(self.size)}{since})"
        return f"hopping({show_duration(self.size)}, every {show_duration(self.hop)}{since})"


@dataclass(frozen=True, slots=True)
class Snapshots:
    """Windows between consecutive starts and ends of events."""

    shown = "snapshot"


class CountedEnd(enum.Enum):
    """Which ends of lifetimes a count window counts. The values are texts of plans."""

    STARTS = "starts"
    ENDS = "ends"


@dataclass(frozen=True, slots=True)
class CountWindows:
    """From each distinct start (or end) to the ``count``-th from there, inclusive. Raises UsageError."""

    count: int
    by: CountedEnd = CountedEnd.STARTS

    def __post_init__(self) -> None:
        _check_whole(count=self.count)
        if self.count < 1:
            raise UsageError(f"a count window counts {self.count} {self.by.value}; it needs at least 1")

    @property
    def shown(self) -> str:
        """The window as text."""
        return f"count({self.count} {self.by.value})"


@dataclass(frozen=True, slots=True)
class Sessions:
    """Runs of events in which the next one starts at most ``gap`` behind all ends so far. Raises UsageError.

    With a gap of 0 the lifetimes of a session overlap or meet.
    """

    gap: int

    def __post_init__(self) -> None:
        _check_whole(gap=self.gap)
        if not 0 <= self.gap <= INF:
            raise UsageError(f"a session window has a gap of {self.gap}; it needs 0 units of time or more")

    @property
    def shown(self) -> str:
        """The window as text."""
        return f"sessions({show_duration(self.gap)})"


WindowKind: TypeAlias = Hopping | Snapshots | CountWindows | Sessions


def _check_whole(**values: object) -> None:
    """Raise UsageError for a number that is not whole."""
    for what, value in values.items():
        if not isinstance(value, int) or isinstance(value, bool):
            raise UsageError(f"a window has a {what} of {value!r:.64}, which is no whole number")
