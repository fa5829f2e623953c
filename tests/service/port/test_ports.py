"""What a handler and a caller see of a call is the same on both ports: gRPC's own, and the native one."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest
from grpc.aio import EOF

from lmerge.service.port import any_port
from lmerge.service.port.any_port import AnyPort, port_of
from lmerge.service.security import guard as guarding
from lmerge.service.security.guard import AccessRule, Guard
from lmerge.service.settings import Settings

SERVICE = "test.Ports"
Handler = Callable[[Any, Any], Any]
STREAMS: dict[str, Callable[..., Any]] = {
    "stream": grpc.stream_stream_rpc_method_handler,
    "question": grpc.unary_unary_rpc_method_handler,
    "list": grpc.unary_stream_rpc_method_handler,
    "sum": grpc.stream_unary_rpc_method_handler,
}
pytestmark = pytest.mark.usefixtures("transport")


class Ports:
    """Starts servers with one handler each, at the path of its kind."""

    @asynccontextmanager
    async def serving(self, kind: str, handler: Handler, **settings: Any) -> AsyncIterator[Any]:
        """Serve ``handler``; yield a channel to it."""
        chosen = Settings(**({"http_port": None, "port": 0} | settings))
        self.port: AnyPort = port_of(chosen, Guard(chosen))
        self.port.add_service(SERVICE, {kind: STREAMS[kind](handler)})
        target = f"127.0.0.1:{self.port.bind()}"
        await self.port.start()
        self.has_stopped = False
        try:
            async with grpc.aio.insecure_channel(target, [("grpc.use_local_subchannel_pool", 1)]) as channel:
                yield channel
        finally:
            if not self.has_stopped:
                await self.stop(0.0)

    async def stop(self, grace_s: float) -> None:
        """Stop the server, once."""
        self.has_stopped = True
        await self.port.stop(grace_s)


@pytest.fixture
def ports(monkeypatch: pytest.MonkeyPatch) -> Ports:
    for kind in STREAMS:
        monkeypatch.setitem(guarding.ACCESS_RULES, f"/{SERVICE}/{kind}", AccessRule("test"))
    return Ports()


def path(kind: str) -> str:
    return f"/{SERVICE}/{kind}"


def test_each_choice_is_a_port_of_its_own(transport: str) -> None:
    async def name() -> str:
        settings = Settings(http_port=None, port=0)
        port = port_of(settings, Guard(settings))
        await port.stop(None)
        return port.name

    assert asyncio.run(name()) == transport == any_port.automatic(Settings())


async def test_a_question_gets_its_answer_with_metadata_before_and_behind_it(ports: Ports) -> None:
    async def answer(request: bytes, context: Any) -> bytes:
        sent = dict(context.invocation_metadata())
        await context.send_initial_metadata((("before", sent["text"]), ("before-bin", sent["raw-bin"])))
        context.set_trailing_metadata((("behind", "c"),))
        return bytes(reversed(request))

    async with ports.serving("question", answer) as channel:
        call = channel.unary_unary(path("question"))(b"abc", metadata=(("text", "a"), ("raw-bin", b"\0\xff")))
        assert await call == b"cba"
        before = dict(await call.initial_metadata())
        assert (before["before"], before["before-bin"]) == ("a", b"\0\xff")
        assert dict(await call.trailing_metadata())["behind"] == "c"
        assert await call.code() is grpc.StatusCode.OK


async def test_messages_go_both_ways_while_both_sides_are_open(ports: Ports) -> None:
    async def echo(_requests: Any, context: Any) -> None:
        while (message := await context.read()) is not EOF:
            await context.write(bytes(message) * 2)

    async with ports.serving("stream", echo) as channel:
        call = channel.stream_stream(path("stream"))()
        for size in (0, 1, 70_000, 1_500_000):
            await call.write(b"x" * size)
            assert await call.read() == b"x" * 2 * size
        await call.done_writing()
        assert await call.read() is EOF
        assert await call.code() is grpc.StatusCode.OK


async def test_a_handler_may_iterate_over_messages_and_yield_answers(ports: Ports) -> None:
    async def count(requests: Any, _context: Any) -> AsyncIterator[bytes]:
        async for message in requests:
            yield b"%d" % len(message)

    async with ports.serving("stream", count) as channel:
        call = channel.stream_stream(path("stream"))()
        for message in (b"", b"abc"):
            await call.write(message)
        await call.done_writing()
        assert [answer async for answer in call] == [b"0", b"3"]


async def test_a_compressed_message_is_read(ports: Ports) -> None:
    async def size(request: bytes, _context: Any) -> bytes:
        return b"%d" % len(request)

    async with ports.serving("question", size) as channel:
        ask = channel.unary_unary(path("question"))
        assert await ask(b"a" * 100_000, compression=grpc.Compression.Gzip) == b"100000"


@pytest.mark.parametrize("answers", [0, 2])
async def test_an_abort_is_the_status_of_the_call_behind_its_answers(ports: Ports, answers: int) -> None:
    async def fail(_request: bytes, context: Any) -> None:
        for at in range(answers):
            await context.write(b"%d" % at)
        await context.abort(grpc.StatusCode.DATA_LOSS, "100 % lost: \u00e4", (("why", "a test"),))

    async with ports.serving("list", fail) as channel:
        call = channel.unary_stream(path("list"))(b"")
        assert [await call.read() for _ in range(answers)] == [b"0", b"1"][:answers]
        with pytest.raises(grpc.aio.AioRpcError) as ended:
            await call.read()
        assert (ended.value.code(), ended.value.details()) == (grpc.StatusCode.DATA_LOSS, "100 % lost: \u00e4")
        assert dict(ended.value.trailing_metadata())["why"] == "a test"


async def test_a_bug_ends_its_own_call_only(ports: Ports, caplog: pytest.LogCaptureFixture) -> None:
    async def answer(request: bytes, _context: Any) -> bytes:
        return b"%d" % (1 // int(request))

    async with ports.serving("question", answer) as channel:
        ask = channel.unary_unary(path("question"))
        with pytest.raises(grpc.aio.AioRpcError, match="ZeroDivisionError") as ended:
            await ask(b"0")
        assert ended.value.code() is grpc.StatusCode.UNKNOWN
        assert await ask(b"1") == b"1"
    assert "ZeroDivisionError" in caplog.text


@pytest.mark.parametrize("with_its_connection", [False, True])
async def test_a_handler_ends_when_its_caller_has_gone(ports: Ports, with_its_connection: bool) -> None:
    begun, over = asyncio.Event(), asyncio.Event()

    async def wait(_requests: Any, context: Any) -> None:
        begun.set()
        try:
            await context.read()
        finally:
            over.set()

    async with ports.serving("stream", wait) as channel:
        call = channel.stream_stream(path("stream"))()
        await begun.wait()
        if with_its_connection:
            await channel.close()
        else:
            call.cancel()
        await over.wait()


async def test_a_caller_that_does_not_read_holds_up_its_own_writer_only(ports: Ports) -> None:
    written = itertools.count(1)
    reached: list[int] = []
    size = 1 << 20

    async def pour(_request: bytes, context: Any) -> None:
        while True:
            await context.write(bytes(size))
            reached[:] = [next(written)]

    async with ports.serving("list", pour) as channel:
        slow = channel.unary_stream(path("list"))(b"")
        await slow.read()
        quick = channel.unary_stream(path("list"))(b"")
        for _ in range(100):  # the quick one is served on, while the slow one waits
            await quick.read()
        assert reached[0] < 100 + 2 * 64  # what sockets and windows hold, for each of them
        quick.cancel()
        slow.cancel()


async def test_a_message_above_the_limit_is_refused(ports: Ports) -> None:
    async def size(request: bytes, _context: Any) -> bytes:
        return b"%d" % len(request)

    limits = {"message_bytes": 10_000, "payload_bytes": 1_000}
    async with ports.serving("question", size, **limits) as channel:
        ask = channel.unary_unary(path("question"))
        assert await ask(bytes(20_000)) == b"20000"
        with pytest.raises(grpc.aio.AioRpcError) as ended:
            await ask(bytes(20_001))
        assert ended.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


async def test_a_method_that_is_not_there_is_unimplemented(ports: Ports) -> None:
    async def answer(_request: bytes, _context: Any) -> bytes:
        return b""

    async with ports.serving("question", answer) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as ended:
            await channel.unary_unary(path("nothing"))(b"")
        assert ended.value.code() is grpc.StatusCode.UNIMPLEMENTED


async def test_a_stop_with_grace_waits_for_calls_and_takes_no_more(ports: Ports) -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def wait(request: bytes, _context: Any) -> bytes:
        begun.set()
        await go_on.wait()
        return request

    async with ports.serving("question", wait) as channel:
        call = channel.unary_unary(path("question"))(b"last")
        await begun.wait()
        stopping = asyncio.ensure_future(ports.stop(30.0))
        await asyncio.sleep(0)
        assert not stopping.done()
        go_on.set()
        assert await call == b"last"
        await stopping


async def test_calls_that_are_left_after_the_grace_are_ended(ports: Ports) -> None:
    over = asyncio.Event()

    async def wait(_request: bytes, context: Any) -> None:
        await context.write(b"begun")
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            over.set()

    async with ports.serving("list", wait) as channel:
        call = channel.unary_stream(path("list"))(b"")
        assert await call.read() == b"begun"
        await ports.stop(0.01)
        with pytest.raises(grpc.aio.AioRpcError) as ended:
            await call.read()
        assert ended.value.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)
        await over.wait()
