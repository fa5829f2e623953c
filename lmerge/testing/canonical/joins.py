"""Joins in SQL: pairs of events that are valid together, and the parts of events that no partner covers.

``left`` and ``right``: names of tables, whose rows are ``l`` and ``r`` in a condition. Left columns come first.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

OVERLAP = "l.vs < r.ve AND r.vs < l.ve"


def inner(left: str, right: str, columns: Sequence[tuple[str, str]], condition: str) -> str:
    """Return the query of an inner join. ``columns``: pairs of a name and an expression over ``l`` and ``r``."""
    chosen = ", ".join(f"{expression} AS {name}" for name, expression in columns)
    lifetime = "greatest(l.vs, r.vs) AS vs, least(l.ve, r.ve) AS ve"
    return f"SELECT {chosen}, {lifetime} FROM {left} AS l JOIN {right} AS r ON {OVERLAP} AND ({condition})"


def uncovered(left: str, right: str, columns: Sequence[tuple[str, str]], condition: str) -> str:
    """Return the query of an anti-join: for each left event the parts in which no right event fulfils the condition.

    What covers an event is put in order; a gap is where one begins behind all before it have ended.
    """
    chosen = ", ".join(f"{expression} AS {name}" for name, expression in columns)
    numbered = f"SELECT row_number() OVER () AS id, * FROM {left}"
    covers = (
        "SELECT l.id, l.vs AS begins, l.ve AS ends, greatest(l.vs, r.vs) AS vs, least(l.ve, r.ve) AS ve "
        f"FROM numbered AS l JOIN {right} AS r ON {OVERLAP} AND ({condition})"
    )
    before = "PARTITION BY id ORDER BY vs, ve ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING"
    gaps = f"SELECT id, coalesce(max(ve) OVER ({before}), begins) AS vs, vs AS ve FROM covers"
    tails = "SELECT id, max(ve) AS vs, any_value(ends) AS ve FROM covers GROUP BY id"
    whole = "SELECT id, vs, ve FROM numbered WHERE id NOT IN (SELECT id FROM covers)"
    parts = f"SELECT * FROM ({gaps}) WHERE vs < ve UNION ALL SELECT * FROM ({tails}) WHERE vs < ve UNION ALL {whole}"
    return (
        f"WITH numbered AS ({numbered}), covers AS ({covers}), parts AS ({parts}) "
        f"SELECT {chosen}, parts.vs AS vs, parts.ve AS ve FROM parts JOIN numbered AS l ON l.id = parts.id"
    )


def outer(
    left: str,
    right: str,
    left_columns: Sequence[str],
    right_columns: Sequence[tuple[str, str]],
    condition: str,
    *,
    keeps_left: bool,
    keeps_right: bool,
) -> str:
    """Return the query of an outer join. ``right_columns``: pairs of a result's name and a column of the right."""
    pairs = [(name, f"l.{name}") for name in left_columns] + [(name, f"r.{column}") for name, column in right_columns]
    parts = [inner(left, right, pairs, condition)]
    if keeps_left:
        alone = [(name, f"l.{name}") for name in left_columns] + [(name, "NULL") for name, _ in right_columns]
        parts.append(f"({uncovered(left, right, alone, condition)})")
    if keeps_right:
        alone = [(name, "NULL") for name in left_columns] + [(name, f"l.{column}") for name, column in right_columns]
        parts.append(f"({uncovered(right, left, alone, _swapped(condition))})")
    return " UNION ALL ".join(parts)


def _swapped(condition: str) -> str:
    """Return a condition with the two tables' names exchanged; what is quoted, such as a function's name, stays."""
    parts = condition.split('"')
    other = {"l.": "r.", "r.": "l."}
    parts[::2] = [re.sub(r"\b[lr]\.", lambda found: other[found[0]], part) for part in parts[::2]]
    return '"'.join(parts)
