"""Windows in SQL: which there are in each group, which events belong to each, and their results (II.D.2, III.B, III.C).

``members`` of a kind of window is a query with a row for each event of each window: the event's columns, and
``window_start`` and ``window_end``. It is clipped, grouped into results with the columns ``window_start`` and
``window_end``, and stamped. Windows without events have no row. ``keys``: the columns of the group.
"""

from __future__ import annotations

from collections.abc import Sequence

from lmerge.testing.canonical.times import INF, later, start_above, wide

Results = Sequence[tuple[str, str]]
"""Pairs of a name and an aggregate of DuckDB over the columns of a window's events."""


# Members.


def in_hopping(events: str, size: int, hop: int, offset: int, begun: int | str, since: int | None = None) -> str:
    """Return the members of hopping windows that start at or before ``begun``, a time or an expression.

    ``since``: no window starts before it.
    """
    first = start_above(f"({wide('vs')} - {size})", hop, offset)
    if since is not None:
        first = f"greatest({first}, {start_above(str(since - 1), hop, offset)})"
    last = f"least({wide('ve')} - 1, {wide(str(begun))})"
    starts = f"unnest(range(CAST({first} AS BIGINT), CAST({last} + 1 AS BIGINT), {hop}))"
    begun_ones = f"SELECT CAST({starts} AS BIGINT) AS window_start, * FROM {events} WHERE {first} <= {last}"
    return f"SELECT *, {later('window_start', size)} AS window_end FROM ({begun_ones})"


def in_snapshots(events: str, keys: Sequence[str]) -> str:
    """Return the members of snapshot windows: from each start or end of an event of the group to the next one."""
    by = ", ".join(keys)
    edges = f"SELECT {_and(by)}vs AS edge FROM {events} UNION SELECT {_and(by)}ve FROM {events}"
    ends = f"lead(edge) OVER ({_partition(by)}ORDER BY edge)"
    spans = f"SELECT {_and(by)}edge AS window_start, {ends} AS window_end FROM ({edges})"
    members = f"SELECT e.*, w.window_start, w.window_end FROM ({spans}) AS w JOIN {events} AS e ON {_same(keys)}"
    return f"{members} AND e.vs < w.window_end AND e.ve > w.window_start"


def in_count_windows(events: str, count: int, by_ends: bool, keys: Sequence[str]) -> str:
    """Return the members of windows from each distinct start (or end) to the ``count``-th from there.

    A window that has fewer is not complete: its end is NULL.
    """
    by, point = ", ".join(keys), "ve" if by_ends else "vs"
    points = f"SELECT DISTINCT {_and(by)}{point} AS point FROM {events} WHERE {point} < {INF}"
    last = f"lead(point, {count - 1}) OVER ({_partition(by)}ORDER BY point)"
    spans = f"SELECT {_and(by)}point AS window_start, {last} AS last FROM ({points})"
    members = f"SELECT e.*, w.window_start, w.last + 1 AS window_end FROM ({spans}) AS w JOIN {events} AS e"
    return f"{members} ON {_same(keys)} AND e.{point} BETWEEN w.window_start AND coalesce(w.last, {INF - 1})"


def in_sessions(events: str, gap: int, keys: Sequence[str]) -> str:
    """Return the members of sessions: each event starts at most ``gap`` behind all ends of the session so far."""
    by = _partition(", ".join(keys))
    # Equal lifetimes need one order: in another one, the second of two could be taken for the one that begins.
    ordered = f"SELECT *, row_number() OVER ({by}ORDER BY vs, ve) AS place FROM {events}"
    before = f"{by}ORDER BY place ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING"
    begins = f"CASE WHEN {wide('vs')} <= {wide(f'max(ve) OVER ({before})')} + {gap} THEN 0 ELSE 1 END"
    run = f"sum(begins) OVER ({by}ORDER BY place ROWS UNBOUNDED PRECEDING)"
    numbered = f"SELECT *, {run} AS run_of FROM (SELECT *, {begins} AS begins FROM ({ordered}))"
    whole = f"OVER (PARTITION BY {', '.join([*keys, 'run_of'])})"
    spans = f"SELECT *, min(vs) {whole} AS window_start, max(ve) {whole} AS window_end FROM ({numbered})"
    return f"SELECT * EXCLUDE (place, begins, run_of) FROM ({spans})"


def grid(times: str, size: int, hop: int, offset: int, begun: str, since: int) -> str:
    """Return the windows since a time, with and without events, for each row of ``times``: its columns and the window.

    ``begun``: a column of ``times``, the time at or before which the last window starts.
    """
    first = start_above(str(since - 1), hop, offset)
    starts = f"unnest(range(CAST({first} AS BIGINT), CAST(greatest({wide(begun)} + 1, {first}) AS BIGINT), {hop}))"
    begun_ones = f"SELECT *, CAST({starts} AS BIGINT) AS window_start FROM {times}"
    return f"SELECT *, {later('window_start', size)} AS window_end FROM ({begun_ones})"


