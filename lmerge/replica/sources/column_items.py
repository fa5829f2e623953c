"""Items of a chunk as columns: inserts of a record batch, without an object per row.

Made where all that reads the source takes columns (``SourceContext.as_columns``). What the conversion refuses, such as
a value of another type, is converted by rows, which raises the error with its place.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

from lmerge.core.elements import INF, NEG_INF
from lmerge.replica.sources.row_changes import RowShape
from lmerge.wire.schema import Schema

if TYPE_CHECKING:
    from lmerge._native import ColumnBatch


class ColumnItems:
    """Inserts as columns. ``releases``: when each is released, int64 of Arrow, as are its end and start."""

    def __init__(self, batch: ColumnBatch, ends: Any, releases: Any) -> None:
        self._batch, self._ends, self._releases = batch, ends, releases

    def __len__(self) -> int:
        return len(self._batch)

    def part(self, begin: int, end: int) -> ColumnBatch:
        """Return the inserts of some items."""
        return self._batch.part(begin, end - begin)

    def release(self, at: int) -> int:
        """Return when an item is released."""
        return int(self._releases[at].as_py())

    def latest_release(self, begin: int, end: int) -> int:
        """Return the latest time at which one of some items is released."""
        import pyarrow.compute as pc

        return int(pc.max(self._releases.slice(begin, end - begin)).as_py())

    def released(self, begin: int, end: int, now: int) -> int:
        """Return how many of some items, from the first on, are released by ``now``."""
        times = self._release_times
        return next((at for at in range(begin, end) if times[at] > now), end) - begin

    def unneeded(self, begin: int, t: int) -> int:
        """Return how many items from ``begin`` on come before one that ends at ``t`` or later."""
        import pyarrow.compute as pc

        found = int(pc.index(pc.greater_equal(self._ends.slice(begin), t), True).as_py())
        return len(self) - begin if found < 0 else found

    @cached_property
    def _release_times(self) -> list[int]:
        return list(self._releases.to_pylist())


def column_items(schema: Schema, shape: RowShape, batch: Any) -> ColumnItems | None:
    """Return the rows of a record batch, or None if they are refused."""
    import pyarrow as pa
    import pyarrow.compute as pc

    from lmerge.temporal.native.arriving import lasting_inserts

    starts = _times(batch.column(shape.start))
    releases = starts if shape.release is None else _times(batch.column(shape.release))
    if starts is None or starts.null_count or releases is None or releases.null_count:
        return None
    if shape.is_point:
        ends = pc.add(starts, 1)
    elif shape.end is None:
        ends = pa.repeat(pa.scalar(INF, pa.int64()), len(starts))
    else:
        given = _times(batch.column(shape.end))
        if given is None:
            return None
        ends = pc.fill_null(given, INF)
    inserts = lasting_inserts(schema, batch.select(list(schema.names)), starts, ends)
    return None if inserts is None else ColumnItems(inserts, ends, releases)


def _times(column: Any) -> Any:
    """Return a column of times as int64, or None if it is refused."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = column.type
    if pa.types.is_timestamp(kind) and kind.unit == "us" and kind.tz is not None:
        column = column.cast(pa.int64())
        if pc.any(pc.or_(pc.less(column, _FIRST_US), pc.greater(column, _LAST_US))).as_py():
            return None  # of no year of Python's
    elif kind != pa.int64():
        return None
    is_out = pc.or_(pc.less_equal(column, NEG_INF), pc.greater_equal(column, INF))
    return None if pc.any(is_out).as_py() else column


# The first and the last moment that is one in every time zone: 0001-01-02 and 9999-12-31.
_FIRST_US, _LAST_US = -62_135_510_400_000_000, 253_402_214_400_000_000
