"""A channel on the native transport, as clients use it: its calls behave as those of ``grpc.aio`` do.

``read`` and ``write`` of a call that has ended raise AioRpcError or InvalidStateError, after a local cancel
CancelledError. A task that is cancelled while it reads or writes cancels its call. Differences: messages that came
before a connection broke are still read, and a message without a deserializer is not copied (``_native.Message``).
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterable, AsyncIterator, Callable, Generator, Iterable, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, Final, NoReturn, TypeVar
from weakref import WeakValueDictionary

import grpc
from grpc.aio import EOF, AioRpcError, Metadata

from lmerge import _native
from lmerge.client.connection.channels import (
    ATTEMPT_S,
    ATTEMPT_TLS_S,
    KEEPALIVE_S,
    KEEPALIVE_TIMEOUT_S,
    RECEIVE_BYTES_MAX,
    Certificates,
)
from lmerge.errors import UsageError
from lmerge.loopback import host_of

Serializer = Callable[[Any], bytes] | None
Deserializer = Callable[[bytes], Any] | None
Pairs = Sequence[tuple[str, str | bytes]]
Requests = Iterable[Any] | AsyncIterable[Any] | None

C = TypeVar("C", bound="NativeClientCall")

_CODES: Final = {code.value[0]: code for code in grpc.StatusCode}


class NativeChannel:
    """The counterpart of ``grpc.aio.insecure_channel`` and, with certificates, of ``secure_channel``."""

    def __init__(self, target: str, certificates: Certificates | None = None) -> None:
        """Raise UsageError if the certificates cannot be used."""
        try:
            tls = None if certificates is None else _tls_of(certificates)
            self._channel = _native.Channel(
                target,
                tls=tls,
                server_name=(certificates and certificates.server_name) or host_of(target),
                attempt_s=ATTEMPT_S if tls is None else ATTEMPT_TLS_S,
                receive_bytes=RECEIVE_BYTES_MAX,
                keepalive_s=KEEPALIVE_S,
                keepalive_timeout_s=KEEPALIVE_TIMEOUT_S,
            )
        except ValueError as problem:
            raise UsageError(f"the certificates for {target} cannot be used: {problem}") from None
        self._loop: asyncio.AbstractEventLoop | None = None  # once a call was opened
        self._calls: WeakValueDictionary[int, NativeClientCall] = WeakValueDictionary()
        self._awaited: set[NativeClientCall] = set()
        self._is_closed = False
        self._process = os.getpid()

    async def __aenter__(self) -> NativeChannel:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self, grace: float | None = None) -> None:
        """End all calls, and the connection. Does nothing in a child after a fork: both belong to the parent."""
        if self._process != os.getpid():
            return  # to take the file from the loop would take it from the parent's, which polls the same files
        self._is_closed = True
        for call in list(self._calls.values()):
            call.cancel()
        if self._loop is not None and not self._loop.is_closed():
            self._loop.remove_reader(self._channel.file)
        self._loop = None
        self._channel.close()

    def get_state(self) -> grpc.ChannelConnectivity:
        """Return READY while the server is connected and has answered."""
        return grpc.ChannelConnectivity.READY if self._channel.is_ready else grpc.ChannelConnectivity.IDLE

    def unary_unary(self, method: str, *codecs: Any, **named: Any) -> Callable[..., NativeUnaryCall]:
        """Return a callable as gRPC's channels do; so do the next three methods."""
        return self._opener(NativeUnaryCall, NativeClientCall.send_all, method, *codecs, **named)

    def unary_stream(self, method: str, *codecs: Any, **named: Any) -> Callable[..., NativeClientCall]:
        return self._opener(NativeClientCall, NativeClientCall.send_all, method, *codecs, **named)

    def stream_unary(self, method: str, *codecs: Any, **named: Any) -> Callable[..., NativeUnaryCall]:
        return self._opener(NativeUnaryCall, NativeClientCall.send_each, method, *codecs, **named)

    def stream_stream(self, method: str, *codecs: Any, **named: Any) -> Callable[..., NativeClientCall]:
        return self._opener(NativeClientCall, NativeClientCall.send_each, method, *codecs, **named)

    def _opener(
        self,
        kind: type[C],
        send: Callable[[NativeClientCall, Any], None],
        method: str,
        request_serializer: Serializer = None,
        response_deserializer: Deserializer = None,
        **_: Any,
    ) -> Callable[..., C]:
        def start(requests: Any = None, timeout: float | None = None, metadata: Pairs | None = None) -> C:
            if self._is_closed:
                raise grpc.aio.UsageError("Channel is closed.")
            if self._loop is None:
                self._loop = asyncio.get_running_loop()
                self._loop.add_reader(self._channel.file, self._look)
            opened = self._channel.open(method, list(metadata or ()), timeout)
            call = kind(opened, request_serializer, response_deserializer, self._awaited)
            self._calls[opened.id] = call
            send(call, requests)
            return call

        return start

    def _look(self) -> None:
        """Wake the calls for which something has come."""
        for number in self._channel.events():
            call = self._calls.get(number)
            if call is not None:
                call.changed()


