"""Sockets: a program that sends JSON lines, or batches of Arrow (IPC), over TCP. The reader connects to it.

The stream ends when the program closes the connection; one that is lost ends the query with an error. A socket cannot
seek. What was sent while this replica did not read is lost to it: a run that begins later declares ``join_at``, and so
does one that goes on from a checkpoint (``lmerge.replica.resuming``).
"""

from __future__ import annotations

import contextlib
import socket
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import IO, Final

from lmerge.addresses import check_address
from lmerge.core.elements import INF
from lmerge.errors import InvalidRow, Unavailable, UsageError
from lmerge.replica.sources.arrow_rows import ArrowRows
from lmerge.replica.sources.declared import Chunk, Position, RowSource, SourceContext, SourceReader
from lmerge.replica.sources.json_rows import ElementLines, JsonRows
from lmerge.replica.sources.line_files import NumberedLines
from lmerge.replica.sources.row_changes import RowChanges, shape_of
from lmerge.replica.sources.value_forms import json_value, python_value
from lmerge.temporal.running import Item

CONNECT_S: Final = 10.0
ROWS_PER_BATCH: Final = 4_096


@dataclass(frozen=True, kw_only=True)
class SocketSource(RowSource):
    """Rows from a socket. ``address``: HOST:PORT of the program that sends them."""

    is_live = True
    counts_items = False
    can_seek = False

    address: str

    def __post_init__(self) -> None:
        check_address(self.address)
        super().__post_init__()

    @property
    def where(self) -> str:
        return self.address

    @property
    def no_checkpoint(self) -> str:
        if self.time is not None:
            return ""
        return "a socket may send intervals again that a checkpoint has: start without one, with --join-at"

    def moved_to(self, place: str) -> SocketSource:
        return replace(self, address=place)


@dataclass(frozen=True, kw_only=True)
class JsonLinesSocket(SocketSource):
    """JSON lines from a socket. ``elements``: as for a file."""

    kind = "json-socket"

    elements: bool = False

    def __post_init__(self) -> None:
        if self.elements:
            check_address(self.address)
        else:
            super().__post_init__()

    def open(self, context: SourceContext, position: Position) -> SourceReader:
        """Return a reader that is connected. Raises Unavailable."""
        return JsonSocketReader(self, context)


@dataclass(frozen=True, kw_only=True)
class ArrowSocket(SocketSource):
    """A stream of Arrow (IPC) from a socket. Needs pyarrow (extra ``arrow``)."""

    kind = "arrow-socket"

    def open(self, context: SourceContext, position: Position) -> SourceReader:
        """Return a reader that is connected. Raises Unavailable, UsageError."""
        return ArrowSocketReader(self, context)


class SocketReader(SourceReader):
    """Reads a connection."""

    def __init__(self, source: SocketSource, context: SourceContext) -> None:
        self.name = f"source {context.name!r} ({source.where})"
        host, _, port = source.address.rpartition(":")
        try:
            self._socket = socket.create_connection((host.strip("[]"), int(port)), CONNECT_S)
        except OSError as problem:
            raise Unavailable(f"{self.name} cannot be reached: {problem.strerror or problem}") from None
        self._socket.settimeout(None)

    def chunks(self) -> Iterator[Chunk]:
        """Yield what comes, and the end of the stream."""
        try:
            with self._socket.makefile("rb") as stream:
                for items in self._batches(stream):
                    yield Chunk(items, None, None)
        except OSError as problem:
            raise Unavailable(f"{self.name} is lost: {problem.strerror or problem}") from None
        yield Chunk([INF], None, None)

    def close(self) -> None:
        """Close the connection; a thread that reads it returns."""
        with contextlib.suppress(OSError):  # the other side has closed it
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    @abstractmethod
    def _batches(self, stream: IO[bytes]) -> Iterator[list[Item]]:
        """Yield items as they come."""


class JsonSocketReader(SocketReader):
    """Reads JSON lines."""

    def __init__(self, source: JsonLinesSocket, context: SourceContext) -> None:
        self._rows = (
            ElementLines(context, source.where)
            if source.elements
            else JsonRows(RowChanges(context, source.where, shape_of(source), json_value))
        )
        super().__init__(source, context)

    def _batches(self, stream: IO[bytes]) -> Iterator[list[Item]]:
        lines = NumberedLines(self.name, stream)
        for line in lines:
            if line.strip():
                yield [self._rows.item(line, f"line {lines.number}")[0]]


class ArrowSocketReader(SocketReader):
    """Reads a stream of record batches."""

    def __init__(self, source: ArrowSocket, context: SourceContext) -> None:
        try:
            import pyarrow as pa
        except ImportError:
            raise UsageError("a stream of Arrow needs pyarrow: run `pip install 'lmerge[arrow]'`") from None
        self._open_stream = pa.ipc.open_stream
        self._problem = pa.ArrowInvalid
        self._changes = RowChanges(context, source.where, shape_of(source), python_value)
        super().__init__(source, context)

    def _batches(self, stream: IO[bytes]) -> Iterator[list[Item]]:
        rows, number = ArrowRows(self._changes), 0
        try:
            batches = self._open_stream(stream)
            self._changes.check_columns(batches.schema.names)
            for batch in batches:
                for start in range(0, batch.num_rows, ROWS_PER_BATCH):
                    first = number + start
                    part = batch.slice(start, ROWS_PER_BATCH)
                    yield rows.changes(part, lambda index, first=first: f"row {first + index}")[0]  # type: ignore[misc]  # bound now
                number += batch.num_rows
        except self._problem as problem:
            raise InvalidRow(f"{self.name}, behind row {number}: it is no stream of Arrow: {problem}") from None
