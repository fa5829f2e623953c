"""The HTTP port of the controller: /metrics, /healthz (its loop runs) and /readyz (it takes part in the election)."""

from __future__ import annotations

import socket
from collections.abc import Callable

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

from lmerge.errors import AddressInUse, UsageError


class ControllerPages:
    """Serves the pages. ``why_not_ready`` returns None, or the reason for 503. An async context manager."""

    def __init__(
        self, host: str, port: int, registry: CollectorRegistry, why_not_ready: Callable[[], str | None]
    ) -> None:
        self.port = port
        self._host = host
        self._registry = registry
        self._why_not_ready = why_not_ready
        self._runner: web.AppRunner | None = None

    async def __aenter__(self) -> ControllerPages:
        app = web.Application()
        pages = (("/metrics", self._metrics), ("/healthz", self._healthz), ("/readyz", self._readyz))
        app.add_routes([web.get(path, page) for path, page in pages])
        runner = web.AppRunner(app, access_log=None, handle_signals=False, shutdown_timeout=1.0)
        await runner.setup()
        try:
            await web.TCPSite(runner, self._host, self.port).start()
        except OSError as problem:
            await runner.cleanup()
            text = f"cannot listen on {self._host}:{self.port}: {problem.strerror or problem}"
            raise (UsageError if isinstance(problem, socket.gaierror) else AddressInUse)(text) from None
        self.port = runner.addresses[0][1]
        self._runner = runner
        return self

    async def __aexit__(self, *error: object) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    async def _metrics(self, _: web.Request) -> web.Response:
        return web.Response(body=generate_latest(self._registry), headers={"Content-Type": CONTENT_TYPE_LATEST})

    async def _healthz(self, _: web.Request) -> web.Response:
        return web.Response(text="alive\n")

    async def _readyz(self, _: web.Request) -> web.Response:
        problem = self._why_not_ready()
        return web.Response(text=f"{problem or 'ready'}\n", status=200 if problem is None else 503)
