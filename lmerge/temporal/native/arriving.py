"""Arrow batches of a source as batches of inserts, without an object per row. Needs pyarrow.

What is not certain to be right is refused: then ``arrow_tables`` converts it in Python, or raises the error.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lmerge._native import ColumnBatch
from lmerge.core.elements import INF
from lmerge.temporal.native.step import column_form
from lmerge.temporal.plan.sources import SourceNode, SourceShape
from lmerge.temporal.values import NAN
from lmerge.wire.arrow import arrow_schema
from lmerge.wire.native_rows import native_rows
from lmerge.wire.schema import Column, Schema

# Whose values are canonical in Arrow already; floats are made so here.
_DIRECT = frozenset(("bool", "int", "string", "bytes", "float"))


def column_inserts(source: SourceNode, rows: Any, vs: str, ve: str | None, stable: int | None) -> ColumnBatch | None:
    """Return a batch of inserts with the rows of a table or record batch, or None if it is refused.

    ``vs``, ``ve``: the columns of times, as in ``collect_arrow``; ``stable``: behind the inserts.
    """
    names = source.schema.names
    kept = [name for name in rows.schema.names if name in names or name not in (vs, ve)]
    if not len(rows) or sorted(kept) != sorted(names):
        return None
    batch = _one_batch(rows)
    times = None if batch is None else _times(source, batch, vs, ve)
    columns = None if batch is None or times is None else _canonical(source.schema, batch.select(list(names)))
    return None if columns is None else column_form(source.schema).inserts(columns, times, stable)


def lasting_inserts(schema: Schema, rows: Any, starts: Any, ends: Any) -> ColumnBatch | None:
    """Return the rows of a record batch as inserts, or None if they are refused.

    ``rows``: its columns are those of the schema, in its order; ``starts``, ``ends``: of each row, int64.
    """
    if not pc.all(pc.less(starts, ends)).as_py():
        return None
    columns = _canonical(schema, rows)
    times = pa.record_batch([starts, ends], names=["vs", "ve"])
    return None if columns is None else column_form(schema).inserts(columns, times)


def _one_batch(rows: Any) -> Any:
    if isinstance(rows, pa.RecordBatch):
        return rows
    batches = rows.combine_chunks().to_batches()
    return batches[0] if len(batches) == 1 else None


def _times(source: SourceNode, rows: Any, vs: str, ve: str | None) -> Any:
    """Return start and end of each row, or None if they are no lifetimes of the source, or no int64."""
    is_point = source.shape is SourceShape.POINT
    if vs not in rows.schema.names:
        return None
    starts = rows.column(vs)
    if starts.type != pa.int64() or starts.null_count or pc.max(starts).as_py() == INF:
        return None
    if ve is not None and ve in rows.schema.names:
        ends = rows.column(ve)
    elif is_point:
        ends = pc.add(starts, 1)
    else:
        ends = pa.repeat(pa.scalar(INF, pa.int64()), len(rows))
    if ends.type != pa.int64() or ends.null_count or not pc.all(pc.less(starts, ends)).as_py():
        return None
    if is_point and not pc.all(pc.equal(pc.subtract(ends, starts), 1)).as_py():
        return None
    return pa.record_batch([starts, ends], names=["vs", "ve"])


def _canonical(schema: Schema, rows: Any) -> Any:
    """Return the rows with the types and values that a plan has, or None if they are refused."""
    target = arrow_schema(schema)
    if not all(map(_is_direct, schema.columns, rows.columns, target.types)):
        if any(map(_has_floats_inside, schema.columns)):
            return None
        rows = _by_payloads(schema, rows)
        if rows is None or rows.schema.types != target.types:
            return None
    columns = [
        _canonical_floats(values) if column.type == "float" else values
        for column, values in zip(schema.columns, rows.columns, strict=True)
    ]
    return pa.record_batch(columns, schema=target)


def _is_direct(column: Column, values: Any, needed: Any) -> bool:
    has_all = column.nullable or not values.null_count
    is_fit = column.type in _DIRECT and column.round_digits is None and values.type == needed and has_all
    return is_fit and (column.type != "string" or _is_text(values))


def _is_text(values: Any) -> bool:
    """Whether all is UTF-8: files may have other bytes in columns of text."""
    try:
        values.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def _has_floats_inside(column: Column) -> bool:
    return any(child.type == "float" or _has_floats_inside(child) for child in column.children)


def _by_payloads(schema: Schema, rows: Any) -> Any:
    """Return the rows as they are after the wire, which checks and rounds them."""
    converter = native_rows(schema)
    payloads = converter.payloads(rows)
    table = None if payloads is None else converter.decode(payloads)
    return None if table is None else _one_batch(table)


def _canonical_floats(values: Any) -> Any:
    """Return floats with 0.0 for -0.0 and one NaN."""
    values = pc.add(values, 0.0)
    is_nan = pc.is_nan(values)
    return pc.if_else(is_nan, pa.scalar(NAN), values) if pc.any(is_nan).as_py() else values
