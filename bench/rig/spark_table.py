"""The rig's table as a source for Spark: a log that grows with the clock and can be read from any offset.

Event number i is that of ``stream.ReferenceStream``, as a row with columns. It is available when it is due. So every
replica reads the same rows, in batches of its own, and one that was away reads the rows that it has missed. Offsets are
numbers of events.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

from bench.rig.spark import Stretch
from bench.rig.stream import ReferenceStream
from lmerge.wire.rows import RowCodec

NAME = "bench_table"
COLUMNS = "number bigint, text string, vs timestamp, ve timestamp"
PARTITIONS = 2
_PAYLOAD = {"number": "int?", "text": "string?"}
_TIME = pa.timestamp("us", "UTC")
_ROWS = pa.schema([("number", pa.int64()), ("text", pa.string()), ("vs", _TIME), ("ve", _TIME)])


@dataclass(frozen=True)
class TableReference(ReferenceStream):
    """The events of a merge to which a query publishes the table, with ``number`` and ``text`` as the payload."""

    def event(self, at: int) -> tuple[int, int, bytes]:
        """Return event number ``at``: (vs, ve, payload)."""
        vs, ve, text = super().event(at)
        return vs, ve, _codec().encode({"number": at, "text": text.decode()})

    def rows(self, first: int, end: int) -> Any:
        """Return the rows of events ``first`` to ``end`` - 1."""
        events = [ReferenceStream.event(self, at) for at in range(first, end)]
        columns = [
            pa.array(range(first, end), pa.int64()),
            pa.array([text.decode() for _, _, text in events], pa.string()),
            *(pa.array([event[at] for event in events], pa.int64()).cast(_TIME) for at in (0, 1)),
        ]
        return pa.RecordBatch.from_arrays(columns, schema=_ROWS)


@lru_cache
def _codec() -> RowCodec:
    return RowCodec(_PAYLOAD)


class TableSource(DataSource):
    """Options ``events_per_s`` and ``epoch_s``, the monotonic time at which event 0 is due."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> str:
        return COLUMNS

    def streamReader(self, schema: Any) -> TableReader:  # noqa: N802  # Spark's name
        return TableReader(TableReference(int(self.options["events_per_s"])), float(self.options["epoch_s"]))


class TableReader(DataSourceStreamReader):
    """See ``TableSource``."""

    def __init__(self, reference: TableReference, epoch_s: float) -> None:
        self._reference, self._epoch_s = reference, epoch_s

    def initialOffset(self) -> dict[str, int]:  # noqa: N802  # Spark's name, as that below
        return {"event": 0}

    def latestOffset(self, start: dict[str, int], limit: Any) -> dict[str, int]:  # noqa: N802
        due = int((time.monotonic() - self._epoch_s) * self._reference.events_per_s)
        return {"event": max(start["event"], due)}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        first, count = start["event"], end["event"] - start["event"]
        bounds = [first + count * part // PARTITIONS for part in range(PARTITIONS + 1)]
        return [Stretch(low, high) for low, high in pairwise(bounds)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        assert isinstance(partition, Stretch)
        yield self._reference.rows(partition.first, partition.end)
