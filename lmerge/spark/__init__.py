"""lmerge for PySpark Structured Streaming: queries that publish into a merge, and merged streams as DataFrames.

Called by users' programs, and by Spark through ``format("lmerge")``. Imports the client, the wire and the core.

    lmerge.spark.publish(counts, servers="h1:7171,h2:7171", merge="flights", replica="a", mode="update",
                         vs="window.start", ve="window.end").option("checkpointLocation", "...").start()

``publish`` makes a replica of a query; ``Payload`` and ``Running`` group its rarer arguments. ``explain`` shows what
the replica would promise and why, ``lint`` what replicas would not agree on. ``heartbeat`` keeps an idle source from
holding the replica up. ``skip_to`` lets a replica that is behind leave out events that are not needed any more
(``skipped_until`` for state and sources of your own). ``exact_sum`` and ``exact_avg`` add floats so that replicas
agree. ``export_metrics`` serves the metrics of the driver. ``merge`` is the merge itself as a query, ``element_files``
an input of it. ``register`` registers ``format("lmerge")`` for reading and writing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from lmerge.spark.arguments import Payload, Running
    from lmerge.spark.exact import exact_avg, exact_sum
    from lmerge.spark.heartbeats import heartbeat
    from lmerge.spark.merging.element_files import element_files
    from lmerge.spark.merging.query import MergeInput, merge
    from lmerge.spark.metrics import export_metrics
    from lmerge.spark.plan.lint import lint
    from lmerge.spark.plan.promises import check, explain
    from lmerge.spark.publishing import publish
    from lmerge.spark.session import register
    from lmerge.spark.skipping import skip_to, skipped_until

__all__ = [
    "MergeInput",
    "Payload",
    "Running",
    "check",
    "element_files",
    "exact_avg",
    "exact_sum",
    "explain",
    "export_metrics",
    "heartbeat",
    "lint",
    "merge",
    "publish",
    "register",
    "skip_to",
    "skipped_until",
]

_MODULES: Final = {
    "MergeInput": "merging.query",
    "Payload": "arguments",
    "Running": "arguments",
    "check": "plan.promises",
    "element_files": "merging.element_files",
    "exact_avg": "exact",
    "exact_sum": "exact",
    "explain": "plan.promises",
    "export_metrics": "metrics",
    "heartbeat": "heartbeats",
    "lint": "plan.lint",
    "merge": "merging.query",
    "publish": "publishing",
    "register": "session",
    "skip_to": "skipping",
    "skipped_until": "skipping",
}


def __getattr__(name: str) -> Any:
    """Load a name when it is first used, so that executors and the driver's agent do not load PySpark for it."""
    if name in _MODULES:
        from importlib import import_module

        from lmerge.spark.terminal import put_sentence_first

        put_sentence_first()
        return getattr(import_module(f"lmerge.spark.{_MODULES[name]}"), name)
    raise AttributeError(f"module 'lmerge.spark' has no attribute {name!r}")
