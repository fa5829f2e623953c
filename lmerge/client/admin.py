"""What administrators ask a server to do: certify, detach, release, cut over. Blocking.

Each raises ServerGone, UnknownMerge (also for an input that is not there), PermissionDenied or UsageError.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from lmerge.client.describe import TIMEOUT_S, stub_of
from lmerge.client.security import Security
from lmerge.wire.generated import lmerge_pb2 as pb


def certify_merge(
    target: str, merge: str, *, security: Security | None = None, timeout_s: float = TIMEOUT_S
) -> Any:
    """How far the inputs of a merge have been found equal, and where they differ, as the wire document lists it."""
    with stub_of(target, security) as stub:
        return stub.CertifyMerge(pb.CertifyMergeRequest(merge=merge), timeout=timeout_s)


def detach_input(
    target: str, merge: str, replica: str, *, reason: str = "", quarantine: bool = False,
    security: Security | None = None, timeout_s: float = TIMEOUT_S,
) -> None:
    """End an input; its publisher fails for good. ``quarantine``: refuse its name until it is released."""
    request = pb.DetachInputRequest(merge=merge, replica=replica, reason=reason, quarantine=quarantine)
    with stub_of(target, security) as stub:
        stub.DetachInput(request, timeout=timeout_s)


def release_input(
    target: str, merge: str, replica: str, *, security: Security | None = None, timeout_s: float = TIMEOUT_S
) -> None:
    """Let a quarantined name attach again."""
    with stub_of(target, security) as stub:
        stub.ReleaseInput(pb.ReleaseInputRequest(merge=merge, replica=replica), timeout=timeout_s)


def cutover(
    target: str, merge: str, leaves: str, to: str, *, intervals: int = 0, security: Security | None = None,
    timeout_s: float = 0.0,
) -> Iterator[pb.CutoverProgress]:
    """Replace the replica ``leaves`` by ``to``; its steps as they come. The last one is ``done`` or ``rolled-back``.

    ``intervals``: equal ones in a row that certify ``to``; 0, as for ``timeout_s``: the server's default.
    """
    request = pb.CutoverRequest(merge=merge, to=to, intervals=intervals, timeout_seconds=timeout_s)
    setattr(request, "from", leaves)  # a word of Python
    with stub_of(target, security) as stub:
        yield from stub.Cutover(request)
