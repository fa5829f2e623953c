"""The server's side of gRPC in a simulation: the real sessions behind a context that behaves as grpc.aio's does.

A ``ServerProcess`` is one life of a server. It makes a real ``Registry`` and serves Publish, Subscribe and
DescribeMerge with the real code. As in gRPC, a handler is cancelled when its connection breaks, and reads may end
before that.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, NoReturn

import grpc
from grpc.aio import EOF, AbortError, InternalError

from lmerge.errors import LmergeError
from lmerge.service.admin import status
from lmerge.service.calls.publish import PublishSession
from lmerge.service.calls.subscribe import serve_subscriber
from lmerge.service.merge.registry import Registry
from lmerge.service.settings import Settings
from lmerge.service.status_codes import code_of
from lmerge.testing.sim.network import END, Network, SimulatedConnection
from lmerge.testing.sim.processes import SimulatedProcess
from lmerge.wire.generated import lmerge_pb2 as pb


class ServerContext:
    """The counterpart of ``grpc.aio.ServicerContext`` for one call: it reads bytes, and writes bytes or messages."""

    def __init__(self, connection: SimulatedConnection) -> None:
        self._connection = connection
        self._task = asyncio.current_task()
        self._is_over = False
        connection.server_gone = self._gone

    async def read(self) -> Any:
        data = await self._connection.up.read()
        return EOF if data is END else data

    async def request(self) -> bytes:
        """Return the only message of a call with one; a handler does not begin without it."""
        data = await self._connection.up.read()
        if data is END:
            raise asyncio.CancelledError
        return data

    async def write(self, message: Any) -> None:
        data = message if isinstance(message, bytes) else message.SerializeToString()
        if self._is_over or not await self._connection.down.write(data):
            raise InternalError("Failed grpc_call_start_batch: the connection is broken")

    async def abort(self, code: grpc.StatusCode, details: str = "", trailing_metadata: Any = ()) -> NoReturn:
        self.finish(code, details)
        raise AbortError("Locally aborted.")

    def peer(self) -> str:
        return f"sim:{self._connection.client.name}"

    def invocation_metadata(self) -> tuple[tuple[str, str], ...]:
        return ()

    def auth_context(self) -> dict[str, list[bytes]]:
        return {}

    def cancelled(self) -> bool:
        return self._is_over

    def finish(self, code: grpc.StatusCode, details: str) -> None:
        """Send the status, after all that was written."""
        if not self._is_over:
            self._is_over = True
            self._connection.status = (code, details)
            self._connection.down.end()

    def _gone(self, _why: str) -> None:
        """End the reads and cancel the handler, because the connection is broken."""
        if not self._is_over:
            self._is_over = True
            self._connection.down.break_(drop=True)
            if self._task is not None:
                self._task.get_loop().call_soon(self._task.cancel)


class ServerProcess:
    """One life of a server. ``crashes``: the exceptions with which merges failed, which are bugs."""

    def __init__(self, process: SimulatedProcess, network: Network, address: str, settings: Settings) -> None:
        self.process = process
        self.address = address
        self.settings = settings
        self.crashes: list[BaseException] = []
        self._calls: dict[asyncio.Task[None], None] = {}
        self.registry = Registry(settings, self.crashes.append)
        self.registry.declare()
        network.listen(address, process, self._serve)

    async def stop(self) -> None:
        """End the calls that are left, then the merges, as the real server does after its drain."""
        for call in self._calls:
            call.cancel()
        await asyncio.gather(*self._calls, return_exceptions=True)
        await self.registry.close()

    async def _serve(self, connection: SimulatedConnection) -> None:
        call = asyncio.current_task()
        assert call is not None
        self._calls[call] = None
        try:
            await self._answer(connection)
        finally:
            self._calls.pop(call, None)

    async def _answer(self, connection: SimulatedConnection) -> None:
        context = ServerContext(connection)
        method = connection.method.rpartition("/")[2]
        try:
            await self._handlers()[method](context)
        except LmergeError as error:
            context.finish(code_of(error), str(error))
        except AbortError:
            pass
        except InternalError as error:
            context.finish(grpc.StatusCode.UNKNOWN, f"Unexpected {type(error)}: {error}")
        else:
            context.finish(grpc.StatusCode.OK, "")

    def _handlers(self) -> dict[str, Callable[[ServerContext], Awaitable[None]]]:
        return {"Publish": self._publish, "Subscribe": self._subscribe, "DescribeMerge": self._describe}

    async def _publish(self, context: ServerContext) -> None:
        await PublishSession(context, self.registry, self.settings).run()

    async def _subscribe(self, context: ServerContext) -> None:
        request = pb.SubscribeRequest.FromString(await context.request())
        await serve_subscriber(request, context, self.registry, self.settings)

    async def _describe(self, context: ServerContext) -> None:
        request = pb.DescribeMergeRequest.FromString(await context.request())
        await context.write(status.describe_merge(self.registry.get(request.merge)))
