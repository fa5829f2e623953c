"""Batches as columns: what flows between operators of the native core (``lmerge.temporal.native``).

A ``ColumnDelta`` is a ``Delta`` in another form. Where an operator in Python meets a native one, the graph converts it.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

from lmerge.temporal.changes import Change, Delta
from lmerge.temporal.operators.operator import PlanOperator
from lmerge.temporal.values import Values


class ColumnDelta(Protocol):
    """A batch of changes as columns, with the stable point and the watermark behind them."""

    @property
    def stable(self) -> int | None: ...
    @property
    def mark(self) -> int | None: ...
    @property
    def is_empty(self) -> bool:
        """Whether nothing changes."""

    def __len__(self) -> int: ...
    def marked(self, mark: int | None) -> ColumnDelta:
        """Return the same batch with another watermark."""

    def changes(self) -> list[tuple[Any, int, int, int]]:
        """Return the changes as (row, vs, old, new)."""

    def in_order(self, count: int) -> Sequence[ColumnDelta]:
        """Return inserts as the batches of a source that ends: by start, each with the stable that is allowed."""

    def blocks_by_window(
        self,
        grid: tuple[int, int, int, int | None],
        begun: int,
        reach: int,
        windows_max: int,
        keys: Sequence[int] | None = None,
        key_of: Callable[[Values], Values] | None = None,
    ) -> Mapping[Values, tuple[Mapping[int, RowBlock], RowBlock]] | None:
        """Return new events by group: blocks of rows by the starts of windows, and those that end from ``reach`` on.

        None if a change is no new event, an event has no first window, or opens more than ``windows_max`` windows.
        ``grid``: size, hop, offset, and the time before which no window begins. Windows begin until ``begun``.
        ``keys``: the columns of the key; else ``key_of`` returns that of a row; without either all have that of no
        columns.
        """


class RowBlock(Protocol):
    """New events of one group as columns, in the order in which they came. Rows are made when they are asked for."""

    def __len__(self) -> int: ...
    def rows(self) -> list[Values]:
        """Return the rows."""

    def events(self) -> list[tuple[Values, int, int]]:
        """Return the events as (row, start, end)."""

    def ends(self) -> tuple[int | None, int | None, int | None]:
        """Return the first end, the last end, and the last one that is finite; None where there is none."""

    def overlapping(self, start: int, end: int) -> RowBlock:
        """Return the events whose lifetimes overlap ``[start, end)``."""

    def ending_after(self, t: int) -> RowBlock:
        """Return the events that end after ``t``."""

    def split(self, t: int) -> tuple[RowBlock, RowBlock]:
        """Return the events that start before ``t``, and the others."""


AnyDelta: TypeAlias = "Delta | ColumnDelta"


def as_rows(delta: AnyDelta) -> Delta:
    """Return a batch as rows."""
    if isinstance(delta, Delta):
        return delta
    return Delta([Change._make(change) for change in delta.changes()], delta.stable, delta.mark)


def rows_of_steps(steps: Sequence[Mapping[str, AnyDelta]]) -> list[dict[str, Delta]]:
    """Return the batches of results, step by step, as rows."""
    return [{name: as_rows(found) for name, found in step.items()} for step in steps]


class MixedOperator(PlanOperator):
    """An operator that takes rows or columns, and gives rows."""

    @abstractmethod
    def step_mixed(self, deltas: Sequence[AnyDelta]) -> Delta:
        """Take a batch of each input in the form that it has, and return the batch of the output, as ``step`` does."""


class ColumnOperator(PlanOperator):
    """An operator that takes and gives columns."""

    def step(self, deltas: Sequence[Delta]) -> Delta:
        """Take a batch of each input as rows, and return the batch of the output as rows."""
        return as_rows(self.step_columns([self.as_columns(at, delta) for at, delta in enumerate(deltas)]))

    @abstractmethod
    def as_columns(self, at: int, delta: Delta) -> ColumnDelta:
        """Return a batch of an input as columns."""

    @abstractmethod
    def step_columns(self, deltas: Sequence[ColumnDelta]) -> ColumnDelta:
        """Take a batch of each input, and return the batch of the output, as ``step`` does."""
