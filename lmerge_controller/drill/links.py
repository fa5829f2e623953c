"""TCP links between the clients of the probe and the servers, which can be cut and slowed: network faults without root.

    python -m lmerge_controller.drill.links

The process takes orders as JSON lines and ends with its standard input. A link listens on a port of its own and leads
to one server. Each direction of it can be blocked (nothing passes, and nothing is lost: as packets that are sent again
when a partition heals) and delayed. The end of a connection passes no blocked link either, so that a peer behind a
partition does not notice.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from pathlib import Path
from typing import Any, Final

from lmerge.demo.processes import Child
from lmerge.loopback import host_of
from lmerge_controller.drill.probe.child_io import next_message, send_event, standard_input

CHUNK_BYTES: Final = 64 * 1024
# What one direction of a connection holds while it is blocked or delayed. Beyond, TCP holds the sender.
HELD_BYTES_MAX: Final = 4 * 1024 * 1024
UP, DOWN = "up", "down"  # from the client to the server, and back
# A local process answers at once; a loaded machine may take seconds.
ANSWER_S_MAX: Final = 30.0


class LinkHub:
    """The drill's side: opens links and orders their faults. ``child`` runs this module."""

    def __init__(self, folder: Path) -> None:
        self.child = Child("links", "lmerge_controller.drill.links", [], folder)
        self._ports: dict[str, int] = {}
        self.hosts: dict[str, str] = {}  # by the address of a link: the host of the server behind it

    def open(self, link: str, address: str) -> str:
        """Return the address of a link that leads to ``address``. Raises Unavailable."""
        if link not in self._ports:
            self.child.send(open=link, address=address)
            try:
                self._ports[link] = self.child.messages.get(timeout=ANSWER_S_MAX)["port"]
            except Exception as error:
                raise self.child.failure("has opened no link") from error
        through = f"127.0.0.1:{self._ports[link]}"
        self.hosts[through] = host_of(address)
        return through

    def opened(self) -> list[str]:
        """Return the names of the links."""
        return list(self._ports)

    def change(self, link: str, way: str, *, blocked: bool = False, delay_s: float = 0.0) -> None:
        """Block or delay one direction of a link, or heal it."""
        self.child.send(change=link, way=way, blocked=blocked, delay_s=delay_s)

    def end(self, at_s: float) -> None:
        """End the process by monotonic time ``at_s``."""
        self.child.end(at_s=at_s)


class _Way:
    """One direction of a link, over all its connections."""

    def __init__(self) -> None:
        self.is_open = asyncio.Event()
        self.is_open.set()
        self.delay_s = 0.0


class _Direction:
    """One direction of one connection: what was read waits here until it is due and the way is open."""

    def __init__(self, way: _Way, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._way, self._reader, self._writer = way, reader, writer
        self._held: deque[tuple[float, bytes]] = deque()
        self._bytes = 0
        self._changed = asyncio.Event()

    async def carry(self) -> None:
        """Copy until one side ends."""
        filling = asyncio.create_task(self._fill())
        try:
            await self._empty()
        finally:
            filling.cancel()
            await asyncio.gather(filling, return_exceptions=True)

    async def _fill(self) -> None:
        data = b"-"
        while data:
            while self._bytes >= HELD_BYTES_MAX:
                self._changed.clear()
                await self._changed.wait()
            try:
                data = await self._reader.read(CHUNK_BYTES)
            except OSError:
                data = b""
            self._held.append((asyncio.get_running_loop().time() + self._way.delay_s, data))
            self._bytes += len(data)
            self._changed.set()

    async def _empty(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            while not self._held:
                self._changed.clear()
                await self._changed.wait()
            due_s, data = self._held.popleft()
            await asyncio.sleep(max(0.0, due_s - loop.time()))
            await self._way.is_open.wait()
            if not data:
                return
            self._writer.write(data)
            await self._writer.drain()
            self._bytes -= len(data)
            self._changed.set()


class _Link:
    """A listener and the connections through it."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._host, self._port = host.strip("[]"), int(port)
        self.ways = {UP: _Way(), DOWN: _Way()}

    async def listen(self) -> int:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self._server = server
        port: int = server.sockets[0].getsockname()[1]
        return port

    async def _serve(self, client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        to_server: asyncio.StreamWriter | None = None
        try:
            server, to_server = await asyncio.open_connection(self._host, self._port)
            ways = [_Direction(self.ways[UP], client, to_server), _Direction(self.ways[DOWN], server, to_client)]
            tasks = [asyncio.create_task(way.carry()) for way in ways]
            _, rest = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in rest:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        except OSError:
            pass  # the server is not there: the client sees its connection end
        finally:
            for writer in (to_client, to_server):
                if writer is not None:
                    with contextlib.suppress(OSError):
                        writer.close()


async def run() -> None:
    """Run the process until its standard input ends."""
    links: dict[str, _Link] = {}
    reader = await standard_input()
    while (message := await next_message(reader)) is not None:
        if "open" in message:
            link = links[message["open"]] = _Link(message["address"])
            send_event("open", port=await link.listen())
        else:
            _change(links[message["change"]].ways[message["way"]], message)


def _change(way: _Way, message: dict[str, Any]) -> None:
    way.delay_s = float(message["delay_s"])
    if message["blocked"]:
        way.is_open.clear()
    else:
        way.is_open.set()


if __name__ == "__main__":
    asyncio.run(run())
