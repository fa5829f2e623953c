"""Arrow tables to and from payloads. Only this module and ``native_rows`` need pyarrow (extra ``arrow``).

A table and the same rows as dictionaries give the same bytes. On the native core whole batches are converted without
an object per row. What the core refuses is converted in Python, and so is everything where the core is not built:
columns one at a time, in Arrow where it can (time zones, units, dictionaries), packed by the codec of dictionaries.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from lmerge.core.batch import AnyBatch, Batch
from lmerge.core.elements import INF, INSERT
from lmerge.core.engines import selection
from lmerge.errors import InvalidRow, UsageError
from lmerge.wire.rows import RowCodec
from lmerge.wire.schema import Column, Schema

if TYPE_CHECKING:
    from lmerge.wire.native_rows import NativeRows

ArrowRows: TypeAlias = "pa.Table | pa.RecordBatch"


def schema_of(arrow: Any) -> Schema:
    """Return the schema of an Arrow schema. Raises UsageError for types that have no canonical form, such as maps."""
    return Schema(tuple(_column_of(field) for field in arrow))


def arrow_schema(schema: Schema) -> Any:
    """Return the Arrow schema in which ``decode_table`` returns the rows of ``schema``."""
    return pa.schema([_field_of(column) for column in schema.columns])


def encode_table(codec: RowCodec, rows: ArrowRows, *, engine: str = selection.AUTO) -> list[bytes]:
    """Return the payloads of a table's rows, in order; its columns are found by name. Raises InvalidRow.

    ``engine``: a name in ``selection.ENGINES``; the bytes are the same.
    """
    native = _native(codec, rows, engine)
    payloads = None if native is None else native.payloads(rows)
    return _python_payloads(codec, rows) if payloads is None else payloads


def insert_columns(
    codec: RowCodec, rows: ArrowRows, vs: str, ve: str | None = None, *, engine: str = selection.AUTO
) -> AnyBatch:
    """Return one insert per row, in order. Raises InvalidRow.

    ``vs`` and ``ve`` name columns of times (``int64_column``); without ``ve`` events do not end. They are in the
    payload only if the schema has them.
    """
    native = _native(codec, rows, engine)
    columns = None if native is None else native.inserts(rows, vs, ve)
    if columns is not None:
        return columns
    starts = int64_column(rows, vs)
    ends = [INF] * len(starts) if ve is None else int64_column(rows, ve)
    names = codec.schema.names
    kept = rows.select([name for name in rows.schema.names if name in names or name not in (vs, ve)])
    return Batch(bytes([INSERT]) * len(starts), starts, ends, [0] * len(starts), _python_payloads(codec, kept))


def decode_table(codec: RowCodec, payloads: Sequence[bytes], *, engine: str = selection.AUTO) -> Any:
    """Return the rows as an Arrow table. Raises InvalidRow."""
    native = _native(codec, payloads, engine)
    table = None if native is None else native.decode(payloads)
    if table is not None:
        return table
    rows = [codec.decode(payload, index) for index, payload in enumerate(payloads)]
    return pa.Table.from_pylist(rows, schema=arrow_schema(codec.schema))


def decode_inserts(codec: RowCodec, batch: AnyBatch, *, engine: str = selection.AUTO) -> Any:
    """Return the rows of a batch without stables as an Arrow table, as ``decode_table`` does. Raises InvalidRow.

    On the native core the payloads are read where they lie.
    """
    native = _native(codec, batch, engine)
    table = None if native is None else native.decode_batch(batch)
    return decode_table(codec, batch.payloads, engine=engine) if table is None else table


def in_zone(rows: ArrowRows, zone: str) -> ArrowRows:
    """Return the rows with timestamps without a time zone read as local times of ``zone``, so that they name moments.

    ``zone``: a name of the IANA database, or an offset such as ``"+02:00"``. Timestamps inside lists and structs stay
    as they are. Raises InvalidRow for a time that ``zone`` skips or has twice, UsageError if there is no such zone.
    """
    for index, field in enumerate(rows.schema):
        if not pa.types.is_timestamp(field.type) or field.type.tz is not None:
            continue
        try:
            moments = pc.assume_timezone(rows.column(index), zone)
        except pa.ArrowInvalid as problem:
            error = UsageError if "annot locate timezone" in str(problem) else InvalidRow
            raise error(f"column {field.name!r} ({field.type}) as times of {zone!r}: {problem}") from None
        rows = rows.set_column(index, field.with_type(moments.type), moments)
    return rows


def _native(codec: RowCodec, rows: Any, engine: str) -> NativeRows | None:
    """Return the native converter, if ``engine`` means that. Python reports what is wrong with an empty table."""
    if selection.resolve(engine) == selection.PYTHON or not len(rows):
        return None
    from lmerge.wire.native_rows import native_rows

    return native_rows(codec.schema)


def _python_payloads(codec: RowCodec, rows: ArrowRows) -> list[bytes]:
    return codec.encode_columns(_columns_of(codec, rows))


def wire_columns(codec: RowCodec, rows: ArrowRows) -> list[list[Any]]:
    """Return a table's columns, found by name, with their values as they are on the wire. Raises InvalidRow."""
    return codec.wire_columns(_columns_of(codec, rows))


def _columns_of(codec: RowCodec, rows: ArrowRows) -> list[list[Any]]:
    names = codec.schema.names
    unknown = [name for name in rows.schema.names if name not in names]
    missing = [name for name in names if name not in rows.schema.names]
    if unknown or missing:
        what = f"column {unknown[0]!r} too many" if unknown else f"no column {missing[0]!r}"
        raise InvalidRow(f"the table has {what}; the schema is {codec.schema}")
    return [_values(column, rows.column(column.name)) for column in codec.schema.columns]


def int64_column(rows: ArrowRows, name: str) -> list[int]:
    """Return a column of times as integers: int64 as it is, timestamps as microseconds since the epoch in UTC.

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
    """Return the values of an Arrow column in the form that the codec takes."""
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
    except (pa.ArrowInvalid, ValueError, OverflowError) as problem:
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
    for test, name in _SIMPLE_TYPES:
        if test(kind):
            return Column(field.name, name, field.nullable)
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
        "bool": pa.bool_(),
        "int": pa.int64(),
        "float": pa.float64(),
        "string": pa.string(),
        "bytes": pa.binary(),
        "timestamp": pa.timestamp("us", "UTC"),
        "date": pa.date32(),
    }[column.type]


_SIMPLE_TYPES = (
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
