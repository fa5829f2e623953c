"""Adds ticks to a stream whose source can fall silent, so that its watermark and the replica's stable point advance.

A watermark follows the rows. While no row comes it stands still, and so does everything that depends on it: windows
stay open, and the replica publishes no stable. ``heartbeat`` unites the stream with ticks of the wall clock. The
watermark counts them, and right after it they are removed again.

Ticks follow the clock, so they differ between replicas, but they only move the watermark. ``lag`` declares how far
behind the clock a real row can come. Rows that come later than that become late rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lmerge.errors import UsageError
from lmerge.spark.datasource import TICK, TICKS, checked_interval
from lmerge.spark.options import duration_us
from lmerge.spark.session import register

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_IS_TICK = "lmerge_is_tick"


def heartbeat(
    df: DataFrame, *, time: str, watermark: str, every: str = "1 second", lag: str = "0 seconds"
) -> DataFrame:
    """Return ``df`` with a watermark on the column ``time`` that also moves while ``df`` is silent.

    ``watermark``: its delay. ``every``: the interval of the ticks. ``lag``: real rows come at most this far behind the
    wall clock. The watermark of a silent stream is at the clock less ``lag`` and ``watermark``. Use this instead of
    ``df.withWatermark(time, watermark)``. Raises UsageError for a column that is not a timestamp, and for durations
    that cannot be read.
    """
    from pyspark.sql import functions
    from pyspark.sql.types import TimestampType

    if time not in df.columns or not isinstance(df.schema[time].dataType, TimestampType):
        raise UsageError(
            f"cannot add a heartbeat: {time!r} is not a column of timestamps; the columns are {', '.join(df.columns)}"
        )
    register(df.sparkSession)
    every_us = checked_interval("every", duration_us(every))
    ticks = (
        df.sparkSession.readStream.format(TICKS).option("every_us", every_us).option("lag_us", duration_us(lag)).load()
    )
    columns = [
        (functions.col(TICK) if field.name == time else functions.lit(None).cast(field.dataType)).alias(field.name)
        for field in df.schema.fields
    ]
    marked = ticks.select(*columns, functions.lit(True).alias(_IS_TICK))
    united = df.withColumn(_IS_TICK, functions.lit(False)).unionByName(marked)
    # The optimizer moves a filter below the watermark, where ticks would be removed before they count, unless the
    # filter uses the event time itself. So it does, in a way that no rule simplifies: no tick is of the year 1.
    is_row = functions.expr(f"NOT {_IS_TICK} OR `{time}` < TIMESTAMP'0001-01-02 00:00:00'")
    return united.withWatermark(time, watermark).where(is_row).drop(_IS_TICK)
