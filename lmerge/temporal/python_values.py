"""Values of rows as Python values and back: the edge between a plan and a user's functions.

A plan keeps values in the form of ``lmerge.temporal.values``. A user's function gets, and gives, what a Python
programmer expects:

=========  ==========================================================================================================
timestamp  ``datetime`` in UTC; back: any aware ``datetime``, or int microseconds since the epoch
date       ``date``
decimal    ``Decimal``; back: any with no more digits after the point than the schema has, or int
float      float; back: any real number; it is rounded if the schema declares digits
list       list; back: list or tuple
struct     dict with the fields' names; back: a mapping, where a missing field is None
others     as they are; numbers of NumPy are taken back for those of Python
=========  ==========================================================================================================

Called by expressions for user-defined functions, and by modules. Imports the schema and the form of rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime, timedelta, timezone
from decimal import Context, Decimal
from numbers import Integral, Real
from typing import Any, Final, TypeAlias

from lmerge.core.elements import INF, NEG_INF
from lmerge.temporal.values import canonical_float
from lmerge.wire.schema import DECIMAL_DIGITS_MAX, Column

Converter: TypeAlias = Callable[[Any], Any]

EPOCH: Final = datetime(1970, 1, 1, tzinfo=timezone.utc)
EPOCH_DAY: Final = date(1970, 1, 1).toordinal()
MICROSECOND: Final = timedelta(microseconds=1)

DAYS: Final = (-(2**31), 2**31 - 1)
"""The first and the last day that a date of a plan can be, since 1970."""

# Exact: no sum or product of two decimals of 38 digits has more digits. Without traps: infinities are refused by name.
EXACT: Final = Context(prec=4 * DECIMAL_DIGITS_MAX, traps=[])


def python_form(column: Column) -> Converter | None:
    """Return the conversion of a column's values to Python values, or None if they are the same.

    The conversion raises ValueError if a moment or a day is not in the years 1 to 9999, which Python's types have.
    """
    convert = _present_form(column)
    if convert is None or not column.nullable:
        return convert
    return lambda value: None if value is None else convert(value)


def canonical_form(column: Column) -> Converter:
    """Return the conversion of Python values to values of a column.

    The conversion raises ValueError, whose message begins with the value, if that does not fit the column.
    """
    convert = _canonical_present(column)
    if column.nullable:
        return lambda value: None if value is None else convert(value)
    return convert


def entering_form(column: Column) -> Converter:
    """Return the conversion of values where users' rows enter a plan: Python values, or those of a plan already.

    It raises as that of ``canonical_form``, and differs in dates, which can be days since 1970, and structs, which can
    be tuples in the order of the schema.
    """
    convert = _entering_present(column)
    if column.nullable:
        return lambda value: None if value is None else convert(value)
    return convert


def moment_of(microseconds: int) -> datetime:
    """Return a timestamp as a ``datetime`` in UTC. Raises ValueError outside the years 1 to 9999."""
    try:
        return EPOCH + timedelta(microseconds=microseconds)
    except OverflowError:
        raise ValueError(f"{microseconds} microseconds since 1970 is no year from 1 to 9999") from None


def day_of(days: int) -> date:
    """Return a date. Raises ValueError outside the years 1 to 9999."""
    try:
        return date.fromordinal(days + EPOCH_DAY)
    except (OverflowError, ValueError):
        raise ValueError(f"{days} days since 1970 is no year from 1 to 9999") from None


def _present_form(column: Column) -> Converter | None:
    if column.type == "timestamp":
        return moment_of
    if column.type == "date":
        return day_of
    if column.type == "list":
        (inner,) = (python_form(child) for child in column.children)
        return list if inner is None else lambda values: [inner(value) for value in values]
    if column.type == "struct":
        fields = [(child.name, python_form(child)) for child in column.children]
        return lambda values: {
            name: value if convert is None else convert(value)
            for (name, convert), value in zip(fields, values, strict=True)
        }
    return None


def _canonical_present(column: Column) -> Converter:
    if column.type == "float":
        return lambda value: _float_of(value, column.round_digits)
    if column.type == "decimal":
        return lambda value: decimal_of(value, column.scale)
    if column.type == "list":
        return _list_form(canonical_form(column.children[0]))
    if column.type == "struct":
        return _struct_form(column, canonical_form)
    return _SIMPLE[column.type]


def _entering_present(column: Column) -> Converter:
    if column.type == "date":
        return _day_entering
    if column.type == "list":
        return _list_form(entering_form(column.children[0]))
    if column.type == "struct":
        by_name = _struct_form(column, entering_form)
        fields = [entering_form(child) for child in column.children]
        return lambda value: _tuple_of(value, fields) if isinstance(value, tuple) else by_name(value)
    return _canonical_present(column)


def _tuple_of(value: tuple[Any, ...], fields: Sequence[Converter]) -> tuple[Any, ...]:
    if len(value) != len(fields):
        raise _refused(value, f"has {len(value)} fields, not {len(fields)}")
    return tuple(convert(one) for convert, one in zip(fields, value, strict=True))


def _day_entering(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, Integral):
        return _date_of(value)
    first, last = DAYS
    if not first <= int(value) <= last:
        raise _refused(value, "days since 1970 are out of the range of dates")
    return int(value)


def _refused(value: object, problem: str) -> ValueError:
    return ValueError(f"{value!r:.64} {problem}")


def _plain(value: Any) -> Any:
    """Return the Python value inside a scalar of NumPy; anything else as it is."""
    item = getattr(value, "item", None)
    return item() if callable(item) and getattr(value, "shape", None) == () else value


def _bool_of(value: object) -> bool:
    plain = _plain(value)
    if isinstance(plain, bool):
        return plain
    raise _refused(value, "is not true or false")


def _int_of(value: object) -> int:
    if type(value) is int and NEG_INF <= value <= INF:
        return value
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise _refused(value, "is not a whole number")
    number = int(value)
    if not NEG_INF <= number <= INF:
        raise _refused(value, "is out of the 64-bit range")
    return number


def _float_of(value: object, round_digits: int | None) -> float:
    if type(value) is float and round_digits is None:
        return canonical_float(value)
    if isinstance(value, bool) or not isinstance(value, Real):
        raise _refused(value, "is not a number")
    try:
        number = float(value)
    except OverflowError:
        raise _refused(value, "is out of the range of a 64-bit float") from None
    return canonical_float(number if round_digits is None else round(number, round_digits))


def _string_of(value: object) -> str:
    if not isinstance(value, str):
        raise _refused(value, "is not a string")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise _refused(value, "holds half of a surrogate pair, which has no UTF-8") from None
    return str(value)


def _bytes_of(value: object) -> bytes:
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    raise _refused(value, "is not bytes")


def _timestamp_of(value: object) -> int:
    if not isinstance(value, datetime):
        return _int_of(value)
    if value.tzinfo is None or value.utcoffset() is None:
        raise _refused(value, "has no time zone, so it names no moment")
    return (value - EPOCH) // MICROSECOND


def _date_of(value: object) -> int:
    if isinstance(value, date) and not isinstance(value, datetime):
        return value.toordinal() - EPOCH_DAY
    raise _refused(value, "is not a date")


def decimal_of(value: object, scale: int) -> Decimal:
    """Return a decimal or an int with exactly ``scale`` digits after the point. Raises ValueError if digits are lost.

    >>> decimal_of(3, 2)
    Decimal('3.00')
    """
    plain = _plain(value)
    if isinstance(plain, int) and not isinstance(plain, bool):
        plain = Decimal(plain)
    if not isinstance(plain, Decimal):
        raise _refused(value, "is not a decimal")
    if not plain.is_finite():
        raise _refused(value, "is not a finite decimal")
    if plain and plain.adjusted() >= DECIMAL_DIGITS_MAX - scale:
        raise _refused(value, f"has more than {DECIMAL_DIGITS_MAX} digits")
    scaled = EXACT.quantize(plain, Decimal((0, (1,), -scale)))
    if scaled != plain:
        raise _refused(value, f"has more than {scale} digits after the point")
    return scaled or scaled.copy_abs()


def _list_form(convert: Converter) -> Converter:
    def convert_list(values: object) -> tuple[Any, ...]:
        if not isinstance(values, Sequence) or isinstance(values, str | bytes | bytearray | memoryview):
            raise _refused(values, "is not a list")
        return tuple(convert(value) for value in values)

    return convert_list


def _struct_form(column: Column, form: Callable[[Column], Converter]) -> Converter:
    fields = [(child.name, form(child)) for child in column.children]
    names = {name for name, _ in fields}

    def convert_struct(value: object) -> tuple[Any, ...]:
        if not isinstance(value, Mapping):
            raise _refused(value, "is not a mapping")
        unknown = [key for key in value if key not in names]
        if unknown:
            raise _refused(value, f"has a field {unknown[0]!r:.64} too many")
        return tuple(convert(value.get(name)) for name, convert in fields)

    return convert_struct


_SIMPLE: Final[dict[str, Converter]] = {
    "bool": _bool_of,
    "int": _int_of,
    "string": _string_of,
    "bytes": _bytes_of,
    "timestamp": _timestamp_of,
    "date": _date_of,
}
