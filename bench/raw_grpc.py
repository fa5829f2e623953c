"""A raw gRPC stream of the same bytes: the upper limit of a server on the same library.

No merge, no decoding: three publishers stream messages of the size that lmerge's publishers send, and the server passes
the bytes of the first on to one subscriber. The same grpc.aio, the same number of processes, the same loopback. Roles
of ``python -m bench.raw_grpc ROLE ...``, as in ``load``: ``serve READY_FILE``, ``publish TARGET MESSAGES BYTES``,
``paced TARGET EVENTS PAYLOAD_BYTES PER_S``, ``subscribe TARGET`` and, for what is paced, ``latency TARGET SKIP``.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc

from bench.harness import exit_on_help
from bench.load import latencies_of, owned, paced_batches, percentiles
from lmerge.client.connection.channels import CHANNEL_OPTIONS
from lmerge.core.engines import selection
from lmerge.wire.engine_frames import frames_of
from lmerge.wire.limits import UNLIMITED

SERVICE = "bench.Raw"


async def serve(ready_file: str) -> None:
    """Serve until it is terminated. Pass the bytes of the first publisher on."""
    queue: asyncio.Queue[bytes] = asyncio.Queue(64)
    names: list[str] = []

    async def publish(requests: AsyncIterator[bytes], context: Any) -> bytes:
        forwards = not names
        names.append(context.peer())
        async for data in requests:
            if forwards:
                await queue.put(data)
        if forwards:
            await queue.put(b"")
        return b""

    async def subscribe(_request: bytes, _context: Any) -> AsyncIterator[bytes]:
        while data := await queue.get():
            yield data

    server = grpc.aio.server(options=[("grpc.max_receive_message_length", -1)])
    server.add_generic_rpc_handlers(
        (
            grpc.method_handlers_generic_handler(
                SERVICE,
                {
                    "Publish": grpc.stream_unary_rpc_method_handler(publish),
                    "Subscribe": grpc.unary_stream_rpc_method_handler(subscribe),
                },
            ),
        )
    )
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    await asyncio.to_thread(Path(ready_file).write_text, json.dumps({"port": port}))
    await server.wait_for_termination()


async def publish(target: str, messages: int, message_bytes: int) -> None:
    """Publish as fast as flow control permits."""
    async with grpc.aio.insecure_channel(target, options=CHANNEL_OPTIONS) as channel:
        open_call: Any = channel.stream_unary(f"/{SERVICE}/Publish")
        call = open_call()
        data = bytes(message_bytes)
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        for _ in range(messages):
            await call.write(data)
        await call.done_writing()
        await call


async def publish_paced(target: str, count: int, payload_bytes: int, per_s: int) -> None:
    """Publish the batches of ``load.paced_batches`` as messages, from the time in a line on standard input."""
    encode = frames_of(selection.best()).encode_publish
    async with grpc.aio.insecure_channel(target, options=CHANNEL_OPTIONS) as channel:
        open_call: Any = channel.stream_unary(f"/{SERVICE}/Publish")
        call = open_call()
        print("ready", flush=True)
        began = float(await asyncio.to_thread(sys.stdin.readline))
        batches = paced_batches(count, payload_bytes, per_s, began)
        while (batch := await asyncio.to_thread(next, batches, None)) is not None:
            await call.write(encode(0, [owned(batch)]))
        await call.done_writing()
        await call


async def measure(target: str, skip: int) -> None:
    """Read what is paced. Print the percentiles of the latencies behind the first ``skip`` events."""
    read = frames_of(selection.best()).read_publish
    latencies: list[float] = []
    async with grpc.aio.insecure_channel(target, options=CHANNEL_OPTIONS) as channel:
        open_call: Any = channel.unary_stream(f"/{SERVICE}/Subscribe")
        call = open_call(b"")
        print("ready", flush=True)
        async for data in call:
            received: Any = read(data)
            latencies += latencies_of(received.decode(UNLIMITED))
    print(json.dumps(percentiles(latencies[skip:])), flush=True)


async def subscribe(target: str) -> None:
    """Read until the end of the stream. Print the time of the last message and the number of bytes."""
    async with grpc.aio.insecure_channel(target, options=CHANNEL_OPTIONS) as channel:
        open_call: Any = channel.unary_stream(f"/{SERVICE}/Subscribe")
        call = open_call(b"")
        print("ready", flush=True)
        size = 0
        async for data in call:
            size += len(data)
        print(json.dumps({"ended": time.time(), "bytes": size}), flush=True)


if __name__ == "__main__":
    exit_on_help(__doc__)
    role, *rest = sys.argv[1:]
    if role == "serve":
        asyncio.run(serve(rest[0]))
    elif role == "publish":
        asyncio.run(publish(rest[0], int(rest[1]), int(rest[2])))
    elif role == "paced":
        asyncio.run(publish_paced(rest[0], int(rest[1]), int(rest[2]), int(rest[3])))
    elif role == "latency":
        asyncio.run(measure(rest[0], int(rest[1])))
    else:
        asyncio.run(subscribe(rest[0]))
