"""The first k rows of each window by rank: the rows whose ``rank() <= k``, as SQL has it.

All rows that tie with the k-th come out, so the result depends on the rows alone. Missing values are last in either
direction, and NaN is the largest float. Rows of one rank come in the order of rows. The state is all rows of the window
in order, so that the next one is at hand when a row leaves: O(log n) for each change, O(k) for each result.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import total_ordering
from typing import Any

from sortedcontainers import SortedList

from lmerge.temporal.changes import Lifetime
from lmerge.temporal.errors import PlanError
from lmerge.temporal.modules.arguments import Argument
from lmerge.temporal.operators.operator import row_of_state, state_of_row
from lmerge.temporal.values import OrderKey, Values, order_key
from lmerge.temporal.windows.kinds import WindowDescriptor
from lmerge.temporal.windows.module import MergeableModule, ModuleState
from lmerge.wire.schema import Column, Schema


@dataclass(frozen=True, slots=True)
class OrderBy:
    """What rows are ranked by. ``descending``: the largest is first; a missing value is last all the same."""

    argument: Argument
    descending: bool = False


class TopK(MergeableModule):
    """The rows of a window with ``rank() <= k``. ``rank``: the name of a column for the rank, behind the others.

    ``columns``: those that the results have, by default all. ``results`` is the schema of its rows. Raises PlanError.
    """

    def __init__(
        self,
        schema: Schema,
        k: int,
        order_by: Sequence[OrderBy],
        rank: str | None = None,
        columns: Sequence[str] | None = None,
    ) -> None:
        by = ", ".join(f"{one.argument.column.name}{' desc' * one.descending}" for one in order_by)
        self.shown = f"top({k} by {by})"
        if k < 1:
            raise PlanError(f"{self.shown}: k is {k}; it must be at least 1")
        if not order_by:
            raise PlanError(f"{self.shown}: there is nothing to order by")
        if rank in schema.names:
            raise PlanError(f"{self.shown}: rows have a column {rank!r:.64} already, so the rank needs another name")
        kept = [place for place, name in enumerate(schema.names) if columns is None or name in columns]
        if not kept and rank is None:
            raise PlanError(f"{self.shown}: the rows that it returns have no columns")
        ranks = () if rank is None else (Column(rank, "int"),)
        self.results = Schema((*(schema.columns[place] for place in kept), *ranks))
        self._k, self._has_rank = k, rank is not None
        self._kept = None if len(kept) == len(schema.columns) else kept
        self._ranked_by = [(one.argument.value_of, _key_of(one)) for one in order_by]
        self._row_key: OrderKey = order_key(schema)

    def begin(self) -> ModuleState:
        """Return no rows."""
        return SortedList()

    def add(self, state: ModuleState, event: Lifetime) -> ModuleState:
        """Put a row in its place."""
        state.add(self._item(event.row))
        return state

    def remove(self, state: ModuleState, event: Lifetime) -> ModuleState:
        """Take a row away."""
        state.remove(self._item(event.row))
        return state

    def _item(self, row: Values) -> tuple[Any, Any, Values]:
        return tuple(key(value_of(row)) for value_of, key in self._ranked_by), self._row_key(row), row

    def result(self, state: ModuleState, window: WindowDescriptor) -> Sequence[Values]:
        """Return the rows in order of rank, then of rows."""
        found: list[Values] = []
        rank, last = 0, None
        for place, (key, _, row) in enumerate(state, 1):
            if place == 1 or key != last:
                rank, last = place, key
            if rank > self._k:
                break
            values = row if self._kept is None else tuple([row[place] for place in self._kept])
            found.append((*values, rank) if self._has_rank else values)
        return found

    def merge(self, state: ModuleState, other: ModuleState) -> ModuleState:
        """Put the rows of another state into their places."""
        state.update(other)
        return state

    def copied(self, state: ModuleState) -> ModuleState:
        """Return the same rows."""
        return SortedList(state)

    def state_of(self, state: ModuleState) -> Any:
        """Return the rows in order, as plain values."""
        return [state_of_row(row) for _, _, row in state]

    def restore(self, plain: Any) -> ModuleState:
        """Return the rows of plain values."""
        return SortedList(self._item(row_of_state(row)) for row in plain)


def _key_of(order_by: OrderBy) -> Any:
    """Return a function of a value, or None, that gives its place."""
    key = order_by.argument.key
    if order_by.descending:
        return lambda value: (1,) if value is None else (0, Descending(key(value)))
    return lambda value: (1,) if value is None else (0, key(value))


@total_ordering
@dataclass(frozen=True, slots=True)
class Descending:
    """A key whose order is turned around."""

    key: Any

    def __lt__(self, other: Descending) -> bool:
        return bool(other.key < self.key)
