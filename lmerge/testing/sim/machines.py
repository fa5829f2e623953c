"""The machines of a run, each with one process at a time that can die and come back; and the servers among them.

A machine supervises its process: one that was killed, or that ended with an error, is started again after a while.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from random import Random
from typing import Any, Final

from lmerge.errors import LmergeError
from lmerge.service.merge.hub import Hub
from lmerge.testing.sim.disk import Disk
from lmerge.testing.sim.families import WRONG
from lmerge.testing.sim.processes import ProcessState, SimulatedProcess
from lmerge.testing.sim.server import ServerProcess
from lmerge.testing.sim.verdict import Contradiction
from lmerge.testing.sim.watch import MergeWatch, WatchedMerge, WatchedSettings
from lmerge.testing.sim.world import SimulatedWorld
from lmerge.time_limit import time_limit

MERGE: Final = "flights"
# The end of a trouble is noticed within an attempt to connect and the pause before it.
NOTICED_S: Final = 8.0
DRAIN_S: Final = 5.0


class SimulatedMachine:
    """A host with a process, which is started again after it has died."""

    def __init__(self, world: SimulatedWorld, host: str) -> None:
        self.world = world
        self.host = host
        self.random = Random(f"{world.scenario.seed} {host}")
        self.lives = 0
        self.skew_us = 0
        self.trouble_s = 0.0  # the machine is in trouble up to this time
        self.process = self._new_process()

    @property
    def is_running(self) -> bool:
        return self.process.is_alive and self.lives > 0

    def kill(self, *, silently: bool, back_after_s: float | None) -> None:
        """SIGKILL the process; ``silently``: the machine loses its power. It is started again after a while."""
        if not self.is_running:
            return
        self.world.trace.note(self.process, "is killed" + (", and its machine goes with it" if silently else ""))
        self.process.kill()
        self.world.network.killed(self.process, silently=silently)
        if back_after_s is not None:
            self.world.loop.after(back_after_s, self.start_again)

    def start_again(self) -> None:
        """Start a process if none runs here."""
        if not self.is_running and not self.world.is_over:
            self.start()

    def troubled(self, lasts_s: float) -> None:
        """Note that the machine is in trouble for ``lasts_s``."""
        self.trouble_s = max(self.trouble_s, self.world.loop.time() + lasts_s)

    def start(self) -> None:
        """Start a new process."""
        self.lives += 1
        self.troubled(0.0)
        self.process = self._new_process()
        self.process.spawn(self._life(self.process), "main")

    def _new_process(self) -> SimulatedProcess:
        world = self.world
        name = f"{self.host}.{self.lives}"
        process = SimulatedProcess(world.loop, self.host, name, Random(f"{world.scenario.seed} {name}"))
        process.skew_us = self.skew_us
        world.processes.append(process)
        return process

    async def _life(self, process: SimulatedProcess) -> None:
        world = self.world
        world.trace.note(process, "starts")
        try:
            await self._main(process)
        except Contradiction as problem:
            world.fail(f"{process}: {problem}")
        except LmergeError as error:
            world.trace.note(process, f"ends: {type(error).__name__}: {error}")
            self._ended(process, error)
        except asyncio.CancelledError:
            raise
        except Exception as bug:
            world.fail(f"{process}: {type(bug).__name__}: {bug}")

    def _ended(self, process: SimulatedProcess, error: LmergeError) -> None:
        """Handle the end of a process with an error."""
        process.kill()
        self.world.network.killed(process, silently=False)
        if process is self.process:
            self.world.loop.after(self.random.uniform(0.1, 1.0), self.start_again)

    def _main(self, process: SimulatedProcess) -> Coroutine[Any, Any, None]:
        raise NotImplementedError


class ServerMachine(SimulatedMachine):
    """A server that is started again with an empty memory, and with its store if it is durable."""

    def __init__(self, world: SimulatedWorld, host: str, *, durable: bool) -> None:
        self.disk: Disk | None = Disk(world.folder / host, world.network.random) if durable else None
        self.server: ServerProcess | None = None
        self.watches: list[MergeWatch] = []
        self._draining: SimulatedProcess | None = None
        super().__init__(world, host)

    async def _main(self, process: SimulatedProcess) -> None:
        world, scenario = self.world, self.world.scenario
        watch = MergeWatch(world.reference, Random(f"{scenario.seed} {process.name}"), process.name)
        watch.has_spurious = scenario.facets.number("invented") > 0
        watch.inputs_are_complete = scenario.feedback_lag is None and scenario.family != WRONG
        watch.doubt = world.doubt
        watch.hub = lambda: self.hub if self.process is process else None
        self.watches.append(watch)
        process.disk, process.disk_s = self.disk, scenario.disk_s
        settings = WatchedSettings(
            http_port=None,
            policy=scenario.policy,
            closing=scenario.closing,
            engine=scenario.engine,
            feedback_lag=scenario.feedback_lag,
            retain_bytes=scenario.retain_bytes,
            segment_bytes=scenario.segment_bytes,
            divergence=scenario.divergence,
            certify_interval=scenario.certify_interval,
            lead_max=scenario.lead_max,
            lead_wait_s=scenario.lead_wait_s,
            record_path=self._record_path(),
            store=None if self.disk is None else str(self.disk.path),
            watch=watch,
        )
        self.server = ServerProcess(process, world.network, self.host, settings)

    def _record_path(self) -> str | None:
        """Return a file for this life: a recorded session starts with a fresh merge."""
        if not self.world.scenario.records or self.disk is None:
            return None
        return str(self.disk.path / f"{{merge}}.{self.lives}.jsonl")

    @property
    def durable(self) -> bool:
        return self.disk is not None

    def kill(self, *, silently: bool, back_after_s: float | None) -> None:
        if self.is_running and self.disk is not None:
            self.disk.crash()
        super().kill(silently=silently, back_after_s=back_after_s)

    def drain(self, back_after_s: float) -> None:
        """Stop the server in good order, and start it again after a while."""
        if self.server is None or self._draining is self.process:
            return
        if self.process.state is ProcessState.RUNNING:
            self._draining = self.process
            self.process.spawn(self._drain(self.process, self.server, back_after_s), "drains")

    async def _drain(self, process: SimulatedProcess, server: ServerProcess, back_after_s: float) -> None:
        self.world.trace.note(process, "drains")
        try:
            async with time_limit(DRAIN_S):
                await server.registry.drain()
        except asyncio.TimeoutError:
            self.world.trace.note(process, "could not drain in time")
        await asyncio.sleep(0.01)  # the last messages are on their way
        await server.stop()
        if process is self.process:
            self.kill(silently=False, back_after_s=back_after_s)

    @property
    def hub(self) -> Hub | None:
        """The hub of the present life."""
        return self.server.registry.hubs.get(MERGE) if self.server is not None else None

    def problems(self) -> list[str]:
        """Return the problems that were found at this server, over all its lives."""
        found = [problem for watch in self.watches for problem in watch.problems]
        if self.server is not None:
            found += [f"{self.process}: a merge failed: {crash!r}" for crash in self.server.crashes]
        return found

    def can_serve(self, start: int, reader: SimulatedMachine) -> bool:
        """Return whether a reader that has everything before ``start`` could have received here what comes next.

        It could if both machines have been without trouble for so long that they must have connected.
        """
        hub = self.hub
        quiet_s = self.world.loop.time() - max(self.trouble_s, reader.trouble_s)
        if self.process.state is not ProcessState.RUNNING or hub is None or quiet_s < NOTICED_S:
            return False
        return hub.state.retained_from <= start

    @property
    def merge(self) -> WatchedMerge | None:
        """The merge of the present life, if there is one."""
        hub = self.hub if self.is_running else None
        return hub.state.merge if hub is not None and isinstance(hub.state.merge, WatchedMerge) else None
