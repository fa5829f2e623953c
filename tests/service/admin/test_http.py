"""The HTTP port under attack, and with large pages: probes are always answered, and a page blocks no other call."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from prometheus_client.exposition import generate_latest
from prometheus_client.parser import text_string_to_metric_families
from secure_world import SecureWorld
from service_world import World, ins, stable

from lmerge.service.admin.http_server import HttpServer
from lmerge.service.admin.metrics_page import Pages
from lmerge.service.security.quota import peer_key

# What a connection sends before it is silent. None of it is a whole header.
SILENCES = {
    "nothing": b"",
    "half a line": b"GET /hea",
    "half a header": b"GET /healthz HTTP/1.1\r\nHost: x\r\nX-Slow: ",
    "a body without end": b"POST /healthz HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n",
}


def port_of(world: World) -> int:
    assert world.server.http_port is not None
    return world.server.http_port


def http_of(world: World) -> HttpServer:
    """Return the HTTP port of a server that has one."""
    assert world.server._http is not None
    return world.server._http


@asynccontextmanager
async def silent(port: int, count: int, data: bytes) -> AsyncIterator[list[asyncio.StreamReader]]:
    """Give ``count`` connections that have sent ``data``, and nothing else."""
    opened = [await asyncio.open_connection("127.0.0.1", port) for _ in range(count)]
    try:
        for _, writer in opened:
            writer.write(data)
            await writer.drain()
        yield [reader for reader, _ in opened]
    finally:
        for _, writer in opened:
            writer.close()


async def probe(port: int, path: str = "/healthz") -> int:
    """Return the status that a probe gets on its own connection."""
    async with aiohttp.ClientSession() as http, http.get(f"http://127.0.0.1:{port}{path}") as answer:
        await answer.read()
        return answer.status


@pytest.mark.parametrize("data", SILENCES.values(), ids=SILENCES)
@pytest.mark.parametrize(
    "limits",
    [{"http_connections_per_peer": 8}, {"http_connections_per_peer": 1000, "http_connections_max": 8}],
    ids=["of one peer", "in all"],
)
async def test_probes_answer_while_others_are_silent(data: bytes, limits: dict[str, int]) -> None:
    # An hour, so that the time-out is not what makes room for the probes.
    async with World(http_port=0, http_header_timeout_s=3600.0, **limits) as world, AsyncExitStack() as attack:
        await attack.enter_async_context(silent(port_of(world), 40, data))
        for path in ("/healthz", "/readyz", "/metrics"):
            assert await probe(port_of(world), path) == 200
        assert len(http_of(world)._connections) <= 8


async def test_a_connection_at_work_is_not_closed_for_a_newcomer() -> None:
    async with World(http_port=0, http_connections_per_peer=2, http_connections_max=2) as world:
        entered, opened = asyncio.Event(), asyncio.Event()
        pages: Pages = http_of(world)._pages
        make = pages._make

        async def held(*arguments: Any) -> Any:
            entered.set()
            await opened.wait()
            return await make(*arguments)

        pages._make = held  # type: ignore[assignment,method-assign]  # holds the page up
        working = asyncio.create_task(probe(port_of(world), "/metrics"))
        await entered.wait()
        async with silent(port_of(world), 5, b""):
            assert await probe(port_of(world)) == 200
        opened.set()
        assert await working == 200


async def test_a_header_that_does_not_come_ends_its_connection() -> None:
    async with World(http_port=0, http_header_timeout_s=0.05) as world:
        async with silent(port_of(world), 3, b"GET /healthz HT") as readers:
            for reader in readers:
                with suppress(ConnectionResetError):
                    assert await reader.read() == b""
        assert http_of(world)._connections.closed["time"] == 3


async def test_probes_answer_over_tls_while_others_are_silent(tmp_path: Path) -> None:
    async with SecureWorld(tmp_path, http_port=0, http_connections_per_peer=4) as world, AsyncExitStack() as attack:
        await attack.enter_async_context(silent(port_of(world), 40, b""))
        http = await attack.enter_async_context(aiohttp.ClientSession())
        url = f"https://localhost:{world.server.http_port}/healthz"
        async with http.get(url, ssl=ssl.create_default_context(cafile=world.authority.path)) as answer:
            assert answer.status == 200


def test_one_machine_is_one_peer_whatever_its_port() -> None:
    assert peer_key("192.0.2.7") == peer_key("ipv4:192.0.2.7:5000")


async def test_a_page_of_many_merges_holds_the_loop_only_for_steps() -> None:
    names = tuple(f"merge {at}" for at in range(1024))
    async with World(http_port=0, merges=names) as world:
        a = await world.publisher("a", merge=names[500])
        await a.merged(ins("x", 1, 5), stable(4))
        pages: Pages = http_of(world)._pages
        task = asyncio.create_task(pages.page(""))
        steps: list[float] = []
        while not task.done():
            before_s = time.thread_time()
            await asyncio.sleep(0)
            steps.append(time.thread_time() - before_s)
        body = (await task).body
        assert len(steps) > 200, "the page was made in few steps"
        assert sorted(steps)[-3] < 0.1 * sum(steps), "one step did most of the work"
        # The same families and samples as in a page that is made at once.
        assert _samples(body.decode()) == _samples(generate_latest(world.server.metrics).decode())


def _samples(text: str) -> list[tuple[str, str, int]]:
    found = [(family.name, family.type, len(family.samples)) for family in text_string_to_metric_families(text)]
    assert len({name for name, _, _ in found}) == len(found), "a family stands there twice"
    return sorted(found)


@pytest.mark.parametrize("accept", ["", "application/openmetrics-text; version=1.0.0"])
async def test_who_asks_while_a_page_is_made_gets_that_one(accept: str) -> None:
    async with World(http_port=0, merges=tuple(f"merge {at}" for at in range(64))) as world:
        pages: Pages = http_of(world)._pages
        first, second = await asyncio.gather(pages.page(accept), pages.page(accept))
        assert first.body is second.body
        assert first.body.endswith(b"# EOF\n") is bool(accept)
        third = await pages.page(accept)
        assert third.body is not first.body
