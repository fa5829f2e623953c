"""Events as Arrow tables: a column for each of the schema, then ``vs``, ``ve`` (and ``is_final``). Needs pyarrow.

Without a schema there is one binary column, ``payload``. A column of the schema that is named as one of lmerge's gets
``payload_`` before its name.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgpack

from lmerge.client.extras import extra
from lmerge.errors import InvalidRow, UsageError
from lmerge.wire.rows import RowCodec
from lmerge.wire.schema import Schema

TIME_COLUMNS: Final = ("vs", "ve")
FINAL_COLUMN: Final = "is_final"
_OWN: Final = frozenset((*TIME_COLUMNS, FINAL_COLUMN))
_DIRECT: Final = frozenset(("bool", "int", "float", "string", "bytes"))


def import_pyarrow() -> Any:
    """pyarrow. Raises UsageError, naming the extra, if it is not installed."""
    return extra("pyarrow", "arrow", "tables of events need")


def payload_schema(schema: Schema | None) -> Any:
    """The Arrow schema of the payload's columns."""
    pa = import_pyarrow()
    if schema is None:
        return pa.schema([pa.field("payload", pa.binary(), nullable=False)])
    from lmerge.wire.arrow import arrow_schema

    names = [f"payload_{name}" if name in _OWN else name for name in schema.names]
    if len(set(names)) < len(names):
        raise UsageError(f"the schema ({schema}) has two columns that would have one name in a table")
    return pa.schema([field.with_name(name) for field, name in zip(arrow_schema(schema), names)])


def payload_table(schema: Schema | None, payloads: Sequence[bytes]) -> Any:
    """The payloads as an Arrow table. Raises InvalidRow."""
    pa = import_pyarrow()
    names = payload_schema(schema)
    if schema is None:
        return pa.table([pa.array(payloads, pa.binary())], schema=names)
    columns = _direct_columns(schema, payloads)
    if columns is not None:
        return pa.table(columns, schema=names)
    from lmerge.wire.arrow import decode_table

    return decode_table(RowCodec(schema), payloads).rename_columns(names.names)


def _direct_columns(schema: Schema, payloads: Sequence[bytes]) -> list[Any] | None:
    """Columns without a dictionary per row, ten times as fast; None where a type or a damaged payload asks for care."""
    pa = import_pyarrow()
    if not payloads or any(column.type not in _DIRECT for column in schema.columns):
        return None
    width = len(schema.columns)
    unpack = msgpack.unpackb
    try:
        rows = [unpack(payload) for payload in payloads]
        if not all(type(row) is list and len(row) == width for row in rows):
            return None
        columns = []
        for column, values in zip(schema.columns, zip(*rows)):
            kinds = set(map(type, values))
            if column.nullable:
                kinds.discard(type(None))
            if not kinds <= {_KINDS[column.type]}:
                return None
            columns.append(pa.array(values, _arrow_type(column.type)))
        return columns
    except (ValueError, OverflowError, pa.ArrowInvalid, msgpack.exceptions.UnpackException):
        return None


_KINDS: Final[dict[str, type]] = {"bool": bool, "int": int, "float": float, "string": str, "bytes": bytes}


def _arrow_type(word: str) -> Any:
    pa = import_pyarrow()
    return {"bool": pa.bool_, "int": pa.int64, "float": pa.float64, "string": pa.string, "bytes": pa.binary}[word]()


def event_table(schema: Schema | None, events: Sequence[tuple[int, int, bytes]]) -> Any:
    """Events (vs, ve, payload) as a table. Raises InvalidRow, which names the event."""
    pa = import_pyarrow()
    starts, ends = [vs for vs, _, _ in events], [ve for _, ve, _ in events]
    table = blamed_table(schema, [event[2] for event in events], starts)
    for name, times in zip(TIME_COLUMNS, (starts, ends)):
        table = table.append_column(pa.field(name, pa.int64(), nullable=False), pa.array(times, pa.int64()))
    return table


def blamed_table(schema: Schema | None, payloads: Sequence[bytes], starts: Sequence[int]) -> Any:
    """``payload_table``; InvalidRow says which event, by its start."""
    try:
        return payload_table(schema, payloads)
    except InvalidRow as problem:
        for vs, payload in zip(starts, payloads):
            try:
                payload_table(schema, [payload])
            except InvalidRow as one:
                raise InvalidRow(f"the event at vs={vs}: {one}") from None
        raise problem
