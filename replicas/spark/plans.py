"""The query: the lifetime of every flight, from news of it. As two different plans of Spark, with one table as result.

Both ask for the latest news of each flight::

    news.withWatermark("vs", "36 hours").groupBy("vs", "flight").agg(max(struct("at", "ve")))

The watermark follows the scheduled departures, which are the Vs of the events, so it tells exactly how far the stream
is stable; and 36 hours after its departure there is nothing new about a flight, so no news is ever late (`news` says
why).

- **append** waits. A flight comes out once, when the watermark has passed it, and is final; cancelled flights are left
  out. It promises insert-only: nothing that it says is ever taken back. This is the query as it is run for a sink that
  cannot revise.
- **update** says what is known at once, and revises it: the planned arrival as Ve, later the actual one, and a
  cancellation takes the event back. A row that Spark gives out again becomes an adjust of what was said of that flight.
  Whoever reads the merge has each flight a day and a half earlier.

Why ``update``, and not ``intervals`` (a row for each start, each end and each abort): there an announcement would
have to say Ve = inf, and the planned arrival, which the aggregate knows, would be lost; all state would be the
sink's. What ``intervals`` would gain is a stable point right behind the clock, as it needs no watermark over the
longest flight.

Both give the table of `replicas.flights`, payloads byte for byte: those are bytes and not rows of a schema, so the text
of the flight is published ``raw``. Diverted flights have a null as ``ve``, which is Ve = inf there too. Nothing depends
on where Spark cuts its batches: `max` looks at the moment of the news first, and a flight has no two at one moment.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from replicas.flights.flight import HOUR
from replicas.spark.news import WATERMARK_DELAY

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class Plan(NamedTuple):
    """A way to compute the table. ``mode``: of ``lmerge.spark.publish``."""

    name: str
    summary: str
    mode: str
    query: Callable[[DataFrame], DataFrame]


def latest(news: DataFrame) -> DataFrame:
    """What is known of each flight: columns flight, vs, ve."""
    from pyspark.sql import functions

    by_flight = news.withWatermark("vs", f"{WATERMARK_DELAY // HOUR} hours").groupBy("vs", "flight")
    return by_flight.agg(functions.max(functions.struct("at", "ve")).alias("latest")).select(
        "flight", "vs", functions.col("latest.ve").alias("ve")
    )


def settled(news: DataFrame) -> DataFrame:
    """The same, and only what is an event: in append mode a flight comes once, and nothing more is said of it."""
    return latest(news).where("ve IS NULL OR ve > vs")


PLANS: Final = {
    plan.name: plan
    for plan in (
        Plan("append", "says each flight once, when it is final", "append", settled),
        Plan("update", "says what is known at once, revises", "update", latest),
    )
}


def publish(plan: Plan, news: DataFrame, servers: str, merge: str, replica: str, **more: Any) -> Any:
    """A writer that publishes the plan over ``news`` as ``replica``; ``more``: as ``lmerge.spark.publish`` takes it."""
    import lmerge.spark

    return lmerge.spark.publish(
        plan.query(news), servers=servers, merge=merge, replica=replica, mode=plan.mode, vs="vs", ve="ve", schema="raw",
        **more,
    )
