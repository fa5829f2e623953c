"""Exact counts, sums and sums of squares of a column, from which averages and deviations are computed."""

from __future__ import annotations

from typing import Any, Final

from lmerge.temporal.changes import Lifetime
from lmerge.temporal.modules.accumulators import Accumulator
from lmerge.temporal.modules.arguments import Argument
from lmerge.temporal.modules.exact import Scale, int_of_text, scale_of, text_of_int


class Moment:
    """Count, sum and sum of squares of values, as integers of a unit divided by ``2 ** power``.

    Infinities and NaN are counted apart, and are in the count of values.
    """

    __slots__ = ("count", "minus_inf", "nan", "plus_inf", "power", "squares", "total")

    def __init__(self) -> None:
        self.count = self.total = self.squares = self.power = 0
        self.plus_inf = self.minus_inf = self.nan = 0

    def scale_to(self, power: int) -> None:
        """Count finer parts from now on."""
        finer = power - self.power
        self.total <<= finer
        self.squares <<= 2 * finer
        self.power = power

    def reduced(self) -> tuple[int, int, int]:
        """Return sum, sum of squares and power without common factors: they depend on the values alone."""
        total, squares, power = self.total, self.squares, self.power
        common = min(power, _twos(total, power), _twos(squares, 2 * power) // 2)
        return total >> common, squares >> 2 * common, power - common


def _twos(value: int, most: int) -> int:
    """Return how often 2 divides an integer; at most ``most``, which is the answer for 0."""
    return min(most, (value & -value).bit_length() - 1) if value else most


class Moments(Accumulator):
    """Exact count, sum and, if ``squares``, sum of squares of a column of int, float or decimal."""

    def __init__(self, argument: Argument, squares: bool = False) -> None:
        super().__init__(argument)
        self._value_of = argument.value_of
        self.squares: Final = squares
        self.scale: Final[Scale] = scale_of(argument.column)
        self._is_float = argument.column.type == "float"

    def joined(self, other: Accumulator) -> Accumulator:
        """Return the one with squares, if one has them."""
        return other if isinstance(other, Moments) and other.squares else self

    def begin(self) -> Moment:
        """Return the moment of no values."""
        return Moment()

    def add(self, state: Moment, event: Lifetime) -> Moment:
        """Add a value."""
        value = self._value_of(event.row)
        if value is not None:
            self._count(state, value, 1)
        return state

    def remove(self, state: Moment, event: Lifetime) -> Moment:
        """Take a value away."""
        value = self._value_of(event.row)
        if value is not None:
            self._count(state, value, -1)
        return state

    def _count(self, state: Moment, value: Any, sign: int) -> None:
        state.count += sign
        if self._is_float and value - value != 0.0:
            if value != value:
                state.nan += sign
            elif value > 0:
                state.plus_inf += sign
            else:
                state.minus_inf += sign
            return
        to_int = self.scale.to_int
        counted = self._in_powers_of_two(state, value) if to_int is None else to_int(value)
        state.total += sign * counted
        if self.squares:
            state.squares += sign * counted * counted

    @staticmethod
    def _in_powers_of_two(state: Moment, value: float) -> int:
        up, down = value.as_integer_ratio()
        power = down.bit_length() - 1
        if power > state.power:
            state.scale_to(power)
        return up << state.power - power

    def merge(self, state: Moment, other: Moment) -> Moment:
        """Add the values of another moment."""
        if other.power > state.power:
            state.scale_to(other.power)
        finer = state.power - other.power
        state.total += other.total << finer
        state.squares += other.squares << 2 * finer
        state.count += other.count
        state.plus_inf += other.plus_inf
        state.minus_inf += other.minus_inf
        state.nan += other.nan
        return state

    def copied(self, state: Moment) -> Moment:
        """Return a moment of the same values."""
        return self.merge(Moment(), state)

    def state_of(self, state: Moment) -> list[Any]:
        """Return the moment as numbers and text, without common factors."""
        total, squares, power = state.reduced()
        special = [state.plus_inf, state.minus_inf, state.nan]
        return [state.count, text_of_int(total), text_of_int(squares), power, *special]

    def restore(self, plain: list[Any]) -> Moment:
        """Return the moment."""
        state = Moment()
        state.count, total, squares, state.power, state.plus_inf, state.minus_inf, state.nan = plain
        state.total, state.squares = int_of_text(total), int_of_text(squares)
        return state
