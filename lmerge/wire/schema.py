"""The declared schema of row payloads: the columns, in order, with their types.

Publishers declare it when they attach, the server compares it between them and sends it to subscribers, and ``rows``
encodes by it. The names of types:

=============================  ============================================================================
``bool``, ``int``, ``string``  int is 64 bits wide
``float``, ``float(2)``        64 bits; with digits, values are rounded to them before encoding, so that sums
                               taken in another order still give the same bytes
``bytes``                      as they are
``timestamp``                  a moment, in UTC, to the microsecond
``date``                       a day
``decimal(2)``                 exact, with that many digits after the point; at most 38 digits in all
``list<T>``                    any number of T
a mapping                      a struct with these fields, in this order
=============================  ============================================================================

A ``?`` behind a type declares that the value can be missing (None): ``"float(2)?"``. For a struct it stands behind the
name: ``{"origin?": {"city": "string"}}``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from lmerge.errors import UsageError
from lmerge.wire.generated import lmerge_pb2 as pb
from lmerge.wire.names import check_name

SIMPLE_TYPES: Final = ("bool", "int", "float", "string", "bytes", "timestamp", "date", "decimal")
TYPES: Final = (*SIMPLE_TYPES, "list", "struct")

# More columns than real tables have; a hostile schema stays small.
COLUMNS_MAX: Final = 2000
# The limit with nested columns, such as elements of lists: enough for every column to be a list, and for some structs.
# Each column costs memory and time wherever a codec is made.
COLUMNS_TOTAL_MAX: Final = 5 * COLUMNS_MAX
# A schema travels in the first message of every subscription, and must leave room in it: 10,000 columns of 100 bytes.
SCHEMA_BYTES_MAX: Final = 2**20
# Deeper rows are documents; the limit also keeps recursion shallow.
DEPTH_MAX: Final = 16
# As in SQL engines and Arrow's decimal128.
DECIMAL_DIGITS_MAX: Final = 38
# Beyond this rounding changes nothing in a 64-bit float of ordinary size.
ROUND_DIGITS_MAX: Final = 15

SchemaLike: TypeAlias = "Schema | Mapping[str, object]"

_SIMPLE_TYPE: Final = re.compile(r"(?P<type>[a-z]+)(\((?P<number>-?\d{1,3})\))?")


@dataclass(frozen=True, slots=True)
class Column:
    """One column. ``children``: the element of a list, the fields of a struct."""

    name: str
    type: str
    nullable: bool = False
    round_digits: int | None = None
    scale: int = 0
    children: tuple[Column, ...] = ()

    def describe(self) -> str:
        """Return the type as ``parse_schema`` reads it, for messages."""
        text = self.type
        if self.type == "list":
            text = f"list<{self.children[0].describe()}>"
        elif self.type == "struct":
            text = "{" + ", ".join(f"{child.name}: {child.describe()}" for child in self.children) + "}"
        elif self.type == "decimal":
            text = f"decimal({self.scale})"
        elif self.round_digits is not None:
            text = f"float({self.round_digits})"
        return text + "?" * self.nullable


@dataclass(frozen=True, slots=True)
class Schema:
    """Columns in order. Equal schemas give equal bytes for equal rows. Raises UsageError if they are invalid."""

    columns: tuple[Column, ...]

    def __post_init__(self) -> None:
        total = _check_fields(self.columns, "a schema", 0)
        if total > COLUMNS_TOTAL_MAX:
            raise _too_many(total)

    @property
    def names(self) -> tuple[str, ...]:
        """The columns' names, in order."""
        return tuple(column.name for column in self.columns)

    def __str__(self) -> str:
        return ", ".join(f"{column.name}: {column.describe()}" for column in self.columns)

    def to_message(self) -> pb.Schema:
        """Return the wire form."""
        return pb.Schema(columns=[_column_message(column) for column in self.columns])

    @classmethod
    def from_message(cls, message: pb.Schema) -> Schema:
        """Return the schema that ``message`` declares. Raises UsageError if it is invalid."""
        size = message.ByteSize()
        if size > SCHEMA_BYTES_MAX:
            raise UsageError(f"a schema has {size} bytes, above the limit of {SCHEMA_BYTES_MAX}")
        _check_total(message)  # before objects are made of them
        return cls(tuple(_column_of(column, 0) for column in message.columns))


def parse_schema(declared: SchemaLike) -> Schema:
    """Return the schema of ``{"name": "type", ...}`` with the types listed above. Raises UsageError.

    >>> str(parse_schema({"carrier": "string", "delay": "float(1)?"}))
    'carrier: string, delay: float(1)?'
    """
    if isinstance(declared, Schema):
        return declared
    return Schema(_parse_fields(declared, 0))


def _parse_fields(declared: Mapping[str, object], depth: int) -> tuple[Column, ...]:
    return tuple(_parse_field(name, kind, depth) for name, kind in declared.items())


