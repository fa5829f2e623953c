"""How the client reaches servers: connectors, targets, and the two streaming calls.

A *connector* makes channels, and it alone: credentials are another connector, and so is the network of a simulation.

The streaming calls carry batches as bytes: ``lmerge.wire.frames`` reads and writes them. Generated stubs would parse
every batch into protobuf's objects first.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractAsyncContextManager
from typing import Any, Final, Protocol

import grpc.aio

from lmerge.addresses import check_address
from lmerge.errors import UsageError
from lmerge.wire.generated import lmerge_pb2 as pb

CHANNEL_OPTIONS: Final = [
    # A server that vanished without a word is noticed within the sum of the first two, however idle the stream is.
    # gRPC by itself pings an idle connection twice and then once a minute, and waits a minute for each answer.
    ("grpc.keepalive_time_ms", 10_000),  # not below what the server allows, 5 s: it ends those who ping too often
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.http2.ping_timeout_ms", 5_000),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.keepalive_permit_without_calls", 0),
    ("grpc.max_receive_message_length", 64 * 2**20),
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.min_reconnect_backoff_ms", 2_000),  # how long an attempt may take: on a WAN more than one round trip
    ("grpc.max_reconnect_backoff_ms", 250),
]
# More servers than anybody feeds at once; a longer list is a mistake.
TARGETS_MAX: Final = 16

_SERVICE: Final = pb.DESCRIPTOR.services_by_name["Lmerge"].full_name


class Connector(Protocol):
    """Makes channels to servers."""

    def channel(self, target: str) -> AbstractAsyncContextManager[Any]:
        """A channel of ``grpc.aio``, or what behaves like one."""


class InsecureConnector:
    """Without encryption and without credentials."""

    def channel(self, target: str) -> AbstractAsyncContextManager[Any]:
        return grpc.aio.insecure_channel(target, options=CHANNEL_OPTIONS)


INSECURE: Final = InsecureConnector()


def connector_of(security: Connector | None) -> Connector:
    """What ``security=`` means: None is no security."""
    return INSECURE if security is None else security


def parse_targets(targets: str | Iterable[str]) -> tuple[str, ...]:
    """``"h1:p1,h2:p2"`` or several strings as targets, in order. Raises UsageError."""
    parts = targets.split(",") if isinstance(targets, str) else list(targets)
    parsed = tuple(part.strip() for part in parts)
    if not parsed or not all(parsed):
        raise UsageError(f"servers are given as HOST:PORT, several with commas between, not {targets!r:.80}")
    if len(set(parsed)) < len(parsed):
        raise UsageError(f"a server stands twice in {', '.join(parsed)}")
    if len(parsed) > TARGETS_MAX:
        raise UsageError(f"{len(parsed)} servers are more than the limit of {TARGETS_MAX}")
    return tuple(check_address(target) for target in parsed)


def publish(channel: Any) -> Any:
    """A call of Publish: write bytes of PublishRequest, read PublishResponse."""
    open_call = channel.stream_stream(
        f"/{_SERVICE}/Publish", request_serializer=None, response_deserializer=pb.PublishResponse.FromString
    )
    return open_call()


def subscribe(channel: Any, request: pb.SubscribeRequest) -> Any:
    """A call of Subscribe: an iterator over bytes of SubscribeResponse."""
    open_call = channel.unary_stream(
        f"/{_SERVICE}/Subscribe", request_serializer=pb.SubscribeRequest.SerializeToString, response_deserializer=None
    )
    return open_call(request)
