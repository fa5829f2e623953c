"""Conversions between types, on canonical values: for casts, and for literals that are written as text.

A conversion raises ValueError if the type has no such value. Floats become ints by dropping what is behind the point.
Digits that a decimal has no place for are rounded, half to even.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any, Final, TypeAlias

from lmerge.core.elements import INF, NEG_INF
from lmerge.temporal.python_values import EPOCH, EPOCH_DAY, EXACT, MICROSECOND, day_of, moment_of
from lmerge.temporal.values import canonical_float
from lmerge.wire.schema import DECIMAL_DIGITS_MAX, Column

Conversion: TypeAlias = Callable[[Any, Column], Any]
"""A function of a value and the target's type. Raises ValueError, whose message follows the value."""

DAY_MICROSECONDS: Final = 86_400_000_000

_INT: Final = re.compile(r"[+-]?[0-9]+")
_FLOAT: Final = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?|[+-]?inf|nan")
_DECIMAL: Final = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)")
_DATE: Final = re.compile(r"([0-9]{4})-([0-9]{2})-([0-9]{2})")
_MOMENT: Final = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})[T ]([0-9]{2}):([0-9]{2})(?::([0-9]{2})(?:\.([0-9]{1,6}))?)?"
    r"(?:Z|([+-])([0-9]{2}):([0-9]{2}))"
)


def converted(value: Any, source: Column, target: Column) -> Any:
    """Return a canonical value as one of another type. Raises ValueError, whose message follows the value."""
    return CONVERSIONS[source.type, target.type](value, target)


def _within_64_bits(number: int) -> int:
    if not NEG_INF <= number <= INF:
        raise ValueError("is beyond 64 bits")
    return number


def _int_of_float(value: float, _: Column) -> int:
    if not math.isfinite(value):
        raise ValueError("is no whole number")
    return _within_64_bits(int(value))


def _int_of_decimal(value: Decimal, _: Column) -> int:
    return _within_64_bits(int(value))


def _int_of_text(value: str, _: Column) -> int:
    # Longer texts take quadratic time, and are refused by newer versions of Python.
    if len(value) > 64 or _INT.fullmatch(value) is None:
        raise ValueError("is no whole number")
    return _within_64_bits(int(value))


def _float_of_text(value: str, target: Column) -> float:
    if _FLOAT.fullmatch(value) is None:
        raise ValueError("is no number")
    return _to_float(value, target)


def _to_float(value: Any, target: Column) -> float:
    number = float(value)
    digits = target.round_digits
    return canonical_float(number if digits is None or not math.isfinite(number) else round(number, digits))


def _decimal_of_number(value: int | Decimal, target: Column) -> Decimal:
    number = Decimal(value)
    if number and number.adjusted() >= DECIMAL_DIGITS_MAX - target.scale:
        raise ValueError(f"has more than {DECIMAL_DIGITS_MAX} digits with {target.scale} after the point")
    rounded = EXACT.quantize(number, Decimal((0, (1,), -target.scale)))
    if rounded.copy_abs() >= Decimal(10) ** (DECIMAL_DIGITS_MAX - target.scale):
        raise ValueError(f"has more than {DECIMAL_DIGITS_MAX} digits with {target.scale} after the point")
    return rounded or rounded.copy_abs()


def _decimal_of_float(value: float, target: Column) -> Decimal:
    if not math.isfinite(value):
        raise ValueError("is no decimal")
    return _decimal_of_number(Decimal(value), target)


def _decimal_of_text(value: str, target: Column) -> Decimal:
    if len(value) > 4 * DECIMAL_DIGITS_MAX or _DECIMAL.fullmatch(value) is None:
        raise ValueError("is no decimal")
    return _decimal_of_number(Decimal(value), target)


def _bool_of_text(value: str, _: Column) -> bool:
    if value not in ("true", "false"):
        raise ValueError("is neither true nor false")
    return value == "true"


def _date_of_text(value: str, _: Column) -> int:
    match = _DATE.fullmatch(value)
    if match is None:
        raise ValueError("is no date as 2013-01-31")
    try:
        return date(*map(int, match.groups())).toordinal() - EPOCH_DAY
    except ValueError:
        raise ValueError("is no day of the calendar") from None


def _moment_of_text(value: str, _: Column) -> int:
    match = _MOMENT.fullmatch(value)
    if match is None:
        raise ValueError("is no moment as 2013-01-31T10:00:00Z")
    *calendar, fraction, sign, hours, minutes = match.groups()
    offset = timedelta(hours=int(hours or 0), minutes=int(minutes or 0)) * (-1 if sign == "-" else 1)
    try:
        year, month, day, hour, minute, second = (int(part or 0) for part in calendar)
        moment = datetime(year, month, day, hour, minute, second, tzinfo=timezone.utc)
    except ValueError:
        raise ValueError("is no moment of the calendar") from None
    return (moment - EPOCH) // MICROSECOND - offset // MICROSECOND + int((fraction or "").ljust(6, "0"))


def text_of_moment(value: int, _: Column | None = None) -> str:
    """Return a timestamp as ``2013-01-31T10:00:00Z``, with six digits behind the seconds if they are not zero.

    Raises ValueError outside the years 1 to 9999.
    """
    return moment_of(value).isoformat().replace("+00:00", "Z")


def text_of_day(value: int, _: Column | None = None) -> str:
    """Return a date as ``2013-01-31``. Raises ValueError outside the years 1 to 9999."""
    return day_of(value).isoformat()


def _moment_of_day(value: int, _: Column) -> int:
    return _within_64_bits(value * DAY_MICROSECONDS)


def _text_of_float(value: float, _: Column) -> str:
    return repr(value)


CONVERSIONS: Final[dict[tuple[str, str], Conversion]] = {
    ("bool", "int"): lambda value, _: int(value),
    ("bool", "string"): lambda value, _: "true" if value else "false",
    ("int", "float"): _to_float,
    ("int", "decimal"): _decimal_of_number,
    ("int", "string"): lambda value, _: str(value),
    ("int", "timestamp"): lambda value, _: value,
    ("float", "float"): _to_float,
    ("float", "int"): _int_of_float,
    ("float", "decimal"): _decimal_of_float,
    ("float", "string"): _text_of_float,
    ("decimal", "decimal"): _decimal_of_number,
    ("decimal", "int"): _int_of_decimal,
    ("decimal", "float"): _to_float,
    ("decimal", "string"): lambda value, _: f"{value:f}",
    ("string", "bool"): _bool_of_text,
    ("string", "int"): _int_of_text,
    ("string", "float"): _float_of_text,
    ("string", "decimal"): _decimal_of_text,
    ("string", "date"): _date_of_text,
    ("string", "timestamp"): _moment_of_text,
    ("timestamp", "int"): lambda value, _: value,
    ("timestamp", "date"): lambda value, _: value // DAY_MICROSECONDS,
    ("timestamp", "string"): text_of_moment,
    ("date", "timestamp"): _moment_of_day,
    ("date", "string"): text_of_day,
}
"""Every cast between two types, but for the casts between equal types that change nothing."""