# From members to results.


def clipped(members: str, *, left: bool, right: bool) -> str:
    """Return members whose lifetimes are cut to their window; ``own_ve`` is the end as it was."""
    start = "greatest(vs, window_start)" if left else "vs"
    end = f"least(ve, coalesce(window_end, {INF}))" if right else "ve"
    return f"SELECT * REPLACE ({start} AS vs, {end} AS ve), ve AS own_ve FROM ({members})"


def grouped(members: str, keys: Sequence[str], results: Results, passed: Sequence[str] = ()) -> str:
    """Return one row for each window. ``passed``: columns of which the events of a window have one value."""
    computed = [*(f"{expression} AS {name}" for name, expression in results)]
    computed += [f"any_value({column}) AS {column}" for column in passed]
    grouping = ", ".join([*keys, "window_start", "window_end"])
    return f"SELECT {', '.join([*keys, *computed])}, window_start, window_end FROM ({members}) GROUP BY {grouping}"


def with_empty(results: str, windows: str, keys: Sequence[str], values: Results) -> str:
    """Return the results of all windows of ``windows``, a query as of ``grid``, also of those without events.

    ``values``: pairs of a result's name and its value where there is no event. Other columns come from ``windows``.
    """
    same = " AND ".join(f"r.{key} = w.{key}" for key in [*keys, "window_start"])
    chosen = ", ".join(
        f"CASE WHEN r.window_start IS NULL THEN {value} ELSE r.{name} END AS {name}" for name, value in values
    )
    return f"SELECT w.*, {chosen} FROM ({windows}) AS w LEFT JOIN ({results}) AS r ON {same}"


def ranked(members: str, keys: Sequence[str], order: str, k: int) -> str:
    """Return the members with ``rank() <= k`` in their window, with their ``rank``. ``order``: as of ORDER BY."""
    place = f"rank() OVER (PARTITION BY {', '.join([*keys, 'window_start'])} ORDER BY {order})"
    return f"SELECT * FROM (SELECT *, {place} AS rank FROM ({members})) WHERE rank <= {k}"


def aligned(results: str) -> str:
    """Return results with the lifetime of their window; those of windows that are not complete are left out."""
    return (
        "SELECT * EXCLUDE (window_start, window_end), window_start AS vs, window_end AS ve "
        f"FROM ({results}) WHERE window_end IS NOT NULL"
    )


def at_end(results: str) -> str:
    """Return results as points at the end of their window, if it has one."""
    return (
        "SELECT * EXCLUDE (window_start, window_end), window_end - 1 AS vs, window_end AS ve "
        f"FROM ({results}) WHERE window_end IS NOT NULL AND window_end < {INF}"
    )


def kept(results: str, *, cut: bool) -> str:
    """Return results with lifetimes of their own, ``result_start`` and ``result_end``; ``cut``: to their window."""
    start, end = "result_start", "result_end"
    if cut:
        start, end = f"greatest({start}, window_start)", f"least({end}, window_end)"
    own = f"SELECT * EXCLUDE (window_start, window_end), {start} AS vs, {end} AS ve FROM ({results})"
    return f"SELECT * FROM ({own} WHERE window_end IS NOT NULL) WHERE vs < ve"


# Whole operators, aligned.


def hopping(
    events: str, size: int, hop: int, offset: int, begun: int | str, keys: Sequence[str], results: Results
) -> str:
    """Return the query of hopping windows that start at or before ``begun``."""
    return aligned(grouped(in_hopping(events, size, hop, offset, begun), keys, results))


def snapshot(events: str, keys: Sequence[str], results: Results) -> str:
    """Return the query of snapshot windows."""
    return aligned(grouped(in_snapshots(events, keys), keys, results))


def count_windows(events: str, count: int, by_ends: bool, keys: Sequence[str], results: Results) -> str:
    """Return the query of count windows."""
    return aligned(grouped(in_count_windows(events, count, by_ends, keys), keys, results))


def sessions(events: str, gap: int, keys: Sequence[str], results: Results) -> str:
    """Return the query of session windows."""
    return aligned(grouped(in_sessions(events, gap, keys), keys, results))


def _and(columns: str) -> str:
    return f"{columns}, " if columns else ""


def _partition(columns: str) -> str:
    return f"PARTITION BY {columns} " if columns else ""


def _same(keys: Sequence[str]) -> str:
    return " AND ".join([f"e.{key} IS NOT DISTINCT FROM w.{key}" for key in keys] or ["TRUE"])
