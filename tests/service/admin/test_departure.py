"""Drain: a server announces its end, serves until its clients have left or the time is over, and ends."""

from __future__ import annotations

import asyncio
from pathlib import Path

import aiohttp
import grpc
import pytest
from cli_world import Served, run
from grpc_health.v1 import health_pb2, health_pb2_grpc
from secure_world import SecureWorld, refused
from service_world import MERGE, RawReader, World, ins, stable

from lmerge.client import Publisher, Subscriber
from lmerge.core.elements import Stable
from lmerge.wire.generated import lmerge_pb2 as pb

pytestmark = pytest.mark.usefixtures("transport")

LONG_S = 300.0


async def health(world: World) -> int:
    answer = await health_pb2_grpc.HealthStub(world.channel).Check(health_pb2.HealthCheckRequest())
    return int(answer.status)


async def announced(world: World) -> None:
    while await health(world) == health_pb2.HealthCheckResponse.SERVING:
        pass


async def test_a_server_without_clients_ends_at_once() -> None:
    async with World() as world:
        left = await world.stub.Drain(pb.DrainRequest(wait_seconds=LONG_S))
        assert (left.publishers, left.subscribers) == (0, 0)
        assert left.waited_seconds < LONG_S
        await world.server.wait_closed()


async def test_an_announced_server_is_not_ready_and_serves_until_its_clients_have_left() -> None:
    async with World(http_port=0) as world:
        publisher = await world.publisher("a")
        reader = await world.subscriber()
        draining = asyncio.ensure_future(world.stub.Drain(pb.DrainRequest(wait_seconds=LONG_S)))
        await announced(world)
        url = f"http://127.0.0.1:{world.server.http_port}/readyz"
        async with aiohttp.ClientSession() as http, http.get(url) as answer:
            assert (answer.status, await answer.text()) == (503, "draining\n")
        await publisher.merged(ins("x", 1, 5), stable(4))
        newcomer = await world.publisher("b")  # what directs connections has not seen it yet
        await reader.until_stable(4)
        assert not draining.done()
        for client in (publisher, newcomer):
            client.call.cancel()
        reader.call.cancel()
        assert (await draining).publishers == 0
        await world.server.wait_closed()


async def test_after_its_time_a_server_ends_the_streams_that_are_left() -> None:
    async with World() as world:
        publisher = await world.publisher("a")
        await publisher.merged(ins("x", 1, 5), stable(4))
        reader: RawReader = await world.subscriber()
        left = await world.stub.Drain(pb.DrainRequest(wait_seconds=0))
        assert (left.publishers, left.subscribers) == (1, 1)
        await world.server.wait_closed()
        assert await publisher.call.code() is grpc.StatusCode.UNAVAILABLE
        assert await reader.call.code() is grpc.StatusCode.UNAVAILABLE


async def test_a_server_that_only_waits_serves_on_and_is_not_ready() -> None:
    async with World() as world:
        publisher = await world.publisher("a")
        left = await world.stub.Drain(pb.DrainRequest(wait_seconds=0, wait_only=True))
        assert left.publishers == 1
        await publisher.merged(ins("x", 1, 5), stable(4))
        assert await health(world) == health_pb2.HealthCheckResponse.NOT_SERVING


@pytest.mark.parametrize("wait_s", [-1.0, 3601.0, float("nan"), float("inf")])
async def test_an_impossible_wait_changes_nothing(wait_s: float) -> None:
    async with World() as world:
        with refused(grpc.StatusCode.INVALID_ARGUMENT, "the wait of a drain must be from 0 to 3600 seconds"):
            await world.stub.Drain(pb.DrainRequest(wait_seconds=wait_s))
        assert await health(world) == health_pb2.HealthCheckResponse.SERVING


async def test_only_an_administrator_of_every_merge_ends_a_server(tmp_path: Path) -> None:
    async with SecureWorld(tmp_path) as world:
        of_one = world.stub_of(world.token("one", ["admin"], [MERGE]))
        with refused(grpc.StatusCode.PERMISSION_DENIED, "may not drain the server: that needs admin for every merge"):
            await of_one.Drain(pb.DrainRequest())
        await world.stub_of(world.keeper).Drain(pb.DrainRequest())
        await world.server.wait_closed()


def test_the_command_ends_a_process_and_its_clients_go_on_at_the_other_server(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("one", "two")]
    for folder in folders:
        folder.mkdir()
    servers = [Served(folder) for folder in folders]
    try:
        both = ",".join(server.target for server in servers)
        with Publisher(both, "m", "a") as publisher, Subscriber(both, "m") as reader:
            publisher.insert("before", 1, 5)
            publisher.stable(4)
            stables = (element.vc for element in reader if isinstance(element, Stable))
            assert next(vc for vc in stables if vc == 4)
            result = run("drain", "--server", servers[0].target, "--wait", "0.2")
            assert result.returncode == 0, result.stderr
            assert f"{servers[0].target} ends after 0.2 s; 1 publishers and 1 subscribers were left" in result.stdout
            assert servers[0].process.wait(60) == 0
            publisher.insert("after", 6, 9)
            publisher.stable(20)
            assert next(vc for vc in stables if vc == 20)
    finally:
        for server in servers:
            server.process.kill()
            server.process.communicate()
