"""What a client sees of a call is the same on both transports: gRPC's own channels, and the native ones."""

from __future__ import annotations

import asyncio
import gc
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import grpc
import grpc.aio
import pytest
from grpc.aio import EOF, AioRpcError
from tcp_proxy import TcpProxy

from lmerge.client.connection import channels
from lmerge.client.connection.streams import is_ready

SERVICE = "test.Channels"
LARGE = bytes(range(256)) * 8_192  # 2 MB
KINDS: dict[str, Callable[..., Any]] = {
    "stream": grpc.stream_stream_rpc_method_handler,
    "question": grpc.unary_unary_rpc_method_handler,
    "list": grpc.unary_stream_rpc_method_handler,
    "sum": grpc.stream_unary_rpc_method_handler,
}
pytestmark = pytest.mark.usefixtures("client_transport")


@asynccontextmanager
async def served(port: int = 0, **handlers: Callable[[Any, Any], Any]) -> AsyncIterator[tuple[grpc.aio.Server, int]]:
    """Serve handlers, each by its kind; yield the server and its port."""
    server = grpc.aio.server(options=[("grpc.max_receive_message_length", -1)])
    methods = {kind: KINDS[kind](handler) for kind, handler in handlers.items()}
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(SERVICE, methods)])
    bound = server.add_insecure_port(f"127.0.0.1:{port}")
    await server.start()
    try:
        yield server, bound
    finally:
        await server.stop(None)


@asynccontextmanager
async def connected(**handlers: Callable[[Any, Any], Any]) -> AsyncIterator[Any]:
    """Serve handlers; yield a channel to them."""
    async with served(0, **handlers) as (_, port), channels.open_channel(f"127.0.0.1:{port}") as channel:
        yield channel


def path(kind: str) -> str:
    return f"/{SERVICE}/{kind}"


def opened(channel: Any, kind: str, *request: Any, **options: Any) -> Any:
    """Open a call of this kind."""
    make = {"stream": "stream_stream", "question": "unary_unary", "list": "unary_stream", "sum": "stream_unary"}[kind]
    return getattr(channel, make)(path(kind))(*request, **options)


async def echo(_requests: Any, context: Any) -> None:
    while (message := await context.read()) is not EOF:
        await context.write(message)


async def forever(_requests: Any, context: Any) -> None:
    """Answer once, then nothing more."""
    await context.write(b"first")
    await asyncio.get_running_loop().create_future()


async def same(request: bytes, _context: Any) -> bytes:
    return request


async def other_traffic(channel: Any) -> None:
    """Let much go to and fro, so that a writer that did not wait would come far."""
    for at in range(300):
        assert bytes(await opened(channel, "question", b"%d" % at)) == b"%d" % at


async def echoed(channel: Any, message: bytes) -> None:
    """Open calls until one echoes ``message``. gRPC may not have noticed an end yet, or wait before it connects."""
    while True:
        call = opened(channel, "stream")
        with suppress(AioRpcError, asyncio.InvalidStateError):
            await call.write(message)
            if bytes(await call.read()) == message:
                return


async def until(claim: Callable[[], Any]) -> None:
    while not claim():  # noqa: ASYNC110 - there is no event to wait for
        await asyncio.sleep(0.002)


def test_the_choice_is_what_is_opened(client_transport: str) -> None:
    async def kind() -> str:
        async with channels.open_channel("127.0.0.1:0") as channel:
            return type(channel).__name__

    assert asyncio.run(kind()) == {"native": "NativeChannel", "grpc": "Channel"}[client_transport]


# Calls that end well.


async def test_messages_of_every_size_go_both_ways() -> None:
    async with connected(stream=echo) as channel:
        call = opened(channel, "stream")
        for message in (b"", b"a", LARGE, b"b", LARGE * 4):
            await call.write(message)
            assert bytes(await call.read()) == message
        await call.done_writing()
        assert await call.read() is EOF
        assert await call.read() is EOF, "it stays at its end"
        assert await call.code() is grpc.StatusCode.OK
        assert is_ready(channel)


