"""Events as Arrow tables: a column for each of the schema, then ``vs``, ``ve`` (and ``is_final``). Needs pyarrow.

Without a schema there is one binary column, ``payload``. A column of the schema that has the name of one of lmerge's
columns gets ``payload_`` before its name.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from lmerge.client.extras import extra
from lmerge.errors import InvalidRow, UsageError
from lmerge.wire.rows import RowCodec
from lmerge.wire.schema import Schema

TIME_COLUMNS: Final = ("vs", "ve")
FINAL_COLUMN: Final = "is_final"
_OWN: Final = frozenset((*TIME_COLUMNS, FINAL_COLUMN))


def import_pyarrow() -> Any:
    """Import pyarrow. Raises UsageError, naming the extra, if it is not installed."""
    return extra("pyarrow", "arrow", "tables of events need")


def payload_schema(schema: Schema | None) -> Any:
    """Return the Arrow schema of the payload's columns."""
    pa = import_pyarrow()
    if schema is None:
        return pa.schema([pa.field("payload", pa.binary(), nullable=False)])
    from lmerge.wire.arrow import arrow_schema

    names = [f"payload_{name}" if name in _OWN else name for name in schema.names]
    if len(set(names)) < len(names):
        raise UsageError(f"the schema ({schema}) has two columns that would have one name in a table")
    return pa.schema([field.with_name(name) for field, name in zip(arrow_schema(schema), names)])


def payload_table(schema: Schema | None, payloads: Sequence[bytes]) -> Any:
    """Return the payloads as an Arrow table. Raises InvalidRow."""
    pa = import_pyarrow()
    names = payload_schema(schema)
    if schema is None:
        return pa.table([pa.array(payloads, pa.binary())], schema=names)
    from lmerge.wire.arrow import decode_table

    return decode_table(RowCodec(schema), payloads).rename_columns(names.names)


def event_table(schema: Schema | None, events: Sequence[tuple[int, int, bytes]]) -> Any:
    """Return events (vs, ve, payload) as a table. Raises InvalidRow, which names the event."""
    pa = import_pyarrow()
    starts, ends = [vs for vs, _, _ in events], [ve for _, ve, _ in events]
    table = blamed_table(schema, [event[2] for event in events], starts)
    for name, times in zip(TIME_COLUMNS, (starts, ends)):
        table = table.append_column(pa.field(name, pa.int64(), nullable=False), pa.array(times, pa.int64()))
    return table


def blamed_table(schema: Schema | None, payloads: Sequence[bytes], starts: Sequence[int]) -> Any:
    """``payload_table``, but InvalidRow names the event by its start."""
    try:
        return payload_table(schema, payloads)
    except InvalidRow as problem:
        for vs, payload in zip(starts, payloads):
            try:
                payload_table(schema, [payload])
            except InvalidRow as one:
                raise InvalidRow(f"the event at vs={vs}: {one}") from None
        raise problem
