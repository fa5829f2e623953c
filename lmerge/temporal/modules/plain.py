"""Values as plain values, which JSON and MessagePack have, and back: for the states of aggregates and modules.

Decimals are text, lists and structs are lists. Integers that can exceed 64 bits are text in base 16 (``plain_int``).
A NaN that comes back is the one object that rows have.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any, TypeAlias

from lmerge.temporal.values import Values, canonical_float
from lmerge.wire.schema import Column, Schema

Convert: TypeAlias = Callable[[Any], Any]


def plain_int(value: int) -> str:
    """Return an integer of any size as text."""
    return f"{value:x}"


def int_of_plain(text: str) -> int:
    """Return the integer that ``plain_int`` has made text."""
    return int(text, 16)


def to_plain(column: Column) -> Convert:
    """Return a function that makes a column's values plain; None stays None."""
    if column.type == "decimal":
        return lambda value: None if value is None else str(value)
    if column.type == "list":
        element = to_plain(column.children[0])
        return lambda value: None if value is None else [element(item) for item in value]
    if column.type == "struct":
        fields = [to_plain(child) for child in column.children]
        return lambda value: None if value is None else [f(item) for f, item in zip(fields, value, strict=True)]
    return _as_it_is


def from_plain(column: Column) -> Convert:
    """Return the inverse of ``to_plain``."""
    if column.type == "decimal":
        return lambda value: None if value is None else Decimal(value)
    if column.type == "float":
        return lambda value: None if value is None else canonical_float(value)
    if column.type == "list":
        element = from_plain(column.children[0])
        return lambda value: None if value is None else tuple(element(item) for item in value)
    if column.type == "struct":
        fields = [from_plain(child) for child in column.children]
        return lambda value: None if value is None else tuple(f(item) for f, item in zip(fields, value, strict=True))
    return _as_it_is


def row_to_plain(schema: Schema) -> Callable[[Values], list[Any]]:
    """Return a function that makes rows plain."""
    converts = [to_plain(column) for column in schema.columns]
    return lambda row: [convert(value) for convert, value in zip(converts, row, strict=True)]


def row_from_plain(schema: Schema) -> Callable[[list[Any]], Values]:
    """Return the inverse of ``row_to_plain``."""
    converts = [from_plain(column) for column in schema.columns]
    return lambda plain: tuple(convert(value) for convert, value in zip(converts, plain, strict=True))


def _as_it_is(value: Any) -> Any:
    return value
