"""What aggregates keep for a window. Equal accumulators of a window are one. Here: what each is, and counts.

An accumulator is the description; its states are made by ``begin`` and changed by ``add``, ``remove`` and ``merge``.
After any of them in any order a state depends on the events in it alone (law L11), and so does ``state_of``. A missing
value is in no state but a count of rows.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Sequence
from typing import Any, Final

from lmerge.core.elements import INF, NEG_INF
from lmerge.temporal.changes import Lifetime
from lmerge.temporal.columns import RowBlock
from lmerge.temporal.modules.arguments import Argument
from lmerge.temporal.values import Values


class Accumulator(ABC):
    """What is kept. ``identity``: accumulators of equal identity are one. The rest is as in ``WindowModule``."""

    reads_events: bool = False
    starts_only: bool = False
    reads_window: bool = False
    is_mergeable: bool = True
    is_users: bool = False

    def __init__(self, identity: Hashable) -> None:
        self.identity: Final = (type(self), identity)

    def joined(self, other: Accumulator) -> Accumulator:
        """Return the one of two accumulators of equal identity that keeps enough for both."""
        return self

    @abstractmethod
    def begin(self) -> Any:
        """Return the state of no events."""

    @abstractmethod
    def add(self, state: Any, event: Lifetime) -> Any:
        """Return the state with one more event; it may be the one that was given."""

    def add_rows(self, state: Any, rows: Sequence[Values]) -> Any:
        """Return the state with more rows, if it reads no lifetimes."""
        for row in rows:
            state = self.add(state, Lifetime(row, NEG_INF, INF))
        return state

    def add_block(self, state: Any, block: RowBlock) -> Any:
        """Return the state with more rows, which came as columns."""
        return self.add_rows(state, block.rows())

    @abstractmethod
    def remove(self, state: Any, event: Lifetime) -> Any:
        """Return the state with one event less; it may be the one that was given."""

    @abstractmethod
    def merge(self, state: Any, other: Any) -> Any:
        """Return the state of the events of both; it may be ``state``, and ``other`` stays as it is."""

    @abstractmethod
    def copied(self, state: Any) -> Any:
        """Return a state that changes independently."""

    @abstractmethod
    def state_of(self, state: Any) -> Any:
        """Return the state as plain values."""

    @abstractmethod
    def restore(self, plain: Any) -> Any:
        """Return the state of plain values."""


class RowCount(Accumulator):
    """The number of events."""

    def __init__(self) -> None:
        super().__init__(())

    def begin(self) -> int:
        """Return 0."""
        return 0

    def add(self, state: int, event: Lifetime) -> int:
        """Count an event."""
        return state + 1

    def add_rows(self, state: int, rows: Sequence[Values]) -> int:
        """Count rows."""
        return state + len(rows)

    def remove(self, state: int, event: Lifetime) -> int:
        """Count an event no longer."""
        return state - 1

    def merge(self, state: int, other: int) -> int:
        """Return the sum of both counts."""
        return state + other

    def copied(self, state: int) -> int:
        """Return the count."""
        return state

    def state_of(self, state: int) -> int:
        """Return the count."""
        return state

    def restore(self, plain: int) -> int:
        """Return the count."""
        return plain


class ValueCount(RowCount):
    """The number of values that are not missing."""

    def __init__(self, argument: Argument) -> None:
        Accumulator.__init__(self, argument)
        self._value_of = argument.value_of

    def add(self, state: int, event: Lifetime) -> int:
        """Count a value that is there."""
        return state if self._value_of(event.row) is None else state + 1

    def add_rows(self, state: int, rows: Sequence[Values]) -> int:
        """Count the values that are there."""
        return state + len(rows) - sum(value is None for value in map(self._value_of, rows))

    def remove(self, state: int, event: Lifetime) -> int:
        """Count a value no longer."""
        return state if self._value_of(event.row) is None else state - 1
