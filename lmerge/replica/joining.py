"""Where a replica joins a merge (V.B): where the merge is, and where its own sources let its result be right.

A plan of span operators over a source merge needs no state but the live events of that merge (II.4). These are what
``lmerge checkpoint`` writes into a file, and the first batch of a subscription. So such a plan is right from the stable
point of the source merge on, and reads no file. A plan with windows is right behind the windows that have begun there.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping

from lmerge.client import Security, describe_merge
from lmerge.client.connection.streams import parse_targets
from lmerge.core.elements import INF, NEG_INF
from lmerge.errors import ServerGone, UnknownMerge
from lmerge.temporal.plan.compiling import compile_plan
from lmerge.temporal.plan.nodes import PlanNode


def merged_to(servers: str, merge: str, security: Security | None) -> int:
    """Return the smallest stable point among the servers that have the merge; -inf for a new one."""
    points = []
    for server in parse_targets(servers):
        with contextlib.suppress(UnknownMerge, ServerGone):
            points.append(int(describe_merge(server, merge, security=security).summary.stable_point))
    return min(points, default=NEG_INF)


def right_from(node: PlanNode, complete_from: Mapping[str, int]) -> int:
    """Return the least time from which a plan's result is right, by that from which each source is complete.

    A result with ``Ve >= t`` needs of a source what feedback of ``t`` asks of it, and that grows with ``t``. +inf: the
    plan needs all of a source, such as the last sample of a key that has no limit.
    """
    plan = compile_plan([node])
    since = [complete_from.get(source.label, NEG_INF) for source in plan.sources]
    if max(since, default=NEG_INF) == NEG_INF:
        return NEG_INF

    def is_right(t: int) -> bool:
        asked = plan.graph().fast_forward(0, t)
        return all(needed >= begin for needed, begin in zip(asked, since, strict=True))

    low, high = NEG_INF, INF - 1
    if not is_right(high):
        return INF
    while low + 1 < high:
        middle = (low + high) // 2
        low, high = (low, middle) if is_right(middle) else (middle, high)
    return high
