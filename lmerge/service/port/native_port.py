"""The port of the native module: its threads do TLS, HTTP/2 and framing, and calls run here, on the loop.

``grpc.aio`` does all of it on the loop's thread, and copies each message three times before it is parsed. Here the
bytes of a batch go from the socket to the columns of the core without an object of Python, and a message to a
subscriber from the core to the socket. docs/design/0049 has the figures.

Handlers, the guard, health and reflection are the same as on ``grpc.aio``: they are given a context (``native_call``).
"""

from __future__ import annotations

import asyncio
import inspect
import os
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, Final

import grpc
from grpc.aio import EOF
from grpc_health.v1 import health_pb2_grpc
from grpc_reflection.v1alpha import reflection, reflection_pb2_grpc

from lmerge import _native
from lmerge.errors import UsageError
from lmerge.service import log
from lmerge.service.port.native_call import CallEnded, NativeCall
from lmerge.service.port.options import connections_max, receive_bytes_max
from lmerge.service.ports import cannot_listen
from lmerge.service.security.guard import Guard
from lmerge.service.settings import Settings

# Threads for I/O, at most: more than these wait for the loop.
_THREADS_MAX: Final = 4
# How long the end of a server waits until the sockets have taken the last statuses.
_FLUSH_S: Final = 1.0


@dataclass(frozen=True)
class CallDetails(grpc.HandlerCallDetails):
    """What gRPC passes to interceptors: the method, as a path."""

    method: str
    invocation_metadata: tuple[tuple[str, str | bytes], ...] = ()


class NativePort:
    """Serves handlers behind the guard: the counterpart of ``grpc_port.GrpcPort``."""

    name: Final = "native"

    def __init__(self, settings: Settings, guard: Guard) -> None:
        self._settings = settings
        self._guard = guard
        self._services: list[grpc.GenericRpcHandler] = []
        self._guarded: dict[str, Any] = {}  # handlers of paths that have been called
        self._calls: dict[int, tuple[NativeCall, asyncio.Task[None]]] = {}
        self._loop = asyncio.get_running_loop()
        self._transport = _native.Transport(
            receive_bytes=receive_bytes_max(settings),
            connections=connections_max(settings),
            calls_per_connection=settings.calls_per_connection,
            handshake_s=settings.handshake_timeout_s,
            idle_s=settings.idle_connection_s,
            keepalive_s=settings.keepalive_s,
            keepalive_timeout_s=settings.keepalive_timeout_s,
            threads=min(_THREADS_MAX, os.cpu_count() or 1),
        )
        self._has_stopped = False

    def add_service(self, name: str, handlers: dict[str, Any]) -> None:
        """Serve these methods of a service."""
        self.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(name, handlers),))

    def add_health(self, servicer: Any) -> None:
        """Serve health checks."""
        health_pb2_grpc.add_HealthServicer_to_server(servicer, self)

    def add_reflection(self, names: tuple[str, ...]) -> None:
        """Serve the descriptions of these services."""
        reflection_pb2_grpc.add_ServerReflectionServicer_to_server(reflection.aio.ReflectionServicer(names), self)

    def add_generic_rpc_handlers(self, handlers: tuple[grpc.GenericRpcHandler, ...]) -> None:
        """Add services in gRPC's form: its generated code calls this."""
        self._services += handlers

    def add_registered_method_handlers(self, _service: str, _handlers: Mapping[str, Any]) -> None:
        """Do nothing: gRPC's generated code adds the same methods as generic ones."""

    def bind(self) -> int:
        """Listen on the address of the settings; return the port. Raises AddressInUse, UsageError."""
        host, port = self._settings.host, self._settings.port
        if self._guard.tls is not None:
            self._guard.tls.follow(self._use)
        try:
            return self._transport.listen(host, port)
        except OSError as problem:
            reason = problem if problem.errno is None else OSError(problem.errno, os.strerror(problem.errno))
            raise cannot_listen(host, port, reason) from problem

    async def start(self) -> None:
        """Serve calls."""
        self._loop.add_reader(self._transport.file, self._look)
        self._look()

    async def stop(self, grace_s: float | None) -> None:
        """Take no more calls; end those that are left after ``grace_s``, None: at once."""
        if self._has_stopped:
            return
        self._has_stopped = True
        self._transport.drain()
        if grace_s and self._calls:
            await asyncio.wait([task for _, task in self._calls.values()], timeout=grace_s)
        await self._end_calls()
        await asyncio.to_thread(self._transport.close, _FLUSH_S)
        self._loop.remove_reader(self._transport.file)
        await self._end_calls()  # those that were on their way when the port began to close

    async def _end_calls(self) -> None:
        left = list(self._calls.values())
        for call, task in left:
            call.finish(grpc.StatusCode.UNAVAILABLE, "the server has stopped")
            task.cancel()
        await asyncio.gather(*(task for _, task in left), return_exceptions=True)

    def _use(self, key: bytes, certificate: bytes, client_ca: bytes | None) -> None:
        """Use these files for new connections. Raises UsageError."""
        try:
            self._transport.set_tls(key, certificate, client_ca)
        except ValueError as problem:
            raise UsageError(f"the certificates cannot be used: {problem}") from None

    # Calls.

    def _look(self) -> None:
        """Look at what has happened: begin the calls that were opened, and wake those for which something has come."""
        for event in self._transport.events():
            if isinstance(event, _native.Call):
                self._begin(event)
                continue
            known = self._calls.get(event)
            if known is not None:
                call, task = known
                call.changed()
                if call.is_gone:
                    task.cancel()

    def _begin(self, opened: _native.Call) -> None:
        call = NativeCall(opened)
        task = self._loop.create_task(self._serve(call, opened.path), name=opened.path)
        self._calls[opened.id] = (call, task)
        task.add_done_callback(lambda _: self._calls.pop(opened.id, None))

    async def _serve(self, call: NativeCall, path: str) -> None:
        """Run a call until it has its status."""
        try:
            handler = self._guarded.get(path) or await self._find(path)
            if handler is None:
                call.finish(grpc.StatusCode.UNIMPLEMENTED, "there is no such method")
                return
            await self._run(handler, call)
            call.returned()
        except CallEnded:
            pass
        except asyncio.CancelledError:
            call.finish(grpc.StatusCode.CANCELLED)
        except Exception as bug:
            log.logger.exception("call of %s failed", path)
            call.finish(grpc.StatusCode.UNKNOWN, f"Unexpected {type(bug)}: {bug}")

    async def _find(self, path: str) -> Any:
        """Return the guarded handler of a path; None if there is none."""
        details = CallDetails(path)
        found = [handler for service in self._services if (handler := service.service(details)) is not None]

        async def first(_details: Any) -> Any:
            return found[0] if found else None

        handler = await self._guard.intercept_service(first, details)
        if found:  # paths that are not there are not kept: callers could name any number of them
            self._guarded[path] = handler
        return handler

    @staticmethod
    async def _run(handler: Any, call: NativeCall) -> None:
        call.serialize = handler.response_serializer
        serve: Callable[[Any, NativeCall], Coroutine[Any, Any, Any]]
        serve = handler.unary_unary or handler.unary_stream or handler.stream_unary or handler.stream_stream
        request: Any = call
        if not handler.request_streaming:
            request = await call.read()
            if request is EOF:
                await call.abort(grpc.StatusCode.INTERNAL, "the call ended before its request came")
            request = bytes(request)
        answer: Any = serve(request, call)
        if inspect.isasyncgen(answer):
            async for message in answer:
                await call.write(message)
            return
        answer = await answer
        if not handler.response_streaming:
            await call.write(answer)
