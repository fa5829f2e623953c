"""The HTTP port: ``/metrics`` for Prometheus, ``/healthz`` (alive) and ``/readyz`` (takes publishers) for probes."""

from __future__ import annotations

from collections.abc import Callable

from aiohttp import web
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from lmerge.service.ports import cannot_listen


class HttpServer:
    """Serves the three pages. ``is_ready`` is asked on each probe."""

    def __init__(self, host: str, port: int, metrics: CollectorRegistry, is_ready: Callable[[], bool]) -> None:
        self.port = port
        self._host = host
        self._metrics = metrics
        self._is_ready = is_ready
        self._runner: web.AppRunner | None = None

    async def start(self) -> None:
        """Listen; ``port`` is the bound one from here on. Raises AddressInUse, UsageError."""
        app = web.Application()
        app.add_routes([
            web.get("/metrics", self._show_metrics),
            web.get("/healthz", self._healthz),
            web.get("/readyz", self._readyz),
        ])
        runner = web.AppRunner(app, access_log=None, handle_signals=False)
        await runner.setup()
        try:
            site = web.TCPSite(runner, self._host, self.port, reuse_port=False)
            await site.start()
        except OSError as problem:
            await runner.cleanup()
            raise cannot_listen(self._host, self.port, problem) from problem
        self._runner = runner
        self.port = runner.addresses[0][1]

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    async def _show_metrics(self, request: web.Request) -> web.Response:
        encode, content_type = choose_encoder(request.headers.get("Accept", ""))
        return web.Response(body=encode(self._metrics), headers={"Content-Type": content_type})

    async def _healthz(self, _request: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def _readyz(self, _request: web.Request) -> web.Response:
        if self._is_ready():
            return web.Response(text="ready\n")
        return web.Response(status=503, text="draining\n")
