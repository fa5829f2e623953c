"""The aggregates that come with lmerge: which types they take, what they return, and how it is computed.

Missing values are ignored; only ``count()`` counts rows. Where all values are missing the result is missing, but for
counts, which are 0, and ``collect``, which is empty. Every result depends on the values alone, bit for bit, and not on
the order in which they came or went.

=====================  ==============================  ==========================================================
aggregate              takes                           returns
=====================  ==============================  ==========================================================
count()                                                int: the number of rows
count(x)               any                             int: the number of values
distinct_count(x)      any                             int: the number of different values
sum(x)                 int, decimal, float             the same type; beyond 64 bits, or 38 digits: ModuleViolation
avg(x)                 int, decimal, float             float
var_pop, var_samp      int, decimal, float             float; of one value ``var_samp`` is missing
stddev_pop, _samp      int, decimal, float             float; of one value ``stddev_samp`` is missing
min(x), max(x)         any                             the same type, in the order of rows: NaN is the largest float
first(x), last(x)      any                             the value of the event that starts first or last; of several
                                                       that of the first or last row in the order of rows
collect(x)             any                             list of the values, in the order of rows
mode(x)                any                             the most frequent value; of several the first in order
percentile_disc(x, p)  any                             the first value whose place from 1 is at least ``p * n``
percentile_cont(x, p)  int, decimal, float             float: with the places of n values from 0, the value at
                                                       ``p * (n - 1)``, on the line between its two neighbours
median(x)              int, decimal, float             ``percentile_cont(x, 0.5)``
=====================  ==============================  ==========================================================

``p`` is the decimal number that is written: 0.1 is a tenth, and not the float beside it. Sums, averages, variances,
deviations and percentiles are exact rationals that are rounded once, to the nearest float, half to even. The terms are
the decimals where the column declares digits, else the floats. Infinities and NaN follow IEEE 754: a sum with both
infinities or NaN is NaN, and so is a variance with any of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Final

from lmerge.core.elements import INF, NEG_INF
from lmerge.temporal.errors import ModuleViolation, PlanError
from lmerge.temporal.modules.accumulators import Accumulator, RowCount, ValueCount
from lmerge.temporal.modules.aggregates import AccumulatedAggregate, Finish
from lmerge.temporal.modules.arguments import Argument
from lmerge.temporal.modules.exact import decimal_of, rounded_ratio, rounded_root
from lmerge.temporal.modules.moments import Moment, Moments
from lmerge.temporal.modules.ordered import ByStart, Ordered, OrderedValues, Tally
from lmerge.temporal.values import NAN, canonical_float
from lmerge.temporal.windows.kinds import WindowDescriptor
from lmerge.wire.schema import DECIMAL_DIGITS_MAX, Column, Schema

NUMBERS: Final = ("int", "decimal", "float")


@dataclass(frozen=True)
class _Call:
    """A call that is bound: the name of its result, its argument if it has one, the rows' schema, and how it shows."""

    result: str
    argument: Argument
    schema: Schema
    shown: str
    part: Fraction


@dataclass(frozen=True)
class _Function:
    """``takes``: types, or None for any. ``has_part``: whether it has the parameter ``p``."""

    bind: Callable[[_Call], AccumulatedAggregate]
    takes: Sequence[str] | None = None
    has_part: bool = False


def bind_aggregate(
    name: str, arguments: Sequence[Argument], parameters: Mapping[str, Any], result: str, schema: Schema
) -> AccumulatedAggregate:
    """Return the built-in aggregate ``name`` whose results are the column ``result``, over rows of ``schema``.

    Raises PlanError, which names the call and the column that does not fit.
    """
    inside = [argument.column.name for argument in arguments] + [f"{key}={value}" for key, value in parameters.items()]
    shown = f"{name}({', '.join(inside)})"
    if name == "count" and not arguments and not parameters:
        return AccumulatedAggregate(Column(result, "int"), shown, RowCount(), _as_it_is)
    function = _FUNCTIONS.get(name)
    if function is None:
        raise PlanError(f"{shown}: there is no aggregate {name!r:.64}; there are {', '.join(BUILTIN_AGGREGATES)}")
    if len(arguments) != 1:
        raise PlanError(f"{shown} has {len(arguments)} arguments; {name} takes one")
    (argument,) = arguments
    if function.takes is not None and argument.column.type not in function.takes:
        takes = " or ".join(function.takes)
        raise PlanError(f"{shown}: {argument.column.name} is {argument.column.describe()}, and {name} takes {takes}")
    part = _part_of(shown, parameters, function.has_part)
    return function.bind(_Call(result, argument, schema, shown, part))


