"""Answers of servers to observed values. Pure: it imports the generated messages, and calls nothing."""

from __future__ import annotations

from typing import Any

from lmerge.core.inputs import InputRole
from lmerge.wire.generated import lmerge_pb2 as pb
from lmerge_controller.plan.observed import ObservedInput, ObservedServer


def observed_server(address: str, version: str, described: Any | None) -> ObservedServer:
    """Return a server that has answered. ``described``: its DescribeMergeResponse; None: it does not have the merge."""
    if described is None:
        return ObservedServer(address, is_reachable=True, version=version)
    return ObservedServer(
        address,
        is_reachable=True,
        version=version,
        has_merge=True,
        stable_point=described.summary.stable_point,
        survives_losses=described.survives_losses,
        divergences=described.divergences,
        divergence_policy=described.divergence_policy,
        store=described.store,
        inputs=tuple(_input(found) for found in described.inputs),
        quarantined=tuple(described.quarantined),
    )


def silent_server(address: str, problem: str) -> ObservedServer:
    """Return a server that has not answered, and why."""
    return ObservedServer(address, is_reachable=False, problem=problem)


def _input(found: Any) -> ObservedInput:
    return ObservedInput(
        replica=found.replica,
        incarnation=found.incarnation,
        role=(InputRole.OBSERVE if found.role == pb.ROLE_OBSERVE else InputRole.ACTIVE).value,
        state=found.state,
        stable_point=found.stable_point,
        attached_s=found.attached_seconds,
        lacks=found.lacks,
        equal_intervals=found.incarnation_equal_intervals,
        unequal_intervals=found.incarnation_unequal_intervals,
    )
