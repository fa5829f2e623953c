"""The middle step of a merge in Spark: gives each shard its packs and its state files, and returns what it emits.

Spark calls it once for each partition of a batch, and partition n is shard n.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

import pyarrow as pa

from lmerge.spark.frames import frame
from lmerge.spark.merging import packs
from lmerge.spark.merging.current_batch import CurrentBatch, current_batch
from lmerge.spark.merging.rows import ORDER_BITS, record
from lmerge.spark.merging.shard import MergePlan, Shard, ShardOutput
from lmerge.spark.merging.state_files import StateFiles
from lmerge.wire.codec import split_batch
from lmerge.wire.limits import UNLIMITED

# The output of a shard: frames, and a report, whose ``elements`` is null. ``place``: the partition that gets the row.
# ``stable`` is null in a report that holds only ended inputs.
OUT: Final = pa.schema(
    [
        ("place", pa.int32()),
        ("shard", pa.int32()),
        ("batch", pa.int64()),
        ("first", pa.int64()),
        ("count", pa.int32()),
        ("before", pa.int64()),
        ("stable", pa.int64()),
        ("ended", pa.string()),
        ("elements", pa.binary()),
    ]
)
# The size of one frame.
_FRAME: Final = replace(UNLIMITED, elements=131_072, message_bytes=32 * 2**20)


@dataclass(frozen=True)
class ShardTask:
    """Runs one shard, for ``mapInArrow``. ``folder``: that of the state, see ``state_files``."""

    plan: MergePlan
    folder: str

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        yield from run_shard(self.plan, self.folder, current_batch(), batches)


def run_shard(plan: MergePlan, folder: str, batch: CurrentBatch, batches: Iterator[Any]) -> Iterator[Any]:
    """Run a batch of the shard ``batch.part`` over rows of ``packs.PACKS``, and yield its output as rows of ``OUT``."""
    number = batch.part
    packed = [pack for rows in batches for pack in packs.packs_of(rows)]
    foreign = next((pack.shard for pack in packed if pack.shard != number), None)
    assert foreign is None, f"Spark gave shard {number} elements of shard {foreign}"
    reports = any(pack.concerns_all for pack in packed)
    shard = Shard(plan, StateFiles(folder, number), batch)
    output = shard.step(packed, reports=reports)
    yield from _frames(output, number, batch.number)
    if reports or output.ended:
        stable = output.stable if reports else None
        ended = "; ".join(sorted(set(output.ended))) or None
        yield record([plan.shards - 1, number, batch.number, 0, 0, output.before, stable, ended, None], OUT)


def _frames(output: ShardOutput, number: int, batch: int) -> Iterator[Any]:
    first = batch << ORDER_BITS
    for events in output.batches:
        for piece in split_batch(events, _FRAME):
            yield record([number, number, batch, first, piece.count, None, None, None, frame([piece])], OUT)
            first += piece.count
