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

from lmerge.replica.pacing import SharedClock
from lmerge.replica.query import Query
from lmerge.replica.replica_run import ReplicaOptions
from lmerge.replica.run import run
from lmerge.replica.sources.declared import Progress, after, in_order
from lmerge.replica.sources.iterables import PythonItems
from lmerge.replica.sources.line_files import CsvFile, JsonLinesFile
from lmerge.replica.sources.merge_output import MergeOutput
from lmerge.replica.sources.parquet import ParquetFile
from lmerge.replica.sources.sockets import ArrowSocket, JsonLinesSocket

__all__ = [
    "ArrowSocket",
    "CsvFile",
    "JsonLinesFile",
    "JsonLinesSocket",
    "MergeOutput",
    "ParquetFile",
    "Progress",
    "PythonItems",
    "Query",
    "ReplicaOptions",
    "SharedClock",
    "after",
    "in_order",
    "run",
]
