"""Opens channels: those of the native transport where it can be used, otherwise those of ``grpc.aio``.

Both behave alike for publishers and subscribers. The native one costs less CPU time for each element, because its
messages go from the core to the socket, and back, without gRPC's copies, and a thread without Python does the I/O.

``LMERGE_CLIENT_TRANSPORT`` chooses: ``auto``, ``native`` or ``grpc``. ``auto`` is the native one unless it is not
built, a proxy for HTTP is set for the server, or the address has one of gRPC's own forms.
"""

from __future__ import annotations

import os
from typing import Any, Final, NamedTuple
from urllib.request import proxy_bypass

import grpc
import grpc.aio

from lmerge.addresses import is_host_port
from lmerge.core.engines import selection
from lmerge.errors import UsageError
from lmerge.loopback import host_of

VARIABLE: Final = "LMERGE_CLIENT_TRANSPORT"
AUTO: Final = selection.AUTO
NATIVE: Final = selection.NATIVE
GRPC: Final = "grpc"
TRANSPORTS: Final = (AUTO, NATIVE, GRPC)
# The variables from which gRPC takes a proxy.
_PROXIES: Final = ("grpc_proxy", "https_proxy", "http_proxy")

# A server that vanished silently is noticed within the sum of both, however idle the stream is.
KEEPALIVE_S: Final = 10  # the server ends clients that ping more often than every 5 s
KEEPALIVE_TIMEOUT_S: Final = 5
RECEIVE_BYTES_MAX: Final = 64 * 2**20
# The time for one attempt to connect: on a WAN several round trips, and with TLS the handshake and its arithmetic.
ATTEMPT_S: Final = 2
ATTEMPT_TLS_S: Final = 5

CHANNEL_OPTIONS: Final = [
    # gRPC's defaults ping an idle connection twice and then once a minute, and wait a minute for each answer.
    ("grpc.keepalive_time_ms", KEEPALIVE_S * 1000),
    ("grpc.keepalive_timeout_ms", KEEPALIVE_TIMEOUT_S * 1000),
    ("grpc.http2.ping_timeout_ms", KEEPALIVE_TIMEOUT_S * 1000),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.keepalive_permit_without_calls", 0),
    ("grpc.max_receive_message_length", RECEIVE_BYTES_MAX),
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.min_reconnect_backoff_ms", ATTEMPT_S * 1000),
    ("grpc.max_reconnect_backoff_ms", 250),
    # A pod that is started again has another address under its name. gRPC asks for a name once in 30 s by default.
    ("grpc.dns_min_time_between_resolutions_ms", 500),
]


class Certificates(NamedTuple):
    """What files of PEM hold: the authorities of servers, and the client's own key and certificate.

    ``server_name``: the name that the server's certificate must hold instead of its host.
    """

    ca: bytes | None  # None: gRPC's own list
    key: bytes | None
    cert: bytes | None
    server_name: str | None


def open_channel(target: str, certificates: Certificates | None = None) -> Any:
    """Return a channel: of ``grpc.aio``, or one that behaves like it. Raises UsageError."""
    if _problem_of_native(target, certificates) is None:
        from lmerge.client.connection.native_channel import NativeChannel

        return NativeChannel(target, certificates)
    if certificates is None:
        return grpc.aio.insecure_channel(target, options=CHANNEL_OPTIONS)
    options = [*CHANNEL_OPTIONS, *tls_options(certificates)]
    return grpc.aio.secure_channel(target, grpc_credentials(certificates), options=options)


def grpc_credentials(certificates: Certificates) -> grpc.ChannelCredentials:
    """Return what gRPC's channels take."""
    return grpc.ssl_channel_credentials(certificates.ca, certificates.key, certificates.cert)


def tls_options(certificates: Certificates) -> list[tuple[str, Any]]:
    """Return gRPC's options for an encrypted channel."""
    name = certificates.server_name
    options: list[tuple[str, Any]] = [("grpc.min_reconnect_backoff_ms", ATTEMPT_TLS_S * 1000)]
    return options if name is None else [*options, ("grpc.ssl_target_name_override", name)]


def _problem_of_native(target: str, certificates: Certificates | None) -> str | None:
    """Return why the channel is one of gRPC's; None: it is a native one. Raises UsageError."""
    chosen = os.environ.get(VARIABLE) or AUTO
    if chosen not in TRANSPORTS:
        raise UsageError(f"{VARIABLE} is {chosen!r}; it is {', '.join(TRANSPORTS)}")
    if chosen == GRPC:
        return "it was chosen"
    if chosen == AUTO and selection.best() != selection.NATIVE:
        return "the engine is that of Python"
    if chosen == AUTO and _has_proxy(target):
        return f"there is a proxy for {target}"
    problem = selection.native_problem()
    if problem is None and not is_host_port(target):
        problem = f"{target} has one of gRPC's own forms"
    if problem is None and certificates is not None and certificates.ca is None:
        problem = "this system has no list of authorities: give ca"
    if problem is not None and chosen == NATIVE:
        raise UsageError(f"the native transport cannot be used: {problem}")
    return problem


def _has_proxy(target: str) -> bool:
    """Return whether gRPC would connect through a proxy for HTTP."""
    return any(map(os.environ.get, _PROXIES)) and not proxy_bypass(host_of(target))
