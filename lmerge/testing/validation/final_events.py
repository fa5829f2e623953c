"""The tables that streams mean, and whether two streams mean the same one as far as both are stable.

Two streams agree at the smaller of their stable points t (III.C) if they have the same events that end before t, and as
many events of each payload and Vs < t that go on. What lies behind t may still change, and is not compared.

A stream that joined late is right for events with Ve >= join_at. Which events those are is known from join_at on: until
both streams are stable there, nothing is compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import duckdb

from lmerge.core.elements import NEG_INF, Event
from lmerge.testing.validation.element_table import RecordedStream, load

DIFFERENCES_SHOWN: Final = 20

# Events as they are at the end, with the last element that gave each its end.
FINAL_EVENTS: Final = """
SELECT stream, payload, vs, event_end AS ve, sum(step) AS copies, max(place) FILTER (WHERE step > 0) AS place
FROM changes GROUP BY ALL HAVING copies > 0"""

# Of both streams: what is frozen has its end, what is half frozen only its start.
_DECIDED: Final = f"""
SELECT stream, vs, payload, CASE WHEN ve < $at THEN ve END AS decided, CAST(sum(copies) AS BIGINT) AS copies
FROM ({FINAL_EVENTS}) WHERE vs < $at AND ve >= $since GROUP BY ALL"""
_DIFFERENT: Final = f"""
WITH decided AS ({_DECIDED}),
paired AS (
    SELECT vs, payload, decided, sum(CASE WHEN stream = 0 THEN copies ELSE 0 END) AS copies,
        sum(CASE WHEN stream = $other THEN copies ELSE 0 END) AS other_copies
    FROM decided WHERE stream IN (0, $other) GROUP BY ALL
)
SELECT vs, payload, decided, CAST(copies AS BIGINT), CAST(other_copies AS BIGINT) FROM paired
WHERE copies <> other_copies ORDER BY vs, payload, decided NULLS LAST"""


@dataclass(frozen=True)
class EventDifference:
    """Of an event that two streams have differently often. ``ve``: None if it goes on at the stable point."""

    vs: int
    payload: bytes
    ve: int | None
    copies: int
    other_copies: int


@dataclass(frozen=True)
class TableComparison:
    """Two streams up to their common stable point ``at``. ``differences``: the first ones of ``count``.

    ``since``: events that end before it are not compared. If ``at`` is -inf or less than ``since``, nothing is.
    """

    one: str
    other: str
    at: int
    differences: list[EventDifference]
    count: int
    since: int = NEG_INF

    @property
    def is_empty(self) -> bool:
        """Whether there was nothing to compare."""
        return self.at == NEG_INF or self.at < self.since


def compared(streams: Sequence[RecordedStream]) -> list[TableComparison]:
    """Compare each stream with the first one. Events that end before a stream's ``join_at`` are not compared."""
    with duckdb.connect() as database:
        load(database, streams)
        points = dict(database.execute("SELECT stream, max(vs) FROM elements WHERE kind = 2 GROUP BY ALL").fetchall())
        return [_compared(database, streams, other, points) for other in range(1, len(streams))]


def events_of(stream: RecordedStream) -> list[Event]:
    """Return the table that a stream means, each event as often as it is there, ordered by (vs, payload, ve)."""
    with duckdb.connect() as database:
        load(database, [stream])
        found = database.execute(f"SELECT vs, payload, ve, copies FROM ({FINAL_EVENTS})").fetchall()
    return sorted(Event(vs, payload, ve) for vs, payload, ve, copies in found for _ in range(int(copies)))


def _compared(database: Any, streams: Sequence[RecordedStream], other: int, points: dict[int, int]) -> TableComparison:
    at = min(points.get(0, NEG_INF), points.get(other, NEG_INF))
    since = max(streams[0].join_at, streams[other].join_at)
    found = []
    if at >= since:
        found = database.execute(_DIFFERENT, {"at": at, "since": since, "other": other}).fetchall()
    differences = [EventDifference(*row) for row in found[:DIFFERENCES_SHOWN]]
    return TableComparison(streams[0].name, streams[other].name, at, differences, len(found), since)
