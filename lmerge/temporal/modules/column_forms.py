"""Columns at the edge to users' modules: what a module that declares ``columns`` gets, and results that are columns.

Such a module gets an array for each input where others get rows, in the order in which they would come. It, and any
operator, can return columns: a mapping of arrays or lists by name, or a list of arrays in the order of the results.
Called by ``edge``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from typing import Any, Final, get_args

from lmerge.temporal.errors import PlanError
from lmerge.temporal.expressions.array_forms import Arrays, array_of, is_flat, listed, takes_arrow
from lmerge.temporal.modules.kinds import ROWS, UserModule
from lmerge.temporal.modules.properties import Stamped, StampedColumns, TimedColumns
from lmerge.temporal.python_values import Converter
from lmerge.temporal.values import Values
from lmerge.wire.schema import Column

_TIME: Final = Column("time", "int")
_PACKAGES: Final[Mapping[str, str]] = {"numpy": "numpy", "arrow": "pyarrow"}


class Refused(Exception):
    """What a module returned is no result. The message says what it is."""


class ColumnMaker:
    """Makes the columns that a module gets. ``together``: makes one value of several columns. Raises PlanError."""

    def __init__(self, module: UserModule, columns: Sequence[Column], together: Callable[..., Any] | None) -> None:
        form: Any = module.columns
        if form not in get_args(Arrays):
            there = ", ".join((ROWS, *get_args(Arrays)))
            raise PlanError(f"{module.shown} declares columns={form!r:.64}; there are {there}")
        if form in _PACKAGES and find_spec(_PACKAGES[form]) is None:
            raise PlanError(f"{module.shown} takes columns of {form}, and {_PACKAGES[form]} is not installed")
        self._form: Arrays = form
        self._columns = columns
        self._together = together
        reads = module.properties.reads
        self._reads_start, self._reads_end = "start" in reads, "end" in reads
        self.takes_arrow = takes_arrow(form, columns)

    def takes_canonical(self, column: Column) -> bool:
        """Return whether values of a plan become an array without a conversion."""
        return self._form == "arrow" and is_flat(column)

    def of_rows(self, ordered: Sequence[Values], forms: Sequence[Converter | None]) -> Any:
        """Return the columns of rows, each value in its form. Raises ValueError for a value that has none."""
        columns = zip(*ordered, strict=True) if ordered else [()] * len(self._columns)
        values = [
            list(column) if form is None else list(map(form, column))
            for form, column in zip(forms, columns, strict=True)
        ]
        return self._joined([array_of(self._form, *pair) for pair in zip(values, self._columns, strict=True)])

    def of_arrow(self, arrays: Sequence[Any]) -> Any:
        """Return the columns of arrays of Arrow, if ``takes_arrow``. The module may write to arrays of NumPy."""
        if self._form == "numpy":
            arrays = [array.to_numpy(zero_copy_only=False, writable=True) for array in arrays]
        return self._joined(arrays)

    def timed(self, columns: Any, starts: list[int], ends: list[int]) -> TimedColumns:
        """Return columns with the times that the module reads."""
        return TimedColumns(
            columns,
            array_of(self._form, starts, _TIME) if self._reads_start else None,
            array_of(self._form, ends, _TIME) if self._reads_end else None,
        )

    def _joined(self, arrays: Sequence[Any]) -> Any:
        return arrays[0] if self._together is None else self._together(*arrays)


def rows_of_result(found: Any, columns: Sequence[Column]) -> list[Any]:
    """Return what an operator returned as a list of rows. Raises Refused, and whatever an iterator of it raises."""
    if found is None:
        raise Refused("None; an operator returns rows")
    if isinstance(found, StampedColumns):
        times = [_times(found.start), _times(found.end)]
        rows = _transposed(found.columns, columns)
        _check_lengths([rows, *times])
        return [Stamped(row, start, end) for row, start, end in zip(rows, *times, strict=True)]
    return _transposed(found, columns) if _is_columns(found) else list(found)


def _is_columns(found: Any) -> bool:
    if isinstance(found, Mapping):
        return True
    return isinstance(found, (list, tuple)) and bool(found) and all(map(_is_array, found))


def _is_array(found: Any) -> bool:
    return hasattr(found, "__len__") and (hasattr(found, "dtype") or hasattr(found, "to_pylist"))


def _times(found: Any) -> list[Any]:
    return list(found.tolist() if hasattr(found, "tolist") else found)


def _transposed(found: Any, columns: Sequence[Column]) -> list[Any]:
    """Return the rows of columns: mappings if they have names, else lists."""
    names = [column.name for column in columns]
    if isinstance(found, Mapping):
        unknown = [name for name in found if name not in names]
        if unknown:
            raise Refused(f"a column {unknown[0]!r:.64}, which it does not declare")
        by_name = {column.name: listed(found[column.name], column) for column in columns if column.name in found}
        _check_lengths(list(by_name.values()))
        return [dict(zip(by_name, row, strict=True)) for row in zip(*by_name.values(), strict=True)]
    if len(found) != len(columns):
        raise Refused(f"{len(found)} columns, and declares {len(columns)}")
    values = [listed(*pair) for pair in zip(found, columns, strict=True)]
    _check_lengths(values)
    return list(zip(*values, strict=True))


def _check_lengths(columns: Sequence[Sequence[Any]]) -> None:
    lengths = sorted(set(map(len, columns)))
    if len(lengths) > 1:
        raise Refused(f"columns of {' and '.join(map(str, lengths))} values")
