"""Columns of values as users' functions take them, and give them back: lists, or arrays of NumPy or Arrow.

In arrays of NumPy numbers and truth values that cannot be missing are as they are, and other values are objects.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from importlib.util import find_spec
from typing import Any, Final, Literal, TypeAlias

from lmerge.wire.schema import Column, Schema

Arrays: TypeAlias = Literal["list", "numpy", "arrow"]

NUMPY_TYPES: Final[Mapping[str, str]] = {"bool": "bool", "int": "int64", "float": "float64"}
_FLAT: Final = frozenset(("bool", "int", "float", "string", "bytes", "timestamp", "date", "decimal"))
# Python has no days before the year 1, and refuses them. Of the others every value of Arrow is one of a plan.
_EXACT: Final = _FLAT - {"date"}
# A process has few types.
TYPES_MAX: Final = 256


def array_of(form: Arrays, values: list[Any], column: Column) -> Any:
    """Return a column of Python values in a form."""
    if form == "list":
        return values
    if form == "numpy":
        import numpy as np

        array = np.empty(len(values), dtype=numpy_type(column))
        array[:] = values
        return array
    import pyarrow as pa

    return pa.array(values, type=arrow_type(column))


def numpy_type(column: Column) -> str:
    """Return the type of elements of a column in NumPy."""
    return "object" if column.nullable else NUMPY_TYPES.get(column.type, "object")


def takes_arrow(form: Arrays, columns: Sequence[Column]) -> bool:
    """Whether arrays of Arrow become what a function gets without a look at each value."""
    if form == "numpy":
        return all(numpy_type(column) != "object" for column in columns) and find_spec("pyarrow") is not None
    return form == "arrow" and all(map(is_flat, columns))


def is_flat(column: Column) -> bool:
    """Whether the values of a column have no parts."""
    return column.type in _FLAT


@lru_cache(maxsize=TYPES_MAX)
def arrow_type(column: Column) -> Any:
    """Return the type of a column in Arrow."""
    from lmerge.wire.arrow import arrow_schema

    named = Column("value", column.type, column.nullable, column.round_digits, column.scale, column.children)
    return arrow_schema(Schema((named,))).field(0).type


def listed(results: Any, column: Column) -> list[Any]:
    """Return results as a list of Python values, or of scalars of NumPy. ``column``: the declared type."""
    if not hasattr(results, "to_pylist"):
        return list(results)
    if column.type == "timestamp" and results.type == arrow_type(column):
        results = results.cast("int64")
    return list(results.to_pylist())


def exact_array(results: Any, column: Column) -> Any:
    """Return results as a batch of Arrow with one column of exactly the declared type, or None if they are not."""
    import pyarrow as pa

    if column.type not in _EXACT or column.round_digits is not None:
        return None
    if hasattr(results, "dtype"):  # an array of NumPy
        if results.ndim != 1 or results.dtype != NUMPY_TYPES.get(column.type):
            return None
        results = pa.array(results)
    if isinstance(results, pa.ChunkedArray):
        results = results.combine_chunks()
    if not isinstance(results, pa.Array) or results.type != arrow_type(column):
        return None
    if results.null_count and not column.nullable:
        return None
    return pa.record_batch([results], ["value"])
