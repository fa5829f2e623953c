"""lmerge for PySpark Structured Streaming: queries that publish into a merge, and merged streams as DataFrames.

    lmerge.spark.publish(counts, servers="h1:7171,h2:7171", merge="flights", replica="a", mode="update",
                         vs="window.start", ve="window.end").option("checkpointLocation", "...").start()

``publish`` makes a replica of a query, ``explain`` says what it would promise and why, ``heartbeat`` keeps an idle
source from holding it up, ``skip_to`` lets one that is behind leave out what nobody wants any more (``skipped_until``
for state and sources of your own), ``exact_sum`` and ``exact_avg`` add floats so that replicas agree, ``merge`` is the
merge itself as a query, ``register`` makes ``format("lmerge")`` known for reading and writing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from lmerge.spark.exact import exact_avg, exact_sum
    from lmerge.spark.heartbeats import heartbeat
    from lmerge.spark.merging.query import MergeInput, merge
    from lmerge.spark.plan.promises import check, explain
    from lmerge.spark.publishing import publish
    from lmerge.spark.session import register
    from lmerge.spark.skipping import skip_to, skipped_until

__all__ = [
    "MergeInput", "check", "exact_avg", "exact_sum", "explain", "heartbeat", "merge", "publish", "register", "skip_to",
    "skipped_until",
]

_MODULES: Final = {
    "MergeInput": "merging.query", "check": "plan.promises", "exact_avg": "exact", "exact_sum": "exact",
    "explain": "plan.promises", "heartbeat": "heartbeats", "merge": "merging.query",
    "publish": "publishing", "register": "session", "skip_to": "skipping", "skipped_until": "skipping",
}


def __getattr__(name: str) -> Any:
    """Loaded when first used: what executors and the driver's agent need of this package needs no PySpark."""
    if name in _MODULES:
        from importlib import import_module

        from lmerge.spark.terminal import put_sentence_first

        put_sentence_first()
        return getattr(import_module(f"lmerge.spark.{_MODULES[name]}"), name)
    raise AttributeError(f"module 'lmerge.spark' has no attribute {name!r}")
