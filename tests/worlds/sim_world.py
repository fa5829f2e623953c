"""Helpers of the simulation's tests: a loop, processes and a network of their own."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from random import Random
from typing import Any

from lmerge.testing.sim.calls import Channel
from lmerge.testing.sim.loop import VirtualLoop
from lmerge.testing.sim.network import Network, SimulatedConnection
from lmerge.testing.sim.processes import SimulatedProcess
from lmerge.testing.sim.server import ServerContext
from lmerge.testing.sim.trace import Trace


class SmallNetwork:
    """Two processes and a network: ``client`` on host c, ``server`` on host s."""

    def __init__(self, seed: int = 1) -> None:
        self.loop = VirtualLoop(time_max_s=1000.0, steps_max=100_000)
        self.trace = Trace(self.loop.time)
        self.network = Network(self.loop, Random(seed), self.trace)
        self.client = self.process("c")
        self.server = self.process("s")

    def process(self, host: str) -> SimulatedProcess:
        return SimulatedProcess(self.loop, host, host, Random(1))

    def channel(self) -> Channel:
        return Channel(self.network, self.client, "s")

    def serve(self, handler: Any) -> None:
        """``handler(context)`` serves every call to s."""

        async def served(connection: SimulatedConnection) -> None:
            await handler(ServerContext(connection))

        self.network.listen("s", self.server, served)

    def run(self, coroutine: Coroutine[Any, Any, Any], *, process: SimulatedProcess | None = None) -> Any:
        """Run a coroutine in a process, the client by default; return its result."""

        async def main() -> Any:
            return await (process or self.client).spawn(coroutine)

        asyncio.set_event_loop(self.loop)
        try:
            return self.loop.run_until_complete(main())
        finally:
            asyncio.set_event_loop(None)

    def close(self) -> None:
        for process in (self.client, self.server):
            process.unwind()
        self.network.closed = True
        self.loop.ending = True
        self.loop.unwind()
        self.loop.close()