class NativeClientCall:
    """The client's side of a call. One that is dropped is cancelled.

    ``awaited``: holds the calls for which a task waits. The loop knows its channels only, and would let go such a task.
    """

    def __init__(
        self,
        call: _native.ClientCall,
        serializer: Serializer,
        deserializer: Deserializer,
        awaited: set[NativeClientCall],
    ) -> None:
        self._call = call
        self._serialize = serializer
        self._deserialize = deserializer
        self._awaited = awaited
        self._changed = asyncio.Event()
        self._is_cancelled = False
        self._has_half_closed = False
        self._sending: asyncio.Future[None] | None = None

    async def read(self) -> Any:
        """Return the server's next message; ``grpc.aio.EOF`` when the call has ended well."""
        while True:
            self._changed.clear()
            message = self._call.read()
            if isinstance(message, _native.Message):
                return message if self._deserialize is None else self._deserialize(bytes(message))
            if message is False:
                return self._ended()
            await self._wait()

    async def write(self, message: Any) -> None:
        """Send a message; wait while flow control holds the stream."""
        if self._has_half_closed:
            raise asyncio.InvalidStateError('RPC is half closed after calling "done_writing".')
        if self._call.status is not None:
            raise asyncio.InvalidStateError("RPC already finished.")
        self._changed.clear()
        taken = self._call.write(message if self._serialize is None else self._serialize(message))
        while taken is None:
            await self._wait()
            self._changed.clear()
            taken = self._call.room()
        if taken is False:
            self._ended()
            raise asyncio.InvalidStateError("RPC already finished.")

    async def done_writing(self) -> None:
        """Declare that there will be no more messages."""
        self._has_half_closed = True
        self._call.end_requests()

    def send_all(self, request: Any) -> None:
        """Send the only message."""
        self._call.write(request if self._serialize is None else self._serialize(request))
        self._has_half_closed = True
        self._call.end_requests()

    def send_each(self, requests: Requests) -> None:
        """Send these messages, and no others, as the server takes them; None: the caller writes."""
        if requests is not None:
            self._sending = asyncio.ensure_future(self._send_each(requests))

    async def _send_each(self, requests: Iterable[Any] | AsyncIterable[Any]) -> None:
        with suppress(AioRpcError, asyncio.InvalidStateError):  # the call has ended
            if isinstance(requests, AsyncIterable):
                async for request in requests:
                    await self.write(request)
            else:
                for request in requests:
                    await self.write(request)
            await self.done_writing()

    async def initial_metadata(self) -> Metadata:
        """Return the metadata that came first; empty if the call has failed before."""
        while (headers := self._call.headers) is None:
            self._changed.clear()
            await self._wait()
        return Metadata(*headers)

    async def trailing_metadata(self) -> Metadata:
        """Return the metadata that came with the status."""
        return Metadata(*(await self._status())[2])

    async def code(self) -> grpc.StatusCode:
        """Return the status."""
        return _CODES[(await self._status())[0]]

    async def details(self) -> str:
        """Return the text of the status."""
        return (await self._status())[1]

    def cancel(self) -> bool:
        """End the call now. Returns whether it had not ended."""
        if self.done():
            return False
        self._is_cancelled = True
        self._call.cancel()
        self._changed.set()
        return True

    def cancelled(self) -> bool:
        """Return whether this side has cancelled the call."""
        return self._is_cancelled

    def done(self) -> bool:
        """Return whether the call has ended."""
        return self._call.status is not None

    async def __aiter__(self) -> AsyncIterator[Any]:
        """Iterate over the server's messages."""
        while (message := await self.read()) is not EOF:
            yield message

    def changed(self) -> None:
        """Note that something has come."""
        self._changed.set()

    async def _wait(self) -> None:
        self._awaited.add(self)
        try:
            await self._changed.wait()
        except asyncio.CancelledError:
            self.cancel()
            raise
        finally:
            self._awaited.discard(self)

    async def _status(self) -> tuple[int, str, Pairs]:
        while (status := self._call.status) is None:
            self._changed.clear()
            await self._changed.wait()
        return status

    def _ended(self) -> Any:
        """Return EOF if the call has ended well. Raises AioRpcError, CancelledError."""
        status = self._call.status
        if status is not None and status[0] != grpc.StatusCode.OK.value[0]:
            self._raise_for(status)
        return EOF

    def _raise_for(self, status: tuple[int, str, Pairs]) -> NoReturn:
        """Raise what the status stands for."""
        if self._is_cancelled:
            raise asyncio.CancelledError
        number, details, trailing = status
        raise AioRpcError(_CODES[number], Metadata(*self._call.headers or ()), Metadata(*trailing), details)


class NativeUnaryCall(NativeClientCall):
    """A call with one answer, which is what awaiting it returns."""

    _answer: Any = EOF

    def __await__(self) -> Generator[Any, None, Any]:
        """Return the answer. Raises AioRpcError."""
        return self._only().__await__()

    async def _only(self) -> Any:
        while (message := await self.read()) is not EOF:
            self._answer = message
        if self._answer is EOF:
            self._raise_for((grpc.StatusCode.INTERNAL.value[0], "the call has ended without an answer", ()))
        return self._answer


def _tls_of(certificates: Certificates) -> _native.ClientTls:
    assert certificates.ca is not None, "channels without a list of authorities are gRPC's"
    return _native.ClientTls(certificates.ca, certificates.key, certificates.cert)
