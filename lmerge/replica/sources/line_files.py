"""Files of lines: CSV and JSON. A position is a number of bytes, so a restart reads nothing again.

NumberedLines are decoded one by one, so text that is no UTF-8 is an error that names its line.
"""

from __future__ import annotations

import csv
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Final

from lmerge.core.elements import INF
from lmerge.errors import InvalidRow, UsageError
from lmerge.replica.sources.declared import Chunk, Position, RowSource, SourceContext, SourceReader
from lmerge.replica.sources.json_rows import ElementLines, JsonRows
from lmerge.replica.sources.row_changes import RowChanges, shape_of
from lmerge.replica.sources.value_forms import csv_text, json_value
from lmerge.temporal.running import Item

ROWS_PER_CHUNK: Final = 512
# Longer lines are no rows; the limit keeps memory bounded where a file has no lines.
LINE_BYTES_MAX: Final = 16 * 2**20


@dataclass(frozen=True, kw_only=True)
class FileSource(RowSource):
    """Rows of a file. ``path``: relative to the working folder."""

    path: str | Path

    @property
    def where(self) -> str:
        return str(self.path)

    def moved_to(self, place: str) -> FileSource:
        return replace(self, path=place)


@dataclass(frozen=True, kw_only=True)
class CsvFile(FileSource):
    """Rows of a CSV file, whose first line has the names of the columns. ``delimiter``: between fields."""

    kind = "csv"

    delimiter: str = ","

    def open(self, context: SourceContext, position: Position) -> SourceReader:
        """Return a reader. Raises UsageError if the file cannot be read or has no such columns."""
        return CsvReader(self, context, position)


@dataclass(frozen=True, kw_only=True)
class JsonLinesFile(FileSource):
    """Rows of a file with one JSON object a line.

    ``elements``: lines are elements, such as ``{"op": "adjust", "row": {...}, "vs": 1, "vold": 5, "ve": 9}``, and not
    rows: then there are no columns of times, and the source declares its stable points.
    """

    kind = "json"

    elements: bool = False

    def __post_init__(self) -> None:
        if not self.elements:
            super().__post_init__()

    def open(self, context: SourceContext, position: Position) -> SourceReader:
        """Return a reader. Raises UsageError if the file cannot be read."""
        return JsonLinesReader(self, context, position)


class NumberedLines:
    """The lines of a stream of bytes as text. ``number``: of the last line; ``read``: bytes up to its end."""

    def __init__(self, source: str, stream: IO[bytes], number: int = 0, read: int = 0) -> None:
        self.number, self.read = number, read
        self._source, self._stream = source, stream

    def __iter__(self) -> Iterator[str]:
        while line := self._stream.readline(LINE_BYTES_MAX + 1):
            self.number += 1
            self.read += len(line)
            if len(line) > LINE_BYTES_MAX:
                raise InvalidRow(f"{self._source}, line {self.number}: it is longer than {LINE_BYTES_MAX} bytes")
            try:
                yield line.decode("utf-8-sig" if self.number == 1 else "utf-8")
            except UnicodeDecodeError as problem:
                what = f"{problem.object[problem.start]:#04x} at byte {problem.start + 1} of it"
                raise InvalidRow(f"{self._source}, line {self.number}: it is no UTF-8: {what}") from None


class LineReader(SourceReader):
    """Reads a file of lines. A position is ``[line, bytes]`` behind what was read."""

    def __init__(self, source: FileSource, context: SourceContext, position: Position) -> None:
        self.name = f"source {context.name!r} ({source.where})"
        try:
            self._file = open(source.path, "rb")  # noqa: SIM115 - ``close`` closes it
        except OSError as problem:
            raise UsageError(f"{self.name} cannot be read: {problem.strerror}") from None
        number, read = position or (0, 0)
        self._file.seek(read)
        self._lines = NumberedLines(self.name, self._file, number, read)

    def chunks(self) -> Iterator[Chunk]:
        """Yield the items of the file, and the end of its stream."""
        items: list[Item] = []
        releases: list[int] | None = None
        begin = self._position()
        for item, release in self._items():
            items.append(item)
            if release is not None:
                releases = [] if releases is None else releases
                releases.append(release)
            if len(items) >= ROWS_PER_CHUNK:
                yield Chunk(items, begin, self._position(), releases)
                items, releases, begin = [], None, self._position()
        if not items or items[-1] != INF:
            items.append(INF)
            releases = None if releases is None else [*releases, releases[-1]]
        yield Chunk(items, begin, self._position(), releases)

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    @abstractmethod
    def _items(self) -> Iterator[tuple[Item, int | None]]:
        """Yield items, each with the time at which it is released."""

    def _position(self) -> Position:
        return [self._lines.number, self._lines.read]


class CsvReader(LineReader):
    """Reads a CSV file."""

    def __init__(self, source: CsvFile, context: SourceContext, position: Position) -> None:
        changes = RowChanges(context, source.where, shape_of(source), csv_text)
        super().__init__(source, context, None)
        self._changes, self._delimiter = changes, source.delimiter
        try:
            self._names = self._header()
        except BaseException:
            self.close()
            raise
        if position is not None and position[1] > self._lines.read:
            self._lines.number, self._lines.read = position
            self._file.seek(self._lines.read)

    def _header(self) -> list[str]:
        try:
            names = next(csv.reader(iter(self._lines), delimiter=self._delimiter, strict=True), [])
        except (TypeError, csv.Error) as problem:
            raise UsageError(f"{self.name}, line 1: {problem}") from None
        self._changes.check_columns(names, "line 1")
        return names

    def _items(self) -> Iterator[tuple[Item, int | None]]:
        rows = csv.reader(iter(self._lines), delimiter=self._delimiter, strict=True)
        names, changes = self._names, self._changes
        while True:
            try:
                fields = next(rows, None)
            except csv.Error as problem:
                raise InvalidRow(f"{self.name}, line {self._lines.number}: {problem}") from None
            if fields is None:
                return
            if not fields:
                continue  # an empty line
            place = f"line {self._lines.number}"
            if len(fields) != len(names):
                raise changes.error(place, f"it has {len(fields)} fields, and line 1 has {len(names)}")
            row = dict(zip(names, fields, strict=True))
            yield changes.change(row, place), changes.release(row, place)


class JsonLinesReader(LineReader):
    """Reads a file of JSON lines."""

    def __init__(self, source: JsonLinesFile, context: SourceContext, position: Position) -> None:
        super().__init__(source, context, position)
        self._rows = (
            ElementLines(context, source.where)
            if source.elements
            else JsonRows(RowChanges(context, source.where, shape_of(source), json_value))
        )

    def _items(self) -> Iterator[tuple[Item, int | None]]:
        for line in self._lines:
            if line.strip():
                yield self._rows.item(line, f"line {self._lines.number}")
