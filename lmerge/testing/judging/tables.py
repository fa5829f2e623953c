"""What queries are written over: tables of events, the functions of the database, and the times of the input."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from lmerge.core.elements import NEG_INF
from lmerge.testing.judging.functions import Functions

EVENT_COLUMNS: Final = ("payload", "vs", "ve")
# What words of a plan mean, written again: properties of the engine's own would be wrong on both sides.
CUTS_LEFT: Final = ("left", "full")
CUTS_RIGHT: Final = ("right", "full")
KEEPS_OWN: Final = ("unchanged", "clip", "time-bound")
KEEPS_LEFT: Final = ("left", "full")
KEEPS_RIGHT: Final = ("right", "full")


@dataclass(frozen=True)
class EventTable:
    """A table of events. ``groups``: the columns before the others, with the key of each group that the plan is in.

    ``begun``: the latest time at which a window of a grid has begun over it.
    """

    name: str
    groups: tuple[str, ...] = ()
    begun: int = NEG_INF


@dataclass
class Sequences:
    """The sequence of queries of an operator, in order: a name, and the query of its table."""

    functions: Functions
    statements: list[tuple[str, str]] = field(default_factory=list)
    _count: int = 0

    def add(self, what: str, query: str, groups: Sequence[str] = (), begun: int = NEG_INF) -> EventTable:
        """Append the query of a table, whose columns are ``groups`` and those of events; return the table."""
        self._count += 1
        name = f"{what}_{self._count}"
        chosen = ", ".join([*groups, *EVENT_COLUMNS])
        self.statements.append((name, f"SELECT {chosen} FROM ({query})"))
        return EventTable(name, tuple(groups), begun)

    @property
    def text(self) -> str:
        """The queries, to be read and run."""
        return "\n".join(f"CREATE TEMP TABLE {name} AS\n{query};" for name, query in self.statements)
