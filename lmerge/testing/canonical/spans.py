"""Span operators in SQL: filter, projection, union and other lifetimes, event by event (sheets O1 to O3, O11, O12).

``events``: the name of a table, or a query in parentheses. An event whose lifetime becomes empty is no event.
"""

from __future__ import annotations

from collections.abc import Sequence

from lmerge.testing.canonical.times import INF, later


def filtered(events: str, predicate: str) -> str:
    """Return the query of the events for which a predicate is true, and not NULL."""
    return f"SELECT * FROM {events} WHERE ({predicate})"


def projected(events: str, columns: Sequence[tuple[str, str]]) -> str:
    """Return the query of other columns for each event. ``columns``: pairs of a name and an expression."""
    chosen = ", ".join(f"{expression} AS {name}" for name, expression in columns)
    return f"SELECT {chosen}, vs, ve FROM {events}"


def union(tables: Sequence[str]) -> str:
    """Return the query of all events of several tables: equal ones count as often as they are there."""
    return " UNION ALL ".join(f"SELECT * FROM {table}" for table in tables)


def shifted(events: str, d: int) -> str:
    """Return the query of ``[vs + d, ve + d)``."""
    return _altered(events, later("vs", d), later("ve", d))


def with_duration(events: str, d: int) -> str:
    """Return the query of ``[vs, vs + d)``."""
    return _altered(events, "vs", later("vs", d))


def clipped(events: str, d: int) -> str:
    """Return the query of ``[vs, min(ve, vs + d))``."""
    return _altered(events, "vs", f"least(ve, {later('vs', d)})")


def extended(events: str, d: int) -> str:
    """Return the query of ``[vs, ve + d)``."""
    return _altered(events, "vs", later("ve", d))


def at_end(events: str, d: int) -> str:
    """Return the query of ``[ve, ve + d)`` for the events that end."""
    return _altered(f"(SELECT * FROM {events} WHERE ve < {INF})", "ve", later("ve", d))


def _altered(events: str, start: str, end: str) -> str:
    return f"SELECT * FROM (SELECT * REPLACE ({start} AS vs, {end} AS ve) FROM {events}) WHERE vs < ve"
