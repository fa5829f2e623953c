"""Other lifetimes for events (sheets O11, O12): each function goes by the lifetime alone, never by the row.

Times saturate: what passes an infinity is that infinity, and an infinity stays where it is. So a lifetime that is
measured from -inf, or that is shifted beyond +inf, is empty: there is no such event in the output.

``stable(c)`` is the output's stable point at an input's of ``c``. ``needed(t)`` is the feedback: events of the input
that end before it contribute nothing to events of the output that end at or after ``t``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

from lmerge.core.elements import INF, NEG_INF
from lmerge.temporal.errors import PlanError


def plus(t: int, d: int) -> int:
    """Return ``t + d`` in units of time, saturated."""
    return t if t in (NEG_INF, INF) else max(NEG_INF, min(INF, t + d))


class AlterLifetime(ABC):
    """A function from lifetimes to lifetimes."""

    @abstractmethod
    def altered(self, vs: int, ve: int) -> tuple[int, int]:
        """Return the lifetime for ``[vs, ve)``; it is empty if its end is not behind its start."""

    def stable(self, c: int) -> int:
        """Return the output's stable point."""
        return c

    def needed(self, t: int) -> int:
        """Return the time before which an event of the input can end without a trace in the output from ``t`` on."""
        return t


@dataclass(frozen=True)
class Shift(AlterLifetime):
    """``[vs + d, ve + d)``; ``d`` may be negative."""

    d: int

    def altered(self, vs: int, ve: int) -> tuple[int, int]:
        return plus(vs, self.d), plus(ve, self.d)

    def stable(self, c: int) -> int:
        return plus(c, self.d)

    def needed(self, t: int) -> int:
        return max(NEG_INF, min(INF, t - self.d))


@dataclass(frozen=True)
class SetDuration(AlterLifetime):
    """``[vs, vs + d)``: the event's end makes no difference. With ``d`` of 1 it is a point. Raises PlanError."""

    d: int

    def __post_init__(self) -> None:
        _check_least("set_duration", self.d, 1)

    def altered(self, vs: int, ve: int) -> tuple[int, int]:
        return vs, plus(vs, self.d)

    def needed(self, t: int) -> int:
        # Needed is vs + d >= t. The shortest such event ends one unit behind its start.
        return max(NEG_INF, t - self.d + 1)


@dataclass(frozen=True)
class ClipDuration(AlterLifetime):
    """``[vs, min(ve, vs + d))``: at most ``d`` long. Raises PlanError."""

    d: int

    def __post_init__(self) -> None:
        _check_least("clip_duration", self.d, 1)

    def altered(self, vs: int, ve: int) -> tuple[int, int]:
        return vs, min(ve, plus(vs, self.d))


@dataclass(frozen=True)
class Extend(AlterLifetime):
    """``[vs, ve + d)``. Raises PlanError: shorter lifetimes are ``clip_duration``."""

    d: int

    def __post_init__(self) -> None:
        _check_least("extend", self.d, 0)

    def altered(self, vs: int, ve: int) -> tuple[int, int]:
        return vs, plus(ve, self.d)

    def needed(self, t: int) -> int:
        return max(NEG_INF, t - self.d)


@dataclass(frozen=True)
class AtEnd(AlterLifetime):
    """``[ve, ve + d)``: what happens when the event ends. An event without an end has none. Raises PlanError."""

    d: int

    def __post_init__(self) -> None:
        _check_least("at_end", self.d, 1)

    def altered(self, vs: int, ve: int) -> tuple[int, int]:
        return ve, plus(ve, self.d)

    def needed(self, t: int) -> int:
        return max(NEG_INF, t - self.d)


def _check_least(what: str, d: int, least: int) -> None:
    if d < least:
        raise PlanError(f"{what}({d}): it takes at least {least} {'unit' if least == 1 else 'units'} of time")
