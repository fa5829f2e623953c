"""A server that comes back under its name at another address, as a pod does, is found soon."""

from __future__ import annotations

import asyncio
import socket
import struct
from contextlib import AsyncExitStack
from typing import Any

import grpc.aio

from lmerge.client.connection.channels import CHANNEL_OPTIONS

# gRPC alone asks for a name once in 30 s.
FOUND_S_MAX = 15.0
_HEADER = struct.Struct(">HHHHHH")
_ANSWER = 0x8180  # an answer without an error
_A, _INTERNET = 1, 1


class NameServer(asyncio.DatagramProtocol):
    """A DNS server whose every name has one IPv4 address."""

    def __init__(self, address: str) -> None:
        self.address = address

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def datagram_received(self, data: bytes, source: Any) -> None:
        number = _HEADER.unpack_from(data)[0]
        end = data.index(b"\0", _HEADER.size) + 5
        question, (kind,) = data[_HEADER.size : end], struct.unpack_from(">H", data, end - 4)
        answer = b""
        if kind == _A:
            answer = struct.pack(">HHHIH", 0xC00C, _A, _INTERNET, 1, 4) + socket.inet_aton(self.address)
        header = _HEADER.pack(number, _ANSWER, 1, 1 if answer else 0, 0, 0)
        self._transport.sendto(header + question + answer, source)


async def served(address: str, port: int) -> tuple[grpc.aio.Server, int]:
    server = grpc.aio.server()
    port = server.add_insecure_port(f"{address}:{port}")
    await server.start()
    return server, port


async def test_a_server_with_a_new_address_is_found_soon() -> None:
    loop = asyncio.get_running_loop()
    async with AsyncExitStack() as stack:
        transport, names = await loop.create_datagram_endpoint(
            lambda: NameServer("127.0.0.1"), local_addr=("127.0.0.1", 0)
        )
        stack.callback(transport.close)
        first, port = await served("127.0.0.1", 0)
        stack.push_async_callback(first.stop, None)
        target = f"dns://127.0.0.1:{transport.get_extra_info('sockname')[1]}/server.test:{port}"
        channel = await stack.enter_async_context(grpc.aio.insecure_channel(target, options=CHANNEL_OPTIONS))
        await asyncio.wait_for(channel.channel_ready(), FOUND_S_MAX)
        names.address = "127.0.0.2"
        second, _ = await served("127.0.0.2", port)
        stack.push_async_callback(second.stop, None)
        await first.stop(None)
        await asyncio.wait_for(channel.wait_for_state_change(grpc.ChannelConnectivity.READY), FOUND_S_MAX)
        await asyncio.wait_for(channel.channel_ready(), FOUND_S_MAX)
