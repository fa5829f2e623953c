"""The stateful processor of a merge in Spark: what ``merging_shard`` needs of Spark, and its way out.

Spark calls ``handleInputRows`` once a shard and batch, with the shard's packs of all inputs. State is written through
to the state store, which keeps it only if the whole batch succeeds; so does a batch that is run again begin where the
first attempt began.
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

# What comes out of a shard: rows of elements, and a report, of which ``elements`` is null. ``stable`` is null in a
# report of nothing but inputs that have ended.
OUT: Final = "place int, shard int, batch long, first long, before long, stable long, ended string, elements binary"
# Elements of one row between the shards and the rows that come out.
_OUT_ROWS: Final = 65_536


class ShardProcessor(StatefulProcessor):
    """See above."""

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
        said = shard.step(((one, data) for _, one, _, data in came), batch << ORDER_BITS, reports=reports)
        for table in said.tables:
            for at in range(0, table.num_rows, _OUT_ROWS):
                piece = table.slice(at, _OUT_ROWS)
                yield Row(place=number, shard=number, batch=batch, first=piece.column("order")[0].as_py(), before=None,
                          stable=None, ended=None, elements=packs.to_bytes(piece))
        if reports or said.ended:
            yield Row(place=self._plan.shards - 1, shard=number, batch=batch, first=0, before=said.before,
                      stable=said.stable if reports else None, ended=json.dumps(said.ended), elements=None)

    def close(self) -> None:
        pass

    # The store of the shard (``merging_shard.Store``).

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
