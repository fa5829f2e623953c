"""The server's description of the demo's merge, as the values that the rest of the demo uses.

Called by `run` four times a second.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from lmerge.client import describe_merge
from lmerge.demo.verdict import ReplicaTotals
from lmerge.errors import UnknownMerge
from lmerge.wire.generated import lmerge_pb2 as pb


class Seen(NamedTuple):
    """One attached input. ``totals`` are those of this incarnation."""

    state: str
    stable_point: int
    totals: ReplicaTotals


class Observation(NamedTuple):
    """One description of the merge. The defaults are those before the first replica attaches."""

    algorithm: str = ""
    algorithm_reason: str = ""
    policy: str = ""
    engine: str = ""
    live_events: int = 0
    survives_losses: int = 0
    inputs: Mapping[str, Seen] = {}


def observe(address: str, merge: str) -> Observation:
    """Read the description of ``merge`` from the server at ``address``. Raises ServerGone."""
    try:
        described = describe_merge(address, merge)
    except UnknownMerge:
        return Observation()
    return Observation(
        described.summary.algorithm,
        described.algorithm_reason,
        described.policy,
        described.engine,
        described.live_events,
        described.survives_losses,
        {status.replica: Seen(status.state, status.stable_point, _totals(status)) for status in described.inputs},
    )


def _totals(status: pb.InputStatus) -> ReplicaTotals:
    received = status.received
    return ReplicaTotals(1, received.inserts, received.adjusts, received.stables, status.late, status.won)
