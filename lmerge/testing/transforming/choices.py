"""The words from which the open parts of an intent are chosen, and which of them cannot be together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from lmerge.testing.intents.fluent import ALTERATIONS, JOINS
from lmerge.testing.transforming.modules import (
    CHECKSUM,
    COUNTED_ROWS,
    COVERED_TIME,
    EACH_ONCE,
    HELD_ON,
    LAST_STARTED,
    STARTED_SO_FAR,
    SUM_BY_LENGTH,
)

OPERATORS: Final[tuple[str, ...]] = (
    "where",
    "select",
    *ALTERATIONS,
    "edges",
    "coalesce",
    "cleanse",
    "union",
    *(f"{how} join" for how in JOINS),
    "inner as_of",
    "left as_of",
    "aggregate",
    "top",
    "apply",
    "group_apply",
)
WINDOWED: Final = ("aggregate", "top", "apply")
WINDOWS: Final = ("tumbling", "hopping", "snapshot", "count-starts", "count-ends", "sessions")
PLACES: Final = ("below", "above")
"""Where windows stand beside an operator that has none: it reads their results, or they read its."""

MOVING_ENDS: Final = ("snapshot", "sessions")
"""Windows whose end can move, so that no result is a point at it."""
ENDS_BY_LATER_EVENTS: Final = ("sessions", "count-starts", "count-ends")
"""Windows whose end depends on events that start behind results that a module has given."""
OWN_LIFETIMES: Final = ("unchanged", "clip", "time-bound")
"""Outputs with the lifetimes of a module."""

STAMPING: Final = (STARTED_SO_FAR, HELD_ON)
"""Modules that give their results lifetimes; only those of the first end in their windows."""
MODULES: Final = (*STAMPING, EACH_ONCE, COUNTED_ROWS, LAST_STARTED)
"""Operators that make rows of windows: with lifetimes of their own, and without."""

AGGREGATES: Final[Mapping[str, tuple[str, ...]]] = {
    "count": (),
    "distinct_count": ("bool", "int", "float", "string", "decimal", "timestamp", "date"),
    "min": ("int", "float", "string", "decimal", "timestamp", "date"),
    "max": ("int", "float", "string", "decimal", "timestamp", "date"),
    "first": ("bool", "int", "float", "string", "decimal", "timestamp", "date"),
    "last": ("bool", "int", "float", "string", "decimal", "timestamp", "date"),
    "mode": ("bool", "int", "float", "string", "decimal", "timestamp", "date"),
    "collect": ("bool", "int", "float", "string", "decimal", "timestamp", "date"),
    "percentile_disc": ("int", "float", "string", "decimal"),
    "sum": ("int", "float", "decimal"),
    "avg": ("int", "float", "decimal"),
    "median": ("int", "float", "decimal"),
    "var_pop": ("int", "float", "decimal"),
    "var_samp": ("int", "float", "decimal"),
    "stddev_pop": ("int", "float", "decimal"),
    "stddev_samp": ("int", "float", "decimal"),
    "percentile_cont": ("int", "float", "decimal"),
    COVERED_TIME: ("int",),
    SUM_BY_LENGTH: ("int",),
    CHECKSUM: ("int",),
}
"""Aggregates, with the types of what they take."""
OVERFLOWING: Final = ("sum", "avg", "var_pop", "var_samp", "stddev_pop", "stddev_samp", "median", "percentile_cont")
"""Aggregates that compute with numbers, which rows at the ends of the range overflow."""

SCHEMA_POOL: Final[Mapping[str, object]] = {
    "v": "int",
    "s": "string?",
    "x": "float?",
    "d": "decimal(2)",
    "t": "timestamp",
    "day": "date?",
    "flag": "bool?",
    "raw": "bytes",
    "list": "list<int>",
    "place?": {"city": "string?", "gate": "int"},
}
"""Columns of open schemas; each has the key ``k`` and one to three of these."""


def unfit(one: str, value: str, other: str, other_value: str) -> str | None:
    """Return why two words of one operator cannot be together, or None.

    ``one``, ``other``: what the words are of, such as ``window`` and ``output``, in either order.
    """
    levels = {one: value, other: other_value}
    window, output, operator = levels.get("window"), levels.get("output"), levels.get("operator")
    if output == "point-at-end" and window in MOVING_ENDS:
        return f"the end of {window} windows can move, so a result cannot be a point at it"
    if operator is not None and operator != "apply" and output in OWN_LIFETIMES and "module" in levels:
        return f"{operator} gives its results no lifetimes"
    if output == "time-bound" and window in ENDS_BY_LATER_EVENTS:
        return f"a later event moves the end of {window} windows, and with it results that are bound already"
    module = levels.get("module")
    if module == HELD_ON and output == "time-bound":
        return f"results of {module} outlive their window, so they are not bound to it"
    if module not in (None, *STAMPING) and output in OWN_LIFETIMES:
        return f"{module} gives its results no lifetimes"
    return None