async def test_many_messages_are_written_before_any_is_read() -> None:
    async with connected(stream=echo) as channel:
        call = opened(channel, "stream")

        async def write() -> None:
            for at in range(2_000):
                await call.write(b"%d" % at + bytes(1_000))
            await call.done_writing()

        writing = asyncio.ensure_future(write())
        answers = [int(bytes(answer)[:-1000]) async for answer in call]
        await writing
        assert answers == list(range(2_000))


async def test_each_kind_of_call_gives_its_answer_and_its_metadata() -> None:
    async def answer(request: Any, context: Any) -> bytes:
        sent = dict(context.invocation_metadata())
        await context.send_initial_metadata((("before", sent["text"]), ("before-bin", sent["raw-bin"])))
        context.set_trailing_metadata((("behind", "c"),))
        return bytes(reversed(request))

    async def count(requests: Any, _context: Any) -> bytes:
        return b"%d" % len([message async for message in requests])

    async def spell(request: bytes, _context: Any) -> AsyncIterator[bytes]:
        for letter in request:
            yield bytes([letter])

    async with connected(question=answer, sum=count, list=spell) as channel:
        call = opened(channel, "question", b"abc", metadata=(("text", "a"), ("raw-bin", b"\0\xff")))
        assert bytes(await call) == b"cba"
        before = dict(await call.initial_metadata())
        assert (before["before"], before["before-bin"]) == ("a", b"\0\xff")
        assert dict(await call.trailing_metadata()) == {"behind": "c"}
        assert await call.code() is grpc.StatusCode.OK
        call = opened(channel, "sum")
        for message in (b"a", b"b"):
            await call.write(message)
        await call.done_writing()
        assert bytes(await call) == b"2"
        assert [bytes(letter) async for letter in opened(channel, "list", b"xyz")] == [b"x", b"y", b"z"]


async def test_requests_may_come_from_an_iterator_of_either_kind() -> None:
    async def count(requests: Any, _context: Any) -> bytes:
        return b",".join([message async for message in requests])

    async def letters() -> AsyncIterator[bytes]:
        for letter in (b"x", b"y"):
            yield letter

    async with connected(sum=count, stream=echo) as channel:
        assert bytes(await opened(channel, "sum", iter([b"a", b"b"]))) == b"a,b"
        assert bytes(await opened(channel, "sum", letters())) == b"x,y"
        assert [bytes(answer) async for answer in opened(channel, "stream", [b"a"] * 3)] == [b"a"] * 3


async def test_a_serializer_and_a_deserializer_are_used() -> None:
    async with connected(stream=echo) as channel:
        call = channel.stream_stream(path("stream"), request_serializer=str.encode, response_deserializer=bytes.decode)
        opened_call = call()
        await opened_call.write("text")
        assert await opened_call.read() == "text"


async def test_calls_of_one_channel_share_its_connection(client_transport: str) -> None:
    async with served(stream=echo) as (_, port), TcpProxy("127.0.0.1", port) as proxy:
        async with channels.open_channel(f"127.0.0.1:{proxy.port}") as channel:
            calls = [opened(channel, "stream") for _ in range(30)]
            for at, call in enumerate(calls):
                await call.write(b"%d" % at)
            assert [bytes(await call.read()) for call in calls] == [b"%d" % at for at in range(30)]
            assert proxy.connections == 1
        if client_transport == channels.NATIVE:  # gRPC keeps it for others
            await until(lambda: not proxy.live)


# Calls that fail.


@pytest.mark.parametrize("answers", [0, 2])
async def test_a_status_comes_behind_the_answers_with_text_and_metadata(answers: int) -> None:
    async def fail(_request: bytes, context: Any) -> None:
        for at in range(answers):
            await context.write(b"%d" % at)
        await context.abort(grpc.StatusCode.DATA_LOSS, "100 % lost: ä", (("why", "a test"),))

    async with connected(list=fail, question=fail, sum=fail, stream=fail) as channel:
        for kind in ("list", "stream"):
            call = opened(channel, kind, *([b""] if kind == "list" else []))
            assert [bytes(await call.read()) for _ in range(answers)] == [b"0", b"1"][:answers]
            with pytest.raises(AioRpcError) as failed:
                await call.read()
            assert failed.value.code() is await call.code() is grpc.StatusCode.DATA_LOSS
            assert failed.value.details() == await call.details() == "100 % lost: ä"
            assert ("why", "a test") in tuple(await call.trailing_metadata())
            assert ("why", "a test") in tuple(failed.value.trailing_metadata())
        with pytest.raises((AioRpcError, asyncio.InvalidStateError)):
            await call.write(b"late")


