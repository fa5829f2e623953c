"""Record batches of Arrow as inserts, column by column."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lmerge.replica.sources.row_changes import RowChanges
from lmerge.temporal.changes import Change
from lmerge.temporal.running import Item


class ArrowRows:
    """Makes inserts of record batches."""

    def __init__(self, changes: RowChanges) -> None:
        self._changes = changes

    def changes(self, batch: Any, place_of: Callable[[int], str]) -> tuple[list[Item], list[int] | None]:
        """Return the inserts of a batch, and when each is released; None: at its start.

        ``place_of``: the place of a row, for errors. Raises InvalidRow.
        """
        changes, shape = self._changes, self._changes.shape
        values = {name: _values(batch.column(name)) for name in changes.needed}
        columns = [changes.column(values[name], at, place_of) for at, name in enumerate(changes.names)]
        rows = list(zip(*columns, strict=True)) if columns else [()] * batch.num_rows
        starts = changes.times(shape.start, values[shape.start], place_of)
        releases = None if shape.release is None else changes.times(shape.release, values[shape.release], place_of)
        if shape.is_point:
            return [Change(row, start, start, start + 1) for row, start in zip(rows, starts, strict=True)], releases
        ends = [None] * len(rows) if shape.end is None else changes.ends(shape.end, values[shape.end], place_of)
        items: list[Item] = []
        for index, (row, start, end) in enumerate(zip(rows, starts, ends, strict=True)):
            items.append(changes.lifetime(row, start, end, lambda index=index: place_of(index)))  # type: ignore[misc]  # bound now
        return items, releases


def _values(column: Any) -> list[Any]:
    """Return a column as Python values; timestamps that are exact in microseconds as such."""
    import pyarrow as pa

    if pa.types.is_timestamp(column.type) and column.type.unit == "ns":
        column = column.cast(pa.timestamp("us", column.type.tz))
    values: list[Any] = column.to_pylist()
    return values
