"""Converts Arrow columns to and from those of a batch: whole buffers, no Python object for each element. Needs pyarrow.

Called by ``elements``. Errors name the column and the row.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from lmerge.core.batch import AnyBatch, Batch
from lmerge.core.elements import INF
from lmerge.core.engines import selection
from lmerge.errors import InvalidRow

_IS_LITTLE: Final = sys.byteorder == "little"


def column_of(rows: Any, name: str) -> Any:
    """Return a column of a record batch. Raises InvalidRow if there is none of that name."""
    if name not in rows.schema.names:
        raise InvalidRow(f"the rows have no column {name!r}; they have {', '.join(rows.schema.names)}")
    column = rows.column(name)
    return column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column


def times_of(rows: Any, name: str) -> Any:
    """Return a column of times as int64, with its nulls: whole numbers, or microseconds since the epoch of timestamps.

    Raises InvalidRow.
    """
    column = column_of(rows, name)
    kind = column.type
    try:
        if pa.types.is_timestamp(kind):
            if kind.tz is None:
                raise InvalidRow(f"column {name!r} ({kind}) has no time zone, so it names no moments")
            return column.cast(pa.timestamp("us", kind.tz)).cast(pa.int64())
        if pa.types.is_integer(kind) or pa.types.is_null(kind):
            return column.cast(pa.int64())
    except pa.ArrowInvalid as problem:
        raise InvalidRow(f"column {name!r} of times ({kind}): {problem}") from problem
    raise InvalidRow(f"column {name!r} of times is {kind}; it must be a timestamp or a whole number")


def without_nulls(column: Any, name: str) -> Any:
    """Return the column. Raises InvalidRow if a value is missing."""
    if column.null_count:
        row = first_true(pc.is_null(column))
        raise InvalidRow(f"row {row}, column {name!r}: there is no value ({column.null_count} of {len(column)} rows)")
    return column


def ends_of(rows: Any, name: str | None) -> Any:
    """Return a column of ends. A null, or no column at all, is +inf. Raises InvalidRow."""
    if name is None:
        return constant(INF, rows.num_rows)
    column = times_of(rows, name)
    return column.fill_null(INF) if column.null_count else column


def check_order(vs: Any, ve: Any) -> None:
    """Raise InvalidRow if something ends before it starts."""
    row = first_true(pc.less(ve, vs))
    if row is not None:
        raise InvalidRow(f"row {row}: it ends at {ve[row]}, before its start at {vs[row]}")


def first_true(mask: Any) -> int | None:
    """Return the first index at which ``mask`` is true, or None."""
    at = pc.index(mask, True).as_py()
    return None if at < 0 else int(at)


def unlike(name: str, names: Sequence[str]) -> str:
    """Return ``name``, changed if need be so that it is none of ``names``."""
    while name in names:
        name += "_"
    return name


def constant(value: int, count: int) -> Any:
    """Return a column that repeats one time."""
    return pa.repeat(pa.scalar(value, pa.int64()), count)


def ints(column: Any) -> list[int]:
    """Return an int64 column without nulls as a list."""
    return memoryview(_bytes_of(column, 8)).cast("q").tolist()


def binary(column: Any) -> Any:
    """Return a column of bytes or text as Arrow's plain binary."""
    return column if column.type == pa.binary() else column.cast(pa.binary())


def constant_nulls(count: int) -> Any:
    """Return a column of times that are all missing."""
    return pa.nulls(count, pa.int64())


def numbered(rows: Any, name: str, names: tuple[str, ...]) -> Any:
    """Return a column of names as their indexes in ``names``. Raises InvalidRow."""
    column = column_of(rows, name)
    kind = column.type
    if not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
        raise InvalidRow(f"column {name!r} is {kind}; it must hold one of {', '.join(names)}")
    found = pc.index_in(column, pa.array(names, kind))
    if found.null_count:
        row = first_true(pc.is_null(found))
        raise InvalidRow(f"row {row}, column {name!r}: {column[row].as_py()!r:.40} is none of {', '.join(names)}")
    return found.cast(pa.uint8())


def bytes_of(column: Any) -> bytes:
    """Return a column of uint8 without nulls as bytes."""
    return _bytes_of(column, 1)


def batch_of(kinds: bytes, vs: Any, ve: Any, vold: Any | None, payloads: Any) -> AnyBatch:
    """Return the batch with these columns: int64 and binary without nulls. ``vold`` None: there is no adjust."""
    if selection.best() == selection.PYTHON or not _IS_LITTLE:
        old = [0] * len(kinds) if vold is None else ints(vold)
        return Batch(kinds, ints(vs), ints(ve), old, payloads.to_pylist())
    from lmerge.core.engines.native_engine import wire_columns

    ends, data = _payload_columns(payloads)
    old_bytes = b"" if vold is None else _bytes_of(vold, 8)
    return wire_columns(kinds, _bytes_of(vs, 8), _bytes_of(ve, 8), old_bytes, ends, data)


def _payload_columns(payloads: Any) -> tuple[bytes, bytes]:
    """Return where each payload ends, counted from the start of the first one, and the payloads' bytes."""
    _, offsets, data = payloads.buffers()
    if not len(payloads):
        return b"", b""
    places = pa.Array.from_buffers(pa.int32(), len(payloads) + 1, [None, offsets], offset=payloads.offset)
    start, stop = places[0].as_py(), places[-1].as_py()
    ends = places.slice(1)
    if start:
        ends = pc.subtract(ends, pa.scalar(start, pa.int32()))
    return _bytes_of(ends, 4), bytes(memoryview(data)[start:stop]) if data is not None else b""


def _bytes_of(column: Any, width: int) -> bytes:
    """Return the values of a column of fixed width, as they lie in memory."""
    data = column.buffers()[1]
    if data is None or not len(column):
        return b""
    return bytes(memoryview(data)[column.offset * width : (column.offset + len(column)) * width])
