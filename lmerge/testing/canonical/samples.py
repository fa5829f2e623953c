"""Samples in SQL: edge events and as-of joins (E7; sheets O13, O16).

A sample holds until the next one of its key, whatever its own end. Of two at one time the later one in the order of
rows holds: NULL behind all values.
"""

from __future__ import annotations

from collections.abc import Sequence

from lmerge.testing.canonical.times import INF, later


def edges(events: str, keys: Sequence[str], columns: Sequence[str], lasts: int | None = None) -> str:
    """Return the query of samples that last until the next one of their key, and at most ``lasts``.

    ``columns``: those of the rows, in the order of the schema.
    """
    following = f"coalesce(lead(vs) OVER ({_by(keys)}ORDER BY vs), {INF})"
    end = following if lasts is None else f"least({following}, {later('vs', lasts)})"
    chosen = ", ".join(columns)
    return f"SELECT * FROM (SELECT {chosen}, vs, {end} AS ve FROM ({holding(events, keys, columns)})) WHERE vs < ve"


def as_of(
    left: str,
    samples: str,
    keys: Sequence[tuple[str, str]],
    columns: Sequence[tuple[str, str]],
    of_samples: Sequence[str],
    *,
    is_outer: bool,
    within: int | None = None,
) -> str:
    """Return the query of left events with the sample of their key that holds at their start.

    ``keys``: pairs of a left column and one of the samples. ``columns``: pairs of a name and an expression over ``l``
    and ``s``. ``of_samples``: the columns of the samples, in the order of their schema.
    """
    held = holding(samples, [right for _, right in keys], of_samples)
    near = "" if within is None else " AND s.until >= l.vs"
    until = "vs" if within is None else later("vs", within)
    same = " AND ".join(f"l.{one} = s.{other}" for one, other in keys)
    chosen = ", ".join(f"{expression} AS {name}" for name, expression in columns)
    # With ``within`` the last sample can be too old, and no older one is nearer: it is found first, and judged then.
    last = f"SELECT l.id, s.* EXCLUDE (ve) FROM numbered AS l ASOF JOIN held AS s ON {same} AND l.vs >= s.vs"
    return (
        f"WITH numbered AS (SELECT row_number() OVER () AS id, * FROM {left}), "
        f"held AS (SELECT *, {until} AS until FROM ({held})), last AS ({last}) "
        f"SELECT {chosen}, l.vs AS vs, l.ve AS ve FROM numbered AS l "
        f"{'LEFT ' if is_outer else ''}JOIN last AS s ON l.id = s.id{near}"
    )


def holding(events: str, keys: Sequence[str], columns: Sequence[str]) -> str:
    """Return the query of one sample for each key and time: that with the last row."""
    last_first = ", ".join(f"{column} DESC NULLS FIRST" for column in columns)
    place = f"row_number() OVER (PARTITION BY {', '.join([*keys, 'vs'])} ORDER BY {last_first})"
    return f"SELECT * EXCLUDE (place) FROM (SELECT *, {place} AS place FROM {events}) WHERE place = 1"


def _by(keys: Sequence[str]) -> str:
    return f"PARTITION BY {', '.join(keys)} " if keys else ""
