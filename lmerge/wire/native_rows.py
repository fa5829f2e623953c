"""Rows between Arrow and payloads on the native core: whole record batches, the GIL released, no object per row.

The core takes what it is sure of and refuses the rest without a word. ``lmerge.wire.arrow`` then asks the codec in
Python, which knows the rows after all or says what is wrong. What is not refused gives the same bytes. Importing this
module imports the compiled core: ``arrow`` does when the native engine is asked for.
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
    """The rows of ``schema``."""
    return NativeRows(schema)


class NativeRows:
    """None from a method: refused, ask Python. For use by any thread."""

    def __init__(self, schema: Schema) -> None:
        self._rows = Rows(declared(schema))

    def payloads(self, rows: Any) -> list[bytes] | None:
        """The payloads of a table or record batch that has the schema's columns and no other."""
        return self._rows.payloads(_batches(rows))

    def inserts(self, rows: Any, vs: str, ve: str | None) -> Columns | None:
        """One insert per row, where ``vs`` and ``ve`` name columns of times."""
        return self._rows.inserts(_batches(rows), vs, ve)

    def decode(self, payloads: Sequence[bytes]) -> Any:
        """The rows as an Arrow table."""
        return _table(self._rows.decode(payloads))

    def decode_batch(self, batch: AnyBatch) -> Any:
        """The rows of all elements as an Arrow table, if they are the core's columns; they are not copied before."""
        return _table(self._rows.decode(batch)) if isinstance(batch, Columns) else None


def _table(batch: ArrowBatch | None) -> Any:
    return None if batch is None else pa.Table.from_batches([pa.record_batch(batch)])


def _batches(rows: Any) -> list[Any]:
    """The chunks of a table, cut so that each batch has one chunk of every column."""
    return rows.to_batches() if isinstance(rows, pa.Table) else [rows]
