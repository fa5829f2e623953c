"""Rules of ``+ - * / // %`` and unary ``-``.

Ints are 64 bits wide, and leaving them is an error. Decimals are exact, with at most 38 digits. ``/`` always gives a
float. A division by zero gives NULL.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Final

from lmerge.temporal.expressions.coercion import as_float, coerced
from lmerge.temporal.expressions.rules import Request, operation
from lmerge.temporal.expressions.typed import CANONICAL_NAN, Bindings, Constant, Site, TypedNode
from lmerge.temporal.expressions.typing_rules import FLOAT, INT, NUMBERS, check_scale, decimal_type, shown_type
from lmerge.temporal.python_values import EXACT
from lmerge.wire.schema import DECIMAL_DIGITS_MAX, Column

IN_64_BITS: Final = "if not -9223372036854775808 <= {t} <= 9223372036854775807: {overflow}({site})"
IN_38_DIGITS: Final = "if not -{bound} < {t} < {bound}: {too_many}({site})"


def overflow(site: Site) -> None:
    """Raise the error of an int beyond 64 bits."""
    raise site.failure("the result is beyond 64 bits")


def too_many_digits(site: Site) -> None:
    """Raise the error of a decimal beyond its digits."""
    raise site.failure(f"the result has more than {DECIMAL_DIGITS_MAX} digits")


OVERFLOW: Final[Bindings] = (("overflow", overflow),)


def digits_bindings(scale: int) -> Bindings:
    """Return what ``IN_38_DIGITS`` needs for results with that scale."""
    return (("bound", Decimal(10) ** (DECIMAL_DIGITS_MAX - scale)), ("too_many", too_many_digits))


def _numbers(request: Request) -> Column:
    """Return the common type of the operands, which are numbers."""
    left, right = (operand.column for operand in request.operands)
    if left.type == right.type == "string":
        raise request.refusal("it takes numbers; concat() joins text")
    if left.type not in NUMBERS or right.type not in NUMBERS:
        raise request.refusal(f"it takes numbers, not {request.shown_types}")
    if {left.type, right.type} == {"float", "decimal"}:
        raise request.refusal(
            f"it takes {shown_type(left)} and {shown_type(right)} only after a cast: a float is not exact"
        )
    return request.common(request.operands, "operands")


def _both(request: Request, column: Column) -> tuple[TypedNode, ...]:
    return tuple(coerced(operand, column) for operand in request.operands)


def _add_or_subtract(request: Request, sign: str, exact: Callable[[Decimal, Decimal], Decimal]) -> TypedNode:
    column = _numbers(request)
    if column.type == "int":
        return request.strict(INT, f"{{0}} {sign} {{1}}", bindings=OVERFLOW, after=IN_64_BITS)
    if column.type == "float":
        return request.strict(FLOAT, f"{{0}} {sign} {{1}}", operands=_both(request, column), after=CANONICAL_NAN)
    return request.strict(
        decimal_type(column.scale),
        "{exact}({0}, {1})",
        operands=_both(request, column),
        bindings=(("exact", exact), *digits_bindings(column.scale)),
        after=IN_38_DIGITS,
    )


@operation("add", 2)
def _add(request: Request) -> TypedNode:
    return _add_or_subtract(request, "+", EXACT.add)


@operation("subtract", 2)
def _subtract(request: Request) -> TypedNode:
    left, right = (operand.column.type for operand in request.operands)
    if left == right and left in ("timestamp", "date"):
        return request.strict(INT, "{0} - {1}", bindings=OVERFLOW, after=IN_64_BITS)
    return _add_or_subtract(request, "-", EXACT.subtract)


@operation("multiply", 2)
def _multiply(request: Request) -> TypedNode:
    column = _numbers(request)
    if column.type == "int":
        return request.strict(INT, "{0} * {1}", bindings=OVERFLOW, after=IN_64_BITS)
    if column.type == "float":
        return request.strict(FLOAT, "{0} * {1} + 0.0", operands=_both(request, column), after=CANONICAL_NAN)
    scale = sum(operand.column.scale for operand in request.operands)
    problem = check_scale(scale)
    if problem is not None:
        raise request.refusal(f"{problem}; cast an operand to fewer")
    return request.strict(
        decimal_type(scale),
        "{exact}({0}, {1}) or {zero}",
        operands=tuple(coerced(one, decimal_type(one.column.scale)) for one in request.operands),
        bindings=(("exact", EXACT.multiply), ("zero", Decimal((0, (0,), -scale))), *digits_bindings(scale)),
        after=IN_38_DIGITS,
    )


def _can_be_zero(divisor: TypedNode) -> bool:
    return not isinstance(divisor.code, Constant) or not divisor.code.value


def _quotient(
    request: Request,
    result: Column,
    text: str,
    operands: tuple[TypedNode, ...],
    bindings: Bindings = (),
    after: str = "",
) -> TypedNode:
    """Return a division that gives NULL for a divisor of zero."""
    can_be_null = _can_be_zero(request.operands[1])
    text = f"None if {{1}} == 0 else {text}" if can_be_null else text
    return request.strict(result, text, operands=operands, bindings=bindings, after=after, can_be_null=can_be_null)


@operation("divide", 2)
def _divide(request: Request) -> TypedNode:
    _numbers(request)
    operands = tuple(as_float(operand) for operand in request.operands)
    return _quotient(request, FLOAT, "{0} / {1} + 0.0", operands, after=CANONICAL_NAN)


@operation("floor_divide", 2)
def _floor_divide(request: Request) -> TypedNode:
    column = _numbers(request)
    operands = _both(request, column)
    if column.type == "int":
        after = "if {t} == 9223372036854775808: {overflow}({site})"  # -2**63 // -1
        return _quotient(request, INT, "{0} // {1}", operands, OVERFLOW, after)
    if column.type == "float":
        return _quotient(request, FLOAT, "{0} // {1} + 0.0", operands, after=CANONICAL_NAN)
    bindings = (("floor_divide", _decimal_floor_divide), ("scale", column.scale))
    return _quotient(request, decimal_type(0), "{floor_divide}({0}, {1}, {scale}, {site})", operands, bindings)


@operation("modulo", 2)
def _modulo(request: Request) -> TypedNode:
    column = _numbers(request)
    operands = _both(request, column)
    if column.type == "int":
        return _quotient(request, INT, "{0} % {1}", operands)
    if column.type == "float":
        return _quotient(request, FLOAT, "{0} % {1} + 0.0", operands, after=CANONICAL_NAN)
    bindings = (("modulo", _decimal_modulo), ("scale", column.scale))
    return _quotient(request, decimal_type(column.scale), "{modulo}({0}, {1}, {scale})", operands, bindings)


def unscaled(value: Decimal, scale: int) -> int:
    """Return a decimal as a number of units of its last digit."""
    return int(EXACT.scaleb(value, scale))


def _decimal_floor_divide(left: Decimal, right: Decimal, scale: int, site: Site) -> Decimal:
    quotient = unscaled(left, scale) // unscaled(right, scale)
    if abs(quotient) >= 10**DECIMAL_DIGITS_MAX:
        too_many_digits(site)
    return Decimal(quotient)


def _decimal_modulo(left: Decimal, right: Decimal, scale: int) -> Decimal:
    return EXACT.scaleb(Decimal(unscaled(left, scale) % unscaled(right, scale)), -scale)


@operation("negate")
def _negate(request: Request) -> TypedNode:
    column = request.require(0, NUMBERS).column
    if column.type == "int":
        return request.strict(INT, "-{0}", bindings=OVERFLOW, after=IN_64_BITS)
    if column.type == "float":
        return request.strict(FLOAT, "0.0 - {0}", after=CANONICAL_NAN)
    return request.strict(decimal_type(column.scale), "{minus}({0})", bindings=(("minus", EXACT.minus),))
