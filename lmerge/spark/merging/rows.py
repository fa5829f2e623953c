"""The last step of a merge in Spark: turns the shards' output of one batch into the rows that the query gives.

They are rows of elements, or frames: a row for each frame, with the order of its first element, and a row for the
report of each shard. The stable of a batch of frames is the least of the reports, which their reader finds: so frames
need no step in which the shards meet.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from lmerge.core.batch import AnyBatch
from lmerge.core.elements import ADJUST, NEG_INF
from lmerge.core.engines import selection
from lmerge.spark.frames import REPORT, Report, from_frame, least
from lmerge.spark.merging import packs

ROWS: Final = pa.schema(
    [
        ("kind", pa.string()),
        ("payload", pa.binary()),
        ("vs", pa.int64()),
        ("ve", pa.int64()),
        ("vold", pa.int64()),
        ("shard", pa.int32()),
        ("order", pa.int64()),
        ("ended", pa.string()),
    ]
)
FRAMES: Final = pa.schema(
    [
        ("frame", pa.binary()),
        ("elements", pa.int32()),
        ("order", pa.int64()),
        ("report", REPORT),
        ("shard", pa.int32()),
        ("ended", pa.string()),
    ]
)
# Bits for the elements that one batch can cause in one shard. The rest of 63 bits counts batches.
ORDER_BITS: Final = 40
# Rows of one Arrow batch, the same as Spark's.
_BATCH_ROWS: Final = 10_000


@dataclass(frozen=True)
class Unpacker:
    """Turns the shards' output of a batch into rows of elements, for ``mapInArrow``.

    The last partition receives all reports. The stable of the output is the smallest of the shards'. It is emitted when
    all shards report and it has advanced, after all other rows of its partition.
    """

    shards: int

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        output: list[tuple[int, int, bytes]] = []
        reports: list[Report] = []
        ended: set[str] = set()
        batch = 0
        for rows in batches:
            for row in rows.to_pylist():
                batch = row["batch"]
                if row["elements"] is not None:
                    output.append((row["shard"], row["first"], row["elements"]))
                    continue
                ended.update([row["ended"]] if row["ended"] else [])
                reports += [] if row["stable"] is None else [Report(row["before"], row["stable"], self.shards)]
        for shard, first, data in sorted(output, key=lambda one: one[:2]):  # a shuffle promises no order
            yield from element_rows(from_frame(data), shard, first)
        stable = least(reports)
        if stable is not None or ended:
            # An empty stable, if there is only an input's end to report.
            vc = NEG_INF if stable is None else stable
            row = ["stable", None, vc, None, None, None, _last(batch), "; ".join(sorted(ended)) or None]
            yield record(row, ROWS)


def frame_rows(batches: Iterator[Any], shards: int) -> Iterator[Any]:
    """Turn the output of one shard in a batch into rows of ``FRAMES``. Its report takes the place of a stable."""
    for rows in batches:
        for row in rows.to_pylist():
            if row["elements"] is not None:
                yield record([row["elements"], row["count"], row["first"], None, row["shard"], None], FRAMES)
            else:
                stable = NEG_INF if row["stable"] is None else row["stable"]
                report = {"before": row["before"], "stable": stable, "shards": shards}
                yield record([None, 0, _last(row["batch"]), report, row["shard"], row["ended"]], FRAMES)


def _last(batch: int) -> int:
    """Return the order behind all others of a batch."""
    return (batch + 1 << ORDER_BITS) - 1


def record(row: list[Any], schema: Any) -> Any:
    """Return one row as a record batch."""
    arrays = [pa.array([value], field.type) for value, field in zip(row, schema)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def element_rows(batch: AnyBatch, shard: int, first: int) -> Iterator[Any]:
    """Yield the elements of a shard as rows. Their orders count from ``first`` on; missing values are null."""
    if selection.best() == selection.NATIVE:
        from lmerge.spark.merging import native_packs

        rows = native_packs.rows_of(batch, shard, first)
        yield from (rows.slice(at, _BATCH_ROWS) for at in range(0, rows.num_rows, _BATCH_ROWS))
        return
    count = batch.count
    table = packs.table_of(batch, pa.array(range(first, first + count), pa.int64()))
    kind = table.column("kind")
    rows = pa.table(
        [
            pa.array(packs.KIND_NAMES).take(kind.combine_chunks().cast(pa.int32())),
            table.column("payload"),
            table.column("vs"),
            table.column("ve"),
            pc.if_else(pc.equal(kind, ADJUST), table.column("vold"), pa.scalar(None, pa.int64())),
            pa.repeat(pa.scalar(shard, pa.int32()), count),
            table.column("order"),
            pa.nulls(count, pa.string()),
        ],
        schema=ROWS,
    )
    yield from rows.to_batches(max_chunksize=_BATCH_ROWS)
