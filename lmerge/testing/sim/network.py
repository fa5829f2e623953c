"""A network of virtual time: hosts, links that can be cut, and connections that carry messages as bytes.

A connection has two pipes. A message takes a random delay and arrives in order. A pipe holds a window of bytes that
were not read; beyond it the writer waits, as with the flow control of HTTP/2. What can go wrong:

* a **cut** connection: of what is under way a random beginning arrives, the rest is lost. Each end notices the cut at
  another time, one of them perhaps only by its keepalive (half open);
* a **partition** of two hosts, one way or both: what is sent waits, as TCP sends it again; if the partition lasts
  longer than the keepalive, both ends give the connection up;
* a host that is **paused**: its kernel still takes bytes; if it lasts, the other ends give up;
* a **killed** process: its peers receive a reset, or, if the machine has gone with it, nothing until the keepalive.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from random import Random
from typing import Any, Final

from lmerge.testing.sim.loop import VirtualLoop
from lmerge.testing.sim.processes import ProcessState, SimulatedProcess
from lmerge.testing.sim.trace import Trace

END: Final = None  # what a pipe returns after the last message
Handler = Callable[["SimulatedConnection"], Coroutine[Any, Any, None]]


@dataclass
class Weather:
    """The behaviour of the network, in seconds and bytes; the scenario changes it."""

    delay_s: tuple[float, float] = (0.0002, 0.003)
    window_bytes: int = 64 * 1024
    keepalive_s: tuple[float, float] = (10.0, 15.0)  # the sums of the settings of client and server
    connect_timeout_s: float = 5.0


class Pipe:
    """One direction of a connection: messages of bytes in order, with a delay and a window."""

    def __init__(self, network: Network, source: SimulatedProcess, target: SimulatedProcess) -> None:
        self._network = network
        self._source, self._target = source, target
        self._under_way: deque[bytes | None] = deque()
        self._arrived: deque[bytes | None] = deque()
        self._unread = 0  # bytes that the writer counts against the window
        self._last_arrival = 0.0
        self._waiting_to_read: asyncio.Future[None] | None = None
        self._waiting_to_write: deque[asyncio.Future[None]] = deque()
        self._stalled = False  # the next message waits for a partition to heal
        self.is_lost = False  # what is sent from here on is dropped
        self.broken = False  # reading ends, writing fails
        self.on_end: Callable[[], None] | None = None  # END has arrived

    async def write(self, message: bytes) -> bool:
        """Send a message; wait while the window is full. Returns False if the connection is broken."""
        while not self.broken and self._unread >= self._network.weather.window_bytes:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting_to_write.append(waiter)
            await waiter
        if self.broken:
            return False
        self._unread += len(message)
        self._send(message)
        return True

    def end(self) -> None:
        """Send the end of the stream."""
        if not self.broken:
            self._send(END)

    async def read(self) -> bytes | None:
        """Return the next message; END after the last one, or when the connection is broken."""
        while not self._arrived:
            if self.broken:
                return END
            self._waiting_to_read = asyncio.get_running_loop().create_future()
            await self._waiting_to_read
        message = self._arrived[0]
        if message is not END:
            self._arrived.popleft()
            self._unread -= len(message)
            self._wake_writers()
        return message

    @property
    def is_at_end(self) -> bool:
        """Whether everything was read and nothing more will come."""
        return self.broken or (len(self._arrived) > 0 and self._arrived[0] is END)

    def lose(self, random: Random) -> None:
        """Drop a random end of what is under way."""
        keep = random.randint(0, len(self._under_way))
        while len(self._under_way) > keep:
            self._under_way.pop()
        self.is_lost = True

    def break_(self, *, drop: bool) -> None:
        """Break the pipe at one end. ``drop``: what arrived and was not read is dropped too."""
        self.broken = True
        if drop:
            self._arrived.clear()
        self._wake_reader()
        self._wake_writers()

    def healed(self) -> None:
        """Let what waited go on, after the end of a partition."""
        if self._stalled:
            self._stalled = False
            self._last_arrival = 0.0
            for _ in self._under_way:
                self._schedule()

    def _send(self, message: bytes | None) -> None:
        if self.is_lost:
            return
        self._under_way.append(message)
        if not self._stalled:
            self._schedule()

    def _schedule(self) -> None:
        network = self._network
        arrival = network.loop.time() + network.delay_s()
        self._last_arrival = arrival = max(arrival, self._last_arrival + 1e-6)
        network.loop.at(arrival, self._arrive)

    def _arrive(self) -> None:
        if not self._under_way or self._stalled:
            return
        if self._network.is_blocked(self._source, self._target):
            self._stalled = True
            return
        message = self._under_way.popleft()
        if self.broken:
            return
        if message is not END:
            self._network.trace.saw(message)
        self._arrived.append(message)
        if message is END and self.on_end is not None:
            self.on_end()
        self._wake_reader()

    def _wake_reader(self) -> None:
        waiter, self._waiting_to_read = self._waiting_to_read, None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    def _wake_writers(self) -> None:
        while self._waiting_to_write:
            waiter = self._waiting_to_write.popleft()
            if not waiter.done():
                waiter.set_result(None)


class SimulatedConnection:
    """One call between two processes. ``up`` is the client's direction."""

    def __init__(self, network: Network, client: SimulatedProcess, server: SimulatedProcess, method: str) -> None:
        self.network = network
        self.client, self.server, self.method = client, server, method
        self.up = Pipe(network, client, server)
        self.down = Pipe(network, server, client)
        self.client_gone: Callable[[str], None] = _nothing  # called when the client's end breaks
        self.server_gone: Callable[[str], None] = _nothing
        self.status: tuple[Any, str] | None = None  # what the server ended the call with
        self.is_cut = False
        self.is_over = False
        self._at_client = self._at_server = True  # whether the end still holds the connection open

    def __repr__(self) -> str:
        return f"{self.client} to {self.server} {self.method.rpartition('/')[2]}"

    def cut(self, *, why: str, client_s: float | None, server_s: float | None) -> None:
        """Break the connection; each end notices it after its delay, None: by its keepalive."""
        if self.is_cut or self.is_over:
            return
        self.is_cut = True
        network = self.network
        self.up.lose(network.random)
        self.down.lose(network.random)
        for delay, give_up in ((client_s, self.break_at_client), (server_s, self.break_at_server)):
            network.loop.after(network.keepalive_s() if delay is None else delay, give_up, why)

    def break_at_client(self, why: str) -> None:
        """Give the connection up at the client's end. What arrived and was not read is dropped, as in gRPC."""
        if self._at_client and not self.is_over:
            self._at_client = False
            self.is_cut = True
            self.up.break_(drop=False)
            self.down.break_(drop=True)
            self.client_gone(why)
            self._if_over()

    def break_at_server(self, why: str) -> None:
        """Give the connection up at the server's end."""
        if self._at_server and not self.is_over:
            self._at_server = False
            self.is_cut = True
            self.up.break_(drop=True)
            self.server_gone(why)
            self._if_over()

    def over(self) -> None:
        """Note that the call has ended at both ends."""
        self.is_over = True
        self.network.forget(self)

    def _if_over(self) -> None:
        if not self._at_client and not self._at_server:
            self.over()


