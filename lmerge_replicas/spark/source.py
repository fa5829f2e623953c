"""``format("flight_news")``: the log of news as a stream, as far as the replay clock has come.

Registered by `session`; Spark makes it in its own processes. An offset is a number of rows of the log, so it is valid
in every run of the query, and the rows between two offsets are the same whenever they are read. Spark requires this of
a source that can be replayed, and Kafka does the same.

The clock is a file beside the log, because it is set when the query runs already. Until then the stream has only the
one row from before the replay.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows

from lmerge_replicas.flights.replay import read_clock
from lmerge_replicas.spark.news import read_log

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

NEWS: Final = "flight_news"
ROWS_PER_TASK: Final = 20_000  # more rows justify another task

Offset = dict[str, int]


class FlightNews(DataSource):
    """The source. Options: ``log`` and ``clock``, paths; ``rows``: the most rows of a batch."""

    @classmethod
    def name(cls) -> str:
        return NEWS

    def schema(self) -> str:
        return "at timestamp, flight string, vs timestamp, ve timestamp"

    def streamReader(self, schema: StructType) -> NewsReader:  # noqa: N802  # Spark's name
        return NewsReader(self.options)


class Rows(InputPartition):
    """Rows of the log, by number."""

    def __init__(self, first: int, end: int) -> None:
        super().__init__((first, end))
        self.first, self.end = first, end


class NewsReader(DataSourceStreamReader):
    """Reads the log in batches."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._log, self._clock = options["log"], options["clock"]
        self._rows_max = int(options["rows"]) if "rows" in options else None

    def initialOffset(self) -> Offset:  # noqa: N802  # Spark's names, here and below
        return {"row": 0}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadAllAvailable() if self._rows_max is None else ReadMaxRows(self._rows_max)

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802
        """Return the number of rows up to the present time of the clock."""
        clock = read_clock(Path(self._clock))
        # The column's numbers, where they lie: the file is mapped, and a search touches few of its pages.
        rows_due = 1 if clock is None else bisect_left(_Times(self._log), clock.now())
        end = max(rows_due, start["row"])
        return {"row": min(end, start["row"] + limit.max_rows) if isinstance(limit, ReadMaxRows) else end}

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        first, last = start["row"], end["row"]
        return [Rows(row, min(row + ROWS_PER_TASK, last)) for row in range(first, last, ROWS_PER_TASK)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        assert isinstance(partition, Rows)
        yield from read_log(self._log).slice(partition.first, partition.end - partition.first).to_batches()


class _Times:
    """The time of each row of the log, in microseconds."""

    def __init__(self, log: str) -> None:
        self._column = read_log(log).column("at")

    def __len__(self) -> int:
        return len(self._column)

    def __getitem__(self, row: int) -> int:
        return int(self._column[row].value)
