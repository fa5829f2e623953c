"""Sums and averages of floats that have the same bits in any order of rows: ``exact_sum`` and ``exact_avg``.

A float sum depends on the order of its additions, and no two runs of a query have the same order. Rounding the sum does
not help: two sums that differ in the last bit can lie on the two sides of a tie. Here every number is cut into pieces
that are whole multiples of fixed powers of two. Spark adds the pieces as whole numbers, which is exact::

    x = d(65) * 2**1006 + ... + d(1) * 2**-1042 + d(0) * 2**-1074        |d(j)| < 2**32, all of the sign of x

A double has 53 bits, so at most three of its pieces are not 0. Pieces 28 to 37 hold all bits of numbers from 2**-126
(1e-38, the smallest normal number of 32 bits) up to 2**142 (5e42), and of 0. Each of these pieces has a sum of its own.
Numbers outside this range are rare. They are kept unchanged in a list, which is added up at the end: 66 sums would hold
them all, but Spark would need a second in each batch to plan such a query.

After the aggregation an expression adds everything up as one long number and rounds it once, to nearest, ties to even.
The result is the double nearest to the true sum (IEEE 754), and for an average the double nearest to the true quotient.
It contains no user code, so it works wherever Spark's ``sum`` does: in streams, in append and in update mode, in
windows, after a restart, and through Spark Connect.

=================================  ===================================================================================
nulls                              are skipped; without values the result is null, as with Spark's ``sum``, ``avg``
NaN, or infinities of both signs   the result is NaN
infinities of one sign             the result is that infinity
a sum of zero                      is 0.0, and never -0.0, as with Spark's ``sum``
partial sums beyond all doubles    do not matter
a sum beyond the largest double    is an infinity, as IEEE 754 rounds; an average lies between its numbers, so it is not
more than 2**31 - 1 numbers        in one group end the query with an error: 64 bits could overflow
=================================  ===================================================================================

Source of the pieces: Kulisch's long accumulator, in the form of R. Neal, "Fast exact summation using small and large
superaccumulators" (2015): few bits in wide integers, so that carries wait until the end.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from lmerge.errors import UsageError

if TYPE_CHECKING:
    from pyspark.sql import Column

# Bits of a piece. The other 64 - 32 - 1 bits allow adding 2**31 - 1 pieces without a carry.
PIECE_BITS: Final = 32
PIECE: Final = 2**PIECE_BITS
NUMBERS_MAX: Final = 2**31 - 1
# The last bit of the smallest double, and the first power of two beyond the largest.
LAST_BIT: Final = -1074
BEYOND: Final = 1024
PIECES: Final = -(-(BEYOND - LAST_BIT) // PIECE_BITS)
MANTISSA_BITS: Final = 53
UNITS: Final = tuple(2.0 ** (LAST_BIT + PIECE_BITS * j) for j in range(PIECES))
# The pieces with a sum of their own. Ten cost a tenth of a second of planning, and cover 80 powers of ten.
COMMON: Final = range(28, 38)
COMMON_FROM: Final = UNITS[COMMON.start] * 2.0 ** (MANTISSA_BITS - 1)
COMMON_BELOW: Final = UNITS[COMMON.stop]
# Pieces below the lowest, so that a quotient has three digits; and above the highest, where carries end.
BELOW: Final = 3
ABOVE: Final = 1
# Bits kept for the single rounding, the last of them set if anything is below: fewer than 63, more than 55.
KEPT_BITS: Final = 61

_IS_NAN: Final = 1
_IS_PLUS_INF: Final = 2
_IS_MINUS_INF: Final = 4


def exact_sum(column: str | Column) -> Column:
    """Return the sum of a column of floats or doubles, rounded once: the same bits in any order of rows. See above.

    Takes a name or an expression, which is read as double, for ``agg`` of a grouped DataFrame. Whole numbers and
    decimals do not need it, as Spark adds them exactly. Raises UsageError for anything that is not a column.
    """
    return _exact(column, is_average=False)


def exact_avg(column: str | Column) -> Column:
    """Return the average of a column of floats or doubles, rounded once: the same bits in any order of rows."""
    return _exact(column, is_average=True)


def _exact(column: str | Column, *, is_average: bool) -> Column:
    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import functions as f

    if not isinstance(column, (str, SparkColumn)):
        raise UsageError(f"exact_sum and exact_avg take a column or its name, not {type(column).__name__}")
    x = (f.col(column) if isinstance(column, str) else column).cast("double")
    count, size = f.count(x), f.abs(x)
    is_rare = (size < COMMON_FROM) & (size > 0.0) | (size >= COMMON_BELOW) & (size < float("inf"))
    flags = f.when(f.isnan(x), _IS_NAN).when(x == float("inf"), _IS_PLUS_INF).when(x == float("-inf"), _IS_MINUS_INF)
    state = f.struct(
        count.alias("count"),
        f.coalesce(f.bit_or(flags), f.lit(0)).alias("flags"),
        f.array(*(f.coalesce(f.sum(_common_piece(x, size, j)), _whole(0)) for j in COMMON)).alias("sums"),
        # Sorted, although their order does not matter, so that this needs no proof.
        f.array_sort(f.collect_list(f.when(is_rare, x))).alias("rare"),
    )
    return _let(state, lambda state: _result(state, is_average))


def _common_piece(x: Column, size: Column, j: int) -> Column:
    """Return piece ``j`` of ``x``; null where there is none, and for rare numbers."""
    from pyspark.sql import functions as f

    least = max(UNITS[j], COMMON_FROM)
    above = min(UNITS[j + 1] * 2.0**MANTISSA_BITS, COMMON_BELOW)  # numbers from here on have no bit so low
    return f.when((size >= least) & (size < above), _cut(x, f.lit(UNITS[j]), f.lit(UNITS[j + 1])))


def _cut(x: Column, unit: Column, next_unit: Column) -> Column:
    """Return one piece. Each step is exact: remainder and quotient by a power of two, and the cut to a whole number."""
    return (x % next_unit / unit).cast("bigint")


def _result(state: Column, is_average: bool) -> Column:
    from pyspark.sql import functions as f

    count, flags = state["count"], state["flags"]
    message = f.concat(
        f.lit(f"exact_sum and exact_avg add at most {NUMBERS_MAX} numbers of a group; this one has "), count
    )
    # Most groups have no rare numbers, and then only the common pieces count.
    rare = f.size(state["rare"]) > 0
    common = f.concat(_zeros(BELOW), state["sums"], _zeros(ABOVE))
    pieces = f.struct(
        f.when(rare, _all_pieces(state)).otherwise(common).alias("sums"),
        f.when(rare, 0).otherwise(COMMON.start - BELOW).alias("low"),
        (count if is_average else _whole(1)).alias("count"),
    )
    return (
        f.when(count == 0, f.lit(None).cast("double"))
        .when(flags == _IS_PLUS_INF, float("inf"))
        .when(flags == _IS_MINUS_INF, float("-inf"))
        .when(flags != 0, float("nan"))
        .when(count > NUMBERS_MAX, f.raise_error(message).cast("double"))
        .otherwise(_let(pieces, _rounded))
    )


def _all_pieces(state: Column) -> Column:
    """Return the sums of all pieces, with those of the rare numbers."""
    from pyspark.sql import functions as f

    units = f.array(*map(f.lit, UNITS))

    def piece(x: Column, j: Column) -> Column:
        unit = f.element_at(units, j + 1)
        # The highest piece has no next one: it is the whole quotient.
        cut = f.when(j == PIECES - 1, (x / unit).cast("bigint")).otherwise(_cut(x, unit, f.element_at(units, j + 2)))
        # Not where the quotient could be too small for a double: there the piece is 0.
        return f.when(f.abs(x) >= unit, cut).otherwise(_whole(0))

    rare = f.transform(
        f.sequence(f.lit(0), f.lit(PIECES - 1)),
        lambda j: f.aggregate(state["rare"], _whole(0), lambda sum_, x: sum_ + piece(x, j)),
    )
    common = f.concat(_zeros(COMMON.start), state["sums"], _zeros(PIECES - COMMON.stop))
    return f.concat(f.zip_with(rare, common, lambda a, b: a + b), _zeros(ABOVE))


def _rounded(pieces: Column) -> Column:
    """Return the double nearest to the sum of ``sums[i] * 2**(LAST_BIT + 32 * (low + i))``, divided by ``count``."""
    from pyspark.sql import functions as f

    sums, count = pieces["sums"], pieces["count"]
    carry = f.aggregate(sums, _whole(0), lambda carry, one: f.shiftright(one + carry, PIECE_BITS))
    sign = f.when(carry < 0, _whole(-1)).otherwise(_whole(1))

    def unsigned(sign: Column) -> Column:
        digits = _digits(f.transform(sums, lambda one: one * sign))
        return sign * _let(_quotient(digits, count, pieces["low"]), lambda q: _double(q, count))

    return _let(sign, unsigned)


def _digits(sums: Column) -> Column:
    """Return the digits in base 2**32 of a number that is not negative, the highest first."""
    from pyspark.sql import functions as f

    def step(state: Column, one: Column) -> Column:
        value = one + state.carry
        digit = value.bitwiseAND(_whole(PIECE - 1))
        return f.struct(
            f.concat(f.array(digit), state.digits).alias("digits"), f.shiftright(value, PIECE_BITS).alias("carry")
        )

    start = f.struct(f.array().cast("array<bigint>").alias("digits"), _whole(0).alias("carry"))
    return f.aggregate(sums, start, step, lambda state: state.digits)


def _quotient(digits: Column, count: Column, low: Column) -> Column:
    """Divide ``digits`` by ``count`` as on paper. ``low``: the number of the last digit.

    Returns ``a``, ``b``, ``c``, the highest digits of the quotient from the first that is not 0; ``top``, the number of
    the first; ``more``, whether a later one is not 0; and ``rest``, the remainder.
    """
    from pyspark.sql import functions as f

    def step(s: Column, digit: Column) -> Column:
        value = s.rest * PIECE + digit
        q = f.call_function("div", value, count)
        is_before = s.a == 0
        return f.struct(
            f.when(is_before, q).otherwise(s.a).alias("a"),
            f.when(s.length == 1, q).otherwise(s.b).alias("b"),
            f.when(s.length == 2, q).otherwise(s.c).alias("c"),
            (s.more | ((s.length > 2) & (q != 0))).alias("more"),
            f.when(is_before & (q == 0), 0).otherwise(s.length + 1).alias("length"),
            (value % count).alias("rest"),
        )

    start = f.struct(
        *(_whole(0).alias(name) for name in "abc"),
        f.lit(False).alias("more"),
        f.lit(0).alias("length"),
        _whole(0).alias("rest"),
    )
    return f.aggregate(
        digits,
        start,
        step,
        lambda s: f.struct(
            s.a, s.b, s.c, s.length, (s.more | (s.rest != 0)).alias("more"), s.rest, (low + s.length - 1).alias("top")
        ),
    )


def _double(q: Column, count: Column) -> Column:
    """Return the double nearest to a quotient; of two equally near the one whose last bit is 0."""
    from pyspark.sql import functions as f

    # Below 2**53 times the last bit there are only whole multiples of that bit, and the remainder decides.
    few = f.when(q.top == 0, q.a).otherwise(q.a * PIECE + q.b)
    half = q.rest * 2
    is_up = (half > count) | ((half == count) & (few % 2 == 1))
    small = (few + is_up.cast("bigint")).cast("double") * 2.0**LAST_BIT
    is_small = (q.top == 0) | ((q.top == 1) & (q.a < 2 ** (MANTISSA_BITS - PIECE_BITS)))
    large = _let(f.length(f.bin(q.a)), lambda bits: _scaled(q, bits))
    return f.when(q["length"] == 0, 0.0).when(is_small, small).otherwise(large)


def _scaled(q: Column, bits: Column) -> Column:
    """Return a large quotient as a double. ``bits``: of ``q.a``.

    Takes the KEPT_BITS highest bits of the quotient as a whole number, the last one set if anything is below. A cast
    rounds that to a double, and products with powers of two, which are exact, scale it.
    """
    from pyspark.sql import functions as f

    kept = _shifted(q.a, KEPT_BITS - bits)
    below = q.more
    for number, digit in enumerate((q.b, q.c), start=1):
        by = KEPT_BITS - PIECE_BITS * number - bits
        kept = kept.bitwiseOR(_shifted(digit, by))
        below = below | (_shifted(_shifted(digit, by), -by) != digit)
    kept = kept.bitwiseOR(f.when(below, _whole(1)).otherwise(_whole(0)))
    units = f.array(*map(f.lit, UNITS))
    highest = kept.cast("double") * 2.0**-KEPT_BITS * _shifted(_whole(1), bits).cast("double")
    return f.when(q.top >= PIECES, float("inf")).otherwise(highest * f.element_at(units, q.top + 1))


def _shifted(value: Column, by: Column) -> Column:
    """Return ``value`` times 2**by, cut to a whole number."""
    from pyspark.sql import functions as f

    left, right = f.call_function("shiftleft", value, by), f.call_function("shiftright", value, -by)
    return f.when(by >= 0, left).otherwise(right)


def _let(value: Column, use: Callable[[Column], Column]) -> Column:
    """Return ``use`` of a value that is computed once."""
    from pyspark.sql import functions as f

    return f.element_at(f.transform(f.array(value), use), 1)


def _whole(value: int) -> Column:
    from pyspark.sql import functions as f

    return f.lit(value).cast("bigint")


def _zeros(count: int) -> Column:
    from pyspark.sql import functions as f

    return f.array_repeat(_whole(0), count)
