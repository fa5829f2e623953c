"""The table of a PostgreSQL sink and its row in ``lmerge_progress``: statements and the connection, without the stream.

Rows are sent as arrays, one per column, so a statement writes thousands of rows in one round trip.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from lmerge.client.extras import extra
from lmerge.client.sinks.rows import (
    IDENTIFIER_BYTES_MAX,
    PAYLOAD_COLUMN,
    Ended,
    Key,
    SqlColumn,
    sql_values,
    table_columns,
)
from lmerge.client.subscribe.envelopes import Upsert
from lmerge.core.elements import NEG_INF
from lmerge.errors import InvalidRow, LmergeError, StaleIncarnation, UsageError
from lmerge.wire.rows import RowCodec
from lmerge.wire.schema import Schema
from lmerge.wire.token import format_token

PROGRESS_TABLE: Final = "lmerge_progress"
CONNECT_S: Final = 10  # the time that a restarting database may take to refuse or accept
# The most rows of one statement: PostgreSQL takes them in some 10 ms, far below its limit of 1 GB a message.
STATEMENT_ROWS_MAX: Final = 5000
STATEMENT_BYTES_MAX: Final = 16 * 2**20

# A refusal to connect has no code; these texts of the server mark refusals that waiting does not mend.
_FOR_GOOD: Final = ("authentication failed", "no password supplied", '" does not exist', "no pg_hba.conf entry")
# A database whose machine is gone is noticed after half a minute; options in the DSN take precedence.
_CONNECTION: Final = {
    "connect_timeout": CONNECT_S,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 4,
    "tcp_user_timeout": 30_000,
}

_PROGRESS: Final = (
    "CREATE TABLE IF NOT EXISTS {progress} (sink text PRIMARY KEY, merge text NOT NULL, token text NOT NULL, "
    "epoch bigint NOT NULL, gaps bigint NOT NULL DEFAULT 0, updated_at timestamptz NOT NULL DEFAULT now())"
)
_TAKE_OVER: Final = (
    "INSERT INTO {progress} AS p (sink, merge, token, epoch) VALUES (%s, %s, %s, 1) "
    "ON CONFLICT (sink) DO UPDATE SET epoch = p.epoch + 1 RETURNING merge, token, epoch"
)
_ADVANCE: Final = (
    "UPDATE {progress} SET token = %s, gaps = gaps + %s, updated_at = now() WHERE sink = %s AND epoch = %s"
)
_COLUMNS: Final = (
    "SELECT attname, format_type(atttypid, NULL) FROM pg_attribute "
    "WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped ORDER BY attnum"
)
_DELETE: Final = (
    "DELETE FROM {table} t USING unnest(%s::bigint[], %s::bytea[], %s::integer[]) AS k (vs, event_key, ordinal) "
    "WHERE (t.vs, t.event_key, t.ordinal) = (k.vs, k.event_key, k.ordinal) AND NOT t.is_final"
)
_END: Final = (
    "UPDATE {table} t SET ve = k.ve, is_final = true "
    "FROM unnest(%s::bigint[], %s::bytea[], %s::integer[], %s::bigint[]) AS k (vs, event_key, ordinal, ve) "
    "WHERE (t.vs, t.event_key, t.ordinal) = (k.vs, k.event_key, k.ordinal) AND NOT t.is_final"
)


def import_psycopg() -> Any:
    """Import the driver. Raises UsageError, naming the extra, if it is not installed."""
    return extra("psycopg", "postgres", "a PostgreSQL sink needs")


def is_passing(problem: Exception) -> bool:
    """Return whether the same transaction can succeed later: the connection broke, the server restarts, a deadlock."""
    psycopg = import_psycopg()
    is_about_connection = isinstance(problem, psycopg.OperationalError | psycopg.InterfaceError)
    return is_about_connection and not any(text in str(problem) for text in _FOR_GOOD)


def refusal_of(problem: Exception, table: str) -> LmergeError:
    """Return the error for what the database refuses for good."""
    text = " ".join(str(problem).split())
    kind: type[LmergeError] = InvalidRow if isinstance(problem, import_psycopg().DataError) else UsageError
    return kind(f"cannot write to table {table}: {text}")


class PgTable:
    """One table. Connects when it is first used and after every ``close``. Errors of the driver are not converted."""

    def __init__(self, dsn: str, name: str, merge: str) -> None:
        self.name, self.merge = name, merge
        self._dsn = dsn
        parts = name.split(".")
        if (
            len(parts) > 2
            or not all(parts)
            or any(len(part.encode()) > IDENTIFIER_BYTES_MAX or not part.isprintable() or "%" in part for part in parts)
        ):
            raise UsageError(
                f"{name!r:.200} names no table: give TABLE or SCHEMA.TABLE, printable, without a per cent "
                f"sign, and each of at most {IDENTIFIER_BYTES_MAX} bytes"
            )
        sql = import_psycopg().sql
        progress = sql.Identifier(*parts[:-1], PROGRESS_TABLE)
        self._names = {"table": sql.Identifier(*parts), "progress": progress}
        self._index = sql.Identifier(parts[-1][: IDENTIFIER_BYTES_MAX // 2] + "_open")
        self._connection: Any = None
        self._sink = name
        self._epoch = 0
        self._columns: list[SqlColumn] | None = None  # None: not compared with the schema yet
        self._codec: RowCodec | None = None

    async def take_over(self) -> tuple[str, list[tuple[Key, int]]]:
        """Make this sink the table's only one; return the token to resume from, and the rows that were not final."""
        connection = await self._connected()
        async with connection.transaction():
            await connection.execute("SELECT pg_advisory_xact_lock(hashtext('lmerge_progress'))")
            await self._execute(_PROGRESS)
            start = format_token(self.merge, NEG_INF)
            cursor = await self._execute(_TAKE_OVER, [self._sink, self.merge, start])
            merge, token, epoch = await cursor.fetchone()
            if merge != self.merge:
                raise UsageError(
                    f"table {self.name} follows merge {merge!r}, according to {PROGRESS_TABLE}, and not {self.merge!r}"
                )
            rows: list[tuple[Key, int]] = []
            found = await self._existing_columns()
            if found:
                self._require_columns(table_columns(None)[:-1], found)
                cursor = await self._execute("SELECT vs, event_key, ordinal, ve FROM {table} WHERE NOT is_final")
                rows = [((vs, bytes(digest), ordinal), ve) for vs, digest, ordinal, ve in await cursor.fetchall()]
        self._epoch = epoch
        return token, rows

    async def write(
        self,
        token: str,
        schema: Schema | None,
        upserts: Sequence[tuple[Key, Upsert]],
        deleted: Sequence[Key],
        ended: Sequence[Ended],
        gaps: int,
    ) -> None:
        """Write one transaction. Raises StaleIncarnation if another sink has taken the table over."""
        connection = await self._connected()
        async with connection.transaction():
            cursor = await self._execute(_ADVANCE, [token, gaps, self._sink, self._epoch])
            if cursor.rowcount != 1:
                raise StaleIncarnation(f"another sink has taken table {self.name} over since; this one ends")
            if self._columns is None and (upserts or deleted or ended):
                await self._prepare(schema)
            if deleted:
                await self._execute(_DELETE, [list(column) for column in zip(*deleted)])
            if ended:
                keys = zip(*(end.key for end in ended))
                await self._execute(_END, [*(list(column) for column in keys), [end.ve for end in ended]])
            for part in _parts(upserts):
                await self._execute(self._upsert_statement(), sql_values(part, self._codec))

    async def close(self) -> None:
        """Drop the connection. Whether the last transaction has made the table must be queried again."""
        self._columns = None
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()

    async def _connected(self) -> Any:
        if self._connection is None:
            psycopg = import_psycopg()
            options = {
                **_CONNECTION,
                "application_name": f"lmerge sink {self.merge}",
                **psycopg.conninfo.conninfo_to_dict(self._dsn),
            }
            self._connection = await psycopg.AsyncConnection.connect(autocommit=True, **options)
        return self._connection

    async def _execute(self, statement: str, values: Sequence[Any] | None = None) -> Any:
        composed = import_psycopg().sql.SQL(statement).format(**self._names)
        return await self._connection.execute(composed, values)

    async def _existing_columns(self) -> list[tuple[str, str]]:
        """Return names and types of the table's columns; none if it is not there."""
        quoted = self._names["table"].as_string(self._connection)
        cursor = await self._connection.execute(_COLUMNS, [quoted])
        return [(name, kind) for name, kind in await cursor.fetchall()]

    async def _prepare(self, schema: Schema | None) -> None:
        """Make the table, or check that it has this schema. Within the transaction: both or neither."""
        found = await self._existing_columns()
        is_opaque = (PAYLOAD_COLUMN in found) if found else schema is None
        columns = table_columns(None if is_opaque else schema)
        if found:
            self._require_columns(columns, found)
        else:
            await self._create(columns)
        self._codec = None if is_opaque or schema is None else RowCodec(schema)
        self._columns = columns

    def _require_columns(self, columns: list[SqlColumn], found: list[tuple[str, str]]) -> None:
        missing = [column for column in columns if (column.name, column.type) not in found]
        if missing:
            has = ", ".join(f"{name} {kind}" for name, kind in found)
            raise UsageError(
                f"table {self.name} has no column {missing[0].name} {missing[0].type}, which events of "
                f"merge {self.merge!r} need; it has {has}"
            )

    async def _create(self, columns: list[SqlColumn]) -> None:
        sql = import_psycopg().sql
        described = [
            sql.SQL("{} {}").format(
                sql.Identifier(column.name),
                sql.SQL(column.type + " NOT NULL" * (column.source is None or not column.source.nullable)),
            )
            for column in columns
        ]
        table = self._names["table"]
        await self._connection.execute(
            sql.SQL("CREATE TABLE {} ({}, PRIMARY KEY (vs, event_key, ordinal))").format(
                table, sql.SQL(", ").join(described)
            )
        )
        await self._connection.execute(
            sql.SQL("CREATE INDEX {} ON {} (vs) WHERE NOT is_final").format(self._index, table)
        )

    def _upsert_statement(self) -> str:
        assert self._columns is not None
        names = [_quoted(column.name) for column in self._columns]
        arrays = ", ".join(f"%s::{column.type}[]" for column in self._columns)
        changed = ", ".join(f"{name} = excluded.{name}" for name in names[3:])
        return (
            f"INSERT INTO {{table}} AS t ({', '.join(names)}) SELECT * FROM unnest({arrays}) "
            f"ON CONFLICT (vs, event_key, ordinal) DO UPDATE SET {changed} WHERE NOT t.is_final"
        )


def _quoted(name: str) -> str:
    """Return an identifier for a statement that is still to be formatted, where braces and per cent have a meaning."""
    doubled = name.replace('"', '""').replace("{", "{{").replace("}", "}}").replace("%", "%%")
    return f'"{doubled}"'


def _parts(upserts: Sequence[tuple[Key, Upsert]]) -> Iterator[Sequence[tuple[Key, Upsert]]]:
    """Yield the rows in pieces, one for each statement."""
    start = size = 0
    for at, (_, upsert) in enumerate(upserts):
        size += len(upsert.key.payload)
        if at - start >= STATEMENT_ROWS_MAX or size > STATEMENT_BYTES_MAX:
            if at > start:
                yield upserts[start:at]
            start, size = at, len(upsert.key.payload)
    if start < len(upserts):
        yield upserts[start:]
