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
    """A window of ``size`` every ``hop``, one of them beginning at ``offset``, at all times. Raises UsageError."""

    size: int
    hop: int
    offset: int = 0

    def __post_init__(self) -> None:
        for what, value in (("size", self.size), ("hop", self.hop)):
            if not 0 < value <= INF:
                raise UsageError(f"a hopping window has a {what} of {value}; it needs at least one unit of time")
        if not NEG_INF <= self.offset <= INF:
            raise UsageError(f"a hopping window has an offset of {self.offset}, which is no time")

    def start_above(self, t: int) -> int:
        """Return the smallest start of a window above ``t``."""
        return self.offset + self.hop * ((t - self.offset) // self.hop + 1)

    def first_over(self, vs: int) -> int:
        """Return the smallest start of a window that ends after ``vs``: the first one for an event from there."""
        return self.start_above(vs - self.size)

    @property
    def shown(self) -> str:
        """The window as text."""
        if self.size == self.hop:
            return f"tumbling({self.size})"
        return f"hopping({self.size}, every {self.hop})"


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
        if not 0 <= self.gap <= INF:
            raise UsageError(f"a session window has a gap of {self.gap}; it needs 0 units of time or more")

    @property
    def shown(self) -> str:
        """The window as text."""
        return f"sessions({self.gap})"


WindowKind: TypeAlias = Hopping | Snapshots | CountWindows | Sessions
