"""The HTTP port: ``/metrics`` for Prometheus, ``/healthz`` (alive), ``/readyz`` (takes publishers), the status page.

The probes, and the files of the page, are open to all. Every other path is behind the guard. With certificates the port
uses HTTPS. A connection without a request takes no place from others: see ``http_connections``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeAlias

import grpc
from aiohttp import web

from lmerge.errors import LmergeError, Unauthenticated
from lmerge.service.admin.http_connections import HttpConnection, OpenConnections
from lmerge.service.admin.metrics_page import Pages
from lmerge.service.admin.status_page import StatusPage
from lmerge.service.ports import cannot_listen
from lmerge.service.security.auth import Certificate
from lmerge.service.security.guard import Guard
from lmerge.service.settings import Settings
from lmerge.service.status_codes import code_of

# A probe or a scrape comes at least this often on the connection that it keeps.
_KEEPALIVE_S: Final = 75.0
Handler: TypeAlias = Callable[[web.Request], Awaitable[web.StreamResponse]]

_STATUSES: Final = {
    grpc.StatusCode.INVALID_ARGUMENT: 400,
    grpc.StatusCode.UNAUTHENTICATED: 401,
    grpc.StatusCode.PERMISSION_DENIED: 403,
    grpc.StatusCode.RESOURCE_EXHAUSTED: 429,
}


class HttpServer:
    """Serves the pages. ``why_not_ready`` is called for each ``/readyz``, and returns None if the server is ready."""

    def __init__(
        self,
        settings: Settings,
        port: int,
        pages: Pages,
        status_page: StatusPage,
        guard: Guard,
        why_not_ready: Callable[[], str | None],
    ) -> None:
        self.port = port
        self._settings = settings
        self._pages = pages
        self._status_page = status_page
        self._connections = OpenConnections(
            settings.http_connections_max, settings.http_connections_per_peer, settings.http_header_timeout_s
        )
        self._guard = guard
        self._why_not_ready = why_not_ready
        self._runner: web.AppRunner | None = None
        self._listening: list[asyncio.Server] = []

    async def start(self) -> None:
        """Listen. ``port`` is the bound one from then on. Raises AddressInUse, UsageError."""
        app = web.Application(middlewares=[self._behind_the_guard()])
        app.add_routes(
            [
                web.get("/metrics", self._show_metrics),
                web.get("/healthz", self._healthz),
                web.get("/readyz", self._readyz),
                *self._status_page.routes(),
            ]
        )
        runner = web.AppRunner(app, access_log=None, handle_signals=False, keepalive_timeout=_KEEPALIVE_S)
        await runner.setup()
        self._runner = runner
        try:
            server = await asyncio.get_running_loop().create_server(
                self._connection, self._settings.host, self.port, reuse_port=False, **self._tls()
            )
        except OSError as problem:
            await runner.cleanup()
            raise cannot_listen(self._settings.host, self.port, problem) from problem
        self._listening = [server]
        self._status_page.start()
        self.port = server.sockets[0].getsockname()[1]

    async def renew(self) -> None:
        """Use the present certificates for new connections. Open connections keep theirs."""
        before, self._listening = self._listening, []
        loop = asyncio.get_running_loop()
        for server in before:
            for listening in server.sockets:  # the same sockets, so no connection is refused in between
                same = listening.dup()
                self._listening.append(await loop.create_server(self._connection, sock=same, **self._tls()))
            server.close()

    async def stop(self) -> None:
        for server in self._listening:
            server.close()
        await self._status_page.stop()  # first: its streams do not end by themselves
        if self._runner is not None:
            await self._runner.cleanup()

    def _tls(self) -> dict[str, Any]:
        if self._guard.tls is None:
            return {}
        return {"ssl": self._guard.tls.http_context, "ssl_handshake_timeout": self._settings.handshake_timeout_s}

    def _behind_the_guard(self) -> Any:
        @web.middleware
        async def guarded(request: web.Request, handler: Handler) -> web.StreamResponse:
            return await self._answer(request, handler)

        return guarded

    def _connection(self) -> asyncio.BaseProtocol:
        """Return the protocol for a new connection."""
        assert self._runner is not None
        assert self._runner.server is not None
        return HttpConnection(self._connections, self._runner.server())

    async def _answer(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Answer a request through the guard, also one for a path that does not exist."""
        transport = request.transport
        connection = transport.get_protocol() if transport is not None else None
        if isinstance(connection, HttpConnection):
            connection.begin()
        try:
            return await self._let_in(request, handler)
        finally:
            if isinstance(connection, HttpConnection):
                connection.end()

    async def _let_in(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        peer = request.transport.get_extra_info("peercert") if request.transport is not None else None
        try:
            self._guard.let_in_http(
                request.path,
                request.headers.getall("Authorization", []),
                Certificate.of_socket(peer),
                request.remote or "",
            )
            return await handler(request)
        except LmergeError as error:
            headers = {"WWW-Authenticate": "Bearer"} if isinstance(error, Unauthenticated) else {}
            return web.Response(status=_STATUSES[code_of(error)], text=f"{error}\n", headers=headers)

    async def _show_metrics(self, request: web.Request) -> web.Response:
        page = await self._pages.page(request.headers.get("Accept", ""))
        return web.Response(body=page.body, headers={"Content-Type": page.content_type})

    async def _healthz(self, _request: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def _readyz(self, _request: web.Request) -> web.Response:
        problem = self._why_not_ready()
        if problem is None:
            return web.Response(text="ready\n")
        return web.Response(status=503, text=f"{problem}\n")
