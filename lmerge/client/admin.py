"""Administrative calls to a server: certify, detach, release, reset, drain, cut over. Blocking.

Each raises ServerGone, UnknownMerge (also for an unknown input), PermissionDenied or UsageError.
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Iterable, Iterator
from typing import Any, Final

from lmerge import clock
from lmerge.client.connection.faults import naming
from lmerge.client.connection.security import Security
from lmerge.client.connection.streams import parse_targets
from lmerge.client.describe import TIMEOUT_S, describe_merge, stub_of
from lmerge.core.inputs import InputRole
from lmerge.errors import LmergeError, UsageError
from lmerge.wire.generated import lmerge_pb2 as pb
from lmerge.wire.names import check_sendable
from lmerge.wire.token import EPOCH_MAX

#: Stages of a cutover that its caller acts on, as on the wire.
PROMOTING: Final = "promoting"
LEAVING: Final = "leaving"
DONE: Final = "done"
ROLLED_BACK: Final = "rolled-back"

#: The roles of an input, as on the wire.
ROLES: Final = {InputRole.ACTIVE.value: pb.ROLE_ACTIVE, InputRole.OBSERVE.value: pb.ROLE_OBSERVE}


def certify_merge(target: str, merge: str, *, security: Security | None = None, timeout_s: float = TIMEOUT_S) -> Any:
    """Return how far the inputs of a merge have been found equal, and where they differ (``CertifyMergeResponse``)."""
    check_sendable("merge", merge)
    with stub_of(target, security) as stub:
        return stub.CertifyMerge(pb.CertifyMergeRequest(merge=merge), timeout=timeout_s)


def detach_input(
    target: str,
    merge: str,
    replica: str,
    *,
    reason: str = "",
    quarantine: bool = False,
    forget: bool = False,
    security: Security | None = None,
    timeout_s: float = TIMEOUT_S,
) -> None:
    """End an input; its publisher fails for good.

    ``quarantine``: refuse its name until it is released. ``forget``: let the name begin again with any incarnation.
    """
    for what, name in (("merge", merge), ("replica", replica), ("reason", reason)):
        check_sendable(what, name)
    request = pb.DetachInputRequest(merge=merge, replica=replica, reason=reason, quarantine=quarantine, forget=forget)
    with stub_of(target, security) as stub:
        stub.DetachInput(request, timeout=timeout_s)


def release_input(
    target: str, merge: str, replica: str, *, security: Security | None = None, timeout_s: float = TIMEOUT_S
) -> str:
    """Let a quarantined name attach again, or release an input that is held or disputed. Returns what it was."""
    for what, name in (("merge", merge), ("replica", replica)):
        check_sendable(what, name)
    with stub_of(target, security) as stub:
        answer = stub.ReleaseInput(pb.ReleaseInputRequest(merge=merge, replica=replica), timeout=timeout_s)
        return str(answer.words)


def change_role(
    target: str,
    merge: str,
    replica: str,
    role: str,
    *,
    incarnation: int = 0,
    security: Security | None = None,
    timeout_s: float = TIMEOUT_S,
) -> bool:
    """Make an input ``active`` or an observer (``observe``) at one server. Returns False if it has that role already.

    Its publisher attaches again, as a newer incarnation; `describe_merge` shows when it counts. ``incarnation``: change
    this one only, or raise StaleIncarnation; 0: whichever is attached.
    """
    for what, name in (("merge", merge), ("replica", replica)):
        check_sendable(what, name)
    if role not in ROLES:
        raise UsageError(f"unknown role {role!r}; it is {' or '.join(ROLES)}")
    request = pb.ChangeRoleRequest(merge=merge, replica=replica, role=ROLES[role], incarnation=incarnation)
    with stub_of(target, security) as stub:
        return bool(stub.ChangeRole(request, timeout=timeout_s).asked)


def reset_merge(
    targets: str | Iterable[str],
    merge: str,
    *,
    epoch: int = 0,
    reason: str = "",
    security: Security | None = None,
    timeout_s: float = TIMEOUT_S,
) -> int:
    """Begin a new epoch of a merge, empty, on all of its servers. Returns the epoch's number, the same on all of them.

    ``epoch`` 0: this machine's clock, in seconds, or one above the latest epoch of the servers, if that is more. All
    servers are called; then the error of the first one that failed is raised.
    """
    servers = parse_targets(targets)
    for what, name in (("merge", merge), ("reason", reason)):
        check_sendable(what, name)
    epoch = epoch or max(clock.wall_us() // 1_000_000, 1 + _latest_epoch(servers, merge, security, timeout_s))
    if not 0 < epoch <= EPOCH_MAX:
        raise UsageError(f"an epoch is a number from 1 to {EPOCH_MAX}, not {epoch}")
    failed: LmergeError | None = None
    for target in servers:
        try:
            with stub_of(target, security) as stub:
                stub.ResetMerge(pb.ResetMergeRequest(merge=merge, epoch=epoch, reason=reason), timeout=timeout_s)
        except LmergeError as error:
            failed = failed or naming(error, target)
    if failed is not None:
        raise failed
    return epoch


def _latest_epoch(servers: Iterable[str], merge: str, security: Security | None, timeout_s: float) -> int:
    """Return the latest epoch of a merge among the servers that answer; 0: it was never reset."""
    epochs = [0]
    for target in servers:
        with contextlib.suppress(LmergeError):  # the reset itself reports it
            epochs.append(int(describe_merge(target, merge, security=security, timeout_s=timeout_s).epoch))
    return max(epochs)


def drain_server(
    target: str,
    *,
    wait_s: float,
    wait_only: bool = False,
    security: Security | None = None,
    timeout_s: float = TIMEOUT_S,
) -> pb.DrainResponse:
    """End a server after at most ``wait_s`` seconds, earlier if its clients leave. Returns what was left (seconds).

    ``wait_only``: the server announces its end and serves on; the caller ends it. ``timeout_s``: the time for the
    answer beyond ``wait_s``.
    """
    request = pb.DrainRequest(wait_seconds=wait_s, wait_only=wait_only)
    with stub_of(target, security) as stub:
        answer: pb.DrainResponse = stub.Drain(request, timeout=wait_s + timeout_s)
        return answer


def cutover(
    targets: str | Iterable[str],
    merge: str,
    leaves: str,
    to: str,
    *,
    intervals: int = 0,
    security: Security | None = None,
    timeout_s: float = 0.0,
) -> Generator[pb.CutoverProgress, None, None]:
    """Replace the replica ``leaves`` by ``to``. Yields the steps as they come; the last is ``done`` or ``rolled-back``.

    ``targets``: all servers of the merge. ``to`` is certified and promoted at one after the other, and ``leaves`` is
    detached when ``to`` counts at all of them. If one of them rolls back, those before it get ``to`` back as the
    observer that it was. ``intervals``: equal intervals in a row that certify ``to``; 0, as for ``timeout_s`` (at each
    server): the server's default.
    """
    servers = parse_targets(targets)
    for what, name in (("merge", merge), ("replica", leaves), ("replica", to)):
        check_sendable(what, name)
    request = pb.CutoverRequest(merge=merge, to=to, intervals=intervals, timeout_seconds=timeout_s)
    setattr(request, "from", leaves)  # ``from`` is a keyword of Python
    promoted: list[str] = []  # servers before the present one, which gives the role back by itself
    stage = ""
    try:
        for target in servers:
            request.keep_from = target != servers[-1]
            was_observer = False
            for progress in _cutover_at(target, request, security):
                stage = progress.stage
                was_observer = was_observer or stage == PROMOTING
                text = progress.words if len(servers) == 1 else f"{target}: {progress.words}"
                if stage == ROLLED_BACK:
                    text += _demoted(promoted, request, security)
                yield pb.CutoverProgress(stage=stage, words=text, equal_intervals=progress.equal_intervals)
            if stage == ROLLED_BACK:
                return
            if was_observer:
                promoted.append(target)
    finally:
        # An error, or the caller has stopped. Once ``leaves`` leaves, it may have gone, and ``to`` is what is left.
        if stage not in (LEAVING, DONE, ROLLED_BACK):
            _demoted(promoted, request, security)


def _cutover_at(target: str, request: pb.CutoverRequest, security: Security | None) -> Iterator[pb.CutoverProgress]:
    with stub_of(target, security) as stub:
        yield from stub.Cutover(request)


def _demoted(targets: Iterable[str], request: pb.CutoverRequest, security: Security | None) -> str:
    """Make the replica that takes over an observer again at these servers. Return how that went, as text."""
    text = ""
    for target in targets:
        try:
            change_role(target, request.merge, request.to, InputRole.OBSERVE.value, security=security)
            text += f"; {request.to} observes again at {target}"
        except LmergeError as error:
            text += f"; {request.to} may still be active at {target}: {error}"
    return text
