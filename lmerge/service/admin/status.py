"""The status of a server and its merges: the answers of ListMerges, DescribeMerge and DescribeServer."""

from __future__ import annotations

import asyncio
import time
from importlib.metadata import PackageNotFoundError, version

from lmerge.core.elements import NEG_INF
from lmerge.core.inputs import InputRole
from lmerge.core.merge import Counts, InputStatus
from lmerge.service.merge.hub import Hub
from lmerge.service.merge.lifecycle import InputLifecycle
from lmerge.service.merge.registry import Registry
from lmerge.service.settings import Settings
from lmerge.wire.generated import lmerge_pb2 as pb


def lmerge_version() -> str:
    """Return the version of the installed distribution; ``unknown`` if lmerge runs from a bare source tree."""
    try:
        return version("lmerge")
    except PackageNotFoundError:
        return "unknown"


def describe_server(settings: Settings, started_at: float) -> pb.DescribeServerResponse:
    """Describe the server. ``started_at``: a time of the monotonic clock."""
    return pb.DescribeServerResponse(
        version=lmerge_version(),
        engine=settings.resolved_engine,
        limits=settings.limits_message(),
        uptime_seconds=time.monotonic() - started_at,
    )


def list_merges(registry: Registry) -> pb.ListMergesResponse:
    """List the merges, in order of name."""
    return pb.ListMergesResponse(merges=[_summary(registry.hubs[name]) for name in sorted(registry.hubs)])


def describe_merge(hub: Hub) -> pb.DescribeMergeResponse:
    """Describe one merge completely."""
    state = hub.state
    observed = state.observed
    now_s = asyncio.get_running_loop().time()
    return pb.DescribeMergeResponse(
        summary=_summary(hub),
        algorithm_reason=observed.algorithm_reason,
        policy=str(state.merge.policy),
        engine=state.merge.engine,
        inputs=[_input(hub, status, now_s) for status in observed.inputs],
        emitted=_counts(observed.emitted),
        live_events=observed.live_count,
        survives_losses=state.survives_losses,
        refused=observed.refused,
        detached=[
            pb.DetachedInput(replica=gone.input, incarnation=gone.incarnation, reason=gone.reason)
            for gone in state.detached
        ],
        subscribers=[
            pb.SubscriberStatus(
                subscriber=s.name, peer=s.peer, queued_bytes=s.queued_bytes, sent_elements=s.sent_elements
            )
            for s in state.subscribers.values()
        ],
        schema=state.schema,
        retained_from=_unless_beginning(state.retained_from),
        complete_from=_unless_beginning(state.complete_from),
        store=state.store_status,
        gaps=state.gaps,
        divergence_policy=state.certifier.policy,
        divergences=state.certifier.divergences,
        quarantined=sorted(state.certifier.quarantined),
        switches=state.switches,
        staged_commits=state.staged_commits,
        missed_commits=state.missed_commits,
        epoch=state.epoch,
        live_bytes=state.payload_limit.live_bytes + state.queued_bytes,
        lead_max=state.merge.policy.lead_max,
        disputed=state.certifier.disputed,
        recording=state.recording_status,
    )


def _summary(hub: Hub) -> pb.MergeSummary:
    state = hub.state
    observed = state.observed
    return pb.MergeSummary(
        merge=hub.name,
        algorithm=observed.algorithm,
        stable_point=observed.stable_point,
        inputs=len(observed.inputs),
        subscribers=len(state.subscribers),
    )


def _input(hub: Hub, status: InputStatus, now_s: float) -> pb.InputStatus:
    state = hub.state
    attached = hub.inputs.get(status.name)
    life = InputLifecycle() if attached is None else attached.life
    life_equal, life_unequal = state.certifier.compared_in_life(status.name)
    return pb.InputStatus(
        replica=status.name,
        incarnation=status.incarnation,
        role=pb.ROLE_OBSERVE if status.role is InputRole.OBSERVE else pb.ROLE_ACTIVE,
        state=life.state(status),
        properties=status.properties,
        stable_point=status.stable_point,
        join_at=status.join_at,
        received=_counts(Counts(status.inserts, status.adjusts, status.stables)),
        late=status.late,
        won=status.won,
        attached_seconds=now_s - attached.attached_at if attached is not None else 0.0,
        skipped_until=life.skipped_until,
        fast_forwarded_to=life.fast_forwarded_to,
        equal_intervals=state.certifier.equal_in_row(status.name),
        live_bytes=state.payload_limit.share((status.name, status.incarnation)),
        incarnation_equal_intervals=life_equal,
        incarnation_unequal_intervals=life_unequal,
        lacks=state.redundancy.lacks(status, life, now_s),
    )


def _unless_beginning(t: int) -> int | None:
    return None if t == NEG_INF else t


def _counts(counts: Counts) -> pb.Counts:
    return pb.Counts(inserts=counts.inserts, adjusts=counts.adjusts, stables=counts.stables)
