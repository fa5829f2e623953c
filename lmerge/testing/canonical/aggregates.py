"""Aggregates in SQL: what each of lmerge's is in DuckDB, as an expression over the events of a window (sheet O9).

Sums and deviations of DuckDB are not exact: compare them where they are, on integers, decimals and dyadic floats.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

COUNT: Final = "count(*)"

_BY_VALUE: Final[Mapping[str, str]] = {
    "count": "count({0})",
    "distinct_count": "count(DISTINCT {0})",
    "sum": "sum({0})",
    "avg": "avg({0})",
    "var_pop": "var_pop({0})",
    "var_samp": "var_samp({0})",
    "stddev_pop": "stddev_pop({0})",
    "stddev_samp": "stddev_samp({0})",
    "min": "min({0})",
    "max": "max({0})",
    "median": "quantile_cont({0}, 0.5)",
    "mode": "mode({0} ORDER BY {0})",
    "collect": "coalesce(list({0} ORDER BY {0}) FILTER (WHERE {0} IS NOT NULL), [])",
}


def aggregate(name: str, column: str, columns: Sequence[str] = (), p: float | None = None) -> str:
    """Return an aggregate of a column as an expression. ``columns``: of the rows in order; ``p``: of a percentile."""
    if name in ("first", "last"):
        return _at_the_end(name, column, columns)
    if name in ("percentile_cont", "percentile_disc"):
        return f"quantile_{name.removeprefix('percentile_')}({column}, {p})"
    return _BY_VALUE[name].format(column)


def _at_the_end(name: str, column: str, columns: Sequence[str]) -> str:
    """Return the value of the event that starts first or last, then of the first or last row: NULL behind values."""
    order = ", ".join(["vs", *(f"{other} NULLS LAST" for other in columns)])
    return f"{name}({column} ORDER BY {order}) FILTER (WHERE {column} IS NOT NULL)"


AGGREGATES: Final[tuple[str, ...]] = (*_BY_VALUE, "first", "last", "percentile_cont", "percentile_disc")
"""The names of lmerge's aggregates over a column."""
