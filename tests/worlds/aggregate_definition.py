"""Aggregates by definition: over the list of values, in fractions; and random values of every type.

Independent of lmerge.temporal.modules.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from decimal import Context, Decimal
from fractions import Fraction
from typing import Any

from lmerge.temporal.changes import Lifetime
from lmerge.temporal.values import NAN
from lmerge.wire.schema import Column, Schema, parse_schema

SCHEMA: Schema = parse_schema(
    {
        "i": "int?",
        "f": "float?",
        "f2": "float(2)?",
        "tens": "float(-1)?",
        "d": "decimal(3)?",
        "s": "string?",
        "t": "timestamp?",
        "b": "bool?",
        "l": "list<float?>?",
        "p?": {"x": "float", "y": "string?"},
    }
)

POOLS: Mapping[str, Sequence[Any]] = {
    "i": (None, 0, 1, -1, 7, 7, 2**40, -(2**57)),
    "f": (None, 0.0, 0.1, 0.2, -0.3, 1e100, -1e100, 5e-324, 1.5, 1.5, math.inf, -math.inf, NAN, 1.7e308),
    "f2": (None, 0.1, 0.25, -3.75, 1.15, 1234.56, 0.01, 1e17, math.inf, NAN),
    "tens": (None, 10.0, -30.0, 1e6),
    "d": (None, Decimal("0.001"), Decimal("-7.250"), Decimal("12345678901234567890123456789.123"), Decimal("0.000")),
    "s": (None, "", "a", "b", "ä", "\U0001f600", "\uffff"),
    "t": (None, 0, 1_700_000_000_000_000, -5),
    "b": (None, True, False),
    "l": (None, (), (1.0,), (1.0, None), (NAN,), (NAN, 2.0), (math.inf,)),
    "p": (None, (1.0, None), (1.0, "x"), (NAN, "x"), (-2.5, "")),
}


def random_event(random_: random.Random, only: Mapping[str, Sequence[Any]] = POOLS) -> Lifetime:
    """Return an event with values of the pools, in a short stretch of time."""
    vs = random_.randint(-3, 3)
    return Lifetime(tuple(random_.choice(only[name]) for name in SCHEMA.names), vs, vs + random_.randint(1, 5))


def order_of(value: Any) -> Any:
    """Return a key that orders values as rows are ordered: NaN behind numbers, None behind all."""
    if value is None:
        return (2,)
    if isinstance(value, tuple):
        return (0, tuple(order_of(item) for item in value))
    return (1,) if value != value else (0, value)


def exact(value: Any, column: Column) -> Fraction:
    """Return a finite value as it is meant: a float with declared digits is the decimal with these digits."""
    if column.round_digits is not None:
        return round(Fraction(value), column.round_digits)
    return Fraction(value)


def nearest(value: Fraction) -> float:
    """Return the nearest float."""
    try:
        return float(value) + 0.0
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def root(value: Fraction) -> float:
    """Return the float nearest to the root of a fraction."""
    context = Context(prec=1200, Emax=10**6, Emin=-(10**6))
    return nearest(Fraction(context.sqrt(context.divide(Decimal(value.numerator), Decimal(value.denominator)))))


def not_finite(values: Sequence[Any]) -> float | None:
    """Return the sum of values by IEEE 754 if one of them is no finite number."""
    special = [value for value in values if isinstance(value, float) and not math.isfinite(value)]
    return (NAN if sum(special) != sum(special) else sum(special)) if special else None


def total(values: Sequence[Any], column: Column) -> Any:
    """Return the sum."""
    if column.type == "int":
        return sum(values)
    if column.type == "decimal":
        return Context(prec=100).quantize(sum_of_decimals(values), Decimal(1).scaleb(-column.scale))
    special = not_finite(values)
    return nearest(sum((exact(value, column) for value in values), Fraction(0))) if special is None else special


def sum_of_decimals(values: Sequence[Decimal]) -> Decimal:
    """Return the sum of decimals without rounding."""
    found = Decimal(0)
    for value in values:
        found = Context(prec=100).add(found, value)
    return found


def average(values: Sequence[Any], column: Column) -> float:
    """Return the mean."""
    special = not_finite(values)
    if special is not None:
        return special
    return nearest(sum((exact(value, column) for value in values), Fraction(0)) / len(values))


def variance(values: Sequence[Any], column: Column, freedom: int) -> Fraction | None:
    """Return the mean square of the distances from the mean; None if there are infinities."""
    if not_finite(values) is not None:
        return None
    terms = [exact(value, column) for value in values]
    mean = sum(terms, Fraction(0)) / len(terms)
    return sum(((term - mean) ** 2 for term in terms), Fraction(0)) / (len(terms) - freedom)


def spread(freedom: int, of_root: bool) -> Callable[[list[Any], Column], Any]:
    """Return the definition of a variance or a deviation."""

    def define(values: list[Any], column: Column) -> Any:
        if len(values) <= freedom:
            return None
        found = variance(values, column, freedom)
        if found is None:
            return NAN
        return root(found) if of_root else nearest(found)

    return define


def discrete(part: Fraction) -> Callable[[list[Any], Column], Any]:
    """Return the first value at least ``part`` of all are not behind."""

    def define(values: list[Any], column: Column) -> Any:
        ordered = sorted(values, key=order_of)
        for place, value in enumerate(ordered, 1):
            if Fraction(place, len(ordered)) >= part:
                return value
        return None

    return define


def continuous(part: Fraction) -> Callable[[list[Any], Column], Any]:
    """Return the value at a place between two, on the line from one to the other."""

    def define(values: list[Any], column: Column) -> Any:
        ordered = sorted(values, key=order_of)
        if not ordered:
            return None
        place = part * (len(ordered) - 1)
        low, high = ordered[math.floor(place)], ordered[math.ceil(place)]
        special = not_finite([low, high])
        if special is not None:
            return special
        first, second = exact(low, column), exact(high, column)
        return nearest(first + (second - first) * (place - math.floor(place)))

    return define


def most_frequent(values: list[Any], column: Column) -> Any:
    """Return the most frequent value, the first in order."""
    counts = Counter(values)
    return min(values, key=lambda value: (-counts[value], order_of(value)), default=None)


def or_none(define: Callable[[list[Any], Column], Any]) -> Callable[[list[Any], Column], Any]:
    """Return a definition that is missing without values."""
    return lambda values, column: define(values, column) if values else None


DEFINITIONS: Mapping[str, Callable[[list[Any], Column], Any]] = {
    "count": lambda values, column: len(values),
    "distinct_count": lambda values, column: len({repr(value) for value in values}),
    "sum": or_none(total),
    "avg": or_none(average),
    "var_pop": spread(0, of_root=False),
    "var_samp": spread(1, of_root=False),
    "stddev_pop": spread(0, of_root=True),
    "stddev_samp": spread(1, of_root=True),
    "min": lambda values, column: min(values, key=order_of, default=None),
    "max": lambda values, column: max(values, key=order_of, default=None),
    "collect": lambda values, column: tuple(sorted(values, key=order_of)),
    "mode": most_frequent,
    "median": continuous(Fraction(1, 2)),
}


def same(left: Any, right: Any) -> bool:
    """Return whether two values are the same, bit for bit: type, sign of zero, NaN, digits of decimals."""
    return repr(left) == repr(right)
