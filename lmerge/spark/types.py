"""The schema of payloads for the columns of a Spark DataFrame.

==============================  =====================================================================================
boolean                         ``bool``
byte, short, integer, long      ``int``
float, double                   ``float``, rounded if requested
string, char, varchar           ``string``; collations compare, they do not change the bytes
binary                          ``bytes``
date                            ``date``
timestamp                       ``timestamp``
timestamp_ntz                   ``timestamp`` where a time zone is declared, as it is no moment without one
decimal(p, s)                   ``decimal(s)``
array, struct                   ``list``, ``struct``
==============================  =====================================================================================

Maps have no order, intervals no single length, variants and objects of user-defined types no single form. They are
refused by name. ``explode``, ``cast`` or ``to_json`` turn them into something with a canonical form.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final, TypeAlias

from lmerge.errors import UsageError
from lmerge.wire.schema import Column, Schema

RoundDigits: TypeAlias = "int | Mapping[str, int] | None"

_KINDS: Final = {
    "BooleanType": "bool",
    "ByteType": "int",
    "ShortType": "int",
    "IntegerType": "int",
    "LongType": "int",
    "FloatType": "float",
    "DoubleType": "float",
    "StringType": "string",
    "CharType": "string",
    "VarcharType": "string",
    "BinaryType": "bytes",
    "DateType": "date",
    "TimestampType": "timestamp",
}
_REASONS: Final = {
    "MapType": "a map's entries have no order; turn it into an array of structs, sorted by key",
    "DayTimeIntervalType": "an interval has no canonical form; cast it to a number",
    "YearMonthIntervalType": "an interval has no canonical form; cast it to a number",
    "CalendarIntervalType": "a month has no one length; cast the interval to a number",
    "VariantType": "equal variants can have different bytes; take typed columns out of it",
    "TimeType": "a time of day has no canonical form; cast it to a number or a string",
    "NullType": "a column without a type has no form; cast it to the type that it is meant to have",
    "ObjectType": "an object of the JVM has no form outside of it",
}


def schema_of_spark(struct: Any, round_digits: RoundDigits = None, *, zone: str | None = None) -> Schema:
    """Return the schema of the rows of a ``pyspark.sql.types.StructType``. Raises UsageError.

    ``round_digits``: digits after the point for all floats, or by column (``"delay"``; ``"stats.mean"`` for a field of
    a struct, ``"delays.element"`` for the items of an array). Sums taken in another order then give the same bytes.
    ``zone``: of the columns of type timestamp_ntz. ``lmerge.wire.arrow.in_zone`` turns their values into moments.
    """
    schema = Schema(tuple(_column(field.name, field.dataType, field.nullable, field.name, zone) for field in struct))
    return schema if round_digits is None else Schema(_rounded(schema.columns, round_digits))


def _column(name: str, kind: Any, nullable: bool, path: str, zone: str | None) -> Column:
    class_name = _name_of(kind)
    if class_name == "StructType":
        fields = tuple(
            _column(field.name, field.dataType, field.nullable, f"{path}.{field.name}", zone) for field in kind
        )
        return Column(name, "struct", nullable, children=fields)
    if class_name == "ArrayType":
        element = _column("element", kind.elementType, kind.containsNull, f"{path}.element", zone)
        return Column(name, "list", nullable, children=(element,))
    if class_name == "DecimalType":
        return Column(name, "decimal", nullable, scale=kind.scale)
    if class_name == "TimestampNTZType":
        _check_local(path, zone)
        return Column(name, "timestamp", nullable)
    if class_name not in _KINDS:
        reason = _REASONS.get(class_name, "there is no canonical form for it; cast it to a type that has one")
        raise UsageError(f"column {path!r} is of Spark's type {_type_name(kind)}: {reason}")
    return Column(name, _KINDS[class_name], nullable)


def _name_of(kind: Any) -> str:
    """Return the name of Spark's class of ``kind``. For user-defined types this is ``UserDefinedType``."""
    names = [base.__name__ for base in type(kind).__mro__ if base.__module__ == "pyspark.sql.types"]
    if "UserDefinedType" in names:
        return "UserDefinedType"
    return names[0] if names else type(kind).__name__


def _type_name(kind: Any) -> str:
    if _name_of(kind) == "UserDefinedType":
        return f"{type(kind).__name__} (user-defined)"
    return str(kind.simpleString())


def _check_local(path: str, zone: str | None) -> None:
    if zone is None:
        raise UsageError(
            f"column {path!r} is of Spark's type timestamp_ntz, a local time that names no moment: declare its time "
            "zone, or cast it to timestamp"
        )
    if "." in path:
        raise UsageError(f"column {path!r} is of Spark's type timestamp_ntz inside another type: cast it to timestamp")


def _rounded(columns: tuple[Column, ...], digits: int | Mapping[str, int]) -> tuple[Column, ...]:
    """Return the columns with their floats rounded to ``digits``."""
    if isinstance(digits, Mapping):
        kinds = dict(_paths(columns))
        for path in digits:
            if path not in kinds:
                raise UsageError(f"round_digits: there is no column {path!r}; the columns are {', '.join(kinds)}")
            if kinds[path] != "float":
                raise UsageError(f"round_digits: column {path!r} is {kinds[path]}, and only floats are rounded")
    return tuple(_rounded_column(column, digits, column.name) for column in columns)


def _rounded_column(column: Column, digits: int | Mapping[str, int], path: str) -> Column:
    children = tuple(_rounded_column(child, digits, f"{path}.{child.name}") for child in column.children)
    if column.type != "float":
        return replace(column, children=children)
    return replace(column, round_digits=digits.get(path) if isinstance(digits, Mapping) else digits)


def _paths(columns: tuple[Column, ...], above: str = "") -> Iterator[tuple[str, str]]:
    """Return all columns with their types, by path, nested ones too."""
    for column in columns:
        yield above + column.name, column.type
        yield from _paths(column.children, f"{above}{column.name}.")
