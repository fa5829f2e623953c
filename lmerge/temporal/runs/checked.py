"""Checks of what users give to a run, where it enters: items of a source against its columns.

``QueryRun.take``, ``collect`` and sources of Python items call it; sources that make items of a schema do not, and
pay nothing. Values become those of a plan here: one NaN, no -0.0, Python's dates and decimals as a plan has them. So
operators can rely on rows, and both implementations get the same ones (law L6).

Items that are right already, which most are, pass by a test of whole columns, without a call for each value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import isnan
from numbers import Integral
from typing import Any, Final, TypeAlias

from lmerge.core.elements import INF, NEG_INF
from lmerge.errors import InvalidRow, UsageError
from lmerge.temporal.changes import Change
from lmerge.temporal.python_values import DAYS, Converter, entering_form
from lmerge.temporal.runs.settings import Item
from lmerge.temporal.values import Values
from lmerge.wire.schema import Column, Schema

ColumnTest: TypeAlias = Callable[[Sequence[Any]], bool]

_TIMES: Final = ("Vs", "the end before", "the end")


class ItemCheck:
    """The check of the items of one source. ``source``: its name, for messages."""

    def __init__(self, source: str, schema: Schema) -> None:
        self._source = source
        self._schema = schema
        self._tests = [_test_of(column) for column in schema.columns]
        self._forms: list[Converter] = [entering_form(column) for column in schema.columns]

    def checked(self, items: Iterable[object]) -> list[Item]:
        """Return items whose rows have the columns of the source.

        Raises InvalidRow for a value that does not fit its column, and UsageError for what is no change of the source
        and no stable point. Both name the source and the item.
        """
        if not isinstance(items, Iterable) or isinstance(items, Change | str | bytes):
            raise UsageError(
                f"source {self._source!r:.64}: {items!r:.100} is given as its items; they are a list of changes and "
                "stable points"
            )
        listed: list[Any] = list(items)
        if self._are_right(listed):
            return listed
        return [self._item(item, at) for at, item in enumerate(listed)]

    def change(self, item: Change, at: int = 0) -> Change:
        """Return a change, which is item ``at``, with the values of a plan. Raises as ``checked``."""
        if not isinstance(item.row, tuple):
            raise self._misfit(item, at, f"its row is {item.row!r:.64}, which is no tuple")
        columns = self._schema.columns
        if len(item.row) != len(columns):
            names = ", ".join(f"{column.name}: {column.describe()}" for column in columns)
            count = f"{len(item.row)} value{'' if len(item.row) == 1 else 's'}"
            raise self._misfit(item, at, f"its row has {count}; the columns are {names:.400}")
        values = []
        for value, column, form in zip(item.row, columns, self._forms, strict=True):
            try:
                values.append(form(value))
            except ValueError as problem:
                raise self._misfit(item, at, f"column {column.name!r:.64} ({column.describe()}): {problem}") from None
        times = [self._time(item, at, *pair) for pair in zip(_TIMES, item[1:], strict=True)]
        return Change(tuple(values), *times)

    def _are_right(self, items: Sequence[Any]) -> bool:
        """Whether all items are what they have to be, in the form that they have. May be False for right ones."""
        kinds = set(map(type, items))
        if not kinds <= {Change, int}:
            return False
        changes: Sequence[Any] = items
        if int in kinds:
            changes = [item for item in items if type(item) is not int]
            if not _are_whole([item for item in items if type(item) is int]):
                return False
        if not changes:
            return True
        rows, *times = zip(*changes, strict=True)
        return all(map(_are_whole, times)) and self._are_rows(rows)

    def _are_rows(self, rows: Sequence[Values]) -> bool:
        if set(map(type, rows)) != {tuple} or set(map(len, rows)) != {len(self._tests)}:
            return False
        columns = zip(*rows, strict=True)
        return all(test is not None and test(column) for test, column in zip(self._tests, columns, strict=True))

    def _item(self, item: Any, at: int) -> Item:
        if isinstance(item, Change):
            return self.change(item, at)
        if isinstance(item, bool) or not isinstance(item, Integral):
            raise UsageError(
                f"source {self._source!r:.64}, item {at}: {item!r:.100} is no change and no stable point; "
                "rows as mappings are for Arrow: pa.Table.from_pylist(rows)"
            )
        stable = int(item)
        if not NEG_INF <= stable <= INF:
            raise UsageError(f"source {self._source!r:.64}, item {at}: stable({stable}) is out of the 64-bit range")
        return stable

    def _time(self, item: Change, at: int, what: str, value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, Integral):
            raise UsageError(f"{self._place(item, at)}: {what} is {value!r:.64}, which is no whole number")
        if not NEG_INF <= int(value) <= INF:
            raise UsageError(f"{self._place(item, at)}: {what} is {value!r:.64}, which is out of the 64-bit range")
        return int(value)

    def _misfit(self, item: Change, at: int, problem: str) -> InvalidRow:
        return InvalidRow(f"{self._place(item, at)}: {problem}")

    def _place(self, item: Change, at: int) -> str:
        # Its representation, because what it has instead of a row may not be shown as one.
        return f"source {self._source!r:.64}, item {at}, {item!r:.200}"


def _are_whole(values: Sequence[Any], low: int = NEG_INF, high: int = INF) -> bool:
    return set(map(type, values)) == {int} and min(values) >= low and max(values) <= high


def _are_texts(values: Sequence[Any]) -> bool:
    if set(map(type, values)) != {str}:
        return False
    try:
        "".join(values).encode()  # half of a surrogate pair has no UTF-8
    except UnicodeEncodeError:
        return False
    return True


def _are_floats(values: Sequence[Any]) -> bool:
    """Whether floats have no form to lose; zeros and NaN are looked at one by one."""
    return set(map(type, values)) == {float} and 0.0 not in values and not any(map(isnan, values))


def _are_of(kind: type) -> ColumnTest:
    return lambda values: set(map(type, values)) == {kind}


_TESTS: Final[dict[str, ColumnTest]] = {
    "bool": _are_of(bool),
    "int": _are_whole,
    "string": _are_texts,
    "bytes": _are_of(bytes),
    "timestamp": _are_whole,
    "date": lambda values: _are_whole(values, *DAYS),
    "float": _are_floats,
}


def _test_of(column: Column) -> ColumnTest | None:
    """Return a test whether values of a column are right as they are, or None if each has to be looked at."""
    test = _TESTS.get(column.type)
    if test is None or column.round_digits is not None:
        return None
    if not column.nullable:
        return test
    return lambda values: not (there := [value for value in values if value is not None]) or test(there)
