"""Queries to a server: its merges, one merge, itself.

Blocking; each raises ServerGone, UnknownMerge, or Unauthenticated and PermissionDenied.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import grpc

from lmerge.addresses import check_address
from lmerge.client.connection.faults import error_of
from lmerge.client.connection.security import Security
from lmerge.wire.generated import lmerge_pb2 as pb
from lmerge.wire.generated import lmerge_pb2_grpc as pb_grpc
from lmerge.wire.names import check_sendable

# A healthy server answers within a turn of its merges, some 10 ms.
TIMEOUT_S: Final = 10.0


def list_merges(
    target: str, *, security: Security | None = None, timeout_s: float = TIMEOUT_S
) -> list[pb.MergeSummary]:
    """Return the merges of a server, by name."""
    with stub_of(target, security) as stub:
        return list(stub.ListMerges(pb.ListMergesRequest(), timeout=timeout_s).merges)


def describe_merge(target: str, merge: str, *, security: Security | None = None, timeout_s: float = TIMEOUT_S) -> Any:
    """Return everything about one merge (``DescribeMergeResponse``); ``stable_point`` is in its ``summary``."""
    check_sendable("merge", merge)
    with stub_of(target, security) as stub:
        return stub.DescribeMerge(pb.DescribeMergeRequest(merge=merge), timeout=timeout_s)


def describe_server(
    target: str, *, security: Security | None = None, timeout_s: float = TIMEOUT_S
) -> pb.DescribeServerResponse:
    """Return version, engine and limits of a server."""
    with stub_of(target, security) as stub:
        return stub.DescribeServer(pb.DescribeServerRequest(), timeout=timeout_s)  # type: ignore[no-any-return]


@contextmanager
def stub_of(target: str, security: Security | None = None) -> Iterator[Any]:
    """Open a connection for one call. Raises as the module describes; UsageError if ``target`` is no address."""
    check_address(target)
    with grpc.insecure_channel(target) if security is None else security.blocking_channel(target) as channel:
        try:
            yield pb_grpc.LmergeStub(channel)
        except grpc.RpcError as problem:
            call: Any = problem
            raise error_of(call.code(), call.details(), target, trailing=call.trailing_metadata()) from None
