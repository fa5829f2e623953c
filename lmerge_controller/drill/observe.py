"""Asks the servers about a merge, all at once, and returns what they report.

Called by the runner before each fault and until the redundancy is back. A server that does not answer in time is
reported with its problem: during a drill that is the normal case.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from lmerge.core.elements import INF, NEG_INF
from lmerge.errors import LmergeError
from lmerge_controller.drill.redundancy import MergeReports, ServerReport

# A healthy server answers in milliseconds. One that stands still must not hold up the drill.
ANSWER_S_MAX: Final = 2.0
# An input of the probe that is further behind the output could not carry it without a pause.
LAG_US_MAX: Final = 1_000_000


def report_merge(
    servers: Sequence[str],
    merge: str,
    replicas: frozenset[str] = frozenset(),
    *,
    security: Any = None,
    lag_max: int | None = None,
) -> MergeReports:
    """Return what the servers report of a merge.

    ``replicas``: the inputs that should be joined. ``lag_max``: an input further behind does not count, in units of the
    merge's time; None: any lag.
    """
    with ThreadPoolExecutor(max(1, len(servers)), thread_name_prefix="drill-observe") as pool:
        found = list(pool.map(lambda server: _report(server, merge, security, lag_max), servers))
    return MergeReports(merge, tuple(found), replicas)


def merges_of(servers: Sequence[str], *, security: Any = None) -> list[str]:
    """Return the names of all merges on the servers, sorted. Raises LmergeError if a server does not answer."""
    from lmerge.client import list_merges

    names: set[str] = set()
    for server in servers:
        names.update(item.merge for item in list_merges(server, security=security, timeout_s=ANSWER_S_MAX))
    return sorted(names)


def _report(server: str, merge: str, security: Any, lag_max: int | None) -> ServerReport:
    from lmerge.client import describe_merge

    try:
        found = describe_merge(server, merge, security=security, timeout_s=ANSWER_S_MAX)
    except LmergeError as error:
        return ServerReport(server, merge, problem=str(error))
    output = found.summary.stable_point
    return ServerReport(
        server,
        merge,
        joined=frozenset(item.replica for item in found.inputs if _counts(item, output, lag_max)),
        won=tuple((item.replica, item.won) for item in found.inputs),
        incarnations=tuple((item.replica, item.incarnation) for item in found.inputs),
        survives_losses=found.survives_losses,
        divergence_policy=found.divergence_policy,
        store=found.store,
        stable_point=output,
        epoch=found.epoch,
    )


def _counts(item: Any, output: int, lag_max: int | None) -> bool:
    if item.state != "joined" or item.lacks:
        return False
    if lag_max is None or output in (NEG_INF, INF):
        return True
    return bool(output - item.stable_point <= lag_max)
