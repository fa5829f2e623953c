"""``format("lmerge")``: a merge to read from and to write to; and the ticks that keep an idle stream's watermark going.

Spark makes one of these in each process that needs it, from the options; ``session.register`` tells it their names.
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
# Ticks that one batch may bring: of those that are due only the last few matter.
_TICKS_MAX: Final = 4


class LmergeDataSource(DataSource):
    """Options: see ``lmerge.spark.options`` for writing, ``lmerge.spark.source.readers`` for reading."""

    @classmethod
    def name(cls) -> str:
        return "lmerge"

    def schema(self) -> StructType:
        """The columns of what is read. Raises UsageError, UnknownMerge or ServerGone."""
        from lmerge.spark.source import readers

        return readers.schema(self.options)

    def reader(self, schema: StructType) -> DataSourceReader:
        """For ``spark.read``. Raises UsageError naming the option."""
        from lmerge.spark.source import readers

        return readers.batch_reader(self.options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802  # Spark's name
        """For ``spark.readStream``. Raises UsageError naming the option."""
        from lmerge.spark.source import readers

        return readers.stream_reader(self.options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> LmergeBatchWriter:
        """The sink of one batch of a streaming query. Raises UsageError naming the option."""
        batch = self.options.get(BATCH)
        if batch is None:
            raise UsageError("publishing to lmerge: a replica is a streaming query: use writeStream")
        return LmergeBatchWriter(self.streamWriter(schema, overwrite), int(batch))

    def streamWriter(self, schema: StructType, overwrite: bool) -> LmergeStreamWriter:  # noqa: N802  # Spark's name
        """A query's sink. Raises UsageError naming the option."""
        return LmergeStreamWriter(self.options, schema)


class TickSource(DataSource):
    """A row now and then, with the wall clock's time less ``lag_us``, at each multiple of ``every_us``."""

    @classmethod
    def name(cls) -> str:
        return TICKS

    def schema(self) -> str:
        return f"{TICK} timestamp"

    def streamReader(self, schema: StructType) -> TickReader:  # noqa: N802  # Spark's name
        return TickReader(int(self.options["every_us"]), int(self.options["lag_us"]))


class Ticks(InputPartition):
    """The ticks of one batch, by number."""

    def __init__(self, first: int, end: int) -> None:
        super().__init__((first, end))
        self.first, self.end = first, end


class TickReader(DataSourceStreamReader):
    """Offsets are numbers of ticks since the epoch: the same offsets give the same rows whenever they are read."""

    def __init__(self, every_us: int, lag_us: int) -> None:
        self._every_us, self._lag_us = every_us, lag_us

    def initialOffset(self) -> dict[str, int]:  # noqa: N802  # Spark's name
        return self._now()

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802  # Spark's name
        """Everything up to the present tick; ``partitions`` keeps it short."""
        return self._now()

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        """The last ticks after ``start``: a watermark only knows the latest."""
        return [Ticks(max(start["tick"], end["tick"] - _TICKS_MAX) + 1, end["tick"] + 1)]

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        assert isinstance(partition, Ticks)
        for tick in range(partition.first, partition.end):
            yield (datetime.fromtimestamp((tick * self._every_us - self._lag_us) / 1e6, timezone.utc),)

    def _now(self) -> dict[str, int]:
        return {"tick": clock.wall_us() // self._every_us}


def checked_interval(name: str, us: int) -> int:
    """A length of time that is more than none. Raises UsageError."""
    if us <= 0:
        raise UsageError(f"{name} must be more than no time, not {us} us")
    return us
