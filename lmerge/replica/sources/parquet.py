"""Parquet files: columns that are read by row groups, and row groups that feedback leaves out.

The statistics of a row group have its latest end. If no event is needed that ends so early, the group is not read. A
file without statistics is read whole. A position is a row group and a row in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from lmerge.core.elements import INF, NEG_INF
from lmerge.errors import InvalidRow, UsageError
from lmerge.replica.sources.arrow_rows import ArrowRows
from lmerge.replica.sources.column_items import column_items
from lmerge.replica.sources.declared import Chunk, Position, SourceContext, SourceReader
from lmerge.replica.sources.line_files import FileSource
from lmerge.replica.sources.row_changes import RowChanges, shape_of
from lmerge.replica.sources.value_forms import python_value, time_of

ROWS_PER_BATCH: Final = 4_096
# Without an object per row so many cost less time, and what a batch costs by itself does not count.
ROWS_PER_BATCH_OF_COLUMNS: Final = 65_536


@dataclass(frozen=True, kw_only=True)
class ParquetFile(FileSource):
    """Rows of a Parquet file. Needs pyarrow (extra ``arrow``)."""

    kind = "parquet"

    def open(self, context: SourceContext, position: Position) -> SourceReader:
        """Return a reader. Raises UsageError if the file cannot be read or has no such columns."""
        return ParquetReader(self, context, position)


class ParquetReader(SourceReader):
    """Reads a Parquet file. Its parts are row groups."""

    def __init__(self, source: ParquetFile, context: SourceContext, position: Position) -> None:
        try:
            import pyarrow as pa
            import pyarrow.parquet as pq
        except ImportError:
            raise UsageError("a Parquet file needs pyarrow: run `pip install 'lmerge[arrow]'`") from None
        self._changes = RowChanges(context, source.where, shape_of(source), python_value)
        try:
            self._file = pq.ParquetFile(source.path)
        except (OSError, pa.ArrowException) as problem:
            raise UsageError(f"{self._changes.source} cannot be read: {problem}") from None
        try:
            self._changes.check_columns(self._file.schema_arrow.names)
        except BaseException:
            self._file.close()
            raise
        self._problems = (OSError, pa.ArrowException, ValueError, OverflowError)
        self._position: tuple[int, int] = tuple(position) if position else (0, 0)
        self._may_skip = context.may_skip
        self._schema = context.schema
        self._batch_rows = ROWS_PER_BATCH_OF_COLUMNS if context.as_columns else ROWS_PER_BATCH
        self._as_columns = context.as_columns
        self._needed_from = NEG_INF

    def fast_forward(self, t: int) -> None:
        """Learn that no event is needed that ends before ``t``."""
        if self._may_skip:
            self._needed_from = max(self._needed_from, t)

    def chunks(self) -> Iterator[Chunk]:
        """Yield the rows by row groups, and the end of the stream."""
        rows = ArrowRows(self._changes)
        begun, begin = self._position
        first = sum(self._file.metadata.row_group(before).num_rows for before in range(begun))
        for group in range(begun, self._file.metadata.num_row_groups):
            count = self._file.metadata.row_group(group).num_rows
            latest = self._latest_if_unneeded(group)
            if latest is not None:
                self.parts_skipped += 1
                yield Chunk([], [group, begin], [group + 1, 0], latest=latest)
            else:
                yield from self._group(rows, group, begin, first)
            first, begin = first + count, 0
        end = [self._file.metadata.num_row_groups, 0]
        yield Chunk([INF], end, end)

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _group(self, rows: ArrowRows, group: int, begin: int, first: int) -> Iterator[Chunk]:
        at = 0
        try:
            for batch in self._file.iter_batches(self._batch_rows, [group], [*self._changes.needed]):
                skipped = min(max(begin - at, 0), batch.num_rows)
                left, start = batch.slice(skipped), at + skipped
                at += batch.num_rows
                if left.num_rows:
                    yield self._chunk(rows, left, (group, start), first + start)
        except self._problems as problem:
            raise InvalidRow(f"{self._changes.source}, row group {group} cannot be read: {problem}") from None

    def _chunk(self, rows: ArrowRows, batch: Any, begin: tuple[int, int], place: int) -> Chunk:
        """Return the rows of a batch, of which the first is row ``place`` of the file."""
        group, start = begin
        position, end = [group, start], [group, start + batch.num_rows]
        columns = column_items(self._schema, self._changes.shape, batch) if self._as_columns else None
        if columns is not None:
            return Chunk(columns, position, end)
        items, releases = rows.changes(batch, _places(place))
        return Chunk(items, position, end, releases)

    def _latest_if_unneeded(self, group: int) -> int | None:
        """Return the latest start of a row group of which no event is needed, or None if it must be read."""
        shape = self._changes.shape
        if self._needed_from == NEG_INF or (shape.end is None and not shape.is_point):
            return None
        start = self._greatest(group, shape.start)
        end = start if shape.end is None else self._greatest(group, shape.end)
        if start is None or end is None or end + shape.is_point >= self._needed_from:
            return None
        return start

    def _greatest(self, group: int, name: str) -> int | None:
        """Return the greatest value of a column of times, or None if it is not known or one is missing."""
        found = self._file.metadata.row_group(group)
        for at in range(found.num_columns):
            column = found.column(at)
            if column.path_in_schema == name:
                statistics = column.statistics
                if statistics is None or not statistics.has_min_max or statistics.null_count:
                    return None
                try:
                    return time_of(statistics.max)
                except ValueError:
                    return None
        return None


def _places(first: int) -> Callable[[int], str]:
    return lambda index: f"row {first + index}"
