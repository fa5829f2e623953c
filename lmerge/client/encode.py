"""What a user hands in as payloads: bytes, text, or rows of a declared schema."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Any

from lmerge.client.faults import payload_of
from lmerge.core.batch import Batch
from lmerge.core.elements import INF, INSERT
from lmerge.errors import InvalidRow, UsageError
from lmerge.wire.generated import lmerge_pb2 as pb
from lmerge.wire.rows import RowCodec

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


class RowEncoder:
    """Payloads of one publisher. ``schema`` None: payloads are bytes or text."""

    def __init__(self, schema: Any = None) -> None:
        self.codec = None if schema is None else RowCodec(schema)

    @property
    def message(self) -> pb.Schema | None:
        """The schema as attach declares it."""
        return None if self.codec is None else self.codec.schema.to_message()

    def encode(self, payload: Any) -> bytes:
        """One payload. Raises UsageError or InvalidRow."""
        if self.codec is not None and isinstance(payload, Mapping):
            return self.codec.encode(payload)
        return payload_of(payload)

    def inserts(self, rows: Any, vs: str, ve: str | None) -> Batch:
        """One insert per row: mappings, or an Arrow table or record batch. Raises UsageError or InvalidRow."""
        if self.codec is None:
            raise UsageError("rows need a schema: make the publisher with schema={...}")
        if hasattr(rows, "schema") and hasattr(rows, "num_rows"):
            return self._arrow_inserts(rows, vs, ve)
        starts, ends, payloads = [], [], []
        names = set(self.codec.schema.names)
        for index, row in enumerate(rows):
            starts.append(_time_of(row, vs, index))
            ends.append(INF if ve is None else _time_of(row, ve, index))
            kept = {name: value for name, value in row.items() if name in names or name not in (vs, ve)}
            payloads.append(self.codec.encode(kept, index))
        return Batch(bytes([INSERT]) * len(starts), starts, ends, [0] * len(starts), payloads)

    def _arrow_inserts(self, rows: Any, vs: str, ve: str | None) -> Batch:
        from lmerge.wire.arrow import encode_table, int64_column

        assert self.codec is not None
        starts = int64_column(rows, vs)
        ends = [INF] * len(starts) if ve is None else int64_column(rows, ve)
        names = set(self.codec.schema.names)
        kept = rows.select([name for name in rows.schema.names if name in names or name not in (vs, ve)])
        return Batch(bytes([INSERT]) * len(starts), starts, ends, [0] * len(starts), encode_table(self.codec, kept))


def _time_of(row: Any, name: str, index: int) -> int:
    """A time of a row: an integer as it is, a datetime with a time zone as microseconds since the epoch."""
    value = row.get(name) if isinstance(row, Mapping) else None
    if isinstance(value, datetime) and value.tzinfo is not None:
        delta = value - _EPOCH
        return (delta.days * 86_400 + delta.seconds) * 1_000_000 + delta.microseconds
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    wanted = "a time is an integer or a datetime with a time zone"
    raise InvalidRow(f"row {index}, column {name!r}: {wanted}, not {value!r}")