class Network:
    """The listening processes, the partitions, and all connections."""

    def __init__(self, loop: VirtualLoop, random: Random, trace: Trace) -> None:
        self.loop, self.random, self.trace = loop, random, trace
        self.weather = Weather()
        self.connections: dict[SimulatedConnection, None] = {}
        self.closed = False  # the run is over
        self.blocked_since: dict[tuple[str, str], float] = {}  # (from host, to host)
        self._listening: dict[str, tuple[SimulatedProcess, Handler]] = {}

    def delay_s(self) -> float:
        return self.random.uniform(*self.weather.delay_s)

    def keepalive_s(self) -> float:
        return self.random.uniform(*self.weather.keepalive_s)

    # Servers and clients.

    def listen(self, address: str, process: SimulatedProcess, handler: Handler) -> None:
        """Serve each connection to ``address`` with ``handler``, in ``process``, until the process dies."""
        self._listening[address] = (process, handler)
        process.when_dead[lambda: self._unlisten(address, process)] = None

    async def connect(self, client: SimulatedProcess, address: str, method: str) -> SimulatedConnection | str:
        """Return a connection, or the reason why there is none."""
        if self.closed:
            return "the run is over"
        loop = self.loop
        started = loop.time()
        await self._wait(2 * self.delay_s())
        while True:
            process, handler = self._listening.get(address, (None, None))
            if process is None or handler is None:
                return "Connection refused"
            is_cut = self.is_blocked(client, process) or self.is_blocked(process, client)
            is_silent = is_cut or process.state is ProcessState.PAUSED
            if not is_silent:
                break
            if loop.time() - started >= self.weather.connect_timeout_s or self.closed:
                return "connection attempt timed out"
            await self._wait(0.2)
        connection = SimulatedConnection(self, client, process, method)
        self.connections[connection] = None
        process.spawn(handler(connection), f"serves {connection}")
        return connection

    async def _wait(self, seconds: float) -> None:
        """Sleep by the network's clock, which goes on for a paused process."""
        passed: asyncio.Future[None] = self.loop.create_future()
        self.loop.after(seconds, _pass, passed)
        await passed

    def forget(self, connection: SimulatedConnection) -> None:
        self.connections.pop(connection, None)

    # Faults.

    def is_blocked(self, source: SimulatedProcess, target: SimulatedProcess) -> bool:
        return (source.host, target.host) in self.blocked_since

    def block(self, source: str, target: str) -> None:
        """Let nothing that ``source`` sends arrive at ``target`` any more."""
        self.blocked_since.setdefault((source, target), self.loop.time())
        since = self.blocked_since[source, target]
        self.loop.after(self.keepalive_s(), self._give_up_blocked, source, target, since)

    def heal(self, source: str, target: str) -> None:
        """Undo ``block``."""
        if self.blocked_since.pop((source, target), None) is None:
            return
        for connection in list(self.connections):
            connection.up.healed()
            connection.down.healed()

    def cut_some(self, chance: float) -> int:
        """Break connections at random, in one of the ways in which they can break. Returns how many."""
        count = 0
        for connection in list(self.connections):
            if not connection.is_cut and self.random.random() < chance:
                quick = (self.random.uniform(0.0, 0.05), self.random.uniform(0.0, 0.05))
                half_open = self.random.choice((None, None, None, None, 0, 1))
                delays = [None if half_open == at else delay for at, delay in enumerate(quick)]
                connection.cut(why="connection reset", client_s=delays[0], server_s=delays[1])
                count += 1
        return count

    def killed(self, process: SimulatedProcess, *, silently: bool) -> None:
        """Cut the connections of a process that has gone; ``silently``: with its machine, so without a reset."""
        reset = None if silently else 0.0
        for connection in list(self.connections):
            if connection.client is process:
                delay = reset if reset is None else self.delay_s()
                connection.cut(why="connection reset by peer", client_s=0.0, server_s=delay)
            elif connection.server is process:
                delay = reset if reset is None else self.delay_s()
                connection.cut(why="connection reset by peer", client_s=delay, server_s=0.0)

    def paused(self, process: SimulatedProcess, still_is: Callable[[], bool]) -> None:
        """Let the peers of a paused process give it up if the pause lasts."""
        self.loop.after(self.keepalive_s(), self._give_up_paused, process, still_is)

    def _give_up_paused(self, process: SimulatedProcess, still_is: Callable[[], bool]) -> None:
        if not still_is():
            return
        for connection in list(self.connections):
            if connection.client is process:
                connection.cut(why="keepalive: no answer", client_s=self.delay_s(), server_s=0.0)
            elif connection.server is process:
                connection.cut(why="keepalive: no answer", client_s=0.0, server_s=self.delay_s())
        self.paused(process, still_is)

    def _give_up_blocked(self, source: str, target: str, since: float) -> None:
        if self.blocked_since.get((source, target)) != since:
            return
        for connection in list(self.connections):
            hosts = (connection.client.host, connection.server.host)
            if hosts in ((source, target), (target, source)):
                wait = self.random.uniform(0.0, 2.0)
                connection.cut(why="keepalive: no answer", client_s=wait, server_s=self.random.uniform(0.0, 2.0))
        self.loop.after(self.keepalive_s(), self._give_up_blocked, source, target, since)

    def _unlisten(self, address: str, process: SimulatedProcess) -> None:
        if self._listening.get(address, (None,))[0] is process:
            del self._listening[address]


def _pass(passed: asyncio.Future[None]) -> None:
    if not passed.done():
        passed.set_result(None)


def _nothing(why: str) -> None:
    """Do nothing: no end is connected yet."""
