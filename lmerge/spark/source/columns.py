"""The columns that a query reads: those of the merge's schema, then the envelope's columns of each event.

Without a schema, or with ``payload=binary``, there is one binary column ``payload``. If a column of the schema has the
name of one of the envelope's, it gets ``payload_`` before its name, as in views and files. Times are timestamps, or
int64 with ``timeType=long``; as timestamps the infinities are null. The envelope ``frames`` has columns of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from lmerge.client.views.arrow_tables import blamed_table
from lmerge.core.elements import INF, INSERT, NEG_INF
from lmerge.errors import InvalidRow, UsageError
from lmerge.spark.sink import columns
from lmerge.spark.source.envelope_rows import ELEMENTS, FRAMES, OWN_COLUMNS, STABLE, row_schema
from lmerge.spark.source.options import LONG
from lmerge.wire.arrow import arrow_schema, decode_inserts
from lmerge.wire.rows import RowCodec
from lmerge.wire.schema import Schema

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

PAYLOAD: Final = "payload"
# Rows of one Arrow batch, the same as Spark's.
BATCH_ROWS: Final = 10_000

_TIMES: Final = ("vs", "ve", "vold")
_TIMESTAMP: Final = pa.timestamp("us", "UTC")
_NOT_NULL: Final = ("kind", "ordinal", "is_final")


@dataclass(frozen=True)
class Layout:
    """The layout of rows. ``schema``: of the payloads; None: bytes. ``time_type``: see ``source.options``."""

    envelope: str
    schema: Schema | None
    time_type: str

    def fields(self) -> Any:
        """Return the columns as an Arrow schema. Raises UsageError if two have the same name."""
        own = OWN_COLUMNS[self.envelope]
        if self.envelope == FRAMES:
            return row_schema(FRAMES)
        if self.schema is None:
            payload = [pa.field(PAYLOAD, pa.binary())]
        else:
            payload = [
                field.with_name(f"{PAYLOAD}_{field.name}" if field.name in own else field.name)
                for field in arrow_schema(self.schema)
            ]
        if self.envelope == ELEMENTS:
            payload = [field.with_nullable(True) for field in payload]  # a stable has none
        fields = payload + [self._own_field(name) for name in own]
        names = [field.name.lower() for field in fields]  # as Spark compares them
        twice = next((name for at, name in enumerate(names) if name in names[:at]), None)
        if twice is not None:
            raise UsageError(
                f"reading lmerge: there would be two columns {twice!r}, as the merge's schema is "
                f"({self.schema}); read the payload as binary"
            )
        return pa.schema(fields)

    def struct_type(self) -> StructType:
        """Return the columns as Spark's schema."""
        from pyspark.sql.pandas.types import from_arrow_schema

        return from_arrow_schema(self.fields())

    def check(self, target: Any) -> None:
        """Raise UsageError if rows do not fit the Arrow schema ``target``: unknown columns, other types."""
        there = self.fields()
        for field in target:
            at = there.get_field_index(field.name)
            if at < 0:
                raise UsageError(
                    f"reading lmerge: there is no column {field.name!r}; the columns are {', '.join(there.names)}"
                )
            try:
                pa.nulls(0, there.field(at).type).cast(field.type)
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
                raise UsageError(
                    f"reading lmerge: the query reads column {field.name!r} as {field.type}; it is "
                    f"{there.field(at).type}"
                ) from None

    def batches(self, rows: Any, target: Any) -> Iterator[Any]:
        """Return ``rows`` of the envelope as record batches with the schema ``target``.

        Raises InvalidRow if a payload is no row of the schema, UsageError if a value does not fit.
        """
        if not rows.num_rows:
            return
        there = self._columns(rows)
        arrays = []
        for field in target:
            column = there[field.name]
            try:
                arrays.append(column if column.type.equals(field.type) else column.cast(field.type))
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as problem:
                raise UsageError(
                    f"reading lmerge: a value of column {field.name!r} is no {field.type}: {problem}"
                ) from None
        table = pa.Table.from_arrays(arrays, schema=target).combine_chunks()
        yield from table.to_batches(max_chunksize=BATCH_ROWS)

    def _columns(self, rows: Any) -> dict[str, Any]:
        if self.envelope == FRAMES:
            return dict(zip(rows.column_names, rows.columns))
        names = self.fields().names
        own = len(OWN_COLUMNS[self.envelope])
        by_name = dict(zip(names[: len(names) - own], self._payload(rows)))
        for name in OWN_COLUMNS[self.envelope]:
            column = rows.column(name)
            by_name[name] = self._time(column) if name in _TIMES else column
        return by_name

    def _payload(self, rows: Any) -> list[Any]:
        payloads = rows.column(PAYLOAD)
        if self.schema is None:
            return [payloads]
        stables = 0
        if self.envelope == ELEMENTS and rows.column("kind")[rows.num_rows - 1].as_py() == STABLE:
            stables = 1
            payloads = payloads.slice(0, rows.num_rows - 1)
        table = _decoded(self.schema, payloads, rows.column("vs"))
        return [
            pa.chunked_array([*column.chunks, pa.nulls(stables, column.type)], column.type) for column in table.columns
        ]

    def _time(self, column: Any) -> Any:
        if self.time_type == LONG:
            return column
        is_infinite = pc.or_(pc.equal(column, INF), pc.equal(column, NEG_INF))
        return pc.if_else(is_infinite, pa.scalar(None, pa.int64()), column).cast(_TIMESTAMP)

    def _own_field(self, name: str) -> Any:
        if name in _TIMES:
            return pa.field(name, pa.int64() if self.time_type == LONG else _TIMESTAMP)
        return pa.field(name, row_schema(self.envelope).field(name).type, nullable=name not in _NOT_NULL)


def _decoded(schema: Schema, payloads: Any, starts: Any) -> Any:
    """Return the rows in the payloads. Raises InvalidRow, which names an event by its start."""
    codec = RowCodec(schema)
    tables = [arrow_schema(schema).empty_table()]
    try:
        for chunk in payloads.chunks:
            times = columns.constant(0, len(chunk))
            inserts = columns.batch_of(bytes([INSERT]) * len(chunk), times, times, None, chunk)
            tables.append(decode_inserts(codec, inserts))
    except InvalidRow:
        blamed_table(schema, payloads.to_pylist(), starts.to_pylist())
        raise
    return pa.concat_tables(tables)
