"""Runs a plan of ``lmerge.temporal`` as the replica of a merge.

A module of a user declares a query: its plans by name, and where its sources are::

    from lmerge.replica import CsvFile, Query, after
    from lmerge.temporal.expressions.surface import col
    from lmerge.temporal.plan.stream import HOUR, MINUTE, count, source

    flights = source("flights", {"origin": "string", "delay": "float?"})
    late = flights.where(col.delay > 15).group_by(col.origin).tumbling(HOUR)
    query = Query(
        {"final": late.agg(n=count()), "eager": late.agg(n=count(), form="eager")},
        {"flights": CsvFile(path="flights.csv", time="at", progress=after(5 * MINUTE))},
    )

``lmerge replica run query.py --plan eager --merge late --replica a`` runs one of them, and so does ``run``. Called by
users, ``lmerge.cli`` and ``lmerge_replicas``. Imports the client and the temporal algebra, never the service.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from lmerge.replica.pacing import ReplayPace, SharedClock
    from lmerge.replica.query import Query
    from lmerge.replica.replica_run import ReplicaOptions, ReplicaRun
    from lmerge.replica.running import run
    from lmerge.replica.sources.declared import Progress, after, in_order
    from lmerge.replica.sources.iterables import PythonItems
    from lmerge.replica.sources.line_files import CsvFile, JsonLinesFile
    from lmerge.replica.sources.merge_stream import MergeStream
    from lmerge.replica.sources.parquet import ParquetFile
    from lmerge.replica.sources.sockets import ArrowSocket, JsonLinesSocket

__all__ = [
    "ArrowSocket",
    "CsvFile",
    "JsonLinesFile",
    "JsonLinesSocket",
    "MergeStream",
    "ReplayPace",
    "ParquetFile",
    "Progress",
    "PythonItems",
    "Query",
    "ReplicaOptions",
    "ReplicaRun",
    "SharedClock",
    "after",
    "in_order",
    "run",
]

_MODULES: Final = {
    "pacing": ("ReplayPace", "SharedClock"),
    "query": ("Query",),
    "replica_run": ("ReplicaOptions", "ReplicaRun"),
    "running": ("run",),
    "sources.declared": ("Progress", "after", "in_order"),
    "sources.iterables": ("PythonItems",),
    "sources.line_files": ("CsvFile", "JsonLinesFile"),
    "sources.merge_stream": ("MergeStream",),
    "sources.parquet": ("ParquetFile",),
    "sources.sockets": ("ArrowSocket", "JsonLinesSocket"),
}


def __getattr__(name: str) -> Any:
    """Load a name when it is first used: programs that need ``driven`` alone do not load the rest."""
    for module, names in _MODULES.items():
        if name in names:
            return getattr(import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
