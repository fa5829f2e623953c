"""Values as bytes that have the order of rows (``lmerge.temporal.values``), written from that definition alone.

Bytes are equal exactly if the values are. No encoding is the beginning of another one of its type, so the encodings of
several columns stand behind each other, and inverted bytes have the order turned around.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from decimal import Decimal
from typing import Any, Final

from lmerge.wire.schema import Column

_PRESENT, _MISSING = b"\x01", b"\x02"
_ELEMENT, _END = b"\x01", b"\x00"
_INT: Final = struct.Struct(">Q")
_FLOAT: Final = struct.Struct(">d")
_DECIMAL_BYTES: Final = 17
_MIDDLE: Final = 1 << (8 * _DECIMAL_BYTES - 1)
_NAN: Final = b"\xff" * 9


def sort_key(values: Sequence[Any], columns: Sequence[Column]) -> bytes:
    """Return the bytes of a row, or of some of its values."""
    return b"".join(value_key(value, column) for value, column in zip(values, columns, strict=True))


def value_key(value: Any, column: Column, *, descending: bool = False) -> bytes:
    """Return the bytes of a value; one that is missing is behind all others in either direction."""
    if value is None:
        return _MISSING
    found = _present(value, column)
    return _PRESENT + (bytes(255 - byte for byte in found) if descending else found)


def _present(value: Any, column: Column) -> bytes:
    kind = column.type
    if kind == "bool":
        return b"\x01" if value else b"\x00"
    if kind in ("int", "timestamp", "date"):
        return _INT.pack(value + 2**63)
    if kind == "float":
        return _float(value)
    if kind == "decimal":
        return _scaled(value, column.scale)
    if kind in ("string", "bytes"):
        raw = value.encode() if isinstance(value, str) else bytes(value)
        return raw.replace(b"\0", b"\0\xff") + b"\0\0"
    if kind == "list":
        (child,) = column.children
        return b"".join(_ELEMENT + value_key(one, child) for one in value) + _END
    return sort_key(value, column.children)


def _float(value: float) -> bytes:
    """Return the bytes of a float: those of a negative one are inverted, so that greater ones come first."""
    if value != value:
        return _NAN
    raw = _FLOAT.pack(value + 0.0)
    return b"\x00" + bytes(255 - byte for byte in raw) if raw[0] & 0x80 else b"\x01" + raw


def _scaled(value: Decimal, scale: int) -> bytes:
    return (int(value.scaleb(scale)) + _MIDDLE).to_bytes(_DECIMAL_BYTES, "big")
