"""Rows to and from canonical payload bytes (docs/wire.md): the same row gives the same bytes on every engine.

Replicas are compared by their payloads, so two engines that compute the same row must encode it as the same bytes. A
row is a MessagePack array in the order of the schema:

=========  ==========================================================================================================
bool       true or false
int        the smallest form that MessagePack has for it
float      always 64 bits; -0.0 is 0.0, every NaN is the one quiet NaN, rounded first if the schema declares it
string     UTF-8, not normalised
bytes      bin
timestamp  microseconds since the epoch in UTC, as int; a datetime without a time zone is refused, it names no moment
date       days since 1970-01-01, as int
decimal    text with exactly ``scale`` digits after the point, no plus, no leading zeros; digits are never dropped
list       array
struct     array in the order of the schema: the order of a mapping's keys does not matter
None       nil, where the column is nullable
=========  ==========================================================================================================

Called by the client, Spark's connector and the in-process engine. InvalidRow names the row, the column and the value.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from numbers import Integral, Real
from typing import Any, Final, TypeAlias

import msgpack

from lmerge.core.elements import INF, NEG_INF, show_payload
from lmerge.errors import InvalidRow, UsageError
from lmerge.wire.generated import lmerge_pb2 as pb
from lmerge.wire.schema import DECIMAL_DIGITS_MAX, Column, Schema, SchemaLike, parse_schema

Row: TypeAlias = Mapping[str, Any]
Convert: TypeAlias = Callable[[Any], Any]

_NAN: Final[float] = struct.unpack(">d", b"\x7f\xf8\0\0\0\0\0\0")[0]
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=timezone.utc)
_EPOCH_DAY: Final = date(1970, 1, 1).toordinal()
_MICROSECOND: Final = timedelta(microseconds=1)


class _RefusedError(Exception):
    """A value does not fit its column. ``path``: its place inside the row, outermost last."""

    def __init__(self, value: object, problem: str) -> None:
        super().__init__(problem)
        self.value = value
        self.problem = problem
        self.path: list[str] = []


class RowCodec:
    """Encodes and decodes the rows of one schema. Not for use by several threads at once."""

    def __init__(self, schema: SchemaLike) -> None:
        self.schema: Schema = parse_schema(schema)
        self._names = self.schema.names
        self._name_set = frozenset(self._names)
        self._to_wire = [_nullable(column, _encoder(column)) for column in self.schema.columns]
        self._from_wire = [_nullable(column, _decoder(column)) for column in self.schema.columns]
        self._pack = msgpack.Packer(use_bin_type=True).pack

    def encode(self, row: Row, index: int = 0) -> bytes:
        """Return the payload of ``row``. A missing key is None. Raises InvalidRow, which names it row ``index``."""
        return bytes(self._pack(self.wire_values(row, index)))

    def pack(self, values: Sequence[Any]) -> bytes:
        """Return the payload of a row whose values have the form of ``wire_values``, which is not checked."""
        return bytes(self._pack(values))

    def wire_values(self, row: Row, index: int = 0) -> list[Any]:
        """Return the values of ``row`` as they are on the wire. Raises InvalidRow as ``encode``."""
        if not isinstance(row, Mapping):
            raise InvalidRow(f"row {index}: a row is a mapping of column to value, not {row!r:.64}")
        if not row.keys() <= self._name_set:
            unknown = next(key for key in row if key not in self._name_set)
            raise InvalidRow(f"row {index}: there is no column {unknown!r:.64} in the schema ({self.schema})")
        get = row.get
        try:
            return [convert(get(name)) for name, convert in zip(self._names, self._to_wire, strict=True)]
        except _RefusedError:
            raise self._blame(self._to_wire, [get(name) for name in self._names], index) from None

    def encode_columns(self, columns: Sequence[Sequence[Any]]) -> list[bytes]:
        """Return the payloads of rows given as columns of equal length in the schema's order. Raises InvalidRow."""
        pack = self._pack
        return [bytes(pack(values)) for values in zip(*self.wire_columns(columns), strict=True)]

    def wire_columns(self, columns: Sequence[Sequence[Any]]) -> list[list[Any]]:
        """Return columns with their values as they are on the wire. Raises InvalidRow as ``encode_columns``."""
        if len(columns) != len(self._names):
            raise InvalidRow(f"{len(columns)} columns came where the schema ({self.schema}) has {len(self._names)}")
        converted = []
        for at, (column, convert) in enumerate(zip(columns, self._to_wire, strict=True)):
            if len(column) != len(columns[0]):
                first = f"column {self._names[0]!r} has {len(columns[0])}"
                raise InvalidRow(f"column {self._names[at]!r} has {len(column)} rows, and {first}")
            try:
                converted.append(list(map(convert, column)))
            except _RefusedError:
                index = next(i for i, value in enumerate(column) if _refuses(convert, value))
                row = [other[index] for other in columns]
                raise self._blame(self._to_wire, row, index) from None
        return converted

    def decode(self, payload: bytes, index: int = 0) -> dict[str, Any]:
        """Return the row that ``payload`` holds. Raises InvalidRow, which names it row ``index``, if it is no row."""
        try:
            values = msgpack.unpackb(payload, raw=False)
        except msgpack.exceptions.ExtraData as problem:
            end = len(payload) - len(problem.extra)
            raise InvalidRow(
                f"row {index}: the payload is not MessagePack of one value: that ends at byte {end} of {len(payload)}"
            ) from None
        except (ValueError, msgpack.exceptions.UnpackException) as problem:
            detail = str(problem) or type(problem).__name__
            raise InvalidRow(f"row {index}: the payload is not MessagePack: {detail:.120}") from None
        if not isinstance(values, list) or len(values) != len(self._names):
            found = f"an array of {len(values)}" if isinstance(values, list) else type(values).__name__
            raise InvalidRow(f"row {index}: the payload is {found} where the schema has {len(self._names)} columns")
        try:
            decoded = [convert(value) for convert, value in zip(self._from_wire, values, strict=True)]
        except _RefusedError:
            raise self._blame(self._from_wire, values, index) from None
        return dict(zip(self._names, decoded, strict=True))

    def _blame(self, converts: list[Convert], values: Sequence[Any], index: int) -> InvalidRow:
        """Return the error for the first value that does not convert."""
        for column, convert, value in zip(self.schema.columns, converts, values, strict=True):
            try:
                convert(value)
            except _RefusedError as refused:
                path = ".".join([column.name, *reversed(refused.path)])
                return InvalidRow(
                    f"row {index}, column {path!r} ({column.describe()}): {refused.value!r:.64} {refused.problem}"
                )
        raise AssertionError("a row was refused that converts")


