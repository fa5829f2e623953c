"""The check of a batch's payloads on the native core: the GIL released, no object per row, no Arrow.

The core accepts the rows that it can check itself and leaves the others to the codec in Python. ``fitting`` calls this
where the engine is native. Importing this module imports the compiled core.
"""

from __future__ import annotations

from typing import Any, TypeAlias

from lmerge._native import Rows
from lmerge.core.batch import AnyBatch
from lmerge.core.engines.native_engine import columns_of
from lmerge.wire.schema import Column, Schema

DeclaredColumn: TypeAlias = tuple[str, str, bool, "int | None", int, list[Any]]


class NativePrecheck:
    """A ``fitting.Precheck`` by ``schema``."""

    def __init__(self, schema: Schema) -> None:
        self._rows = Rows(declared(schema))

    def first_doubt(self, batch: AnyBatch, start: int) -> int | None:
        """Return the index of the first payload from ``start`` on that the codec must decode; None: there is none."""
        return self._rows.first_doubt(columns_of("a batch", batch), start)


def declared(schema: Schema) -> list[DeclaredColumn]:
    """Return the columns in the form that the core takes."""
    return [declared_column(column) for column in schema.columns]


def declared_column(column: Column) -> DeclaredColumn:
    """Return one column in the form that the core takes."""
    children = [declared_column(child) for child in column.children]
    return column.name, column.type, column.nullable, column.round_digits, column.scale, children
