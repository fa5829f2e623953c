"""The client's side of gRPC in a simulation: a channel and its calls, which behave as those of ``grpc.aio`` do.

As in ``grpc.aio``: ``read`` and ``write`` of a call that has ended raise AioRpcError or InvalidStateError, after a
local cancel CancelledError. A task that is cancelled while it reads or writes cancels its call. A status comes after
the messages that were sent before it, but a broken connection drops what was not read.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Generator
from typing import Any

import grpc
from grpc.aio import EOF, AioRpcError, Metadata

from lmerge.testing.sim.network import END, Network, SimulatedConnection
from lmerge.testing.sim.processes import SimulatedProcess
from lmerge.time_limit import time_limit

CANCELLED_TEXT = "Locally cancelled by application!"
Serializer = Callable[[Any], bytes] | None
Deserializer = Callable[[bytes], Any] | None


class Channel:
    """The counterpart of ``grpc.aio.insecure_channel``, for one process and one address."""

    def __init__(self, network: Network, client: SimulatedProcess, address: str) -> None:
        self.network, self.client, self.address = network, client, address
        self._calls: dict[Call, None] = {}

    def get_state(self) -> grpc.ChannelConnectivity:
        """Return READY while a call is connected."""
        is_connected = any(call.is_connected for call in self._calls)
        return grpc.ChannelConnectivity.READY if is_connected else grpc.ChannelConnectivity.IDLE

    def stream_stream(
        self,
        method: str,
        request_serializer: Serializer = None,
        response_deserializer: Deserializer = None,
        **_options: Any,
    ) -> Callable[..., Call]:
        def start(**_options: Any) -> Call:
            return self._start(Call(self, method, request_serializer, response_deserializer))

        return start

    def unary_stream(
        self,
        method: str,
        request_serializer: Serializer = None,
        response_deserializer: Deserializer = None,
        **_options: Any,
    ) -> Callable[..., Call]:
        def start(request: Any, **_options: Any) -> Call:
            return self._start(Call(self, method, request_serializer, response_deserializer, request))

        return start

    def unary_unary(
        self,
        method: str,
        request_serializer: Serializer = None,
        response_deserializer: Deserializer = None,
        **_options: Any,
    ) -> Callable[..., UnaryCall]:
        def start(request: Any, timeout: float | None = None, **_options: Any) -> UnaryCall:
            call = self._start(Call(self, method, request_serializer, response_deserializer, request))
            return UnaryCall(call, timeout)

        return start

    def stream_unary(self, method: str, *_codecs: Any, **_options: Any) -> Callable[..., Call]:
        """Refuse: the generated stub needs the method, but no simulated call brings parts."""

        def start(*_: Any, **_options: Any) -> Call:
            raise AssertionError(f"{method} is not simulated")

        return start

    async def close(self, grace: float | None = None) -> None:
        """Cancel the calls that are left."""
        for call in list(self._calls):
            call.cancel()

    async def __aenter__(self) -> Channel:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def ended(self, call: Call) -> None:
        self._calls.pop(call, None)

    def _start(self, call: Call) -> Call:
        self._calls[call] = None
        call.start()
        return call


class Call:
    """One call. ``request``: the only message that it will send; without one, the caller writes."""

    def __init__(
        self, channel: Channel, method: str, serializer: Serializer, deserializer: Deserializer, request: Any = None
    ) -> None:
        self._channel, self._method = channel, method
        self._serialize, self._deserialize = serializer, deserializer
        self._request = request
        self._connection: SimulatedConnection | None = None
        self._ready = asyncio.Event()  # connected, or ended
        self._status: tuple[grpc.StatusCode, str] | None = None
        self._ended = asyncio.Event()
        self._is_cancelled = False
        self._is_half_closed = False

    @property
    def is_connected(self) -> bool:
        return self._connection is not None and not self.done()

    def start(self) -> None:
        """Connect, as a task of the network."""
        network = self._channel.network
        network.loop.outside.copy().run(network.loop.create_task, self._connect())

    async def write(self, request: Any) -> None:
        if self.done():
            raise asyncio.InvalidStateError("RPC already finished.")
        if self._is_half_closed:
            raise asyncio.InvalidStateError('RPC is half closed after calling "done_writing".')
        try:
            await self._ready.wait()
            if self.done():
                self._raise_for_status()
            assert self._connection is not None
            data = request if self._serialize is None else self._serialize(request)
            if not await self._connection.up.write(data):
                await self._ended.wait()
                self._raise_for_status()
        except asyncio.CancelledError:
            self.cancel()
            raise

    async def done_writing(self) -> None:
        if not self._is_half_closed:
            self._is_half_closed = True
            await self._ready.wait()
            if not self.done() and self._connection is not None:
                self._connection.up.end()

    async def read(self) -> Any:
        if self.done():
            self._raise_for_status()
            return EOF
        message = await self._read()
        if message is END:
            await self._ended.wait()
            self._raise_for_status()
            return EOF
        return message

    async def __aiter__(self) -> AsyncIterator[Any]:
        while (message := await self._read()) is not END:
            yield message
        await self._ended.wait()
        self._raise_for_status()

    async def code(self) -> grpc.StatusCode:
        await self._ended.wait()
        assert self._status is not None
        return self._status[0]

    async def details(self) -> str:
        await self._ended.wait()
        assert self._status is not None
        return self._status[1]

    async def initial_metadata(self) -> Metadata:
        return Metadata()

    async def trailing_metadata(self) -> Metadata:
        return Metadata()

    async def wait_for_connection(self) -> None:
        await self._ready.wait()
        if self.done():
            self._raise_for_status()

    def cancel(self) -> bool:
        if self.done():
            return False
        self._is_cancelled = True
        connection = self._connection
        self._end(grpc.StatusCode.CANCELLED, CANCELLED_TEXT)
        if connection is not None:
            connection.up.lose(connection.network.random)
            connection.break_at_client(CANCELLED_TEXT)
            blocked = connection.network.is_blocked(connection.client, connection.server)
            delay = connection.network.keepalive_s() if blocked else connection.network.delay_s()
            connection.network.loop.after(delay, connection.break_at_server, "the client cancelled")
        return True

    def cancelled(self) -> bool:
        return self._is_cancelled

    def done(self) -> bool:
        return self._status is not None

    async def _connect(self) -> None:
        channel = self._channel
        found = await channel.network.connect(channel.client, channel.address, self._method)
        if isinstance(found, str):
            text = f"failed to connect to all addresses; last error: UNKNOWN: {channel.address}: {found}"
            self._end(grpc.StatusCode.UNAVAILABLE, text)
            return
        found.client_gone = self._broken
        found.down.on_end = self._status_came
        if self.done():  # cancelled meanwhile
            found.break_at_client(CANCELLED_TEXT)
            found.break_at_server("the client cancelled")
            return
        self._connection = found
        self._ready.set()
        if self._request is not None:
            data = self._request if self._serialize is None else self._serialize(self._request)
            await found.up.write(data)
            found.up.end()

    async def _read(self) -> Any:
        try:
            await self._ready.wait()
            if self._connection is None:
                return END
            data = await self._connection.down.read()
        except asyncio.CancelledError:
            self.cancel()
            raise
        self._status_came()
        if data is END:
            return END
        return data if self._deserialize is None else self._deserialize(data)

    def _status_came(self) -> None:
        """Take the server's status, once everything sent before it has been read."""
        connection = self._connection
        if connection is not None and connection.status is not None and connection.down.is_at_end:
            self._end(*connection.status)
            connection.over()

    def _broken(self, why: str) -> None:
        self._end(grpc.StatusCode.UNAVAILABLE, why)

    def _end(self, code: grpc.StatusCode, details: str) -> None:
        if self._status is None:
            self._status = (code, details)
            self._ended.set()
            self._ready.set()
            self._channel.ended(self)
            if self._connection is not None:
                self._connection.up.break_(drop=False)
                self._connection.down.break_(drop=False)

    def _raise_for_status(self) -> None:
        if self._is_cancelled:
            raise asyncio.CancelledError
        assert self._status is not None
        code, details = self._status
        if code is not grpc.StatusCode.OK:
            raise AioRpcError(code, Metadata(), Metadata(), details)


class UnaryCall:
    """A call with one request and one response; it is awaited."""

    def __init__(self, call: Call, timeout_s: float | None) -> None:
        self._call, self._timeout_s = call, timeout_s

    def __await__(self) -> Generator[Any, None, Any]:
        return self._response().__await__()

    def cancel(self) -> bool:
        return self._call.cancel()

    async def code(self) -> grpc.StatusCode:
        return await self._call.code()

    async def details(self) -> str:
        return await self._call.details()

    async def _response(self) -> Any:
        try:
            async with time_limit(self._timeout_s):
                response = await self._call.read()
        except asyncio.TimeoutError:
            raise AioRpcError(grpc.StatusCode.DEADLINE_EXCEEDED, Metadata(), Metadata(), "Deadline Exceeded") from None
        await self._call.code()
        return response
