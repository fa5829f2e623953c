"""Helpers for the tests of the client: a real server that can be restarted on its port, and a link that can be cut."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from random import Random
from typing import Any

from lmerge.client import AsyncPublisher, AsyncSubscriber
from lmerge.core.batch import Batch
from lmerge.core.elements import Element
from lmerge.core.tdb import Tdb
from lmerge.service.server import Server
from lmerge.service.settings import Settings

MERGE = "flights"


class World:
    """A server and a link to it: ``async with World(policy="eager") as world``."""

    def __init__(self, **settings: Any) -> None:
        settings.setdefault("http_port", None)
        settings.setdefault("policy", "eager")  # adjusts are shown at once, so tests can wait for them
        settings.setdefault("merges", (MERGE,))  # subscribers can come first
        self.settings = settings
        self.link = CuttableLink()

    async def __aenter__(self) -> World:
        await self.start()
        await self.link.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.link.stop()
        await self.server.stop(0.0)

    async def start(self, port: int = 0) -> None:
        self.server = Server(Settings(port=port, **self.settings))
        await self.server.start()
        self.link.port_to = self.server.port

    async def restart(self) -> None:
        """Start a server at the same address, with an empty memory."""
        port = self.server.port
        await self.server.stop(0.0)
        await self.start(port)

    @property
    def target(self) -> str:
        """The server itself."""
        return f"127.0.0.1:{self.server.port}"

    def publisher(self, replica: str = "a", **options: Any) -> AsyncPublisher:
        """The address of the server through the link."""
        return AsyncPublisher(self.link.target, MERGE, replica, **options)

    def subscriber(self, **options: Any) -> AsyncSubscriber:
        """Through the link."""
        return AsyncSubscriber(self.link.target, MERGE, **options)


class CuttableLink:
    """A TCP proxy. ``cut`` breaks its connections; new ones are refused until ``mend``. ``hush``: its present
    connections stay open and carry nothing any more, as if the machine at the other end had lost its power.
    """

    def __init__(self) -> None:
        self.port_to = 0
        self.connections = 0
        self.reads = 0  # pieces that clients have sent
        self._hushed: set[asyncio.StreamWriter] = set()
        self._is_cut = False
        self._goes_on = asyncio.Event()
        self._goes_on.set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=100)
        self._listener.setblocking(False)
        self.target = f"127.0.0.1:{self._listener.getsockname()[1]}"
        asyncio.get_running_loop().add_reader(self._listener, self._accept)

    async def stop(self) -> None:
        asyncio.get_running_loop().remove_reader(self._listener)
        self._listener.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def cut(self) -> None:
        self._is_cut = True
        for writer in self._writers:
            writer.transport.abort()

    def mend(self) -> None:
        self._is_cut = False

    def stall(self) -> None:
        """Take nothing from either side any more, as if the far process were stopped."""
        self._goes_on.clear()

    def go_on(self) -> None:
        self._goes_on.set()

    def hush(self) -> None:
        self._hushed |= self._writers

    def _accept(self) -> None:
        """Accept connections directly: each gets a task at once, which ``stop`` can cancel."""
        accepted, _ = self._listener.accept()
        self.connections += 1
        if self._is_cut:
            accepted.close()
            return
        accepted.setblocking(False)
        task = asyncio.create_task(self._carry(accepted))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(lambda _: accepted.close())  # also if the task never began

    async def _carry(self, accepted: socket.socket) -> None:
        """Carry both directions of a connection, until one of them ends."""
        opened: list[asyncio.StreamWriter] = []
        try:
            reader, writer = await asyncio.open_connection(sock=accepted)
            opened.append(writer)
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self.port_to)
            opened.append(far_writer)
            self._writers.update(opened)
            await asyncio.gather(
                self._pump(reader, far_writer, is_client=True), self._pump(far_reader, writer, is_client=False)
            )
        except OSError:
            pass  # the far side is not there
        finally:
            for writer in opened:
                self._writers.discard(writer)
                self._hushed.discard(writer)
                writer.transport.abort()

    async def _pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, *, is_client: bool) -> None:
        try:
            with suppress(OSError):
                while data := await source.read(65536):
                    await self._goes_on.wait()
                    self.reads += is_client
                    if sink not in self._hushed:
                        sink.write(data)
                        await sink.drain()
        finally:
            sink.transport.abort()


async def until(claim: Callable[[], Any]) -> None:
    """Return once ``claim`` holds."""
    while not claim():  # noqa: ASYNC110  # a claim may be about anything, so there is no event to wait for
        await asyncio.sleep(0.001)


class Reading:
    """A subscriber that is read in a task; what it has received is checked as a stream of its own."""

    def __init__(self, subscriber: AsyncSubscriber) -> None:
        self.subscriber = subscriber
        self.elements: list[Element] = []
        self.tdb = Tdb("received")
        self.task = asyncio.create_task(self._read())

    async def _read(self) -> None:
        async for batch in self.subscriber.batches():
            self.tdb.apply_batch(batch)
            self.elements += batch.elements()

    async def until(self, claim: Callable[[Tdb], Any]) -> None:
        """Return once ``claim`` holds of what was received; raises what ended the reading."""
        while not claim(self.tdb):
            if self.task.done():
                self.task.result()
                raise AssertionError(f"the stream ended with {self.tdb.events()}")
            await asyncio.sleep(0.001)

    async def until_events(self, *events: tuple[str, int, int]) -> None:
        await self.until(
            lambda tdb: (
                [(e.payload.decode(), e.vs, e.ve) for e in tdb.events()]
                == sorted(events, key=lambda e: (e[1], e[0], e[2]))
            )
        )

    async def begun(self) -> Reading:
        """Return once the snapshot has come: all that happens from here on will be delivered."""
        await until(lambda: self.subscriber.follower.final_to is not None)
        return self

    async def stop(self) -> None:
        self.subscriber.close()
        await self.task


async def publish_all(publisher: AsyncPublisher, stream: list[Element], random: Random) -> None:
    """Publish a stream in pieces, and close."""
    while stream:
        count = random.randint(1, 9)
        await publisher.publish(Batch.of(stream[:count]))
        del stream[:count]
        if random.random() < 0.4:
            await publisher.flush()
        await asyncio.sleep(0)
    await publisher.close()


class ThreadedWorld:
    """A World in a thread of its own, for tests of what blocks."""

    def __init__(self, world: World, loop: asyncio.AbstractEventLoop) -> None:
        self.world = world
        self._loop = loop

    @property
    def target(self) -> str:
        return self.world.link.target

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(60)

    def cut(self) -> None:
        self._loop.call_soon_threadsafe(self.world.link.cut)

    def mend(self) -> None:
        self._loop.call_soon_threadsafe(self.world.link.mend)


@contextmanager
def threaded_world(**settings: Any) -> Iterator[ThreadedWorld]:
    """A World whose loop runs in a thread."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    threaded = ThreadedWorld(World(**settings), loop)
    threaded.run(threaded.world.__aenter__())
    try:
        yield threaded
    finally:
        threaded.run(threaded.world.__aexit__())
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


class Cluster:
    """Servers that do not communicate: ``async with Cluster(2) as cluster``. A killed one loses its memory."""

    def __init__(self, count: int, **settings: Any) -> None:
        self.worlds = [World(**settings) for _ in range(count)]

    async def __aenter__(self) -> Cluster:
        for world in self.worlds:
            await world.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        for world in self.worlds:
            await world.__aexit__()

    @property
    def targets(self) -> str:
        """The addresses through the links."""
        return ",".join(world.link.target for world in self.worlds)

    async def kill(self, at: int) -> None:
        """Break the connections first, as when a process is killed: no peer receives a status."""
        self.worlds[at].link.cut()
        await self.worlds[at].server.stop(0.0)

    async def revive(self, at: int) -> None:
        world = self.worlds[at]
        await world.start()
        world.link.mend()

    def publisher(self, replica: str = "a", **options: Any) -> AsyncPublisher:
        return AsyncPublisher(self.targets, MERGE, replica, **options)

    def subscriber(self, **options: Any) -> AsyncSubscriber:
        return AsyncSubscriber(self.targets, MERGE, **options)
