"""The stateful processor of a merge in Spark: gives ``shard`` its store, and emits what the shard emits.

Spark calls ``handleInputRows`` once for each shard and batch, with the shard's packs of all inputs. State is written
through to the state store, which keeps it only if the whole batch succeeds. So a batch that is run again begins where
the first attempt began.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

from pyspark import TaskContext
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from lmerge.errors import UsageError
from lmerge.spark.merging import packs
from lmerge.spark.merging.rows import ORDER_BITS
from lmerge.spark.merging.shard import MergePlan, Shard

# The output of a shard: rows of elements, and a report, whose ``elements`` is null. ``stable`` is null in a report that
# holds only ended inputs.
OUT: Final = "place int, shard int, batch long, first long, before long, stable long, ended string, elements binary"
# Elements in one row from a shard to the unpacker.
_OUT_ROWS: Final = 65_536


class ShardProcessor(StatefulProcessor):
    """Runs the shards of one task."""

    def __init__(self, plan: MergePlan) -> None:
        self._plan = plan

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._head = handle.getValueState("head", "text string")
        self._chunks = handle.getMapState("chunks", "number long", "data binary")

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Row]:  # noqa: N802, N803
        came = [(row.shard, row.input, row.concerns_all, bytes(row.elements)) for row in rows]
        number = came[0][0]
        batch = _batch()
        shard = Shard(self._plan, number, self)
        reports = any(concerns_all for _, _, concerns_all, _ in came)
        output = shard.step(((one, data) for _, one, _, data in came), batch << ORDER_BITS, reports=reports)
        for table in output.tables:
            for at in range(0, table.num_rows, _OUT_ROWS):
                piece = table.slice(at, _OUT_ROWS)
                yield Row(
                    place=number,
                    shard=number,
                    batch=batch,
                    first=piece.column("order")[0].as_py(),
                    before=None,
                    stable=None,
                    ended=None,
                    elements=packs.to_bytes(piece),
                )
        if reports or output.ended:
            yield Row(
                place=self._plan.shards - 1,
                shard=number,
                batch=batch,
                first=0,
                before=output.before,
                stable=output.stable if reports else None,
                ended=json.dumps(output.ended),
                elements=None,
            )

    def close(self) -> None:
        pass

    # The store of the shard (``shard.ShardStore``).

    def head(self) -> str | None:
        found = self._head.get()
        return None if found is None else str(found[0])

    def put_head(self, text: str) -> None:
        self._head.update((text,))

    def chunk(self, number: int) -> bytes:
        found = self._chunks.getValue((number,))
        assert found is not None, f"chunk {number} of the state is not there"
        return bytes(found[0])

    def put_chunk(self, number: int, data: bytes) -> None:
        self._chunks.updateValue((number,), (data,))

    def drop_chunk(self, number: int) -> None:
        self._chunks.removeKey((number,))


def _batch() -> int:
    context = TaskContext.get()
    batch = None if context is None else context.getLocalProperty("streaming.sql.batchId")
    if batch is None:
        raise UsageError("cannot merge: these rows belong to no batch of a streaming query")
    return int(batch)
