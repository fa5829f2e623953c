"""The network and the calls of gRPC on it: messages in order, windows, broken connections and their errors."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import pytest
from grpc.aio import EOF, AioRpcError, InternalError
from sim_world import SmallNetwork

from lmerge.testing.sim.server import ServerContext


def opened(small: SmallNetwork) -> Any:
    return small.channel().stream_stream("/lmerge.v1.Lmerge/Publish")()


async def echo(context: ServerContext) -> None:
    while (data := await context.read()) is not EOF:
        await context.write(data)
    context.finish(grpc.StatusCode.OK, "")


async def wait_for_ever(context: ServerContext) -> None:
    await asyncio.Event().wait()


def test_messages_arrive_in_order_and_the_status_after_them(small: SmallNetwork) -> None:
    small.serve(echo)

    async def main() -> tuple[list[bytes], grpc.StatusCode]:
        call = opened(small)
        for number in range(20):
            await call.write(b"%d" % number)
        await call.done_writing()
        read = [data async for data in call]
        return read, await call.code()

    read, code = small.run(main())
    assert read == [b"%d" % number for number in range(20)]
    assert code is grpc.StatusCode.OK


def test_no_listener_is_unavailable(small: SmallNetwork) -> None:
    async def main() -> None:
        with pytest.raises(AioRpcError) as raised:
            await opened(small).read()
        assert raised.value.code() is grpc.StatusCode.UNAVAILABLE

    small.run(main())


def test_a_writer_waits_while_the_window_is_full(small: SmallNetwork) -> None:
    small.network.weather.window_bytes = 1000
    small.serve(wait_for_ever)

    async def main() -> None:
        call = opened(small)
        for _ in range(10):
            await call.write(bytes(100))
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(call.write(b"more"), 100.0)

    small.run(main())


def test_an_abort_reaches_the_client_with_its_message(small: SmallNetwork) -> None:
    async def refuse(context: ServerContext) -> None:
        await context.write(b"first")
        with pytest.raises(grpc.aio.AbortError):
            await context.abort(grpc.StatusCode.NOT_FOUND, "no such thing")

    small.serve(refuse)

    async def main() -> None:
        call = opened(small)
        assert await call.read() == b"first"
        with pytest.raises(AioRpcError, match="no such thing") as raised:
            await call.read()
        assert raised.value.code() is grpc.StatusCode.NOT_FOUND
        with pytest.raises(asyncio.InvalidStateError):
            await call.write(b"too late")

    small.run(main())


def test_a_cut_connection_ends_both_sides_at_times_of_their_own(small: SmallNetwork) -> None:
    ended: list[float] = []

    async def serve(context: ServerContext) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(small.loop.time())

    small.serve(serve)

    async def main() -> None:
        call = opened(small)
        await call.wait_for_connection()
        (connection,) = small.network.connections
        connection.cut(why="reset", client_s=0.5, server_s=None)
        with pytest.raises(AioRpcError, match="reset"):
            await call.read()
        assert small.loop.time() == pytest.approx(0.5, abs=0.1)
        assert not ended  # the server's end is half open
        await _later(small, 20.0)
        assert 10.0 <= ended[0] <= 15.1

    small.run(main())


def test_a_partition_delays_and_then_breaks(small: SmallNetwork) -> None:
    small.serve(echo)

    async def main() -> None:
        call = opened(small)
        await call.write(b"one")
        assert await call.read() == b"one"
        small.network.block("s", "c")
        await call.write(b"two")
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(asyncio.shield(_read := asyncio.ensure_future(call.read())), 5.0)
        small.network.heal("s", "c")
        assert await _read == b"two"
        small.network.block("c", "s")
        with pytest.raises(AioRpcError, match="keepalive"):
            await call.read()

    small.run(main())


def test_a_killed_server_resets_its_connections_and_listens_no_more(small: SmallNetwork) -> None:
    small.serve(echo)

    async def main() -> None:
        call = opened(small)
        await call.wait_for_connection()
        small.server.kill()
        small.network.killed(small.server, silently=False)
        with pytest.raises(AioRpcError, match="reset by peer"):
            await call.read()
        with pytest.raises(AioRpcError, match="refused"):
            await opened(small).read()

    small.run(main())


def test_a_cancelled_read_cancels_the_call_as_in_grpc(small: SmallNetwork) -> None:
    cancelled = asyncio.Event()

    async def serve(context: ServerContext) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    small.serve(serve)

    async def main() -> None:
        call = opened(small)
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(call.read(), 1.0)
        assert await call.code() is grpc.StatusCode.CANCELLED
        await cancelled.wait()

    small.run(main())


def test_a_write_of_the_server_to_a_broken_connection_fails(small: SmallNetwork) -> None:
    failed: list[str] = []

    async def serve(context: ServerContext) -> None:
        try:
            while True:
                await context.write(bytes(1000))
        except InternalError:
            failed.append("internal")
        except asyncio.CancelledError:
            failed.append("cancelled")

    small.serve(serve)

    async def main() -> None:
        call = opened(small)
        await call.read()
        call.cancel()
        await _later(small, 1.0)
        assert failed

    small.run(main())


async def _later(small: SmallNetwork, delay: float) -> None:
    passed = small.loop.create_future()
    small.loop.call_later(delay, passed.set_result, None)
    await passed