async def test_a_call_without_its_answer_fails() -> None:
    async def refuse(_request: bytes, context: Any) -> None:
        await context.abort(grpc.StatusCode.NOT_FOUND, "nothing")

    async with connected(question=refuse) as channel:
        with pytest.raises(AioRpcError, match="nothing") as failed:
            await opened(channel, "question", b"")
        assert failed.value.code() is grpc.StatusCode.NOT_FOUND
        with pytest.raises(AioRpcError) as failed:
            await opened(channel, "sum")
        assert failed.value.code() is grpc.StatusCode.UNIMPLEMENTED


async def test_nothing_is_written_behind_the_end_of_the_requests() -> None:
    async with connected(stream=echo) as channel:
        call = opened(channel, "stream")
        await call.done_writing()
        with pytest.raises(asyncio.InvalidStateError):
            await call.write(b"late")


async def test_a_message_above_the_limit_ends_its_call_only() -> None:
    async def large(_request: bytes, context: Any) -> None:
        await context.write(bytes(channels.RECEIVE_BYTES_MAX + 1))

    async with connected(list=large, stream=echo) as channel:
        other = opened(channel, "stream")
        with pytest.raises(AioRpcError) as failed:
            await opened(channel, "list", b"").read()
        assert failed.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        await other.write(b"a")
        assert bytes(await other.read()) == b"a"


async def test_a_status_of_the_server_that_is_like_that_of_a_limit_stays_as_it_is() -> None:
    async def refuse(_request: bytes, context: Any) -> None:
        await context.abort(grpc.StatusCode.OUT_OF_RANGE, "the merge was made again", (("lmerge-error", "reset"),))

    async with connected(list=refuse) as channel:
        with pytest.raises(AioRpcError) as failed:
            await opened(channel, "list", b"").read()
        assert failed.value.code() is grpc.StatusCode.OUT_OF_RANGE


async def test_a_deadline_ends_a_call_and_the_server_has_it_too() -> None:
    left: list[float] = []

    async def slow(_request: bytes, context: Any) -> None:
        left.append(context.time_remaining())
        await asyncio.get_running_loop().create_future()

    async with connected(question=slow) as channel:
        with pytest.raises(AioRpcError, match="Deadline Exceeded") as failed:
            await opened(channel, "question", b"", timeout=2.0)
        assert failed.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    assert 0 < left[0] <= 2.0


# Cancelling.


async def test_a_cancelled_call_raises_it_and_the_server_sees_it() -> None:
    ended: list[str] = []

    async def watched(requests: Any, context: Any) -> None:
        try:
            await forever(requests, context)
        finally:
            ended.append("over")

    async with connected(stream=watched) as channel:
        call = opened(channel, "stream")
        assert bytes(await call.read()) == b"first"
        waiting = asyncio.ensure_future(call.read())
        await asyncio.sleep(0)
        assert call.cancel()
        assert not call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert call.cancelled()
        assert await call.code() is grpc.StatusCode.CANCELLED
        await until(lambda: ended)


@pytest.mark.parametrize("what", ["task", "call", "channel"])
async def test_a_call_ends_with_its_reader_with_its_last_reference_and_with_its_channel(
    what: str, client_transport: str
) -> None:
    if what == "call" and client_transport == channels.GRPC:
        pytest.skip("gRPC keeps a call for a while")
    ended = asyncio.Event()

    async def watched(requests: Any, context: Any) -> None:
        try:
            await forever(requests, context)
        finally:
            ended.set()

    async with connected(stream=watched) as channel:
        call = opened(channel, "stream")
        assert bytes(await call.read()) == b"first"
        if what == "task":
            reading = asyncio.ensure_future(call.read())
            await asyncio.sleep(0)
            reading.cancel()
            await asyncio.wait([reading])
            assert reading.cancelled()
            assert call.done()
        elif what == "call":
            del call
            gc.collect()
        else:
            await channel.close()
            assert call.done()
            with pytest.raises(grpc.aio.UsageError):
                opened(channel, "stream")
        await ended.wait()