def _part_of(shown: str, parameters: Mapping[str, Any], has_part: bool) -> Fraction:
    """Return the parameter ``p`` as it is written. Raises PlanError."""
    unknown = [key for key in parameters if key != "p" or not has_part]
    if unknown:
        raise PlanError(f"{shown}: there is no parameter {unknown[0]!r:.64}")
    if not has_part:
        return Fraction(0)
    value = parameters.get("p")
    try:
        part = None if value is None or isinstance(value, bool) else Fraction(str(value))
    except (ValueError, ZeroDivisionError):
        part = None
    if part is None or not 0 <= part <= 1:
        raise PlanError(f"{shown}: p is {value!r:.64}; it must be a number from 0 to 1")
    return part


def _as_it_is(state: Any, window: WindowDescriptor) -> Any:
    return state


# Counts.


def _count(call: _Call) -> AccumulatedAggregate:
    return AccumulatedAggregate(Column(call.result, "int"), call.shown, ValueCount(call.argument), _as_it_is)


def _distinct_count(call: _Call) -> AccumulatedAggregate:
    def finish(state: dict[Any, int], window: WindowDescriptor) -> int:
        return len(state)

    return AccumulatedAggregate(Column(call.result, "int"), call.shown, Tally(call.argument), finish)


def _mode(call: _Call) -> AccumulatedAggregate:
    kept = Tally(call.argument)

    def finish(state: dict[Any, int], window: WindowDescriptor) -> Any:
        return kept.first_of_most(state)

    return _of_the_same_type(call, kept, finish)


def _of_the_same_type(call: _Call, kept: Accumulator, finish: Finish) -> AccumulatedAggregate:
    return AccumulatedAggregate(replace(call.argument.column, name=call.result), call.shown, kept, finish)


# Sums and moments.


def _sum(call: _Call) -> AccumulatedAggregate:
    kept = Moments(call.argument)
    column = call.argument.column
    if column.type == "float":
        return _of_the_same_type(call, kept, lambda state, window: _float_sum(kept, state))
    largest = 10**DECIMAL_DIGITS_MAX - 1
    lowest, highest = (NEG_INF, INF) if column.type == "int" else (-largest, largest)

    def finish(state: Moment, window: WindowDescriptor) -> Any:
        if state.count == 0:
            return None
        total = state.total
        if not lowest <= total <= highest:
            raise ModuleViolation(overflow_text(call.shown, column, str(window)))
        return total if column.type == "int" else decimal_of(total, column.scale)

    return _of_the_same_type(call, kept, finish)


def overflow_text(call: str, column: Column, window: str) -> str:
    """Return the message for a sum of a column in a window that its type cannot hold."""
    where = "64 bits" if column.type == "int" else f"{DECIMAL_DIGITS_MAX} digits"
    return f"{call} over column {column.name!r}: its sum in window {window} exceeds {where}"


def _float_sum(kept: Moments, state: Moment) -> float | None:
    if state.count == 0:
        return None
    special = _special(state)
    if special is not None:
        return special
    unit = kept.scale.unit
    return rounded_ratio(state.total * unit.up, unit.down << state.power)


def _special(state: Moment) -> float | None:
    """Return the sum if it is no finite number."""
    if state.nan or (state.plus_inf and state.minus_inf):
        return NAN
    if state.plus_inf:
        return math.inf
    return -math.inf if state.minus_inf else None


def _avg(call: _Call) -> AccumulatedAggregate:
    kept = Moments(call.argument)
    unit = kept.scale.unit

    def finish(state: Moment, window: WindowDescriptor) -> float | None:
        if state.count == 0:
            return None
        special = _special(state)
        if special is not None:
            return special
        return rounded_ratio(state.total * unit.up, (unit.down << state.power) * state.count)

    return AccumulatedAggregate(_float_column(call), call.shown, kept, finish)


def _float_column(call: _Call, nullable: bool = False) -> Column:
    return Column(call.result, "float", nullable or call.argument.column.nullable)


def _spread(of_sample: bool, is_root: bool) -> Callable[[_Call], AccumulatedAggregate]:
    """Return what binds a variance or its root: ``n * sum of squares - sum ** 2`` by ``n * n`` or ``n * (n - 1)``."""

    def bind(call: _Call) -> AccumulatedAggregate:
        kept = Moments(call.argument, squares=True)
        unit = kept.scale.unit
        rounded = rounded_root if is_root else rounded_ratio

        def finish(state: Moment, window: WindowDescriptor) -> float | None:
            count = state.count
            if count <= of_sample:
                return None
            if _special(state) is not None:
                return NAN
            up = (count * state.squares - state.total**2) * unit.up**2
            down = (unit.down**2 << 2 * state.power) * count * (count - of_sample)
            return rounded(up, down)

        return AccumulatedAggregate(_float_column(call, nullable=of_sample), call.shown, kept, finish)

    return bind