def _refuses(convert: Convert, value: object) -> bool:
    try:
        convert(value)
    except _RefusedError:
        return True
    return False


def _nullable(column: Column, convert: Convert) -> Convert:
    if not column.nullable:
        return convert
    return lambda value: None if value is None else convert(value)


def _encoder(column: Column) -> Convert:
    if column.type == "float":
        return _float_encoder(column.round_digits)
    if column.type == "decimal":
        return lambda value: _decimal_text(value, column.scale)
    if column.type == "list":
        return _list_converter(_nullable(column.children[0], _encoder(column.children[0])))
    if column.type == "struct":
        return _struct_encoder(column)
    return _ENCODERS[column.type]


def _decoder(column: Column) -> Convert:
    if column.type == "decimal":
        return lambda value: _decimal_of_text(value, column.scale)
    if column.type == "list":
        return _list_converter(_nullable(column.children[0], _decoder(column.children[0])))
    if column.type == "struct":
        return _struct_decoder(column)
    return _DECODERS[column.type]


# Values to the wire.


def _plain(value: object) -> object:
    """Return the Python value inside a numpy scalar; anything else as it is."""
    item = getattr(value, "item", None)
    return item() if callable(item) and getattr(value, "shape", None) == () else value


def _is_a(value: object, kind: type) -> bool:
    """Return whether ``value`` is a number of that kind. True and False are no numbers here, unlike in Python."""
    return isinstance(value, kind) and not isinstance(value, bool)


