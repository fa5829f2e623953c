"""What a module declares of itself, and what it gets and returns (seed 000, I.A.5 and IV.B).

A module stands in the way of the plan's rewrites, unless it declares what allows them. Each property switches one on,
and each is checked by ``lmerge.temporal.modules.checks``: a module that declares what is not so is found there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeAlias, TypeVar

from lmerge.core.elements import INF, NEG_INF, show_time
from lmerge.temporal.errors import PlanError
from lmerge.temporal.windows.kinds import WindowKind

T = TypeVar("T")

TIMES: Final = ("start", "end", "window")
CLIPPED: Final = ("start", "end")


@dataclass(frozen=True, slots=True)
class Properties:
    """What a module declares.

    ===================  ==============================================================================================
    ``reads``            of a time-sensitive module: which of start, end and window its results depend on. What is not
                         read has no value that means something. Without ``end`` a window need not wait for its events
    ``needs``            start, end: its results are wrong if lifetimes are clipped there, so the plan refuses that
    ``filter_commutes``  columns of the results: to filter results by them is to filter the events by them before
    ``per_group``        columns of the events: the results are those of each group of their values, taken together
    ``time_bound``       no change of an event changes results before the change (V.F.1)
    ``insert_only``      more events never take results away
    ``preserves_order``  events that start later make results that start no earlier than those that were there
    ``empty_preserving`` a set without events has no results. One that has some needs a grid of windows with ``since``
    ``deterministic``    equal sets have equal results. A plan refuses a module that declares otherwise
    ===================  ==============================================================================================

    A module that derives from ``Mergeable`` declares by that that its states can be merged. Raises PlanError.
    """

    reads: Sequence[str] = TIMES
    needs: Sequence[str] = ()
    filter_commutes: Sequence[str] = ()
    per_group: Sequence[str] = ()
    time_bound: bool = False
    insert_only: bool = False
    preserves_order: bool = False
    empty_preserving: bool = True
    deterministic: bool = True

    def __post_init__(self) -> None:
        for what, times, there in (("reads", self.reads, TIMES), ("needs", self.needs, CLIPPED)):
            unknown = [one for one in times if one not in there]
            if unknown or isinstance(times, str):
                raise PlanError(f"a module that {what} {times!r:.64}: what there is are {', '.join(there)}")
        unread = [one for one in self.needs if one not in self.reads]
        if unread:
            raise PlanError(f"a module needs {unread[0]}, which it does not read")

    def describe(self) -> list[str]:
        """Return what is declared beyond the default, as text."""
        found = [] if tuple(self.reads) == TIMES else [f"reads={'+'.join(self.reads) or 'no time'}"]
        for name in ("needs", "filter_commutes", "per_group"):
            if getattr(self, name):
                found.append(f"{name}={'+'.join(getattr(self, name))}")
        found += [name for name in ("time_bound", "insert_only", "preserves_order") if getattr(self, name)]
        return found + [f"not {name}" for name in ("empty_preserving", "deterministic") if not getattr(self, name)]


@dataclass(slots=True)
class TimedRow(Generic[T]):
    """A row with its lifetime ``[start, end)``, clipped as the query has it. An end of ``INF`` is open."""

    row: T
    start: int = NEG_INF
    end: int = INF


@dataclass(slots=True)
class Stamped:
    """A result with a lifetime of its own. ``row``: as a result without one."""

    row: Mapping[str, Any] | Sequence[Any]
    start: int
    end: int


@dataclass(slots=True)
class TimedColumns:
    """The rows of a time-sensitive module as columns. ``columns``: of the only input, or a named tuple of several.

    ``start``, ``end``: the times of the rows, clipped as the query has it; None if the module does not read them.
    """

    columns: Any
    start: Any = None
    end: Any = None


@dataclass(slots=True)
class StampedColumns:
    """Results as columns, with lifetimes of their own. ``columns``: by name, or in the order of the results."""

    columns: Mapping[str, Any] | Sequence[Any]
    start: Any
    end: Any


@dataclass(slots=True)
class Window:
    """A window: its ends, its kind, and the values of its group's columns."""

    start: int = NEG_INF
    end: int = INF
    kind: WindowKind | None = None
    key: tuple[Any, ...] = ()

    def __str__(self) -> str:
        return f"[{show_time(self.start)}, {show_time(self.end)})"


ResultRow: TypeAlias = Mapping[str, Any] | Sequence[Any]
"""A row of an operator's results: by name, or in the order of its columns."""

ResultColumns: TypeAlias = Mapping[str, Any]
"""The columns of an operator's results by name, of equal lengths."""

Results: TypeAlias = "Iterable[ResultRow] | ResultColumns"
TimedResults: TypeAlias = "Iterable[ResultRow | Stamped] | ResultColumns | StampedColumns"
"""What is not stamped has the window's lifetime (IV.C)."""
