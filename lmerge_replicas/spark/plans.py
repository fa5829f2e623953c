"""The query for the lifetime of every flight, from the news of it: two different plans of Spark with the same result.

Both compute the latest news of each flight::

    news.withWatermark("vs", "36 hours").groupBy("vs", "flight").agg(max(struct("at", "ve")))

The watermark follows the scheduled departures, which are the Vs of the events, so it shows exactly how far the stream
is stable. There is no news of a flight more than 36 hours after its departure, so no news is ever late (see `news`).

- **append** waits. A flight comes out once, when the watermark has passed it, and is final. Cancelled flights are left
  out. It promises insert-only, because no event is ever taken back. This is the form of the query for a sink that
  cannot revise.
- **update** publishes each state at once and revises it: the planned arrival as Ve, later the actual one. A
  cancellation takes the event back. A row that Spark outputs again becomes an adjust of the published event of that
  flight. Readers of the merge have each flight a day and a half earlier.

Why ``update`` and not ``intervals`` (a row for each start, each end and each abort): there an announcement would need
Ve = inf, so the planned arrival, which the aggregate has, would be lost, and the sink would hold all state. The gain of
``intervals`` would be a stable point right behind the clock, as it needs no watermark over the longest flight.

Both give the table of `lmerge_replicas.flights`, payloads byte for byte. Those are bytes and not rows of a schema, so
the text of the flight is published ``raw``. Diverted flights have a null as ``ve``, which is Ve = inf there too.
Nothing depends on where Spark cuts its batches: `max` compares the moment of the news first, and no two rows of a
flight have the same.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from lmerge_replicas.flights.flight import HOUR
from lmerge_replicas.spark.news import WATERMARK_DELAY

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class Plan(NamedTuple):
    """A way to compute the table. ``mode``: of ``lmerge.spark.publish``."""

    name: str
    summary: str
    mode: str
    query: Callable[[DataFrame], DataFrame]


def latest(news: DataFrame) -> DataFrame:
    """Return the latest state of each flight: columns flight, vs, ve."""
    from pyspark.sql import functions

    by_flight = news.withWatermark("vs", f"{WATERMARK_DELAY // HOUR} hours").groupBy("vs", "flight")
    return by_flight.agg(functions.max(functions.struct("at", "ve")).alias("latest")).select(
        "flight", "vs", functions.col("latest.ve").alias("ve")
    )


def settled(news: DataFrame) -> DataFrame:
    """Return the same without cancelled flights, which are no events. In append mode a flight comes only once."""
    return latest(news).where("ve IS NULL OR ve > vs")


PLANS: Final = {
    plan.name: plan
    for plan in (
        Plan("append", "publishes each flight once, when it is final", "append", settled),
        Plan("update", "publishes each state at once, revises", "update", latest),
    )
}


def publish(plan: Plan, news: DataFrame, servers: str, merge: str, replica: str, **more: Any) -> Any:
    """Return a writer that publishes the plan over ``news`` as ``replica``; ``more``: of ``lmerge.spark.publish``."""
    import lmerge.spark

    return lmerge.spark.publish(
        plan.query(news),
        servers=servers,
        merge=merge,
        replica=replica,
        mode=plan.mode,
        vs="vs",
        ve="ve",
        payload=lmerge.spark.Payload(schema="raw"),
        **more,
    )
