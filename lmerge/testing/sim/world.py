"""The surroundings of a run's machines: the plan, the clock, the network and the disks, and where checks report.

Machines know their world; the world knows no machine. ``run`` puts machines into it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from random import Random

from lmerge.addresses import DEFAULT_PORT
from lmerge.testing.sim.loop import VirtualLoop
from lmerge.testing.sim.network import Network
from lmerge.testing.sim.processes import SimulatedProcess
from lmerge.testing.sim.scenario import Scenario
from lmerge.testing.sim.trace import Trace
from lmerge.testing.sim.verdict import Doubt, ReferenceEvents


class SimulatedWorld:
    """The clock and the network of a run.

    ``folder``: of the disks. ``is_misled``: whether a wrong replica may lead the output now, under a policy that does
    not prevent it.
    """

    def __init__(self, plan: Scenario, folder: Path, echo: Callable[[str], object] | None = None) -> None:
        self.scenario = plan
        self.folder = folder
        self.loop = VirtualLoop(time_max_s=1e6)
        self.trace = Trace(self.loop.time, echo, str(folder))
        self.network = Network(self.loop, Random(f"network {plan.seed}"), self.trace)
        self.network.weather.delay_s = plan.delay_s
        self.network.weather.window_bytes = plan.window_bytes
        self.reference = ReferenceEvents(plan.events)
        self.is_misled: Callable[[], bool] = lambda: False
        self.doubt = Doubt(lambda: self.is_misled())
        self.processes: list[SimulatedProcess] = []
        self.problems: list[str] = []
        self.over = asyncio.Event()
        self.is_over = False
        self.changed = asyncio.Event()  # a reader has ended, or a check has failed

    @property
    def server_hosts(self) -> list[str]:
        return [f"s{n}" for n in range(self.scenario.servers)]

    @property
    def targets(self) -> str:
        """The addresses that clients connect to; a simulated network uses the hosts only."""
        return ",".join(f"{host}:{DEFAULT_PORT}" for host in self.server_hosts)

    def fail(self, problem: str) -> None:
        """Record a check that has failed: the run is over."""
        self.problems.append(problem)
        self.changed.set()

    def look(self) -> None:
        """Wake the run: a reader has ended."""
        self.changed.set()
