"""A table of events in SQL, and the fate of rows that a restart left open. Sans-I/O.

One row an event. Its key is (vs, event_key, ordinal): the payload may be too long for an index, so its 128-bit
BLAKE2 digest stands for it.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Sequence
from datetime import date, datetime
from decimal import Decimal
from hashlib import blake2b
from typing import Any, Final, NamedTuple, TypeAlias

from lmerge.client.subscribe.envelopes import Delete, RowKey, Upsert
from lmerge.client.subscribe.follower import SubscriptionGap
from lmerge.core.elements import NEG_INF
from lmerge.errors import InvalidRow, UsageError
from lmerge.wire.rows import RowCodec
from lmerge.wire.schema import Column, Schema

Key: TypeAlias = tuple[int, bytes, int]

DIGEST_BYTES: Final = 16
IDENTIFIER_BYTES_MAX: Final = 63  # PostgreSQL silently cuts longer names off
KEY_COLUMNS: Final = (("vs", "bigint"), ("event_key", "bytea"), ("ordinal", "integer"))
END_COLUMNS: Final = (("ve", "bigint"), ("is_final", "boolean"))
PAYLOAD_COLUMN: Final = ("payload", "bytea")
_OWN: Final = frozenset(name for name, _ in (*KEY_COLUMNS, *END_COLUMNS))
_TYPES: Final = {
    "bool": "boolean",
    "int": "bigint",
    "float": "double precision",
    "string": "text",
    "bytes": "bytea",
    "timestamp": "timestamp with time zone",
    "date": "date",
    "decimal": "numeric",
    "list": "jsonb",
    "struct": "jsonb",
}


class SqlColumn(NamedTuple):
    """A column of the table. ``source``: of the schema; None for lmerge's own columns."""

    name: str
    type: str
    source: Column | None = None


def payload_columns(schema: Schema | None) -> list[SqlColumn]:
    """Return the columns that hold the payload. A name that lmerge's own columns have gets ``payload_`` before it."""
    if schema is None:
        return [SqlColumn(*PAYLOAD_COLUMN)]
    columns = []
    for column in schema.columns:
        name = f"payload_{column.name}" if column.name in _OWN else column.name
        if not name.isprintable() or len(name.encode()) > IDENTIFIER_BYTES_MAX:
            raise UsageError(
                f"column {name!r} cannot be one of a table: names are printable, of at most "
                f"{IDENTIFIER_BYTES_MAX} bytes"
            )
        columns.append(SqlColumn(name, _TYPES[column.type], column))
    if len({column.name for column in columns}) < len(columns):
        raise UsageError(f"the schema ({schema}) has two columns that would have one name in a table")
    return columns


def table_columns(schema: Schema | None) -> list[SqlColumn]:
    """Return all columns, the key first."""
    return [SqlColumn(*c) for c in (*KEY_COLUMNS, *END_COLUMNS)] + payload_columns(schema)


def key_of(key: RowKey) -> Key:
    """Return the key as the table has it."""
    return key.vs, blake2b(key.payload, digest_size=DIGEST_BYTES).digest(), key.ordinal


def sql_values(upserts: Sequence[tuple[Key, Upsert]], codec: RowCodec | None) -> list[list[Any]]:
    """Return the columns' values, in the order of ``table_columns``. Raises InvalidRow."""
    keys = [key for key, _ in upserts]
    own: list[list[Any]] = [
        [key[0] for key in keys],
        [key[1] for key in keys],
        [key[2] for key in keys],
        [upsert.ve for _, upsert in upserts],
        [upsert.is_final for _, upsert in upserts],
    ]
    payloads = [upsert.key.payload for _, upsert in upserts]
    if codec is None:
        return [*own, payloads]
    rows = [codec.decode(payload, index) for index, payload in enumerate(payloads)]
    for column in codec.schema.columns:
        own.append([_sql_value(column, row[column.name], upsert) for row, (_, upsert) in zip(rows, upserts)])
    return own


def _sql_value(column: Column, value: Any, upsert: Upsert) -> Any:
    if column.type in ("list", "struct") and value is not None:
        value = json.dumps(value, default=_in_json, ensure_ascii=False)
    if isinstance(value, str) and ("\0" in value or ("\\u0000" in value and column.type != "string")):
        raise InvalidRow(
            f"the event at vs={upsert.key.vs} has a NUL in column {column.name!r}: PostgreSQL's text cannot hold one"
        )
    return value


def _in_json(value: object) -> Any:
    if isinstance(value, datetime | date):
        return value.isoformat()
    if isinstance(value, Decimal):
        return str(value)
    assert isinstance(value, bytes)
    return base64.b64encode(value).decode()


class Ended(NamedTuple):
    """A row that was open ends here and is final: the best available end after a gap."""

    key: Key
    ve: int


class Leftovers:
    """Rows that were not final when the sink stopped, until the stream has delivered their present state.

    By the token's promise every event that ends at it or later is delivered again. A row that is not, and whose start
    the stable point has passed, was removed meanwhile. After a gap that cannot be decided. Then, as in the follower, a
    row whose end lies in the gap is taken to be frozen with it, any other to have ended as early as it could.
    """

    def __init__(self, rows: Iterable[tuple[Key, int]] = (), since: int = NEG_INF) -> None:
        self._open = dict(rows)
        self._since = since

    def __len__(self) -> int:
        return len(self._open)

    def is_unchanged(self, key: Key, change: Upsert | Delete) -> bool:
        """Return whether the table has exactly this already. The row is no leftover any more."""
        end = self._open.pop(key, None)
        return isinstance(change, Upsert) and not change.is_final and end == change.ve

    def settle(self, stable_point: int, gaps: Sequence[SubscriptionGap] = ()) -> tuple[list[Key], list[Ended]]:
        """Return the rows to delete and the rows to end, now that the stable point has been reached."""
        lost_to = max((gap.end for gap in gaps), default=NEG_INF)
        deleted: list[Key] = []
        ended: list[Ended] = []
        for key, ve in sorted(item for item in self._open.items() if item[0][0] < stable_point):
            del self._open[key]
            end = ve if ve < lost_to else max(key[0], self._since)
            if lost_to > NEG_INF and end > key[0]:
                ended.append(Ended(key, end))
            else:
                deleted.append(key)
        return deleted, ended