# Flow control.


async def test_a_writer_waits_while_the_server_does_not_read() -> None:
    goes_on = asyncio.Event()

    async def late(requests: Any, context: Any) -> None:
        await goes_on.wait()
        await echo(requests, context)

    async with connected(stream=late, question=same) as channel:
        call = opened(channel, "stream")
        written = 0

        async def write() -> None:
            nonlocal written
            for _ in range(100):
                await call.write(LARGE)
                written += 1
            await call.done_writing()

        writing = asyncio.ensure_future(write())
        await until(lambda: written)
        await other_traffic(channel)
        assert written < 50
        goes_on.set()
        assert [len(message) async for message in call] == [len(LARGE)] * 100
        await writing


async def test_a_server_waits_while_its_client_does_not_read() -> None:
    written = 0

    async def many(_request: bytes, context: Any) -> None:
        nonlocal written
        for _ in range(100):
            await context.write(LARGE)
            written += 1

    async with connected(list=many, question=same) as channel:
        call = opened(channel, "list", b"")
        assert len(await call.read()) == len(LARGE)
        await other_traffic(channel)
        assert written < 50
        assert [len(await call.read()) for _ in range(99)] == [len(LARGE)] * 99
        assert await call.read() is EOF


# Connections that fail, and come back.


async def test_a_server_that_is_not_there_yet_is_reached_later() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    async with channels.open_channel(f"127.0.0.1:{port}") as channel:
        for attempt in [opened(channel, "stream") for _ in range(3)]:
            with pytest.raises(AioRpcError) as failed:
                await attempt.read()
            assert failed.value.code() is grpc.StatusCode.UNAVAILABLE
            assert "refused" in failed.value.details()
        assert not is_ready(channel)
        async with served(port, stream=echo):
            await echoed(channel, b"a")


async def test_a_broken_connection_ends_its_calls_and_the_next_call_has_another() -> None:
    async with (
        served(stream=echo) as (_, port),
        TcpProxy("127.0.0.1", port) as proxy,
        channels.open_channel(f"127.0.0.1:{proxy.port}") as channel,
    ):
        calls = [opened(channel, "stream") for _ in range(3)]
        for call in calls:
            await call.write(b"a")
            assert bytes(await call.read()) == b"a"
        proxy.cut()
        for call in calls:
            with pytest.raises(AioRpcError) as failed:
                await call.read()
            assert failed.value.code() is grpc.StatusCode.UNAVAILABLE
            assert failed.value.details()
        await echoed(channel, b"b")
        assert proxy.connections == 2


async def test_a_server_that_drains_ends_the_calls_it_has_and_others_go_to_its_successor() -> None:
    async def named(_requests: Any, context: Any) -> None:
        await context.write(b"old")
        await context.read()
        await context.write(b"still old")

    async with served(stream=named) as (old, port), channels.open_channel(f"127.0.0.1:{port}") as channel:
        first = opened(channel, "stream")
        assert bytes(await first.read()) == b"old"
        stopping = asyncio.ensure_future(old.stop(30))
        async with served(port, stream=echo):
            await echoed(channel, b"new")
            await first.done_writing()
            assert bytes(await first.read()) == b"still old"
            assert await first.read() is EOF
        await stopping


async def test_a_server_that_accepts_and_sends_nothing_is_given_up(
    client_transport: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = [(name, 300 if name == "grpc.min_reconnect_backoff_ms" else at) for name, at in channels.CHANNEL_OPTIONS]
    monkeypatch.setattr(channels, "CHANNEL_OPTIONS", options)
    if client_transport == channels.NATIVE:
        from lmerge.client.connection import native_channel

        monkeypatch.setattr(native_channel, "ATTEMPT_S", 0.3)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        async with channels.open_channel(f"127.0.0.1:{silent.getsockname()[1]}") as channel:
            call = opened(channel, "stream")
            with pytest.raises(AioRpcError) as failed:
                await call.read()
            assert failed.value.code() is grpc.StatusCode.UNAVAILABLE
            assert not is_ready(channel)
            if client_transport == channels.NATIVE:
                assert "sent nothing within 300ms" in failed.value.details()