def _bool(value: object) -> bool:
    if isinstance(value, bool):
        return value
    plain = _plain(value)
    if isinstance(plain, bool):
        return plain
    raise _RefusedError(value, "is not true or false")


def _int(value: Any) -> int:
    if type(value) is int:
        number = value
    elif _is_a(value, Integral):
        number = int(value)
    else:
        raise _RefusedError(value, "is not a whole number")
    if not NEG_INF <= number <= INF:
        raise _RefusedError(value, "is out of the 64-bit range")
    return number


def _float_encoder(round_digits: int | None) -> Convert:
    def encode(value: Any) -> float:
        if type(value) is float:
            number = value
        elif _is_a(value, Real):
            try:
                number = float(value)
            except OverflowError:
                raise _RefusedError(value, "is out of the range of a 64-bit float") from None
        else:
            raise _RefusedError(value, "is not a number")
        if number != number:
            return _NAN
        if round_digits is not None and math.isfinite(number):
            number = round(number, round_digits)
        return number + 0.0  # -0.0 + 0.0 is 0.0

    return encode


def _string(value: object) -> str:
    if not isinstance(value, str):
        raise _RefusedError(value, "is not a string")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise _RefusedError(value, "holds half of a surrogate pair, which has no UTF-8") from None
    return str(value)


def _bytes(value: object) -> bytes:
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    raise _RefusedError(value, "is not bytes")


def _timestamp(value: Any) -> int:
    if isinstance(value, datetime):
        if value.tzinfo is None or value.utcoffset() is None:  # pandas' NaT too
            raise _RefusedError(value, "has no time zone, so it names no moment")
        if getattr(value, "nanosecond", 0):
            raise _RefusedError(value, "has nanoseconds, and a timestamp has microseconds")
        return (value - _EPOCH) // _MICROSECOND
    if _is_a(value, Integral):
        return _int(value)
    raise _RefusedError(value, "is not a datetime, nor microseconds since the epoch")


def _date(value: object) -> int:
    if isinstance(value, date) and not isinstance(value, datetime):
        return value.toordinal() - _EPOCH_DAY
    raise _RefusedError(value, "is not a date")


def _decimal_text(value: Any, scale: int) -> str:
    if _is_a(value, Integral):
        value = Decimal(int(value))
    if not isinstance(value, Decimal):
        raise _RefusedError(value, "is not a decimal; floats are not exact, so none is taken for one")
    sign, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int):
        raise _RefusedError(value, "is not a finite decimal")
    if len(digits) + abs(exponent) > 4 * DECIMAL_DIGITS_MAX:  # before any arithmetic: 1E+1000000 is small to write
        if any(digits):
            raise _RefusedError(value, f"has more than {DECIMAL_DIGITS_MAX} digits")
        exponent = 0
    unscaled = int("".join(map(str, digits)))
    shift = exponent + scale
    if shift >= 0:
        unscaled *= 10**shift
    else:
        unscaled, dropped = divmod(unscaled, 10**-shift)
        if dropped:
            raise _RefusedError(value, f"has more than {scale} digits after the point")
    if unscaled >= 10**DECIMAL_DIGITS_MAX:
        raise _RefusedError(value, f"has more than {DECIMAL_DIGITS_MAX} digits")
    text = str(unscaled).rjust(scale + 1, "0")
    if scale:
        text = f"{text[:-scale]}.{text[-scale:]}"
    return f"-{text}" if sign and unscaled else text


