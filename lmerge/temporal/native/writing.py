"""Batches of a result as elements of the wire, packed by the native core without an object per row."""

from __future__ import annotations

from collections.abc import Sequence

from lmerge.core.batch import AnyBatch
from lmerge.temporal.columns import ColumnDelta
from lmerge.temporal.native.step import column_form
from lmerge.wire.schema import Schema


def element_columns(schema: Schema, batches: Sequence[ColumnDelta]) -> AnyBatch | None:
    """Return the elements of batches in their order, or None for what only Python writes, such as a date of no year."""
    return column_form(schema).elements(batches)  # type: ignore[arg-type]  # who has columns has those of the core
