"""Rows inside a plan: tuples of values in the order of a schema, one form for each type, and one order.

Values have the form that the wire has (``lmerge.wire.rows``), so a row becomes a payload without a conversion:

=========  ===========================================================================================
bool, str  as they are; so are int (64 bits) and bytes
float      0.0 for -0.0, and one object for every NaN, so that equal rows are equal tuples
timestamp  int, microseconds since the epoch in UTC
date       int, days since 1970-01-01
decimal    ``Decimal`` with the schema's digits after the point; text on the wire
list       tuple
struct     tuple, in the order of the schema
None       a missing value
=========  ===========================================================================================

The order of rows decides wherever a stream needs one: events of one start, ties of a rank, the set that a module gets.
It goes by column: false before true, numbers by value with NaN last, text and bytes by their bytes, tuples by element,
and None behind all values. It is the same for every implementation, and is no order of the payloads' bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from functools import lru_cache
from math import isnan
from operator import itemgetter
from typing import Any, Final, TypeAlias

from lmerge.wire.schema import Column, Schema

Values: TypeAlias = tuple[Any, ...]
"""One row."""

OrderKey: TypeAlias = Callable[[Values], Any]

KEYS_MAX: Final = 256  # a process has few schemas

NAN: Final[float] = struct.unpack(">d", b"\x7f\xf8\0\0\0\0\0\0")[0]

# Types whose values Python orders as the order of rows does. Text compares by code points, which is the order of UTF-8.
_NATURAL: Final = frozenset(("bool", "int", "string", "bytes", "timestamp", "date", "decimal"))


def canonical_float(value: float) -> float:
    """Return the one form of a float: 0.0 for -0.0, ``NAN`` for every NaN."""
    return value + 0.0 if value == value else NAN


def order_key(schema: Schema) -> OrderKey:
    """Return a function of a row whose results Python orders as rows are ordered."""
    return order_of(schema.columns)


def order_of(columns: Iterable[Column]) -> OrderKey:
    """Return the key of rows with these columns, as ``order_key``; there may be none."""
    return _order_of(tuple(columns))


@lru_cache(maxsize=KEYS_MAX)
def _order_of(columns: tuple[Column, ...]) -> OrderKey:
    """Return the key. It is kept, because every group of a stream can have operators of its own for the columns."""
    keys = [_column_key(column) for column in columns]
    if not any(keys):
        return _as_it_is
    parts = ", ".join(f"row[{at}]" if key is None else f"key{at}(row[{at}])" for at, key in enumerate(keys))
    made: OrderKey = eval(f"lambda row: ({parts},)", {f"key{at}": key for at, key in enumerate(keys)})
    return made


def sorted_rows(columns: Sequence[Column]) -> Callable[[Iterable[Values]], list[Values]]:
    """Return a function that returns rows in order: by themselves where Python orders them so, which is faster."""
    key = order_of(columns)
    floats = [at for at, column in enumerate(columns) if column.type == "float"]
    if any(column.nullable or column.type not in (*_NATURAL, "float") for column in columns):
        return lambda rows: sorted(rows, key=key)

    def in_order(rows: Iterable[Values]) -> list[Values]:
        listed = list(rows)
        for at in floats:
            if any(map(isnan, map(itemgetter(at), listed))):
                return sorted(listed, key=key)
        return sorted(listed)

    return in_order


def _as_it_is(row: Values) -> Values:
    return row


def _column_key(column: Column) -> Callable[[Any], Any] | None:
    """Return the key of a column's values, or None if their own order is right."""
    key = _present_key(column)
    if not column.nullable:
        return key
    if key is None:
        return lambda value: (1, 0) if value is None else (0, value)
    return lambda value: (1, 0) if value is None else (0, key(value))


def _present_key(column: Column) -> Callable[[Any], Any] | None:
    if column.type in _NATURAL:
        return None
    if column.type == "float":
        return _float_key
    inner = [_column_key(child) for child in column.children]
    if not any(inner):
        return None
    if column.type == "list":
        (of_element,) = inner
        assert of_element is not None
        return lambda values: tuple(map(of_element, values))
    return lambda values: tuple(value if key is None else key(value) for key, value in zip(inner, values, strict=True))


def _float_key(value: float) -> tuple[int, float]:
    return (0, value) if value == value else (1, 0.0)


def show_values(row: Values, limit: int = 64) -> str:
    """Return a row for messages, as text of at most about ``limit`` characters."""
    text = ", ".join(str(value) if isinstance(value, Decimal) else repr(value) for value in row)
    return f"({text})" if len(text) <= limit else f"({text[:limit]}...)"
