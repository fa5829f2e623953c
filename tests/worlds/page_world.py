"""Helpers of the status page's tests: a viewer that reads the event stream of a real server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
from service_world import MERGE, World

from lmerge.service.admin.status_page import StatusPage


def page_world(**settings: Any) -> World:
    """Return a server with a page that is refreshed often."""
    return World(**{"http_port": 0, "page_interval_s": 0.05, "certify_interval": 10, **settings})


def url_of(world: World, path: str = "") -> str:
    return f"http://127.0.0.1:{world.server.http_port}/status/{path}"


def page_of(world: World) -> StatusPage:
    assert world.server._http is not None
    return world.server._http._status_page


class Viewer:
    """One open event stream. ``events``: what has come, by name and data."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self.response = response
        self.events: list[tuple[str, Any]] = []

    async def read(self) -> tuple[str, Any] | None:
        """Read one event; None at the end of the stream."""
        name = (await self.response.content.readline()).decode()
        if not name:
            return None
        data = (await self.response.content.readline()).decode()
        assert await self.response.content.readline() == b"\n"
        assert name.startswith("event: ")
        assert data.startswith("data: ")
        self.events.append((name[7:-1], json.loads(data[6:])))
        return self.events[-1]

    async def until(self, name: str, claim: Callable[[Any], bool] = lambda _: True) -> Any:
        """Read until an event of this name for which ``claim`` holds; return its data."""
        while True:
            read = await self.read()
            assert read is not None, f"the stream has ended: {self.events[-1:]}"
            if read[0] == name and claim(read[1]):
                return read[1]

    async def merge(self, claim: Callable[[Any], bool]) -> Any:
        """Read until a report of the merge for which ``claim`` holds; return the report of the merge."""
        return (await self.until("merge", lambda data: data["merge"] is not None and claim(data["merge"])))["merge"]


@asynccontextmanager
async def viewing(world: World, merge: str | None = MERGE, **options: Any) -> AsyncIterator[Viewer]:
    """Open the event stream of a merge, or with None of the list of merges."""
    query = {} if merge is None else {"merge": merge}
    timeout = aiohttp.ClientTimeout(total=None)
    async with (
        aiohttp.ClientSession(timeout=timeout, read_bufsize=2**20) as http,
        http.get(url_of(world, "live"), params=query, **options) as response,
    ):
        assert response.status == 200, await response.text()
        yield Viewer(response)


async def fetched(world: World, path: str, **options: Any) -> tuple[int, str, dict[str, str]]:
    """Return the status, the text and the headers of an answer."""
    async with (
        aiohttp.ClientSession() as http,
        http.get(url_of(world, path), allow_redirects=False, **options) as response,
    ):
        return response.status, await response.text(), dict(response.headers)


async def settled(claim: Callable[[], bool]) -> None:
    """Let other tasks run until ``claim`` holds."""
    while not claim():  # noqa: ASYNC110  # what is waited for has no event
        await asyncio.sleep(0.001)
