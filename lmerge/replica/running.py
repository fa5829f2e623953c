"""Runs a plan as a replica: ``run``, and its options. ``lmerge replica run`` and programs call it."""

from __future__ import annotations

import threading
from typing import Final

from lmerge.replica.query import Query
from lmerge.replica.replica_run import ReplicaOptions, ReplicaRun

_AS_USUAL: Final = ReplicaOptions()


def run(
    query: Query,
    plan: str | None,
    *,
    servers: str,
    merge: str,
    replica: str,
    options: ReplicaOptions = _AS_USUAL,
    stop: threading.Event | None = None,
) -> bool:
    """Run a plan of a query as the replica of a merge until its sources end; return whether they have.

    ``plan`` None: the only one. ``servers``: ``"h1:7171,h2:7171"``. ``stop``: ends the run when it is set. Raises
    UsageError if the plan, a source or an option does not fit, InvalidRow for a row that does not, what a module
    raises, and what ends the publisher.
    """
    with ReplicaRun(query, plan, servers=servers, merge=merge, replica=replica, options=options, stop=stop) as begun:
        return begun.run()
