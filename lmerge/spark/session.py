"""What lmerge adds to a Spark session: its data sources, and word of a query's end.

A sink is not told when its query stops. Spark's listener is, in the process that made the session; it tells the query's
agent, which leaves the merge in good order. Without a listener (Spark Connect) the agent stays until the server's
JVM ends, or a newer run of the query begins; the merge then has an input that is silent, and waits for nobody.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from pyspark.sql.streaming.listener import StreamingQueryListener

from lmerge.errors import LmergeError
from lmerge.spark import agent
from lmerge.spark.datasource import LmergeDataSource, TickSource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_registered: WeakSet[SparkSession] = WeakSet()


def register(spark: SparkSession) -> None:
    """Make ``format("lmerge")`` known to the session. Doing so again changes nothing."""
    if spark in _registered:
        return
    spark.dataSource.register(LmergeDataSource)
    spark.dataSource.register(TickSource)
    if hasattr(spark, "sparkContext") and not type(spark).__module__.startswith("pyspark.sql.connect"):
        spark.streams.addListener(QueryEnds())
    _registered.add(spark)


class QueryEnds(StreamingQueryListener):
    """Tells agents of the end of their queries."""

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802  # Spark's names, here and below
        pass

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802
        pass

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802
        pass

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
        with suppress(OSError, LmergeError):
            agent.leave(str(event.id), str(event.runId))
