"""What keeps values: all of a column in order, how often each occurs, and events in order of their start."""

from __future__ import annotations

from typing import Any, Final

from sortedcontainers import SortedList

from lmerge.temporal.changes import Lifetime
from lmerge.temporal.modules.accumulators import Accumulator
from lmerge.temporal.modules.arguments import Argument
from lmerge.temporal.operators.operator import row_of_state, state_of_row
from lmerge.temporal.values import NAN, order_key
from lmerge.wire.schema import Schema


class OrderedValues:
    """Values in the order of rows, a multiset; NaN, which has no order in Python, is counted behind them."""

    __slots__ = ("items", "nan")

    def __init__(self) -> None:
        self.items: SortedList[Any] = SortedList()
        self.nan = 0

    def __len__(self) -> int:
        return len(self.items) + self.nan


class Ordered(Accumulator):
    """The values of a column in order, for extremes, percentiles and lists: O(log n) for each, and all are kept."""

    def __init__(self, argument: Argument) -> None:
        super().__init__(argument)
        self._value_of = argument.value_of
        self._is_natural = argument.is_natural
        self._key = argument.key

    def begin(self) -> OrderedValues:
        """Return no values."""
        return OrderedValues()

    def add(self, state: OrderedValues, event: Lifetime) -> OrderedValues:
        """Put a value in its place."""
        value = self._value_of(event.row)
        if value is not None:
            self._put(state, value)
        return state

    def _put(self, state: OrderedValues, value: Any) -> None:
        if not self._is_natural:
            state.items.add((self._key(value), value))
        elif value == value:
            state.items.add(value)
        else:
            state.nan += 1

    def remove(self, state: OrderedValues, event: Lifetime) -> OrderedValues:
        """Take a value away."""
        value = self._value_of(event.row)
        if value is None:
            return state
        if not self._is_natural:
            state.items.remove((self._key(value), value))
        elif value == value:
            state.items.remove(value)
        else:
            state.nan -= 1
        return state

    def at(self, state: OrderedValues, place: int) -> Any:
        """Return the value at a place from 0."""
        if place >= len(state.items):
            return NAN
        item = state.items[place]
        return item if self._is_natural else item[1]

    def values(self, state: OrderedValues) -> tuple[Any, ...]:
        """Return all values in order."""
        found = tuple(state.items) if self._is_natural else tuple(value for _, value in state.items)
        return found + (NAN,) * state.nan

    def merge(self, state: OrderedValues, other: OrderedValues) -> OrderedValues:
        """Put the values of another state into their places."""
        state.items.update(other.items)
        state.nan += other.nan
        return state

    def copied(self, state: OrderedValues) -> OrderedValues:
        """Return the same values."""
        return self.merge(OrderedValues(), state)

    def state_of(self, state: OrderedValues) -> list[Any]:
        """Return the values in order."""
        return [state_of_row(value) for value in self.values(state)]

    def restore(self, plain: list[Any]) -> OrderedValues:
        """Return the values in order."""
        state = OrderedValues()
        for value in plain:
            self._put(state, row_of_state(value))
        return state


class Tally(Accumulator):
    """How often each value of a column occurs."""

    def __init__(self, argument: Argument) -> None:
        super().__init__(argument)
        self._value_of = argument.value_of
        self._key = argument.key

    def begin(self) -> dict[Any, int]:
        """Return no values."""
        return {}

    def add(self, state: dict[Any, int], event: Lifetime) -> dict[Any, int]:
        """Count a value."""
        value = self._value_of(event.row)
        if value is not None:
            state[value] = state.get(value, 0) + 1
        return state

    def remove(self, state: dict[Any, int], event: Lifetime) -> dict[Any, int]:
        """Count a value no longer."""
        value = self._value_of(event.row)
        if value is not None:
            left = state[value] - 1
            if left:
                state[value] = left
            else:
                del state[value]
        return state

    def first_of_most(self, state: dict[Any, int]) -> Any:
        """Return the value that occurs most often; of several the first in order; None without values."""
        most = max(state.values(), default=0)
        return min((value for value, count in state.items() if count == most), key=self._key, default=None)

    def merge(self, state: dict[Any, int], other: dict[Any, int]) -> dict[Any, int]:
        """Add the counts of another state."""
        for value, count in other.items():
            state[value] = state.get(value, 0) + count
        return state

    def copied(self, state: dict[Any, int]) -> dict[Any, int]:
        """Return the same counts."""
        return dict(state)

    def state_of(self, state: dict[Any, int]) -> list[Any]:
        """Return pairs of value and count, in order of the values."""
        return [[state_of_row(value), state[value]] for value in sorted(state, key=self._key)]

    def restore(self, plain: list[Any]) -> dict[Any, int]:
        """Return the counts."""
        return {row_of_state(value): count for value, count in plain}


class ByStart(Accumulator):
    """The events whose argument is there, in order of their start, then their row."""

    reads_events = True
    starts_only = True

    def __init__(self, argument: Argument, schema: Schema) -> None:
        super().__init__(argument)
        self.value_of: Final = argument.value_of
        self._key = order_key(schema)

    def begin(self) -> SortedList[Any]:
        """Return no events."""
        return SortedList()

    def add(self, state: SortedList[Any], event: Lifetime) -> SortedList[Any]:
        """Put an event in its place."""
        if self.value_of(event.row) is not None:
            state.add((event.vs, self._key(event.row), event.row))
        return state

    def remove(self, state: SortedList[Any], event: Lifetime) -> SortedList[Any]:
        """Take an event away."""
        if self.value_of(event.row) is not None:
            state.remove((event.vs, self._key(event.row), event.row))
        return state

    def merge(self, state: SortedList[Any], other: SortedList[Any]) -> SortedList[Any]:
        """Put the events of another state into their places."""
        state.update(other)
        return state

    def copied(self, state: SortedList[Any]) -> SortedList[Any]:
        """Return the same events."""
        return SortedList(state)

    def state_of(self, state: SortedList[Any]) -> list[Any]:
        """Return pairs of start and row, in order."""
        return [[vs, state_of_row(row)] for vs, _, row in state]

    def restore(self, plain: list[Any]) -> SortedList[Any]:
        """Return the events."""
        rows = [(vs, row_of_state(row)) for vs, row in plain]
        return SortedList((vs, self._key(row), row) for vs, row in rows)