# Values in order.


def _min(call: _Call) -> AccumulatedAggregate:
    kept = Ordered(call.argument)

    def finish(state: OrderedValues, window: WindowDescriptor) -> Any:
        return kept.at(state, 0) if len(state) else None

    return _of_the_same_type(call, kept, finish)


def _max(call: _Call) -> AccumulatedAggregate:
    kept = Ordered(call.argument)

    def finish(state: OrderedValues, window: WindowDescriptor) -> Any:
        return kept.at(state, len(state) - 1) if len(state) else None

    return _of_the_same_type(call, kept, finish)


def _percentile_disc(call: _Call) -> AccumulatedAggregate:
    kept, part = Ordered(call.argument), call.part

    def finish(state: OrderedValues, window: WindowDescriptor) -> Any:
        count = len(state)
        return kept.at(state, max(math.ceil(part * count), 1) - 1) if count else None

    return _of_the_same_type(call, kept, finish)


def _percentile_cont(call: _Call) -> AccumulatedAggregate:
    kept = Ordered(call.argument)
    scale = Moments(call.argument).scale
    up, down = call.part.as_integer_ratio()
    is_float = call.argument.column.type == "float"

    def exact(value: Any) -> Fraction:
        return (
            Fraction(value) if scale.to_int is None else Fraction(scale.to_int(value) * scale.unit.up, scale.unit.down)
        )

    def finish(state: OrderedValues, window: WindowDescriptor) -> float | None:
        if not len(state):
            return None
        place, rest = divmod(up * (len(state) - 1), down)
        low = kept.at(state, place)
        high = kept.at(state, place + 1) if rest else low
        if is_float and not (math.isfinite(low) and math.isfinite(high)):
            return canonical_float(low + high)
        first = exact(low)
        found = first + (exact(high) - first) * rest / down
        return rounded_ratio(*found.as_integer_ratio())

    return AccumulatedAggregate(_float_column(call), call.shown, kept, finish)


def _median(call: _Call) -> AccumulatedAggregate:
    return _percentile_cont(replace(call, part=Fraction(1, 2)))


# Events in order.


def _first(call: _Call) -> AccumulatedAggregate:
    return _at_the_end(call, 0)


def _last(call: _Call) -> AccumulatedAggregate:
    return _at_the_end(call, -1)


def _at_the_end(call: _Call, place: int) -> AccumulatedAggregate:
    kept = ByStart(call.argument, call.schema)

    def finish(state: Any, window: WindowDescriptor) -> Any:
        return kept.value_of(state[place][2]) if state else None

    return _of_the_same_type(call, kept, finish)


def _collect(call: _Call) -> AccumulatedAggregate:
    kept = Ordered(call.argument)
    element = replace(call.argument.column, name="element", nullable=False)

    def finish(state: OrderedValues, window: WindowDescriptor) -> tuple[Any, ...]:
        return kept.values(state)

    return AccumulatedAggregate(Column(call.result, "list", children=(element,)), call.shown, kept, finish)


_FUNCTIONS: Final[Mapping[str, _Function]] = {
    "count": _Function(_count),
    "distinct_count": _Function(_distinct_count),
    "sum": _Function(_sum, NUMBERS),
    "avg": _Function(_avg, NUMBERS),
    "var_pop": _Function(_spread(of_sample=False, is_root=False), NUMBERS),
    "var_samp": _Function(_spread(of_sample=True, is_root=False), NUMBERS),
    "stddev_pop": _Function(_spread(of_sample=False, is_root=True), NUMBERS),
    "stddev_samp": _Function(_spread(of_sample=True, is_root=True), NUMBERS),
    "min": _Function(_min),
    "max": _Function(_max),
    "first": _Function(_first),
    "last": _Function(_last),
    "collect": _Function(_collect),
    "mode": _Function(_mode),
    "percentile_disc": _Function(_percentile_disc, has_part=True),
    "percentile_cont": _Function(_percentile_cont, NUMBERS, has_part=True),
    "median": _Function(_median, NUMBERS),
}
BUILTIN_AGGREGATES: Final = tuple(_FUNCTIONS)