def _list_converter(convert: Convert) -> Convert:
    def convert_list(value: object) -> list[Any]:
        value = value.tolist() if hasattr(value, "tolist") and not isinstance(value, memoryview) else value
        if not isinstance(value, (list, tuple)):
            raise _RefusedError(value, "is not a list")
        converted = []
        for at, item in enumerate(value):
            try:
                converted.append(convert(item))
            except _RefusedError as refused:
                refused.path.append(str(at))
                raise
        return converted

    return convert_list


def _struct_encoder(column: Column) -> Convert:
    fields = [(child.name, _nullable(child, _encoder(child))) for child in column.children]
    names = {name for name, _ in fields}

    def encode(value: object) -> list[Any]:
        if not isinstance(value, Mapping):
            raise _RefusedError(value, "is not a mapping")
        if not value.keys() <= names:
            raise _RefusedError(value, f"has a field {next(key for key in value if key not in names)!r:.64} too many")
        return [_in_field(name, convert, value.get(name)) for name, convert in fields]

    return encode


def _struct_decoder(column: Column) -> Convert:
    fields = [(child.name, _nullable(child, _decoder(child))) for child in column.children]

    def decode(value: object) -> dict[str, Any]:
        if not isinstance(value, list) or len(value) != len(fields):
            raise _RefusedError(value, f"is not an array of {len(fields)}")
        return {name: _in_field(name, convert, item) for (name, convert), item in zip(fields, value, strict=True)}

    return decode


def _in_field(name: str, convert: Convert, value: object) -> object:
    try:
        return convert(value)
    except _RefusedError as refused:
        refused.path.append(name)
        raise


# Values from the wire.


def _wire_float(value: object) -> float:
    if isinstance(value, float):
        return value
    raise _RefusedError(value, "is not a float")


def _wire_timestamp(value: object) -> datetime:
    try:
        return _EPOCH + timedelta(microseconds=_int(value))
    except OverflowError:
        raise _RefusedError(value, "is no year from 1 to 9999") from None


def _wire_date(value: object) -> date:
    try:
        return date.fromordinal(_int(value) + _EPOCH_DAY)
    except (OverflowError, ValueError):
        raise _RefusedError(value, "is no year from 1 to 9999") from None


def _decimal_of_text(value: object, scale: int) -> Decimal:
    if isinstance(value, str) and value.isascii() and len(value) <= DECIMAL_DIGITS_MAX + 3:
        digits = value.removeprefix("-").replace(".", "", 1)
        if digits.isdigit():
            decimal = Decimal(value)
            if _decimal_text(decimal, scale) == value:
                return decimal
    raise _RefusedError(value, f"is not a decimal with {scale} digits after the point")


_ENCODERS: Final[dict[str, Convert]] = {
    "bool": _bool,
    "int": _int,
    "string": _string,
    "bytes": _bytes,
    "timestamp": _timestamp,
    "date": _date,
}
_DECODERS: Final[dict[str, Convert]] = {
    "bool": _bool,
    "int": _int,
    "float": _wire_float,
    "string": _string,
    "bytes": _bytes,
    "timestamp": _wire_timestamp,
    "date": _wire_date,
}


# The most characters of a row that is shown: enough to recognise it.
_SHOWN_MAX: Final = 200


def row_formatter(declared: pb.Schema | None) -> Callable[[bytes], str]:
    """Return a function that describes payloads: the columns of a row that fits the schema, else the payload itself."""
    try:
        codec = None if declared is None else RowCodec(Schema.from_message(declared))
    except UsageError:  # from a server that accepted an impossible schema
        codec = None

    def describe(payload: bytes) -> str:
        if codec is None:
            return show_payload(payload)
        try:
            row = codec.decode(payload)
        except InvalidRow:
            return show_payload(payload)
        text = ", ".join(f"{name}={value}" for name, value in row.items())
        return text if len(text) <= _SHOWN_MAX else f"{text[:_SHOWN_MAX]}..."

    return describe
