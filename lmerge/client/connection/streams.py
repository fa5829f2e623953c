"""Connectors, targets, and the two streaming calls.

A *connector* makes channels. Credentials are another connector, and so is the network of a simulation.

The streaming calls carry batches as bytes: ``lmerge.wire.frames`` reads and writes them. Generated stubs would first
parse every batch into protobuf's objects.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractAsyncContextManager
from typing import Any, Final, Protocol

import grpc

from lmerge.addresses import check_address
from lmerge.client.connection import channels
from lmerge.errors import UsageError
from lmerge.wire.generated import lmerge_pb2 as pb

# More servers than any publisher or subscriber uses; a longer list is a mistake.
TARGETS_MAX: Final = 16

_SERVICE: Final = pb.DESCRIPTOR.services_by_name["Lmerge"].full_name


class Connector(Protocol):
    """Makes channels to servers."""

    def channel(self, target: str) -> AbstractAsyncContextManager[Any]:
        """Return a channel of ``grpc.aio``, or an object that behaves like one."""


class InsecureConnector:
    """Without encryption and without credentials."""

    def channel(self, target: str) -> AbstractAsyncContextManager[Any]:
        channel: AbstractAsyncContextManager[Any] = channels.open_channel(target)
        return channel


INSECURE: Final = InsecureConnector()


def connector_of(security: Connector | None) -> Connector:
    """Return the connector that ``security=`` stands for; None: no security."""
    return INSECURE if security is None else security


def parse_targets(targets: str | Iterable[str]) -> tuple[str, ...]:
    """Return the targets of ``"h1:p1,h2:p2"`` or of several strings, in order. Raises UsageError."""
    parts = targets.split(",") if isinstance(targets, str) else list(targets)
    parsed = tuple(part.strip() for part in parts)
    if not parsed or not all(parsed):
        raise UsageError(f"servers are given as HOST:PORT, several with commas between, not {targets!r:.80}")
    if len(set(parsed)) < len(parsed):
        raise UsageError(f"a server stands twice in {', '.join(parsed)}")
    if len(parsed) > TARGETS_MAX:
        raise UsageError(f"{len(parsed)} servers are more than the limit of {TARGETS_MAX}")
    return tuple(check_address(target) for target in parsed)


def is_ready(channel: Any) -> bool:
    """Return whether a channel is connected: its handshakes are done."""
    return channel.get_state() is grpc.ChannelConnectivity.READY


def publish(channel: Any) -> Any:
    """Open a call of Publish: write bytes of PublishRequest, read PublishResponse."""
    open_call = channel.stream_stream(
        f"/{_SERVICE}/Publish", request_serializer=None, response_deserializer=pb.PublishResponse.FromString
    )
    return open_call()


def subscribe(channel: Any, request: pb.SubscribeRequest) -> Any:
    """Open a call of Subscribe: an iterator over messages of SubscribeResponse, which ``bytes`` can copy."""
    open_call = channel.unary_stream(
        f"/{_SERVICE}/Subscribe", request_serializer=pb.SubscribeRequest.SerializeToString, response_deserializer=None
    )
    return open_call(request)
