"""Payloads as a user passes them: bytes, text, or rows of a declared or inferred schema."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping
from datetime import date, datetime, timezone
from typing import Any, Final

from lmerge.client.connection.faults import payload_of
from lmerge.core.batch import AnyBatch, Batch
from lmerge.core.elements import INF, INSERT
from lmerge.errors import InvalidRow, UsageError
from lmerge.wire.generated import lmerge_pb2 as pb
from lmerge.wire.rows import RowCodec
from lmerge.wire.schema import Schema, parse_schema

INFER: Final = "infer"

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=timezone.utc)
# The schema's names of Python's types. bool before int and datetime before date, because it is a subclass.
_TYPE_NAMES: Final = (
    (bool, "bool"),
    (int, "int"),
    (float, "float"),
    (str, "string"),
    (bytes, "bytes"),
    (datetime, "timestamp"),
    (date, "date"),
)


class RowEncoder:
    """Payloads of one publisher.

    ``schema``: None (payloads are bytes or text), a schema (``lmerge.wire.schema``), an Arrow schema, or ``"infer"``:
    that of the first rows.
    """

    def __init__(self, schema: Any = None) -> None:
        self.is_pending = isinstance(schema, str) and schema == INFER
        self.codec: RowCodec | None = None
        if schema is not None and not self.is_pending:
            self.codec = RowCodec(_declared(schema))

    @property
    def message(self) -> pb.Schema | None:
        """The schema as attach declares it."""
        return None if self.codec is None else self.codec.schema.to_message()

    def encode(self, payload: Any) -> bytes:
        """Return the bytes of one payload. Raises UsageError or InvalidRow."""
        if isinstance(payload, Mapping):
            return self._codec_for(lambda: infer_schema([payload])).encode(payload)
        return payload_of(payload)

    def inserts(self, rows: Any, vs: str, ve: str | None) -> AnyBatch:
        """Return one insert per row: mappings, or an Arrow table or record batch. Raises UsageError or InvalidRow."""
        if hasattr(rows, "schema") and hasattr(rows, "num_rows"):
            return self._arrow_inserts(rows, vs, ve)
        rows = list(rows)
        starts = [_time_of(row, vs, index) for index, row in enumerate(rows)]
        ends = [INF if ve is None else _time_of(row, ve, index) for index, row in enumerate(rows)]
        if self.is_pending and not rows:
            return Batch(b"", [], [], [], [])
        codec = self._codec_for(lambda: infer_schema(rows, (vs, ve)))
        kept = set(codec.schema.names)
        payloads = [
            codec.encode({name: value for name, value in row.items() if name in kept or name not in (vs, ve)}, index)
            for index, row in enumerate(rows)
        ]
        return Batch(bytes([INSERT]) * len(starts), starts, ends, [0] * len(starts), payloads)

    def _arrow_inserts(self, rows: Any, vs: str, ve: str | None) -> AnyBatch:
        from lmerge.wire.arrow import insert_columns, int64_column, schema_of

        if self.codec is None:  # columns that are no lifetime must not decide the schema
            for name in (vs,) if ve is None else (vs, ve):
                int64_column(rows, name)
        codec = self._codec_for(lambda: schema_of([field for field in rows.schema if field.name not in (vs, ve)]))
        return insert_columns(codec, rows, vs, ve)

    def _codec_for(self, infer: Any) -> RowCodec:
        """Return the codec; the first rows decide it if it is to be inferred."""
        if self.codec is None:
            if not self.is_pending:
                raise UsageError('rows need a schema: make the publisher with schema={...} or schema="infer"')
            self.codec = RowCodec(infer())
            self.is_pending = False
        return self.codec


def infer_schema(rows: Iterable[Mapping[str, Any]], without: tuple[str | None, ...] = ()) -> Schema:
    """Return the schema of ``rows``: columns in the order in which they appear, each of one simple type, and nullable.

    Whole numbers and floats together are floats. Raises UsageError where the values do not decide it: only None,
    decimals (their scale), lists and mappings.
    """
    types: dict[str, str | None] = {}
    for row in rows:
        for name, value in row.items():
            if name in without:
                continue
            kind_name, earlier = _type_name_of(name, value), types.get(name)
            if kind_name is None or earlier is None or kind_name == earlier:
                types[name] = earlier or kind_name
            elif {kind_name, earlier} == {"int", "float"}:
                types[name] = "float"
            else:
                raise UsageError(f"cannot infer the schema: column {name!r} has values of {earlier} and of {kind_name}")
    untyped = [name for name, kind_name in types.items() if kind_name is None]
    if untyped:
        raise UsageError(f"cannot infer the schema: column {untyped[0]!r} has no value; declare the schema")
    return parse_schema({name: f"{kind_name}?" for name, kind_name in types.items()})


def _type_name_of(name: str, value: Any) -> str | None:
    if value is None:
        return None
    plain = value.item() if hasattr(value, "item") and getattr(value, "shape", None) == () else value
    for kind, kind_name in _TYPE_NAMES:
        if isinstance(plain, kind):
            return kind_name
    raise UsageError(f"cannot infer the schema: column {name!r} has a {type(value).__name__}; declare the schema")


def _declared(schema: Any) -> Any:
    if isinstance(schema, Schema | Mapping):
        return schema
    if hasattr(schema, "field") and hasattr(schema, "names"):  # an Arrow schema
        from lmerge.wire.arrow import schema_of

        return schema_of(schema)
    raise UsageError(f'a schema is a mapping of columns to types, an Arrow schema or "infer", not {schema!r:.64}')


def _time_of(row: Any, name: str, index: int) -> int:
    """Return a time of a row: an integer as it is, a datetime with a time zone as microseconds since the epoch."""
    value = row.get(name) if isinstance(row, Mapping) else None
    if isinstance(value, datetime) and value.tzinfo is not None:
        delta = value - _EPOCH
        return (delta.days * 86_400 + delta.seconds) * 1_000_000 + delta.microseconds
    try:
        if not isinstance(value, bool):
            return operator.index(value)  # type: ignore[arg-type]  # numpy's integers too
    except TypeError:
        pass
    rule = "a time is an integer or a datetime with a time zone"
    raise InvalidRow(f"row {index}, column {name!r}: {rule}, not {value!r:.64}")
