"""One run: the machines of a scenario, its faults, and the verdict."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Final

from lmerge.addresses import DEFAULT_PORT
from lmerge.core.inputs import OBSERVE
from lmerge.testing.sim.environment import simulated
from lmerge.testing.sim.families import BOUNDED, PLAIN, PREVENTING, in_family
from lmerge.testing.sim.faults import Faults
from lmerge.testing.sim.loop import Deadlock, RunsForever, VirtualLoop
from lmerge.testing.sim.machines import ServerMachine, SimulatedMachine
from lmerge.testing.sim.network import Network
from lmerge.testing.sim.processes import SimulatedProcess
from lmerge.testing.sim.readers import SubscriberMachine, Witness
from lmerge.testing.sim.replicas import ReplicaMachine
from lmerge.testing.sim.scenario import Scenario, scenario
from lmerge.testing.sim.trace import Trace
from lmerge.testing.sim.verdict import Doubt, ReferenceEvents
from lmerge.testing.sim.wrong import WrongReplica

# Files of stores are real; a file system in memory makes their fsync cheap.
MEMORY_FOLDER: Final = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
# The time to settle after the last fault: the keepalive, two attempts to connect, their backoff, and all of it again.
SETTLE_S: Final = 120.0


@dataclass(frozen=True)
class Result:
    """The end of a run. ``problems``: empty if all is well."""

    scenario: Scenario
    problems: tuple[str, ...]
    digest: str
    lines: tuple[str, ...]
    virtual_s: float
    steps: int
    gaps: int
    compatible_checks: int

    @property
    def is_good(self) -> bool:
        return not self.problems

    def report(self, last: int = 60) -> str:
        """Return a text of what went wrong, what happened before, and how to run it again."""
        seed, family = self.scenario.seed, self.scenario.family
        return "\n".join((
            f"seed {seed} FAILED: {self.scenario}", *self.lines[-last:], *(f"  {problem}" for problem in self.problems),
            f"run it again: python -m lmerge.testing.sim --seed {seed} --family {family} --verbose",
        ))


class SimulatedWorld:
    """The machines, the network and the clock of a run."""

    def __init__(self, plan: Scenario, folder: Path, echo: Callable[[str], object] | None = None) -> None:
        self.scenario = plan
        self.folder = folder
        self.loop = VirtualLoop(time_max_s=1e6)
        self.trace = Trace(self.loop.time, echo, str(folder))
        self.network = Network(self.loop, Random(f"network {plan.seed}"), self.trace)
        self.network.weather.delay_s = plan.delay_s
        self.network.weather.window_bytes = plan.window_bytes
        self.reference = ReferenceEvents(plan.events)
        self.doubt = Doubt(self._promises_nothing)
        self.processes: list[SimulatedProcess] = []
        self.problems: list[str] = []
        self.over = asyncio.Event()
        self.is_over = False
        self._look = asyncio.Event()
        self.servers = [ServerMachine(self, f"s{n}", durable=plan.durable[n]) for n in range(plan.servers)]
        self.replicas = [ReplicaMachine(self, name) for name in "abcdefgh"[:plan.replicas]]
        self.replicas += [ReplicaMachine(self, f"o{n}", OBSERVE) for n in range(plan.observers)]
        self.subscribers = [SubscriberMachine(self, f"reader{n}") for n in range(plan.subscribers)]
        self.witnesses = [Witness(self, server) for server in self.servers]
        self.bad: list[SimulatedMachine] = []
        self.wrong: list[WrongReplica] = []

    @property
    def targets(self) -> str:
        """The addresses that clients connect to; a simulated network uses the hosts only."""
        return ",".join(f"{server.host}:{DEFAULT_PORT}" for server in self.servers)

    def _promises_nothing(self) -> bool:
        """Return whether a wrong replica may lead the output, under a policy that does not prevent it."""
        if self.scenario.divergence in PREVENTING:
            return False
        return any(wrong.may_lead and wrong.kind != BOUNDED for wrong in self.wrong)

    def fail(self, problem: str) -> None:
        """Record a check that has failed: the run is over."""
        self.problems.append(problem)
        self._look.set()

    def look(self) -> None:
        """Wake the run: a reader has ended."""
        self._look.set()

    def run(self) -> Result:
        """Run the whole scenario; return the result."""
        asyncio.set_event_loop(self.loop)
        try:
            with simulated(self.network, Random(f"clients {self.scenario.seed}"), self.trace):
                try:
                    self.loop.run_until_complete(self._run())
                except (Deadlock, RunsForever) as problem:
                    self.problems.append(f"{type(problem).__name__}: {problem}")
                steps, virtual_s, digest = self.loop.steps, self.loop.time(), self.trace.digest
                self._end()
        finally:
            asyncio.set_event_loop(None)
            self.loop.close()
        return Result(
            self.scenario, tuple(self.problems), digest, tuple(self.trace.lines), virtual_s, steps,
            sum(reader.gaps for reader in self.subscribers),
            sum(watch.compatible_checks for server in self.servers for watch in server.watches),
        )

    async def _run(self) -> None:
        self.trace.note("world", str(self.scenario))
        machines: list[SimulatedMachine] = [*self.servers, *self.replicas, *self.subscribers, *self.witnesses]
        for machine in machines:
            self.loop.after(machine.random.uniform(0.0, 0.2), machine.start)
        Faults(self).schedule()
        deadline = self.scenario.healed_at_s + SETTLE_S
        timer = self.loop.after(deadline, self._look.set)
        while not self.problems and not all(reader.is_complete for reader in self.subscribers):
            self._look.clear()
            await self._look.wait()
            if self.loop.time() >= deadline:
                self.problems.append(self._stuck())
        timer.cancel()
        for server in self.servers:
            if server.merge is not None:
                server.merge.check_output()
            self.problems += server.problems()
        self.problems += self.loop.problems

    def _stuck(self) -> str:
        """Return a text of the readers that wait, and of the merges."""
        readers = ", ".join(
            f"{r.process} at {r.stream.stable_point}" for r in self.subscribers if not r.is_complete
        )
        merges = ", ".join(
            f"{s.process} at {s.merge.stable_point} with "
            f"{[(i.name, i.state, i.stable_point) for i in s.merge.inputs()]}" if s.merge is not None
            else f"{s.process} without a merge" for s in self.servers
        )
        return f"not over {SETTLE_S:.0f} s after the last fault: {readers}; {merges}"

    def _end(self) -> None:
        """Let every task end, those of dead processes as well, without a network."""
        self.is_over = self.network.closed = True
        self.over.set()
        for connection in list(self.network.connections):
            connection.break_at_client("the run is over")
            connection.break_at_server("the run is over")
        self.loop.ending = True
        for process in self.processes:
            process.unwind()
        self.loop.unwind()
        self.loop.run_until_complete(self.loop.shutdown_asyncgens())


def run(
    seed: int, echo: Callable[[str], object] | None = None, family: str = PLAIN, kinds: tuple[str, ...] | None = None,
) -> Result:
    """Run the scenario of a seed. ``kinds``: of faults of the family; None: all of them."""
    with TemporaryDirectory(prefix="lmerge-sim-", dir=MEMORY_FOLDER) as folder:
        return SimulatedWorld(in_family(scenario(seed), family, kinds), Path(folder), echo).run()
