"""The server's side of one gRPC call, as handlers use it.

``grpc.aio`` gives each handler a context. Handlers of the service take these protocols, so that a simulated server can
give them a context of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NoReturn, Protocol

import grpc


class CallContext(Protocol):
    """One call: who calls, its messages, and its end."""

    def peer(self) -> str:
        """Return the address from which the call comes."""

    def invocation_metadata(self) -> Iterable[tuple[str, str | bytes]] | None:
        """Return the metadata that the caller has sent."""

    def auth_context(self) -> Mapping[str, Iterable[bytes]]:
        """Return the properties of the connection's certificate; empty without one."""

    async def read(self) -> Any:
        """Return the caller's next message as it came (``frames.Message``); ``grpc.aio.EOF`` at the end."""

    async def write(self, message: Any) -> None:
        """Send a message; wait while flow control holds the stream. Raises if the connection is broken."""

    async def abort(
        self, code: grpc.StatusCode, details: str = "", trailing_metadata: Sequence[tuple[str, str]] = ()
    ) -> NoReturn:
        """End the call with this status."""


class StageContext(CallContext, Protocol):
    """A call that sends metadata before and after its answer."""

    async def send_initial_metadata(self, initial_metadata: Sequence[tuple[str, str]]) -> None:
        """Send metadata before the first message."""

    def set_trailing_metadata(self, trailing_metadata: Sequence[tuple[str, str]]) -> None:
        """Set the metadata that are sent with the status."""
