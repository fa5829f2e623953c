"""Rows of a source as inserts: the values of the plan's columns, and a lifetime.

Columns are found by name. Errors name the source, the place of the row and the column.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from lmerge.core.elements import INF, show_time
from lmerge.errors import InvalidRow
from lmerge.replica.sources.declared import RowSource, SourceContext
from lmerge.replica.sources.value_forms import Convert, time_of
from lmerge.temporal.changes import Change
from lmerge.temporal.values import Values
from lmerge.wire.schema import Column

_NOTHING: Final = object()


class RowShape(NamedTuple):
    """The columns of times: of a point if ``is_point``, else of an interval; and the one by which rows are released."""

    start: str
    end: str | None
    is_point: bool
    release: str | None

    @property
    def names(self) -> tuple[str, ...]:
        """The columns that rows must have besides those of the schema."""
        return tuple(dict.fromkeys(name for name in (self.start, self.end, self.release) if name is not None))


def shape_of(source: RowSource) -> RowShape:
    """Return the shape that a source declares."""
    return RowShape(source.time or source.start or "", source.end, source.time is not None, source.release)


class RowChanges:
    """Makes changes of the rows of one source. ``form``: the conversion of a column's values."""

    def __init__(self, context: SourceContext, where: str, shape: RowShape, form: Callable[[Column], Convert]) -> None:
        self.source = f"source {context.name!r} ({where})"
        self.shape = shape
        self._columns = [(column, form(column)) for column in context.schema.columns]

    @property
    def names(self) -> tuple[str, ...]:
        """The columns of the plan's source."""
        return tuple(column.name for column, _ in self._columns)

    @property
    def needed(self) -> tuple[str, ...]:
        """The columns that rows must have."""
        return tuple(dict.fromkeys((*self.names, *self.shape.names)))

    def check_columns(self, names: Iterable[str], place: str = "") -> None:
        """Raise InvalidRow if a column is not among those of a table, or twice."""
        there = list(names)
        for name in self.needed:
            if there.count(name) != 1:
                problem = "is no column" if name not in there else "are several columns"
                raise self.error(place, f"there {problem} {name!r}; there are {', '.join(there)[:200]}")

    def change(self, row: Mapping[str, Any], place: str) -> Change:
        """Return the insert of a row. Raises InvalidRow. ``place``: of the row, such as ``line 7``."""
        start, end = self._times(row, place)
        return Change(self.values(row, place), start, start, end)

    def values(self, row: Mapping[str, Any], place: str) -> Values:
        """Return the values of a row's columns. Raises InvalidRow."""
        values = []
        for column, convert in self._columns:
            value = row.get(column.name, _NOTHING)
            try:
                values.append(convert(None if value is _NOTHING else value))
            except ValueError as problem:
                if value is _NOTHING:
                    raise self.error(place, f"there is no column {column.name!r}") from None
                raise self.error(place, f"column {column.name!r} ({column.describe()}): {problem}") from None
        return tuple(values)

    def release(self, row: Mapping[str, Any], place: str) -> int | None:
        """Return when a row is released, or None for its start."""
        name = self.shape.release
        return None if name is None else self.time(name, row.get(name, _NOTHING), place)

    def column(self, values: Sequence[Any], at: int, place_of: Callable[[int], str]) -> list[Any]:
        """Return the values of the column ``at`` of many rows. Raises InvalidRow."""
        column, convert = self._columns[at]
        try:
            return list(map(convert, values))
        except ValueError:
            return [self._one(column, convert, value, place_of(index)) for index, value in enumerate(values)]

    def times(self, name: str, values: Sequence[Any], place_of: Callable[[int], str]) -> list[int]:
        """Return a column of times of many rows. Raises InvalidRow."""
        return [
            value if type(value) is int and -INF < value < INF else self.time(name, value, place_of(index))
            for index, value in enumerate(values)
        ]

    def ends(self, name: str, values: Sequence[Any], place_of: Callable[[int], str]) -> list[int | None]:
        """Return a column of ends of many rows; None: the event does not end. Raises InvalidRow."""
        return [None if value is None else self.time(name, value, place_of(at)) for at, value in enumerate(values)]

    def lifetime(self, row: Values, start: int, end: int | None, place: Callable[[], str]) -> Change:
        """Return the insert of a row with these times; ``end`` None: it does not end."""
        if self.shape.is_point:
            end = start + 1
        elif end is None:
            end = INF
        if end <= start:
            raise self.error(place(), f"the event ends at {show_time(end)}, and starts at {show_time(start)}")
        return Change(row, start, start, end)

    def error(self, place: str, problem: str) -> InvalidRow:
        """Return an error that names the source and the place in it."""
        return InvalidRow(f"{self.source}{', ' if place else ''}{place}: {problem}")

    def _times(self, row: Mapping[str, Any], place: str) -> tuple[int, int]:
        shape = self.shape
        start = self.time(shape.start, row.get(shape.start, _NOTHING), place)
        given = None if shape.end is None else row.get(shape.end, _NOTHING)
        end = None if shape.end is None or given is None or given == "" else self.time(shape.end, given, place)
        change = self.lifetime((), start, end, lambda: place)
        return change.vs, change.new

    def time(self, name: str, value: object, place: str) -> int:
        """Return a time. Raises InvalidRow."""
        if value is _NOTHING or value is None:
            problem = "is missing" if value is None else "is not there"
            raise self.error(place, f"column {name!r}, a time, {problem}")
        try:
            return time_of(value)
        except ValueError as problem:
            raise self.error(place, f"column {name!r}, a time: {problem}") from None

    def _one(self, column: Column, convert: Convert, value: object, place: str) -> Any:
        try:
            return convert(value)
        except ValueError as problem:
            raise self.error(place, f"column {column.name!r} ({column.describe()}): {problem}") from None
