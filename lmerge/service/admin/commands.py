"""The commands of administrators for a merge: report differences, detach, release or replace an input, reset."""

from __future__ import annotations

from lmerge.core.divergence.monitor import Divergence, DivergenceMonitor
from lmerge.core.inputs import InputRole
from lmerge.errors import StaleIncarnation, UnknownInput, UsageError
from lmerge.service.admin.cutover import Cutover, CutoverStep
from lmerge.service.call_context import CallContext
from lmerge.service.merge.divergence_policy import counted, describe_report, expulsion
from lmerge.service.merge.hub import Hub
from lmerge.service.merge.registry import Registry
from lmerge.service.settings import Settings
from lmerge.wire.generated import lmerge_pb2 as pb
from lmerge.wire.names import check_name

# So an answer stays below the limit of a message: 64 intervals of 16 differences with short payloads are some 100 KB.
DIVERGENT_REPORTED = 64
# A reason is a sentence, and is repeated in every status.
REASON_BYTES_MAX = 1000
# This much of a payload is enough to recognize it.
_PAYLOAD_BYTES_REPORTED = 1024
_ROLES = {pb.ROLE_ACTIVE: InputRole.ACTIVE, pb.ROLE_OBSERVE: InputRole.OBSERVE}


async def certify_merge(hub: Hub) -> pb.CertifyMergeResponse:
    """Return how far the inputs have been found equal, and where they differ."""
    return await hub.task.call(lambda: _certified(hub))


async def detach_input(hub: Hub, request: pb.DetachInputRequest) -> pb.DetachInputResponse:
    """End an input. Raises UnknownInput, UsageError.

    With ``quarantine`` its name is refused from now on. With ``forget`` it may begin again with any incarnation. Both
    work whether it is attached or not.
    """
    _check_reason(request.reason)
    await hub.task.settled(lambda: _detach(hub, request))
    return pb.DetachInputResponse()


async def reset_merge(registry: Registry, request: pb.ResetMergeRequest, caller: str) -> pb.ResetMergeResponse:
    """Begin a new epoch of a merge, for ``caller``. Raises UnknownMerge, UsageError, Draining, StoreFull."""
    _check_reason(request.reason)
    return pb.ResetMergeResponse(epoch=await registry.reset(request.merge, request.epoch, request.reason, caller))


async def release_input(hub: Hub, request: pb.ReleaseInputRequest) -> pb.ReleaseInputResponse:
    """Let a quarantined name attach again, or release an input that is held or disputed. Raises UsageError."""
    return pb.ReleaseInputResponse(words=await hub.maintenance.release(request.replica))


async def change_role(hub: Hub, request: pb.ChangeRoleRequest) -> pb.ChangeRoleResponse:
    """Ask for another role of an input. Raises UnknownInput, UsageError, StaleIncarnation."""
    return await hub.task.call(lambda: _change_role(hub, request))


async def cut_over(hub: Hub, request: pb.CutoverRequest, context: CallContext, settings: Settings) -> None:
    """Replace one input by another, and report the steps. Raises UsageError, UnknownInput, Draining."""
    timeout_s = request.timeout_seconds or settings.cutover_timeout_s
    if not 0 < timeout_s < float("inf"):
        raise UsageError(f"the time-out of a cutover must be a number of seconds above 0, not {timeout_s}")
    leaves = getattr(request, "from")  # a keyword of Python
    for name in (leaves, request.to):
        check_name("replica", name)
    intervals = request.intervals or settings.cutover_intervals
    cutover = Cutover(hub, leaves, request.to, intervals, timeout_s, keeps=request.keep_from)

    async def report(step: CutoverStep) -> None:
        await context.write(pb.CutoverProgress(stage=step.stage, words=step.text, equal_intervals=step.equal_intervals))

    await cutover.run(report)


def _detach(hub: Hub, request: pb.DetachInputRequest) -> None:
    name, why = request.replica, request.reason or "asked for by an administrator"
    is_attached = hub.inputs.get(name) is not None
    if not (is_attached or request.quarantine or request.forget):
        raise UnknownInput(f"input {name!r} of merge {hub.name!r} cannot be detached: it is not attached")
    if request.quarantine:
        check_name("replica", name)
    ending = hub.state.certifier.quarantine(name, why) if request.quarantine else expulsion(why)
    if is_attached:
        hub.inputs.expel(name, ending)
    if request.forget:
        hub.inputs.forget(name)


def _change_role(hub: Hub, request: pb.ChangeRoleRequest) -> pb.ChangeRoleResponse:
    if request.role not in _ROLES:
        raise UsageError("a role is ROLE_ACTIVE or ROLE_OBSERVE")
    attached, role = hub.inputs.get(request.replica), _ROLES[request.role]
    what = f"the role of input {request.replica!r} of merge {hub.name!r} cannot be changed"
    if attached is None:
        raise UnknownInput(f"{what}: it is not attached")
    if request.incarnation not in (0, attached.incarnation):
        raise StaleIncarnation(f"{what}: incarnation {attached.incarnation} is attached, not {request.incarnation}")
    if attached.role is not role:
        attached.session.change_role(role)
    return pb.ChangeRoleResponse(asked=attached.role is not role, incarnation=attached.incarnation)


def _check_reason(reason: str) -> None:
    if not reason.isprintable() or len(reason.encode()) > REASON_BYTES_MAX:
        raise UsageError(f"the reason must be printable and have at most {REASON_BYTES_MAX} bytes")


def _certified(hub: Hub) -> pb.CertifyMergeResponse:
    certifier = hub.state.certifier
    monitor = certifier.monitor
    response = pb.CertifyMergeResponse(policy=certifier.policy)
    if monitor is None:
        return response
    response.interval = monitor.interval
    for report in monitor.reports():
        response.inputs.add(
            replica=report.name,
            compared=report.compared,
            equal=report.equal,
            equal_in_row=report.in_row,
            words=describe_report(report),
        )
    response.divergent.extend(_interval(d, monitor) for d in monitor.divergent()[:DIVERGENT_REPORTED])
    return response


def _interval(divergence: Divergence, monitor: DivergenceMonitor) -> pb.IntervalReport:
    report = pb.IntervalReport(start=divergence.start, end=divergence.end, missing=divergence.findings.missing)
    for name, digest in divergence.digests.items():
        report.digests.add(replica=name, events=max(0, digest.events), digest=digest.text(monitor.hash_name))
    for found in divergence.findings.differences:
        report.differences.add(
            payload=found.event.payload[:_PAYLOAD_BYTES_REPORTED],
            vs=found.event.vs,
            ve=found.event.ve,
            present=counted(found.present),
            absent=found.absent,
        )
    return report