def _parse_field(name: str, declared: object, depth: int) -> Column:
    if depth > DEPTH_MAX:
        raise UsageError(f"column {name!r:.64} is nested deeper than {DEPTH_MAX}")
    if isinstance(declared, Mapping):
        nullable = name.endswith("?")
        return Column(name.removesuffix("?"), "struct", nullable, children=_parse_fields(declared, depth + 1))
    if not isinstance(declared, str):
        raise UsageError(f"column {name!r:.64}: a type is text or a mapping, not {declared!r:.64}")
    text = declared.strip()
    nullable = text.endswith("?")
    text = text.removesuffix("?").strip()
    if text.startswith("list<") and text.endswith(">"):
        child = _parse_field("element", text[len("list<") : -1], depth + 1)
        return Column(name, "list", nullable, children=(child,))
    match = _SIMPLE_TYPE.fullmatch(text)
    is_type = match is not None and match["type"] in (("float", "decimal") if match["number"] else SIMPLE_TYPES)
    if match is None or not is_type:
        raise UsageError(f"column {name!r:.64}: unknown type {declared!r:.64}; the types are {', '.join(TYPES)}")
    number = None if match["number"] is None else int(match["number"])
    if match["type"] == "decimal":
        return Column(name, "decimal", nullable, scale=number or 0)
    return Column(name, match["type"], nullable, round_digits=number)


def _check_fields(columns: tuple[Column, ...], what: str, depth: int) -> int:
    """Check columns; return their number, including those inside others."""
    if not 1 <= len(columns) <= COLUMNS_MAX:
        raise UsageError(f"{what} has {len(columns)} columns; it needs 1 to {COLUMNS_MAX}")
    seen: set[str] = set()
    for column in columns:
        if column.name in seen:
            raise UsageError(f"{what} has two columns named {column.name!r:.64}")
        seen.add(column.name)
    return sum(_check_column(column, depth) for column in columns)


def _check_column(column: Column, depth: int) -> int:
    """Check a column; return the number of columns in it, itself included."""
    check_name("column", column.name)
    what = f"column {column.name!r}"
    if depth > DEPTH_MAX:
        raise UsageError(f"{what} is nested deeper than {DEPTH_MAX}")
    if column.type not in TYPES:
        raise UsageError(f"{what}: unknown type {column.type!r:.64}; the types are {', '.join(TYPES)}")
    if not 0 <= column.scale <= DECIMAL_DIGITS_MAX:
        raise UsageError(f"{what}: a scale of {column.scale} is not between 0 and {DECIMAL_DIGITS_MAX}")
    if column.scale and column.type != "decimal":
        raise UsageError(f"{what}: only a decimal has a scale, not {column.type}")
    if column.round_digits is not None:
        if column.type != "float":
            raise UsageError(f"{what}: only a float is rounded, not {column.type}")
        if abs(column.round_digits) > ROUND_DIGITS_MAX:
            raise UsageError(f"{what}: rounding to {column.round_digits} digits is beyond {ROUND_DIGITS_MAX}")
    if column.type == "list":
        if len(column.children) != 1:
            raise UsageError(f"{what}: a list has one type of element, not {len(column.children)}")
        return 1 + _check_column(column.children[0], depth + 1)
    if column.type == "struct":
        return 1 + _check_fields(column.children, what, depth + 1)
    if column.children:
        raise UsageError(f"{what}: {column.type} has no children")
    return 1


def _check_total(message: pb.Schema) -> None:
    """Raise UsageError if there are too many columns, without reading more of them than are allowed."""
    if len(message.columns) > COLUMNS_MAX:
        raise UsageError(f"a schema has {len(message.columns)} columns; it needs 1 to {COLUMNS_MAX}")
    total, left = 0, list(message.columns)
    while left:
        column = left.pop()
        total += 1
        if total + len(left) + len(column.children) > COLUMNS_TOTAL_MAX:
            raise _too_many(total + len(left) + len(column.children))
        left += column.children


def _too_many(total: int) -> UsageError:
    return UsageError(f"a schema has {total} columns or more, nested ones included; the limit is {COLUMNS_TOTAL_MAX}")


def _column_message(column: Column) -> pb.Schema.Column:
    return pb.Schema.Column(
        name=column.name,
        type=column.type,
        nullable=column.nullable,
        round_digits=column.round_digits,
        scale=column.scale,
        children=[_column_message(child) for child in column.children],
    )


def _column_of(message: pb.Schema.Column, depth: int) -> Column:
    if depth > DEPTH_MAX:
        raise UsageError(f"column {message.name!r:.64} is nested deeper than {DEPTH_MAX}")
    return Column(
        message.name,
        message.type,
        message.nullable,
        message.round_digits if message.HasField("round_digits") else None,
        message.scale,
        tuple(_column_of(child, depth + 1) for child in message.children),
    )
