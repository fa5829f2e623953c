"""Windows in SQL: which there are in each group, which events belong to each, and one row of aggregates for each.

``events``: the name of a table. ``keys``: the columns of the group. ``results``: pairs of a name and an aggregate of
DuckDB over the columns of the events. Windows without events have no row.
"""

from __future__ import annotations

from collections.abc import Sequence

from lmerge.testing.canonical.times import INF, start_above, wide


def hopping(
    events: str, size: int, hop: int, offset: int, begun: int, keys: Sequence[str], results: Sequence[tuple[str, str]]
) -> str:
    """Return the query of hopping windows that start at or before ``begun``."""
    first = start_above(f"({wide('vs')} - {size})", hop, offset)
    last = f"least({wide('ve')} - 1, {wide(str(begun))})"
    starts = f"unnest(range(CAST({first} AS BIGINT), CAST({last} + 1 AS BIGINT), {hop}))"
    members = f"SELECT CAST({starts} AS BIGINT) AS window_start, * FROM {events} WHERE {first} <= {last}"
    return _grouped(members, keys, results, "window_start", f"window_start + {size}")


def snapshot(events: str, keys: Sequence[str], results: Sequence[tuple[str, str]]) -> str:
    """Return the query of snapshot windows: from each start or end of an event of the group to the next one."""
    by = ", ".join(keys)
    edges = f"SELECT {_and(by)}vs AS edge FROM {events} UNION SELECT {_and(by)}ve FROM {events}"
    partition = f"PARTITION BY {by} " if keys else ""
    ends = f"lead(edge) OVER ({partition}ORDER BY edge)"
    spans = f"SELECT {_and(by)}edge AS window_start, {ends} AS window_end FROM ({edges})"
    members = f"SELECT e.*, w.window_start, w.window_end FROM ({spans}) AS w JOIN {events} AS e ON {_same(keys)}"
    members += " AND e.vs < w.window_end AND e.ve > w.window_start"
    return _grouped(members, keys, results, "window_start", "window_end")


def count_windows(
    events: str, count: int, by_ends: bool, keys: Sequence[str], results: Sequence[tuple[str, str]]
) -> str:
    """Return the query of windows from each distinct start (or end) to the ``count``-th from there."""
    by, point = ", ".join(keys), "ve" if by_ends else "vs"
    partition = f"PARTITION BY {by} " if keys else ""
    points = f"SELECT DISTINCT {_and(by)}{point} AS point FROM {events} WHERE {point} < {INF}"
    spans = (
        f"SELECT {_and(by)}point AS window_start, lead(point, {count - 1}) OVER ({partition}ORDER BY point) AS last "
        f"FROM ({points})"
    )
    members = (
        f"SELECT e.*, w.window_start, w.last + 1 AS window_end FROM ({spans}) AS w JOIN {events} AS e ON {_same(keys)}"
    )
    members += f" AND e.{point} BETWEEN w.window_start AND w.last"
    return _grouped(members, keys, results, "window_start", "window_end")


def _grouped(members: str, keys: Sequence[str], results: Sequence[tuple[str, str]], start: str, end: str) -> str:
    by = ", ".join(keys)
    computed = ", ".join(f"{expression} AS {name}" for name, expression in results)
    grouping = ", ".join([*keys, start, *([] if end.startswith(start) else [end])])
    return f"SELECT {_and(by)}{computed}, {start} AS vs, {end} AS ve FROM ({members}) GROUP BY {grouping}"


def _and(columns: str) -> str:
    return f"{columns}, " if columns else ""


def _same(keys: Sequence[str]) -> str:
    return " AND ".join([f"e.{key} IS NOT DISTINCT FROM w.{key}" for key in keys] or ["TRUE"])
