"""The temporal algebra: continuous queries over events with lifetimes, computed from inserts, adjusts and stables.

What users write and run queries with is here by one name each, loaded when it is first used::

    import lmerge.temporal as lt

    flights = lt.source("flights", {"origin": "string", "delay": "float?"})
    late = flights.where(lt.col.delay > 15).group_by("origin").tumbling(lt.HOUR)
    worst = late.agg(n=lt.count(), worst=lt.max(lt.col.delay))

Pure: no client, no service, no clock. Called by ``lmerge.replica``, which runs a plan as the replica of a merge, and by
users in their own programs. Imports the core and, for schemas and rows, the wire.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from lmerge.temporal.changes import Change, Lifetime
    from lmerge.temporal.entrance import LatePolicy, ProgressRule
    from lmerge.temporal.expressions.functions import scalar_function
    from lmerge.temporal.expressions.surface import col, concat, greatest, least, lit, when
    from lmerge.temporal.modules.functions import aggregate_function
    from lmerge.temporal.modules.kinds import (
        Aggregate,
        IncrementalAggregate,
        IncrementalOperator,
        IncrementalTimedAggregate,
        IncrementalTimedOperator,
        Mergeable,
        Operator,
        TimedAggregate,
        TimedOperator,
    )
    from lmerge.temporal.modules.properties import Properties, Stamped, TimedRow, Window
    from lmerge.temporal.plan.aggregating import (
        avg,
        collect,
        distinct_count,
        first,
        last,
        max,  # noqa: A004  (the name that users expect)
        median,
        min,  # noqa: A004  (the name that users expect)
        mode,
        percentile_cont,
        percentile_disc,
        stddev_pop,
        stddev_samp,
        sum,  # noqa: A004  (the name that users expect)
        var_pop,
        var_samp,
    )
    from lmerge.temporal.plan.grouped import aggregate, count, method_of, module
    from lmerge.temporal.plan.joining import join
    from lmerge.temporal.plan.stream import DAY, HOUR, MINUTE, SECOND, Stream, from_json, source
    from lmerge.temporal.running import ElementWriter, QueryRun, ResultTable, SourceSettings

__all__ = [
    "DAY",
    "HOUR",
    "MINUTE",
    "SECOND",
    "Aggregate",
    "Change",
    "ElementWriter",
    "IncrementalAggregate",
    "IncrementalOperator",
    "IncrementalTimedAggregate",
    "IncrementalTimedOperator",
    "LatePolicy",
    "Lifetime",
    "Mergeable",
    "Operator",
    "ProgressRule",
    "Properties",
    "QueryRun",
    "ResultTable",
    "SourceSettings",
    "Stamped",
    "Stream",
    "TimedAggregate",
    "TimedOperator",
    "TimedRow",
    "Window",
    "aggregate",
    "aggregate_function",
    "avg",
    "col",
    "collect",
    "concat",
    "count",
    "distinct_count",
    "first",
    "from_json",
    "greatest",
    "join",
    "last",
    "least",
    "lit",
    "max",
    "median",
    "method_of",
    "min",
    "mode",
    "module",
    "percentile_cont",
    "percentile_disc",
    "scalar_function",
    "source",
    "stddev_pop",
    "stddev_samp",
    "sum",
    "var_pop",
    "var_samp",
    "when",
]

_PLACES: Final = {
    "changes": ("Change", "Lifetime"),
    "entrance": ("LatePolicy", "ProgressRule"),
    "expressions.functions": ("scalar_function",),
    "expressions.surface": ("col", "concat", "greatest", "least", "lit", "when"),
    "modules.functions": ("aggregate_function",),
    "modules.kinds": (
        "Aggregate",
        "IncrementalAggregate",
        "IncrementalOperator",
        "IncrementalTimedAggregate",
        "IncrementalTimedOperator",
        "Mergeable",
        "Operator",
        "TimedAggregate",
        "TimedOperator",
    ),
    "modules.properties": ("Properties", "Stamped", "TimedRow", "Window"),
    "plan.grouped": ("aggregate", "count", "method_of", "module"),
    "plan.joining": ("join",),
    "plan.stream": ("DAY", "HOUR", "MINUTE", "SECOND", "Stream", "from_json", "source"),
    "running": ("ElementWriter", "QueryRun", "ResultTable", "SourceSettings"),
}
_AGGREGATING: Final = "plan.aggregating"


def __getattr__(name: str) -> Any:
    """Load a name when it is first used: programs that run one part do not load the rest."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    place = next((place for place, names in _PLACES.items() if name in names), _AGGREGATING)
    return getattr(import_module(f"{__name__}.{place}"), name)
