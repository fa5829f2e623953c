"""One call on the native port, as handlers use it: a ``CallContext`` and a ``StageContext``."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from typing import Any, NoReturn

import grpc
from grpc.aio import EOF

from lmerge._native import Call

Metadata = Sequence[tuple[str, str | bytes]]


class CallEnded(Exception):
    """Ends a handler whose call has been given its status."""


class NativeCall:
    """The server's side of a call. ``serialize``: makes bytes of what is written; None: it is bytes."""

    def __init__(self, call: Call) -> None:
        self.serialize: Callable[[Any], bytes] | None = None
        self._call = call
        self._changed = asyncio.Event()
        self._trailing: Metadata = ()
        self._code = grpc.StatusCode.OK
        self._details = ""

    # As gRPC's contexts.

    def peer(self) -> str:
        """Return the address from which the call comes."""
        return self._call.peer

    def invocation_metadata(self) -> Iterable[tuple[str, str | bytes]]:
        """Return the metadata that the caller has sent."""
        return self._call.metadata

    def auth_context(self) -> Mapping[str, Iterable[bytes]]:
        """Return the names in the connection's certificate, by gRPC's keys; empty without one."""
        if self._call.certificate is None:
            return {}
        common_name, uris, dns = self._call.certificate
        return {
            "x509_pem_cert": [b""],  # there is one
            "x509_common_name": [common_name.encode()],
            "peer_uri": [uri.encode() for uri in uris],
            "peer_dns": [name.encode() for name in dns],
        }

    async def read(self) -> Any:
        """Return the caller's next message, ``grpc.aio.EOF`` at the end. It has a length, and ``bytes`` copies it."""
        while True:
            self._changed.clear()
            message = self._call.read()
            if message is True:
                return EOF
            if message is False:
                await self._over()
            if message is not None:
                return message
            await self._changed.wait()

    async def write(self, message: Any) -> None:
        """Send a message; wait while flow control holds the stream."""
        self._changed.clear()
        taken = self._call.write(message if self.serialize is None else self.serialize(message))
        while taken is None:
            await self._changed.wait()
            self._changed.clear()
            taken = not self._call.is_full or None
        if taken is False:
            await self._over()

    async def send_initial_metadata(self, initial_metadata: Metadata) -> None:
        """Send metadata before the first message."""
        self._call.start(list(initial_metadata))

    def set_trailing_metadata(self, trailing_metadata: Metadata) -> None:
        """Set the metadata that are sent with the status."""
        self._trailing = trailing_metadata

    def set_code(self, code: grpc.StatusCode) -> None:
        """Set the status with which the call ends when its handler returns."""
        self._code = code

    def set_details(self, details: str) -> None:
        """Set the text of that status."""
        self._details = details

    async def abort(self, code: grpc.StatusCode, details: str = "", trailing_metadata: Metadata = ()) -> NoReturn:
        """End the call with this status."""
        self.finish(code, details, trailing_metadata or self._trailing)
        raise CallEnded

    def __aiter__(self) -> AsyncIterator[bytes]:
        """Iterate over the caller's messages, as bytes."""
        return self._messages()

    # What the port uses.

    def changed(self) -> None:
        """Note that something has come, or that the caller has gone."""
        self._changed.set()

    def returned(self) -> None:
        """Give the call the status that its handler has set, or OK."""
        self.finish(self._code, self._details)

    def finish(self, code: grpc.StatusCode, details: str = "", trailing_metadata: Metadata | None = None) -> None:
        """Give the call its status. Only the first one counts."""
        metadata = self._trailing if trailing_metadata is None else trailing_metadata
        self._call.finish(code.value[0], details, list(metadata))

    @property
    def is_gone(self) -> bool:
        """Whether the caller has gone."""
        return self._call.is_gone

    async def _messages(self) -> AsyncIterator[bytes]:
        while (message := await self.read()) is not EOF:
            yield bytes(message)

    async def _over(self) -> NoReturn:
        """Wait for the cancellation of the handler, which the port has ordered or is about to order."""
        await asyncio.get_running_loop().create_future()
        raise AssertionError("the future has no result")
