"""Rows between Arrow and payloads on the native core: whole record batches, the GIL released, no object per row.

The core converts what it can and refuses the rest, without a reason. ``lmerge.wire.arrow`` then calls the codec in
Python, which converts the rows or raises the error. What is not refused gives the same bytes. Importing this module
imports the compiled core: ``arrow`` does so when the native engine is selected.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final

import pyarrow as pa

from lmerge._native import ArrowBatch, Columns, Rows
from lmerge.core.batch import AnyBatch
from lmerge.wire.native_fitting import declared
from lmerge.wire.schema import Schema

# A process has few schemas. Building one takes as long as encoding some rows.
SCHEMAS_MAX: Final = 64


@lru_cache(maxsize=SCHEMAS_MAX)
def native_rows(schema: Schema) -> NativeRows:
    """Return the converter of ``schema``."""
    return NativeRows(schema)


class NativeRows:
    """Converts rows of one schema. A method returns None for what it refuses: call Python. For use by any thread."""

    def __init__(self, schema: Schema) -> None:
        self._rows = Rows(declared(schema))

    def payloads(self, rows: Any) -> list[bytes] | None:
        """Return the payloads of a table or record batch that has the schema's columns and no other."""
        return self._rows.payloads(_batches(rows))

    def inserts(self, rows: Any, vs: str, ve: str | None) -> Columns | None:
        """Return one insert per row, where ``vs`` and ``ve`` name columns of times."""
        return self._rows.inserts(_batches(rows), vs, ve)

    def decode(self, payloads: Sequence[bytes]) -> Any:
        """Return the rows as an Arrow table."""
        return _table(self._rows.decode(payloads))

    def decode_batch(self, batch: AnyBatch) -> Any:
        """Return the rows of all elements as an Arrow table, without a copy, if ``batch`` is the core's columns."""
        return _table(self._rows.decode(batch)) if isinstance(batch, Columns) else None


def _table(batch: ArrowBatch | None) -> Any:
    return None if batch is None else pa.Table.from_batches([pa.record_batch(batch)])


def _batches(rows: Any) -> list[Any]:
    """Return the chunks of a table, cut so that each batch has one chunk of every column."""
    return rows.to_batches() if isinstance(rows, pa.Table) else [rows]
