"""The status page on the HTTP port: the bundle, its data as JSON, and the same data live as server-sent events.

    GET /status/                        the page, open to all; it contains no data
    GET /status/data[?merge=NAME]       a whole report, once
    GET /status/live[?merge=NAME]       event stream: ``merges`` or ``merge``, ``differences``, ``ended``

Data are read only and behind the guard, with the rule of ``/metrics``. Payloads come only to callers that may see them:
those who may subscribe to the merge, or administer it. A stream ends when its access does. A viewer that does not read
is dropped after ``page_write_timeout_s``, and nobody waits for it meanwhile: see ``status_feed``.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from contextlib import suppress
from typing import Any, Final

from aiohttp import web

from lmerge.errors import PermissionDenied
from lmerge.loopback import is_loopback
from lmerge.service import log
from lmerge.service.admin.status_bundle import FOLDER, HEADERS, Asset, read_bundle
from lmerge.service.admin.status_feed import MergeTopic, StatusFeed, Topic, event
from lmerge.service.security.guard import ADMIN, SUBSCRIBE, CallAccess, Guard, present_access
from lmerge.service.settings import Settings
from lmerge.time_limit import time_limit
from lmerge.wire.names import check_name

# Bytes of one viewer that wait in the process and in the kernel: a whole report of a large merge. A viewer that reads
# slowly must not make the kernel keep megabytes of messages that are too old when they are read.
_BUFFER_BYTES: Final = 256 * 1024
# The kernel gives up a viewer so much later than the page does, so that the page counts those that do not read. It ends
# the connections of machines that have vanished while nothing waited in the process.
_KERNEL_S: Final = 5.0
_DATA_HEADERS: Final = {**HEADERS, "Cache-Control": "no-store"}
_STREAM_HEADERS: Final = {
    **_DATA_HEADERS,
    "Content-Type": "text/event-stream; charset=utf-8",
    "X-Accel-Buffering": "no",  # nginx would keep messages until it has 8 KB of them
}


class StatusPage:
    """The page of one server. ``dropped``: how many viewers were dropped because they did not read."""

    def __init__(self, feed: StatusFeed, guard: Guard, settings: Settings) -> None:
        self.dropped = 0
        self._feed = feed
        self._guard = guard
        self._settings = settings
        self._bundle = read_bundle()
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_stopping = False

    def routes(self) -> list[web.RouteDef]:
        """Return what the HTTP server has to serve."""
        bundle = [web.get(path, self._serve_asset) for path in self._bundle]
        data = web.get(f"{FOLDER}data", self._serve_report)
        return [*bundle, data, web.get(f"{FOLDER}live", self._serve_live, allow_head=False)]

    def start(self) -> None:
        """Start to sample."""
        self._feed.start()

    async def stop(self) -> None:
        """End all viewers, and the samples. A viewer that comes from here on is ended at once."""
        self._is_stopping = True
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._feed.stop()

    async def _serve_asset(self, request: web.Request) -> web.StreamResponse:
        asset: Asset = self._bundle[request.path]
        return asset.answer(request)

    async def _serve_report(self, request: web.Request) -> web.StreamResponse:
        merge = self._asked_merge(request)
        access = present_access()
        report = self._feed.report(merge)
        if merge is not None:
            topic = MergeTopic(self._feed, merge)
            report["differences"] = await topic.differences(with_payloads=_may_see_payloads(access, merge))
        return web.json_response(report, headers=_DATA_HEADERS)

    async def _serve_live(self, request: web.Request) -> web.StreamResponse:
        merge = self._asked_merge(request)
        access = present_access()
        with self._feed.watch(merge) as topic:
            response = web.StreamResponse(headers=_STREAM_HEADERS)
            await response.prepare(request)
            if self._is_stopping:
                return response  # a connection that was open already: nothing would end a task that starts now
            viewer = _Viewer(topic, access, request, response, self._settings.page_write_timeout_s)
            task = asyncio.create_task(viewer.run(), name="viewer")
            self._tasks.add(task)
            try:
                with self._guard.watching(access, task.cancel):
                    await asyncio.wait((task,))
            finally:
                task.cancel()
                self._tasks.discard(task)
                await asyncio.gather(task, return_exceptions=True)
            if viewer.is_dropped:
                self.dropped += 1
            return response

    def _asked_merge(self, request: web.Request) -> str | None:
        """Return the merge that a request names, None: all of them. Raises UsageError, PermissionDenied."""
        settings = self._settings
        if not settings.identifies_callers and is_loopback(settings.host) and not is_loopback(request.url.host or ""):
            # A page of another site can have its own name resolve to this machine, and would be of one origin with it.
            raise PermissionDenied(
                f"this server listens on {settings.host} only, and answers there under no other name than localhost"
            )
        merge = request.query.get("merge")
        if merge is not None:
            check_name("merge", merge)
        return merge


class _Viewer:
    """One viewer: writes the newest message whenever the one before it has left the process."""

    def __init__(
        self, topic: Topic, access: CallAccess, request: web.Request, response: web.StreamResponse, timeout_s: float
    ) -> None:
        self.is_dropped = False
        self._topic = topic
        self._access = access
        self._response = response
        self._timeout_s = timeout_s
        self._transport = request.transport
        self._remote = request.remote or ""
        self._differences: dict[str, Any] | None = None
        self._waits_since_s: float | None = None  # since when the last message has not left the process
        if self._transport is not None:
            _bound_buffers(self._transport.get_extra_info("socket"), timeout_s)

    async def run(self) -> None:
        """Write until the viewer has gone, is dropped, or the task is cancelled because its access has ended."""
        version: int | None = None
        try:
            while not self._is_stuck():
                if self._waits_since_s is None:
                    message, version = self._topic.message_after(version), self._topic.version
                    await self._write(message)
                    await self._write_differences()
                await self._topic.beyond(self._topic.version)
            self._drop()
        except asyncio.TimeoutError:
            self._drop()
        except ConnectionError:
            pass  # it has gone
        except asyncio.CancelledError:
            if self._access.ended is None:
                raise
            with suppress(ConnectionError, asyncio.TimeoutError):
                await self._write(event("ended", {"reason": str(self._access.ended)}))

    async def _write_differences(self) -> None:
        if not isinstance(self._topic, MergeTopic):
            return
        may_see = _may_see_payloads(self._access, self._topic.name)
        differences = await self._topic.differences(with_payloads=may_see)
        if differences is not self._differences:
            self._differences = differences
            await self._write(event("differences", differences))

    async def _write(self, message: bytes) -> None:
        async with time_limit(self._timeout_s):
            await self._response.write(message)

    def _is_stuck(self) -> bool:
        """Note whether the last message has left the process. Return whether that has taken too long."""
        if self._transport is None or self._transport.get_write_buffer_size() == 0:
            self._waits_since_s = None
            return False
        now_s = asyncio.get_running_loop().time()
        if self._waits_since_s is None:
            self._waits_since_s = now_s
        return now_s - self._waits_since_s > self._timeout_s

    def _drop(self) -> None:
        self.is_dropped = True
        log.event(logging.INFO, "viewer dropped", peer=self._remote, reason="it did not read")
        if self._transport is not None:
            self._transport.abort()


def _may_see_payloads(access: CallAccess, merge: str) -> bool:
    """Whether the caller may see the payloads of a merge: see CertifyMerge in ``guard.ACCESS_RULES``."""
    return access.may((SUBSCRIBE, ADMIN), merge)


def _bound_buffers(own: socket.socket | None, timeout_s: float) -> None:
    """Bound what the kernel keeps for a viewer, and how long it tries to reach one that has vanished."""
    if own is None:
        return
    own.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER_BYTES)
    if hasattr(socket, "TCP_USER_TIMEOUT"):  # Linux
        own.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, round(1000 * (timeout_s + _KERNEL_S)))
