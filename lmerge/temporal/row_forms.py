"""Rows at the edges of a plan: users' mappings and payloads to values, and back.

Values differ from the wire's in decimals, which are numbers inside a plan and text on the wire, and in lists, which are
tuples, because rows are keys.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any

from lmerge.temporal.values import Values, canonical_float
from lmerge.wire.rows import RowCodec
from lmerge.wire.schema import Column, Schema


class RowForms:
    """Conversions of the rows of one schema. Not for use by several threads at once."""

    def __init__(self, schema: Schema) -> None:
        self._codec = RowCodec(schema)
        self._read = [_reader(column) for column in schema.columns]
        self._write = [_writer(column) for column in schema.columns]
        self._is_plain = not any(self._write)

    def values(self, row: Mapping[str, Any], index: int = 0) -> Values:
        """Return the values of a row as users have it. Raises InvalidRow, which names it row ``index``."""
        return self._inside(self._codec.wire_values(row, index))

    def payload(self, values: Values) -> bytes:
        """Return the payload of a row."""
        if self._is_plain:
            return self._codec.pack(values)
        return self._codec.pack([_applied(one, value) for one, value in zip(self._write, values, strict=True)])

    def of_payload(self, payload: bytes, index: int = 0) -> Values:
        """Return the values of a payload. Raises InvalidRow."""
        return self.values(self._codec.decode(payload, index), index)

    def row(self, values: Values) -> dict[str, Any]:
        """Return a row as users have it: with datetimes, dates, lists and mappings."""
        return self._codec.decode(self.payload(values))

    def rows_of_columns(self, columns: Sequence[Sequence[Any]]) -> list[Values]:
        """Return the values of rows whose columns are in the form of the wire (``RowCodec.wire_columns``)."""
        read = [
            column if one is None else [_applied(one, value) for value in column]
            for one, column in zip(self._read, columns, strict=True)
        ]
        return list(zip(*read, strict=True))

    def _inside(self, wire: list[Any]) -> Values:
        return tuple(_applied(one, value) for one, value in zip(self._read, wire, strict=True))


def _applied(convert: Callable[[Any], Any] | None, value: Any) -> Any:
    return value if convert is None or value is None else convert(value)


def _reader(column: Column) -> Callable[[Any], Any] | None:
    """Return what makes a wire value one of a plan, or None if they are the same."""
    if column.type == "decimal":
        return Decimal
    if column.type == "float":
        return canonical_float  # one object for every NaN, here and in restored states
    inner = [_reader(child) for child in column.children]
    if column.type == "list":
        return lambda values: tuple(_applied(inner[0], value) for value in values)
    if column.type == "struct":
        return lambda values: tuple(_applied(one, value) for one, value in zip(inner, values, strict=True))
    return None


def _writer(column: Column) -> Callable[[Any], Any] | None:
    """Return what makes a value one of the wire, or None if MessagePack gives them the same bytes."""
    if column.type == "decimal":
        return lambda value: f"{value:.{column.scale}f}" if value else f"{Decimal(0):.{column.scale}f}"
    inner = [_writer(child) for child in column.children]
    if not any(inner):
        return None
    if column.type == "list":
        return lambda values: [_applied(inner[0], value) for value in values]
    return lambda values: [_applied(one, value) for one, value in zip(inner, values, strict=True)]
