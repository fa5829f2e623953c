"""Chooses the port: the one module that knows both kinds.

The compiled module is imported only when it is asked for.
"""

from __future__ import annotations

from typing import Any, Protocol

from lmerge.core.engines import selection
from lmerge.errors import UsageError
from lmerge.service.choices import TransportChoice
from lmerge.service.port.grpc_port import GrpcPort
from lmerge.service.security.guard import Guard
from lmerge.service.settings import Settings


class AnyPort(Protocol):
    """The gRPC port of a server, of either kind. Made on the server's loop; ``add_*`` and ``bind`` before ``start``."""

    @property
    def name(self) -> str: ...
    def add_service(self, name: str, handlers: dict[str, Any]) -> None: ...
    def add_health(self, servicer: Any) -> None: ...
    def add_reflection(self, names: tuple[str, ...]) -> None: ...
    def bind(self) -> int: ...
    async def start(self) -> None: ...
    async def stop(self, grace_s: float | None) -> None: ...


def automatic(settings: Settings) -> str:
    """Return what ``auto`` stands for."""
    return TransportChoice.NATIVE if settings.resolved_engine == selection.NATIVE else TransportChoice.GRPC


def port_of(settings: Settings, guard: Guard) -> AnyPort:
    """Return the port that the settings choose. Raises UsageError if it is not available."""
    chosen, problem = settings.transport, selection.native_problem()
    if chosen == TransportChoice.NATIVE and problem is not None:
        raise UsageError(f"the native transport cannot be used: {problem}")
    if (automatic(settings) if chosen == TransportChoice.AUTO else chosen) == TransportChoice.GRPC:
        return GrpcPort(settings, guard)
    from lmerge.service.port.native_port import NativePort

    return NativePort(settings, guard)
