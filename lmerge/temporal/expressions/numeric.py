"""Rules of functions of numbers.

Functions of floats give what IEEE 754 defines: NaN where there is no real value, and infinities.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from typing import Final

from lmerge.temporal.expressions.arithmetic import IN_38_DIGITS, IN_64_BITS, OVERFLOW, digits_bindings
from lmerge.temporal.expressions.coercion import as_float
from lmerge.temporal.expressions.rules import Request, operation
from lmerge.temporal.expressions.typed import CANONICAL_NAN, Bindings, TypedNode
from lmerge.temporal.expressions.typing_rules import FLOAT, INT, NUMBERS, decimal_type
from lmerge.temporal.python_values import EXACT
from lmerge.temporal.values import NAN

_WHOLE: Final = Decimal(1)
ROUND_DIGITS_MAX: Final = 38


@operation("abs")
def _abs(request: Request) -> TypedNode:
    column = request.require(0, NUMBERS).column
    if column.type == "int":
        return request.strict(INT, "abs({0})", bindings=OVERFLOW, after=IN_64_BITS)
    if column.type == "float":
        return request.strict(FLOAT, "abs({0})", after=CANONICAL_NAN)
    return request.strict(decimal_type(column.scale), "{0}.copy_abs()")


@operation("sign")
def _sign(request: Request) -> TypedNode:
    column = request.require(0, NUMBERS).column
    if column.type == "int":
        return request.strict(INT, "({0} > 0) - ({0} < 0)")
    if column.type == "float":
        return request.strict(FLOAT, "({0} > 0) - ({0} < 0) + 0.0 if {0} == {0} else {0}")
    return request.strict(decimal_type(0), "{exact}(({0} > 0) - ({0} < 0))", bindings=(("exact", Decimal),))


def _to_whole(name: str, of_float: Callable[[float], int], rounding: str) -> None:
    def whole(value: float) -> float:
        return float(of_float(value)) + 0.0 if math.isfinite(value) else value

    def whole_decimal(value: Decimal) -> Decimal:
        rounded = value.quantize(_WHOLE, rounding, EXACT)
        return rounded or _ZERO

    @operation(name)
    def to_whole(request: Request) -> TypedNode:
        column = request.require(0, NUMBERS).column
        if column.type == "int":
            return request.strict(INT, "{0}")
        if column.type == "float":
            return request.strict(FLOAT, "{whole}({0})", bindings=(("whole", whole),))
        bindings = (("whole", whole_decimal), *digits_bindings(0))
        return request.strict(decimal_type(0), "{whole}({0})", bindings=bindings, after=IN_38_DIGITS)


_ZERO: Final = Decimal(0)
_to_whole("floor", math.floor, ROUND_FLOOR)
_to_whole("ceil", math.ceil, ROUND_CEILING)


@operation("round", parameters=("digits",))
def _round(request: Request) -> TypedNode:
    column = request.require(0, NUMBERS).column
    digits = request.number("digits")
    if abs(digits) > ROUND_DIGITS_MAX:
        raise request.refusal(f"rounding to {digits} digits is beyond {ROUND_DIGITS_MAX}")
    bindings: Bindings = (("digits", digits),)
    if column.type == "int":
        if digits >= 0:
            return request.strict(INT, "{0}")
        return request.strict(INT, "round({0}, {digits})", bindings=(*bindings, *OVERFLOW), after=IN_64_BITS)
    if column.type == "float":
        return request.strict(
            FLOAT, "{round_float}({0}, {digits})", bindings=(*bindings, ("round_float", _round_float))
        )
    scale = max(0, min(digits, column.scale))
    if digits >= column.scale:
        return request.strict(decimal_type(scale), "{0}")
    bindings = (*bindings, ("scale", scale), ("round_decimal", _round_decimal), *digits_bindings(scale))
    return request.strict(
        decimal_type(scale), "{round_decimal}({0}, {digits}, {scale})", bindings=bindings, after=IN_38_DIGITS
    )


def _round_float(value: float, digits: int) -> float:
    return round(value, digits) + 0.0 if math.isfinite(value) else value


def _round_decimal(value: Decimal, digits: int, scale: int) -> Decimal:
    rounded = EXACT.quantize(value, Decimal((0, (1,), -digits)))
    return EXACT.quantize(rounded, Decimal((0, (1,), -scale))) if rounded else Decimal((0, (0,), -scale))


def _of_float(name: str, function: Callable[[float], float]) -> None:
    @operation(name)
    def of_float(request: Request) -> TypedNode:
        operand = as_float(request.require(0, NUMBERS))
        return request.strict(FLOAT, "{function}({0})", operands=(operand,), bindings=(("function", function),))


def _sqrt(value: float) -> float:
    return math.sqrt(value) if value >= 0.0 else NAN


def _exp(value: float) -> float:
    try:
        return math.exp(value) if value == value else NAN
    except OverflowError:
        return math.inf


def _ln(value: float) -> float:
    if value > 0.0:
        return math.log(value) + 0.0
    return -math.inf if value == 0.0 else NAN


_of_float("sqrt", _sqrt)
_of_float("exp", _exp)
_of_float("ln", _ln)


@operation("power", 2)
def _power(request: Request) -> TypedNode:
    operands = (as_float(request.require(0, NUMBERS)), as_float(request.require(1, NUMBERS)))
    return request.strict(
        FLOAT, "{power}({0}, {1}) + 0.0", operands=operands, bindings=(("power", _power_of),), after=CANONICAL_NAN
    )


def _power_of(base: float, exponent: float) -> float:
    try:
        return math.pow(base, exponent)
    except OverflowError:
        is_odd = math.fmod(exponent, 2.0) in (1.0, -1.0)
        return -math.inf if base < 0.0 and is_odd else math.inf
    except ValueError:  # zero to a negative power, or a root of a negative number
        return math.inf if base == 0.0 else NAN
