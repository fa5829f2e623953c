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

from lmerge.testing.sim.environment import simulated
from lmerge.testing.sim.families import BOUNDED, PLAIN, PREVENTING, in_family
from lmerge.testing.sim.faults import Faults
from lmerge.testing.sim.loop import Deadlock, RunsForever
from lmerge.testing.sim.population import Population
from lmerge.testing.sim.scenario import Scenario, scenario
from lmerge.testing.sim.world import SimulatedWorld

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
        return "\n".join(
            (
                f"seed {seed} FAILED: {self.scenario}",
                *self.lines[-last:],
                *(f"  {problem}" for problem in self.problems),
                f"run it again: python -m lmerge.testing.sim --seed {seed} --family {family} --verbose",
            )
        )


class SimulatedRun:
    """One run of a scenario: a world and the machines in it."""

    def __init__(self, plan: Scenario, folder: Path, echo: Callable[[str], object] | None = None) -> None:
        self.scenario = plan
        self.world = SimulatedWorld(plan, folder, echo)
        self.machines = Population(self.world)
        self.world.is_misled = self._is_misled

    def _is_misled(self) -> bool:
        """Return whether a wrong replica may lead the output, under a policy that does not prevent it."""
        if self.scenario.divergence in PREVENTING:
            return False
        return any(wrong.may_lead and wrong.kind != BOUNDED for wrong in self.machines.wrong)

    def run(self) -> Result:
        """Run the whole scenario; return the result."""
        asyncio.set_event_loop(self.world.loop)
        try:
            with simulated(self.world.network, Random(f"clients {self.scenario.seed}"), self.world.trace):
                try:
                    self.world.loop.run_until_complete(self._run())
                except (Deadlock, RunsForever) as problem:
                    self.world.problems.append(f"{type(problem).__name__}: {problem}")
                steps, virtual_s, digest = self.world.loop.steps, self.world.loop.time(), self.world.trace.digest
                self._end()
        finally:
            asyncio.set_event_loop(None)
            self.world.loop.close()
        return Result(
            self.scenario,
            tuple(self.world.problems),
            digest,
            tuple(self.world.trace.lines),
            virtual_s,
            steps,
            sum(reader.gaps for reader in self.machines.subscribers),
            sum(watch.compatible_checks for server in self.machines.servers for watch in server.watches),
        )

    async def _run(self) -> None:
        self.world.trace.note("world", str(self.scenario))
        for machine in (*self.machines.planned, *self.machines.witnesses):
            self.world.loop.after(machine.random.uniform(0.0, 0.2), machine.start)
        Faults(self.world, self.machines).schedule()
        deadline = self.scenario.healed_at_s + SETTLE_S
        timer = self.world.loop.after(deadline, self.world.changed.set)
        while not self.world.problems and not all(reader.is_complete for reader in self.machines.subscribers):
            self.world.changed.clear()
            await self.world.changed.wait()
            if self.world.loop.time() >= deadline:
                self.world.problems.append(self._stuck())
        timer.cancel()
        for server in self.machines.servers:
            if server.merge is not None:
                server.merge.check_output()
            self.world.problems += server.problems()
        self.world.problems += self.world.loop.problems

    def _stuck(self) -> str:
        """Return a text of the readers that wait, and of the merges."""
        readers = ", ".join(
            f"{r.process} at {r.stream.stable_point}" for r in self.machines.subscribers if not r.is_complete
        )
        merges = ", ".join(
            f"{s.process} at {s.merge.stable_point} with "
            f"{[(i.name, i.state, i.stable_point) for i in s.merge.inputs()]}"
            if s.merge is not None
            else f"{s.process} without a merge"
            for s in self.machines.servers
        )
        return f"not over {SETTLE_S:.0f} s after the last fault: {readers}; {merges}"

    def _end(self) -> None:
        """Let every task end, those of dead processes as well, without a network."""
        self.world.is_over = self.world.network.closed = True
        self.world.over.set()
        for connection in list(self.world.network.connections):
            connection.break_at_client("the run is over")
            connection.break_at_server("the run is over")
        self.world.loop.ending = True
        for process in self.world.processes:
            process.unwind()
        self.world.loop.unwind()
        self.world.loop.run_until_complete(self.world.loop.shutdown_asyncgens())


def run(
    seed: int, echo: Callable[[str], object] | None = None, family: str = PLAIN, kinds: tuple[str, ...] | None = None
) -> Result:
    """Run the scenario of a seed. ``kinds``: of faults of the family; None: all of them."""
    with TemporaryDirectory(prefix="lmerge-sim-", dir=MEMORY_FOLDER) as folder:
        return SimulatedRun(in_family(scenario(seed), family, kinds), Path(folder), echo).run()
