"""Coalesce and cleanse in SQL (sheets O14, O16): islands of equal rows, and what of a stream is released in order."""

from __future__ import annotations

from collections.abc import Sequence

from lmerge.testing.canonical.times import INF


def coalesced(events: str, columns: Sequence[str]) -> str:
    """Return the query of the longest stretches in which a row is there at least once. ``columns``: of the rows."""
    by = ", ".join(columns)
    # Equal lifetimes need one order: in another one, the second of two could be taken for the one that begins.
    ordered = f"SELECT *, row_number() OVER (PARTITION BY {by} ORDER BY vs, ve) AS place FROM {events}"
    before = f"PARTITION BY {by} ORDER BY place ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING"
    begins = f"CASE WHEN vs <= max(ve) OVER ({before}) THEN 0 ELSE 1 END"
    island = f"sum(begins) OVER (PARTITION BY {by} ORDER BY place ROWS UNBOUNDED PRECEDING)"
    marked = f"SELECT *, {island} AS island FROM (SELECT *, {begins} AS begins FROM ({ordered}))"
    return f"SELECT {by}, min(vs) AS vs, max(ve) AS ve FROM ({marked}) GROUP BY {by}, island"


def released(events: str, stable: str, by: Sequence[str] = ()) -> str:
    """Return the query of what cleanse has released at a stable point: final events before the first that can change.

    ``stable``: an expression. At its end of time all events are final. ``by``: columns that separate streams.
    """
    partition = f"OVER (PARTITION BY {', '.join(by)})" if by else "OVER ()"
    is_final = f"({stable} = {INF} OR ve < {stable})"
    open_from = f"min(vs) FILTER (WHERE NOT {is_final}) {partition}"
    marked = f"SELECT *, {is_final} AS is_final, {open_from} AS open_from FROM {events}"
    return (
        f"SELECT * EXCLUDE (is_final, open_from) FROM ({marked}) "
        "WHERE is_final AND (open_from IS NULL OR vs < open_from)"
    )
