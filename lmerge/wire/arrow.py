"""Arrow tables to and from payloads. The only module here that needs pyarrow (extra ``arrow``).

Columns are converted one at a time, in Arrow where it can (time zones, units, dictionaries), and packed by the same
codec as dictionaries are: a table and the same rows as dictionaries give the same bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import pyarrow as pa

from lmerge.errors import InvalidRow, UsageError
from lmerge.wire.rows import RowCodec
from lmerge.wire.schema import Column, Schema

ArrowRows: TypeAlias = "pa.Table | pa.RecordBatch"


def is_arrow(rows: object) -> bool:
    """Whether ``rows`` is a table or record batch of Arrow."""
    return isinstance(rows, (pa.Table, pa.RecordBatch))


def schema_of(arrow: Any) -> Schema:
    """The schema of an Arrow schema. Raises UsageError for types that have no canonical form, such as maps."""
    return Schema(tuple(_column_of(field) for field in arrow))


def arrow_schema(schema: Schema) -> Any:
    """The Arrow schema in which ``decode_table`` gives the rows of ``schema``."""
    return pa.schema([_field_of(column) for column in schema.columns])


def encode_table(codec: RowCodec, rows: ArrowRows) -> list[bytes]:
    """The payloads of a table's rows, in order; its columns are found by name. Raises InvalidRow."""
    names = codec.schema.names
    unknown = [name for name in rows.schema.names if name not in names]
    missing = [name for name in names if name not in rows.schema.names]
    if unknown or missing:
        what = f"column {unknown[0]!r} too many" if unknown else f"no column {missing[0]!r}"
        raise InvalidRow(f"the table has {what}; the schema is {codec.schema}")
    columns = [_values(column, rows.column(column.name)) for column in codec.schema.columns]
    return codec.encode_columns(columns)


def decode_table(codec: RowCodec, payloads: Sequence[bytes]) -> Any:
    """The rows as an Arrow table. Raises InvalidRow."""
    rows = [codec.decode(payload, index) for index, payload in enumerate(payloads)]
    return pa.Table.from_pylist(rows, schema=arrow_schema(codec.schema))


def int64_column(rows: ArrowRows, name: str) -> list[int]:
    """A column of times as integers: int64 as it is, timestamps as microseconds since the epoch in UTC.

    Raises InvalidRow if there is no such column, if it has nulls or is of another type.
    """
    if name not in rows.schema.names:
        raise InvalidRow(f"the table has no column {name!r}; it has {', '.join(rows.schema.names)}")
    column = rows.column(name)
    if column.null_count:
        raise InvalidRow(f"column {name!r} of times has {column.null_count} nulls")
    kind = column.type
    if not (pa.types.is_timestamp(kind) or pa.types.is_integer(kind)):
        raise InvalidRow(f"column {name!r} of times is {kind}; it must be a timestamp or an integer")
    values = _values(Column(name, "timestamp"), column)
    return [int(value) for value in values]


def _values(column: Column, data: Any) -> list[Any]:
    """The values of an Arrow column as the codec takes them."""
    if pa.types.is_dictionary(data.type):
        data = data.cast(data.type.value_type)
    try:
        if pa.types.is_timestamp(data.type) and column.type == "timestamp":
            if data.type.tz is None:
                raise InvalidRow(f"column {column.name!r} ({data.type}) has no time zone, so it names no moments")
            data = data.cast(pa.timestamp("us", data.type.tz)).cast(pa.int64())
        elif pa.types.is_date64(data.type):
            data = data.cast(pa.date32())
        return list(data.to_pylist())
    except (pa.ArrowInvalid, ValueError) as problem:
        raise InvalidRow(f"column {column.name!r} ({data.type}): {problem}") from problem


def _column_of(field: Any) -> Column:
    kind = field.type
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    types = pa.types
    if types.is_struct(kind):
        children = tuple(_column_of(kind.field(i)) for i in range(kind.num_fields))
        return Column(field.name, "struct", field.nullable, children=children)
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        child = _column_of(kind.value_field)
        element = Column("element", child.type, child.nullable, child.round_digits, child.scale, child.children)
        return Column(field.name, "list", field.nullable, children=(element,))
    if types.is_decimal(kind):
        return Column(field.name, "decimal", field.nullable, scale=kind.scale)
    for test, word in _WORDS:
        if test(kind):
            return Column(field.name, word, field.nullable)
    raise UsageError(f"column {field.name!r}: Arrow's {kind} has no canonical form in a payload")


def _field_of(column: Column) -> Any:
    return pa.field(column.name, _type_of(column), nullable=column.nullable)


def _type_of(column: Column) -> Any:
    if column.type == "list":
        return pa.list_(_field_of(column.children[0]))
    if column.type == "struct":
        return pa.struct([_field_of(child) for child in column.children])
    if column.type == "decimal":
        return pa.decimal128(38, column.scale)
    return {
        "bool": pa.bool_(), "int": pa.int64(), "float": pa.float64(), "string": pa.string(), "bytes": pa.binary(),
        "timestamp": pa.timestamp("us", "UTC"), "date": pa.date32(),
    }[column.type]


_WORDS = (
    (pa.types.is_boolean, "bool"),
    (pa.types.is_integer, "int"),
    (pa.types.is_floating, "float"),
    (pa.types.is_string, "string"),
    (pa.types.is_large_string, "string"),
    (pa.types.is_binary, "bytes"),
    (pa.types.is_large_binary, "bytes"),
    (pa.types.is_fixed_size_binary, "bytes"),
    (pa.types.is_timestamp, "timestamp"),
    (pa.types.is_date, "date"),
)
