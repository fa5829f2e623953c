"""A proxy of one TCP address that can be frozen, so that nothing passes and no connection ends, and cut."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import TracebackType


class TcpProxy:
    """Passes bytes both ways. ``is_frozen``: nothing passes. ``cut`` ends all connections."""

    def __init__(self, host: str, port: int) -> None:
        self._target = host, port
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._flows = asyncio.Event()
        self._flows.set()
        self.port = 0
        self.connections = 0

    @property
    def is_frozen(self) -> bool:
        return not self._flows.is_set()

    @is_frozen.setter
    def is_frozen(self, value: bool) -> None:
        if value:
            self._flows.clear()
        else:
            self._flows.set()

    @property
    def live(self) -> int:
        """How many connections are open, on either side."""
        return len(self._writers)

    def cut(self) -> None:
        for writer in self._writers:
            writer.transport.abort()

    async def __aenter__(self) -> TcpProxy:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.close()
        self.cut()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        self.connections += 1
        with self._open(writer):
            await self._flows.wait()
            with suppress(OSError):
                there_reader, there = await asyncio.open_connection(*self._target)
                with self._open(there):
                    await asyncio.gather(self._pass(reader, there), self._pass(there_reader, writer))

    @contextmanager
    def _open(self, writer: asyncio.StreamWriter) -> Iterator[None]:
        """End a connection behind the block, whatever happens in it."""
        self._writers.add(writer)
        try:
            yield
        finally:
            writer.transport.abort()
            self._writers.discard(writer)

    async def _pass(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await source.read(65_536):
                await self._flows.wait()
                target.write(data)
                await target.drain()
        target.transport.abort()
