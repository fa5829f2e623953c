"""The first step of a merge in Spark: turns what an input delivers into packs, one for each shard.

An input is a DataFrame in one of three forms, told apart by its columns:

==========  =========================================================================================================
``rows``    a row for each element
``frames``  a row for each frame, in ``frame``, and its order: what ``format("lmerge")`` and another merge give
``files``   a row for each file of ``element_files``: Parquet or Arrow, read in the worker
==========  =========================================================================================================

Frames and files never become rows of Spark, which is most of the work of a merge (``bench.spark_merge``).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from lmerge.core.engines import selection
from lmerge.errors import InvalidBatch, InvalidRow, UsageError
from lmerge.spark.frames import Report, from_frame
from lmerge.spark.merging import packs
from lmerge.spark.merging.current_batch import current_batch
from lmerge.spark.merging.element_files import element_columns, table_in
from lmerge.spark.merging.pack_files import PackFiles
from lmerge.spark.merging.packs import Pack
from lmerge.spark.sink import columns

ROWS: Final = "rows"
FRAMES: Final = "frames"
FILES: Final = "files"
# Rows are collected up to this size before they are packed. A record batch from Spark has up to 10,000 of them.
PACK_ROWS: Final = 131_072
PACK_BYTES: Final = 32 * 2**20


@dataclass(frozen=True)
class Packer:
    """Turns record batches of one input into packs, for ``mapInArrow``.

    ``number``, ``name``: of the input. ``order``: the column of order; None: there is none. ``folder``: that of the
    merge's files.
    """

    number: int
    name: str
    form: str
    shards: int
    order: str | None
    folder: str

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        yield from self.run(batches, current_batch().number)

    def run(self, batches: Iterator[Any], batch: int) -> Iterator[Any]:
        """Yield the packs of a task of this batch of the query, as rows of ``packs.PACKS``."""
        makes = {ROWS: self._of_rows, FRAMES: self._of_frames, FILES: self._of_files}[self.form]
        for found in PackFiles(self.folder).placed(makes(batches), batch):
            yield packs.record_batch(found)

    def _of_rows(self, batches: Iterator[Any]) -> Iterator[list[Pack]]:
        held: list[Any] = []
        rows = size = 0
        for batch in batches:
            held.append(batch)
            rows, size = rows + batch.num_rows, size + batch.nbytes
            if rows >= PACK_ROWS or size >= PACK_BYTES:
                yield self._packed(held)
                held, rows, size = [], 0, 0
        if rows:
            yield self._packed(held)

    def _of_frames(self, batches: Iterator[Any]) -> Iterator[list[Pack]]:
        for batch in batches:
            orders, frames = batch.column("order").to_pylist(), batch.column("frame")
            for order, data, report in zip(orders, frames, batch.column("report").to_pylist()):
                if report is not None:
                    yield packs.packs_of_report(Report(**report), self.number, self.shards, order)
                else:
                    yield self._of_frame(order, data.as_py())

    def _of_frame(self, order: int | None, data: bytes | None) -> list[Pack]:
        try:
            if order is None or data is None:
                raise InvalidBatch(f"a row without {'an order' if order is None else 'a frame'}")
            batch = from_frame(data)
        except InvalidBatch as problem:
            reason = f"the frame of order {order}: {problem}"
            return packs.packs_of_table(packs.malformed(order or 0, reason), self.number, self.shards)
        if selection.best() == selection.NATIVE:
            from lmerge.spark.merging import native_packs

            return native_packs.packs_of_frame(batch, self.number, self.shards, order)
        table = packs.table_of(batch, columns.constant(order, batch.count))
        return packs.packs_of_table(table, self.number, self.shards)

    def _of_files(self, batches: Iterator[Any]) -> Iterator[list[Pack]]:
        for batch in batches:
            for path in batch.column("path").to_pylist():
                try:
                    table = element_columns(table_in(path), self.order)
                except (pa.ArrowException, InvalidRow, OSError) as problem:
                    raise UsageError(f"cannot merge: the file {path} of input {self.name!r}: {problem}") from problem
                yield from self._of_rows(iter(table.to_batches(max_chunksize=PACK_ROWS)))

    def _packed(self, batches: Sequence[Any]) -> list[Pack]:
        """Return the packs of record batches of rows."""
        has_order = self.order is not None
        if selection.best() == selection.NATIVE:
            from lmerge.spark.merging import native_packs

            found = native_packs.packs_of_rows(batches, self.number, self.shards, has_order)
            if found is not None:
                return found
        rows = pa.Table.from_batches(batches).combine_chunks()
        return packs.packs_of_table(packs.elements_table(rows, has_order), self.number, self.shards)
