"""Exact arithmetic for aggregates: values as integers, and rationals that are rounded once.

A sum of floats depends on the order of its terms, so replicas would differ. Here every value is an integer times a
unit: ints as they are, decimals and floats with declared digits by their digits, other floats by powers of two. Sums
of integers do not depend on the order, and what was added can be removed. Only a result is rounded, to the nearest
float, half to even.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Context, Decimal
from typing import Any, Final, NamedTuple

from lmerge.wire.schema import DECIMAL_DIGITS_MAX, Column

# More digits than any decimal of a schema has: nothing is rounded.
EXACT: Final = Context(prec=4 * DECIMAL_DIGITS_MAX)

# Below it the product of a float and a power of ten is off by far less than a quarter.
_SAFE: Final = 2.0**49


class Unit(NamedTuple):
    """What the integers of a column count: ``up / down``."""

    up: int
    down: int


class Scale(NamedTuple):
    """How the values of a column are integers. ``to_int``: of a finite value; None: by powers of two."""

    unit: Unit
    to_int: Callable[[Any], int] | None


def scale_of(column: Column) -> Scale:
    """Return the scale of a column of int, float or decimal."""
    if column.type == "int":
        return Scale(Unit(1, 1), int)
    if column.type == "decimal":
        scale = column.scale
        return Scale(Unit(1, 10**scale), lambda value: int(EXACT.scaleb(value, scale)))
    digits = column.round_digits
    if digits is None:
        return Scale(Unit(1, 1), None)
    unit = Unit(10 ** max(-digits, 0), 10 ** max(digits, 0))
    return Scale(unit, _digits_counter(unit))


def _digits_counter(unit: Unit) -> Callable[[float], int]:
    """Return a function that gives the integer nearest to a float in that unit, half to even."""
    factor, divisor = float(unit.down), float(unit.up)

    def count(value: float) -> int:
        product = value * factor / divisor
        nearest = round(product) if -_SAFE < product < _SAFE else 0
        if abs(product - nearest) < 0.25:
            return nearest
        up, down = value.as_integer_ratio()
        return rounded_quotient(up * unit.down, down * unit.up)

    return count


def rounded_quotient(up: int, down: int) -> int:
    """Return the integer nearest to ``up / down``, half to even; ``down`` is above 0."""
    whole, rest = divmod(up, down)
    return whole + (2 * rest > down or (2 * rest == down and whole % 2))


def decimal_of(count: int, scale: int) -> Decimal:
    """Return ``count`` units of a decimal column, with its digits after the point."""
    return EXACT.scaleb(Decimal(count), -scale)


def rounded_ratio(up: int, down: int) -> float:
    """Return the float nearest to ``up / down``, half to even; beyond the range of floats an infinity."""
    try:
        return up / down + 0.0  # an underflow below zero is -0.0
    except OverflowError:
        return math.inf if (up > 0) == (down > 0) else -math.inf


def rounded_root(up: int, down: int) -> float:
    """Return the float nearest to the square root of ``up / down``, which is not negative.

    The root is cut to at least 109 bits, the last of which is set if anything was cut off. So the float is rounded as
    if it came from the root itself: two more bits than a float has would do.
    """
    if up == 0:
        return 0.0
    shift = (up.bit_length() - down.bit_length() - 109) // 2
    if shift >= 0:
        return rounded_ratio(_odd_root(up, down << 2 * shift) << shift, 1)
    return rounded_ratio(_odd_root(up << -2 * shift, down), 1 << -shift)


def _odd_root(up: int, down: int) -> int:
    """Return the whole part of the square root of a quotient, made odd if it is not exact."""
    root = math.isqrt(up // down)
    return root | (root * root * down != up)


def text_of_int(value: int) -> str:
    """Return an integer of any size as text for a state, whose numbers have 64 bits."""
    return f"{value:x}"


def int_of_text(text: str) -> int:
    """Return the integer that ``text_of_int`` has made text."""
    return int(text, 16)
