"""Values as files and sockets have them, as values of a plan: texts of CSV, and values of JSON.

======================  ====================================================  ==========================================
type                    in CSV                                                in JSON
======================  ====================================================  ==========================================
bool                    true, false                                           true, false
int, float              a number; nan, inf, -inf are floats                   a number; for floats also those as text
string                  as it is                                              text
bytes                   in base64                                             text in base64
timestamp, and times    ISO 8601 with a time zone, or microseconds            the same: text, or a number
                        since 1970
date                    ISO 8601                                              text
decimal                 a number                                              text, or a whole number
list, struct            not in CSV                                            an array; an object
missing                 an empty field, if the column can be missing          null
======================  ====================================================  ==========================================

Each conversion raises ValueError, whose message begins with the value.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Mapping
from datetime import date, datetime
from decimal import Decimal, InvalidOperation
from typing import Any, Final, TypeAlias

from lmerge.core.elements import INF, NEG_INF
from lmerge.errors import UsageError
from lmerge.temporal.python_values import EPOCH, MICROSECOND, canonical_form
from lmerge.wire.schema import Column

Convert: TypeAlias = Callable[[Any], Any]

_WHOLE: Final = re.compile(r"[+-]?\d{1,19}")
_FLOAT_TEXTS: Final = frozenset(("nan", "inf", "-inf"))


def refused(value: object, problem: str) -> ValueError:
    """Return the error of a value that does not convert."""
    return ValueError(f"{value!r:.64} {problem}")


def time_of(value: object) -> int:
    """Return a time: a whole number as it is, a moment in microseconds since 1970, or either as text."""
    if isinstance(value, str):
        value = int(value) if _WHOLE.fullmatch(value) else _moment(value)
    if isinstance(value, datetime):
        if value.tzinfo is None or value.utcoffset() is None:
            raise refused(value, "has no time zone, so it names no moment")
        return (value - EPOCH) // MICROSECOND
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise refused(value, "is no time")
    number = int(value.__index__())
    if not NEG_INF < number < INF:
        raise refused(value, "is out of the range of times")
    return number


def _moment(text: str) -> datetime:
    """Return a moment of ISO 8601, such as ``2013-01-01T05:15:00Z``; without a zone if the text has none."""
    try:
        return datetime.fromisoformat(f"{text[:-1]}+00:00" if text[-1:] in ("Z", "z") else text)
    except ValueError:
        raise refused(text, "is no time such as 2013-01-01T05:15:00Z, or microseconds since 1970") from None


def python_value(column: Column) -> Convert:
    """Return the conversion of Python values, such as those of Arrow, to values of a column."""
    return canonical_form(column)


def json_value(column: Column) -> Convert:
    """Return the conversion of JSON values to values of a column."""
    canonical, read = canonical_form(column), _json_reader(column)
    return canonical if read is None else lambda value: canonical(None if value is None else read(value))


def csv_text(column: Column) -> Convert:
    """Return the conversion of fields of CSV to values of a column. Raises UsageError for lists and structs."""
    if column.type in ("list", "struct"):
        raise UsageError(f"column {column.name!r} is {column.describe()}, which CSV cannot hold")
    canonical, read, nullable = canonical_form(column), _CSV_READERS[column.type], column.nullable
    return lambda text: None if nullable and text == "" else canonical(read(text))


def _json_reader(column: Column) -> Convert | None:
    """Return what makes a JSON value one that the canonical form takes; None: it takes it as it is."""
    if column.type in _JSON_READERS:
        return _JSON_READERS[column.type]
    inner = [_json_reader(child) for child in column.children]
    if not any(inner):
        return None
    if column.type == "list":
        (read,) = inner
        assert read is not None
        return lambda values: [_read(read, value) for value in values] if isinstance(values, list) else values
    readers = {child.name: read for child, read in zip(column.children, inner, strict=True)}
    return lambda row: (
        {name: _read(readers.get(name), value) for name, value in row.items()} if isinstance(row, Mapping) else row
    )


def _read(read: Convert | None, value: Any) -> Any:
    return value if read is None or value is None else read(value)


def _bool(text: str) -> bool:
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    raise refused(text, "is not true or false")


def _int(text: str) -> int:
    if _WHOLE.fullmatch(text):
        return int(text)
    raise refused(text, "is not a whole number")


def _float(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise refused(text, "is not a number") from None


def _json_float(value: object) -> object:
    return _float(value) if isinstance(value, str) and value in _FLOAT_TEXTS else value


def _bytes(text: object) -> bytes:
    try:
        return base64.b64decode(text, validate=True)  # type: ignore[arg-type]  # others raise TypeError
    except (binascii.Error, TypeError, ValueError):
        raise refused(text, "is not base64") from None


def _date(text: object) -> date:
    try:
        return date.fromisoformat(text)  # type: ignore[arg-type]  # others raise TypeError
    except (TypeError, ValueError):
        raise refused(text, "is no day such as 2013-02-08") from None


def _decimal(value: object) -> Decimal:
    if isinstance(value, (str, int)) and not isinstance(value, bool):
        try:
            return Decimal(value)
        except InvalidOperation:
            pass
    raise refused(value, "is not a decimal as text")


_CSV_READERS: Final[Mapping[str, Convert]] = {
    "bool": _bool,
    "int": _int,
    "float": _float,
    "string": str,
    "bytes": _bytes,
    "timestamp": time_of,
    "date": _date,
    "decimal": _decimal,
}
_JSON_READERS: Final[Mapping[str, Convert]] = {
    "float": _json_float,
    "bytes": _bytes,
    "timestamp": time_of,
    "date": _date,
    "decimal": _decimal,
}
