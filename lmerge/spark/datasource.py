"""``format("lmerge")``: reads from and writes to a merge. Also the ticks that keep an idle stream's watermark moving.

Spark makes these objects from the options in each process that needs them. ``session.register`` registers their names.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition

from lmerge import clock
from lmerge.errors import UsageError
from lmerge.spark.options import BATCH
from lmerge.spark.sink.writers import LmergeBatchWriter, LmergeStreamWriter

if TYPE_CHECKING:
    from pyspark.sql.streaming.datasource import ReadLimit
    from pyspark.sql.types import StructType

TICK: Final = "lmerge_tick"
TICKS: Final = "lmerge_ticks"
# The most ticks of one batch: of those that are due only the last few matter.
_TICKS_MAX: Final = 4


class LmergeDataSource(DataSource):
    """The data source ``lmerge``. Options: ``spark.options`` for writing, ``spark.source.options`` for reading."""

    @classmethod
    def name(cls) -> str:
        return "lmerge"

    def schema(self) -> StructType:
        """Return the columns of the rows read. Raises UsageError, UnknownMerge or ServerGone."""
        from lmerge.spark.source import readers

        return readers.schema(self.options)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader for ``spark.read``. Raises UsageError naming the option."""
        from lmerge.spark.source import readers

        return readers.batch_reader(self.options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802  # Spark's name
        """Return the reader for ``spark.readStream``. Raises UsageError naming the option."""
        from lmerge.spark.source import readers

        return readers.stream_reader(self.options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> LmergeBatchWriter:
        """Return the sink of one batch of a streaming query. Raises UsageError naming the option."""
        batch = self.options.get(BATCH)
        if batch is None:
            raise UsageError("publishing to lmerge: a replica is a streaming query: use writeStream")
        return LmergeBatchWriter(self.streamWriter(schema, overwrite), int(batch))

    def streamWriter(self, schema: StructType, overwrite: bool) -> LmergeStreamWriter:  # noqa: N802  # Spark's name
        """Return the sink of a query. Raises UsageError naming the option."""
        return LmergeStreamWriter(self.options, schema)


class TickSource(DataSource):
    """Gives a row with the wall clock's time less ``lag_us`` at each multiple of ``every_us``."""

    @classmethod
    def name(cls) -> str:
        return TICKS

    def schema(self) -> str:
        return f"{TICK} timestamp"

    def streamReader(self, schema: StructType) -> TickReader:  # noqa: N802  # Spark's name
        return TickReader(int(self.options["every_us"]), int(self.options["lag_us"]))


class Ticks(InputPartition):
    """The ticks of one batch, by their numbers."""

    def __init__(self, first: int, end: int) -> None:
        super().__init__((first, end))
        self.first, self.end = first, end


class TickReader(DataSourceStreamReader):
    """Reads ticks. Offsets are numbers of ticks since the epoch, so the same offsets always give the same rows."""

    def __init__(self, every_us: int, lag_us: int) -> None:
        self._every_us, self._lag_us = every_us, lag_us

    def initialOffset(self) -> dict[str, int]:  # noqa: N802  # Spark's name
        return self._now()

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802  # Spark's name
        """Return the present tick. ``partitions`` limits the rows."""
        return self._now()

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        """Return the last ticks after ``start``: a watermark follows only the latest."""
        return [Ticks(max(start["tick"], end["tick"] - _TICKS_MAX) + 1, end["tick"] + 1)]

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        assert isinstance(partition, Ticks)
        for tick in range(partition.first, partition.end):
            yield (datetime.fromtimestamp((tick * self._every_us - self._lag_us) / 1e6, timezone.utc),)

    def _now(self) -> dict[str, int]:
        return {"tick": clock.wall_us() // self._every_us}


def checked_interval(name: str, us: int) -> int:
    """Return a length of time, if it is positive. Raises UsageError."""
    if us <= 0:
        raise UsageError(f"{name} must be more than 0, not {us} us")
    return us
