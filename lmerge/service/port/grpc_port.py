"""The port on ``grpc.aio``: gRPC's own library. ``native_port`` explains what the other one is for."""

from __future__ import annotations

from typing import Any, Final

import grpc
from grpc_health.v1 import health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from lmerge.service.port.options import connections_max, receive_bytes_max
from lmerge.service.ports import cannot_listen, why_not
from lmerge.service.security.guard import Guard
from lmerge.service.settings import Settings


class GrpcPort:
    """Serves ``handlers`` of one service behind the guard, and health and reflection beside it."""

    name: Final = "grpc"

    def __init__(self, settings: Settings, guard: Guard) -> None:
        self._settings = settings
        self._guard = guard
        self._server = grpc.aio.server(
            interceptors=[guard],
            options=[
                ("grpc.so_reuseport", 0),  # a port in use must be an error; otherwise connections go to either server
                ("grpc.max_receive_message_length", receive_bytes_max(settings)),
                ("grpc.max_send_message_length", settings.message_bytes),
                ("grpc.keepalive_time_ms", int(settings.keepalive_s * 1000)),
                ("grpc.keepalive_timeout_ms", int(settings.keepalive_timeout_s * 1000)),
                # By default gRPC waits a minute for the answer to a ping, whatever the option above is.
                ("grpc.http2.ping_timeout_ms", int(settings.keepalive_timeout_s * 1000)),
                ("grpc.http2.min_ping_interval_without_data_ms", 5_000),  # clients may ping us as well
                ("grpc.http2.max_pings_without_data", 0),
                ("grpc.max_allowed_incoming_connections", connections_max(settings)),
                ("grpc.max_concurrent_streams", settings.calls_per_connection),
                ("grpc.server_handshake_timeout_ms", int(settings.handshake_timeout_s * 1000)),
                ("grpc.max_connection_idle_ms", int(settings.idle_connection_s * 1000)),
            ],
        )

    def add_service(self, name: str, handlers: dict[str, Any]) -> None:
        """Serve these methods of a service."""
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(name, handlers),))

    def add_health(self, servicer: Any) -> None:
        """Serve health checks."""
        health_pb2_grpc.add_HealthServicer_to_server(servicer, self._server)

    def add_reflection(self, names: tuple[str, ...]) -> None:
        """Serve the descriptions of these services."""
        reflection.enable_server_reflection(names, self._server)

    def bind(self) -> int:
        """Bind the address of the settings; return the port. Raises AddressInUse, UsageError."""
        host, port = self._settings.host, self._settings.port
        address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        try:
            if self._guard.tls is not None:
                return self._server.add_secure_port(address, self._guard.tls.grpc_credentials())
            return self._server.add_insecure_port(address)
        except RuntimeError as problem:
            raise cannot_listen(host, port, why_not(host, port) or OSError(str(problem))) from problem

    async def start(self) -> None:
        """Serve calls."""
        await self._server.start()

    async def stop(self, grace_s: float | None) -> None:
        """Take no more calls; end those that are left after ``grace_s``, None: at once."""
        await self._server.stop(grace_s)
