"""The last step of a merge in Spark: turns the shards' output of one batch into the rows that the query gives."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from lmerge.core.elements import ADJUST, NEG_INF
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
# Bits for the elements that one batch can cause in one shard. The rest of 63 bits counts batches.
ORDER_BITS: Final = 40
# Rows of one Arrow batch, the same as Spark's.
_BATCH_ROWS: Final = 10_000


class Unpacker:
    """Turns the shards' output of a batch into rows, for ``mapInArrow``. The last partition receives all reports.

    The stable of the output is the smallest of the shards'. It is emitted when all shards report and it has advanced,
    after all other rows of its partition.
    """

    def __init__(self, shards: int) -> None:
        self._shards = shards

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        output: list[tuple[int, int, bytes]] = []
        reports: list[tuple[int, int]] = []
        ended: set[str] = set()
        batch = 0
        for rows in batches:
            for row in rows.to_pylist():
                batch = row["batch"]
                if row["elements"] is not None:
                    output.append((row["shard"], row["first"], row["elements"]))
                    continue
                ended.update(json.loads(row["ended"]))
                reports += [] if row["stable"] is None else [(row["before"], row["stable"])]
        for shard, _, data in sorted(output, key=lambda one: one[:2]):  # a shuffle promises no order
            yield from element_rows(shard, packs.from_bytes(data)).to_batches(max_chunksize=_BATCH_ROWS)
        stable = NEG_INF  # an empty stable, if there is only an input's end to report
        if len(reports) == self._shards and min(now for _, now in reports) > min(before for before, _ in reports):
            stable = min(now for _, now in reports)
        if stable > NEG_INF or ended:
            order = (batch + 1 << ORDER_BITS) - 1
            row = ["stable", None, stable, None, None, None, order, "; ".join(sorted(ended)) or None]
            yield pa.RecordBatch.from_arrays(
                [pa.array([value], field.type) for value, field in zip(row, ROWS)], schema=ROWS
            )


def element_rows(shard: int, table: Any) -> Any:
    """Return elements of a shard as rows. Missing values are null."""
    kind = table.column("kind")
    vold = pc.if_else(pc.equal(kind, ADJUST), table.column("vold"), pa.scalar(None, pa.int64()))
    kind_names = pa.array(packs.KIND_NAMES).take(kind.combine_chunks().cast(pa.int32()))
    count = table.num_rows
    return pa.table(
        [
            kind_names,
            table.column("payload"),
            table.column("vs"),
            table.column("ve"),
            vold,
            pa.repeat(pa.scalar(shard, pa.int32()), count),
            table.column("order"),
            pa.nulls(count, pa.string()),
        ],
        schema=ROWS,
    )
