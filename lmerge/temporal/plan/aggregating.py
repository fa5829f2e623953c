"""The aggregates that come with lmerge, by functions: ``late.agg(n=count(), worst=max(col.delay))``.

They have the names that SQL has, so they hide functions of Python where a module imports them by name; ``import
lmerge.temporal as lt`` and ``lt.max(lt.col.delay)`` do not. What each one computes: docs/temporal-modules.md.
"""

from __future__ import annotations

from lmerge.temporal.expressions.surface import Operand
from lmerge.temporal.plan.calls import WindowCall
from lmerge.temporal.plan.grouped import aggregate


def distinct_count(value: Operand) -> WindowCall:
    """Return the number of different values that are not missing."""
    return aggregate("distinct_count", value)


def sum(value: Operand) -> WindowCall:  # noqa: A001  (the name that users expect)
    """Return the exact sum, rounded once. A sum of ints beyond 64 bits is an error at run."""
    return aggregate("sum", value)


def min(value: Operand) -> WindowCall:  # noqa: A001  (the name that users expect)
    """Return the least value."""
    return aggregate("min", value)


def max(value: Operand) -> WindowCall:  # noqa: A001  (the name that users expect)
    """Return the greatest value; NaN is greater than all numbers."""
    return aggregate("max", value)


def avg(value: Operand) -> WindowCall:
    """Return the exact average, rounded once."""
    return aggregate("avg", value)


def var_pop(value: Operand) -> WindowCall:
    """Return the variance of all values."""
    return aggregate("var_pop", value)


def var_samp(value: Operand) -> WindowCall:
    """Return the variance of a sample; missing for one value."""
    return aggregate("var_samp", value)


def stddev_pop(value: Operand) -> WindowCall:
    """Return the standard deviation of all values."""
    return aggregate("stddev_pop", value)


def stddev_samp(value: Operand) -> WindowCall:
    """Return the standard deviation of a sample; missing for one value."""
    return aggregate("stddev_samp", value)


def first(value: Operand) -> WindowCall:
    """Return the value of the event that starts first; of several, of the first row."""
    return aggregate("first", value)


def last(value: Operand) -> WindowCall:
    """Return the value of the event that starts last; of several, of the last row."""
    return aggregate("last", value)


def collect(value: Operand) -> WindowCall:
    """Return all values as a list, in the order of rows."""
    return aggregate("collect", value)


def mode(value: Operand) -> WindowCall:
    """Return the most frequent value; of several the first in order."""
    return aggregate("mode", value)


def median(value: Operand) -> WindowCall:
    """Return the value in the middle, or half way between two."""
    return aggregate("median", value)


def percentile_disc(value: Operand, p: float) -> WindowCall:
    """Return the first value whose place, from 1, is at least ``p`` times their number. ``p``: from 0 to 1."""
    return aggregate("percentile_disc", value, p=p)


def percentile_cont(value: Operand, p: float) -> WindowCall:
    """Return the value at ``p`` of the way from the first to the last, between two if need be. ``p``: from 0 to 1."""
    return aggregate("percentile_cont", value, p=p)
