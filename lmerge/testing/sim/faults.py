"""The faults of a scenario, carried out: each hits something that runs at its time, lasts, and heals."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from lmerge.testing.sim.disk import Disk
from lmerge.testing.sim.families import HOSTILE, KINDS, WRONG
from lmerge.testing.sim.hostile import HostileClient
from lmerge.testing.sim.machines import DRAIN_S, SimulatedMachine
from lmerge.testing.sim.population import Population
from lmerge.testing.sim.processes import ProcessState, SimulatedProcess
from lmerge.testing.sim.replicas import BadReplica
from lmerge.testing.sim.scenario import PlannedFault
from lmerge.testing.sim.world import SimulatedWorld
from lmerge.testing.sim.wrong import WrongReplica

T = TypeVar("T")


class Faults:
    """Applies the faults of a world's scenario to its machines."""

    def __init__(self, world: SimulatedWorld, machines: Population) -> None:
        self.world = world
        self.machines = machines
        self._hits: dict[str, Callable[[PlannedFault], None]] = {
            "kill-replica": lambda fault: self._kill(self.machines.replicas, fault),
            "kill-server": lambda fault: self._kill(self.machines.servers, fault),
            "kill-subscriber": lambda fault: self._kill(self.machines.subscribers, fault),
            "silent": self._silent,
            "pause": self._pause,
            "partition": self._partition,
            "cut": self._cut,
            "clock": self._clock,
            "slow-disk": self._slow_disk,
            "disk-full": self._disk_full,
            "drain": self._drain,
            "outage": self._outage,
            "zombie": lambda fault: _pick(self.machines.replicas, fault).replace(fault.lasts_s),
            "leave": lambda fault: _pick(self.machines.replicas, fault).leave(fault.lasts_s),
            "bad-input": self._bad_input,
            "store-full": self._disk_full,
            "record-full": self._disk_full,
            "full-from-the-start": self._disk_full,
            **dict.fromkeys(KINDS[HOSTILE], self._hostile),
            **dict.fromkeys(KINDS[WRONG], self._wrong),
        }

    def schedule(self) -> None:
        """Set a timer for each fault."""
        for fault in self.world.scenario.faults:
            self.world.loop.at(fault.at_s, self._hit, fault)

    def _hit(self, fault: PlannedFault) -> None:
        self._hits[fault.kind](fault)

    def _kill(self, machines: Sequence[SimulatedMachine], fault: PlannedFault) -> None:
        machine = _pick(machines, fault)
        machine.troubled(fault.lasts_s)
        machine.kill(silently=False, back_after_s=fault.lasts_s)

    def _silent(self, fault: PlannedFault) -> None:
        machine = _pick(self.machines.planned, fault)
        machine.troubled(fault.lasts_s)
        machine.kill(silently=True, back_after_s=fault.lasts_s)

    def _drain(self, fault: PlannedFault) -> None:
        server = _pick(self.machines.servers, fault)
        server.troubled(fault.lasts_s + DRAIN_S)
        server.drain(fault.lasts_s)

    def _outage(self, fault: PlannedFault) -> None:
        for server in self.machines.servers:
            server.troubled(fault.lasts_s)
            server.kill(silently=False, back_after_s=fault.lasts_s)

    def _pause(self, fault: PlannedFault) -> None:
        machine, world = _pick(self.machines.planned, fault), self.world
        process = machine.process
        if not machine.is_running or process.state is not ProcessState.RUNNING:
            return
        machine.troubled(fault.lasts_s)
        world.trace.note(process, f"is stopped for {fault.lasts_s:.1f} s")
        process.pause()
        world.network.paused(process, lambda: process.state is ProcessState.PAUSED)
        world.loop.after(fault.lasts_s, self._go_on, process)

    def _go_on(self, process: SimulatedProcess) -> None:
        self.world.trace.note(process, "goes on")
        process.go_on()

    def _partition(self, fault: PlannedFault) -> None:
        world = self.world
        clients = [*self.machines.replicas, *self.machines.subscribers]
        machine = _pick(clients, fault)
        machine.troubled(fault.lasts_s)
        client, server = machine.host, world.network.random.choice(world.server_hosts)
        ways = world.network.random.choice(
            (((client, server), (server, client)), ((client, server),), ((server, client),))
        )
        for source, target in ways:
            world.trace.note("network", f"{source} cannot reach {target}")
            world.network.block(source, target)
            world.loop.after(fault.lasts_s, self._heal, source, target)

    def _heal(self, source: str, target: str) -> None:
        self.world.trace.note("network", f"{source} can reach {target} again")
        self.world.network.heal(source, target)

    def _cut(self, fault: PlannedFault) -> None:
        for reader in self.machines.subscribers:
            reader.troubled(0.0)
        count = self.world.network.cut_some(fault.pick)
        self.world.trace.note("network", f"{count} connections break")

    def _clock(self, fault: PlannedFault) -> None:
        machine = _pick(self.machines.planned, fault)
        world, random = self.world, self.world.network.random
        skew = int(random.choice((-1, 1)) * fault.lasts_s * 10 ** random.randint(0, 6) * 1e6)
        world.trace.note(machine.host, f"wall clock is wrong by {skew} us")
        machine.skew_us = machine.process.skew_us = skew
        world.loop.after(fault.lasts_s, self._clock_right, machine)

    def _clock_right(self, machine: SimulatedMachine) -> None:
        self.world.trace.note(machine.host, "wall clock is right")
        machine.skew_us = machine.process.skew_us = 0

    def _disk_full(self, fault: PlannedFault) -> None:
        server = _pick(self.machines.servers, fault)
        if server.disk is not None:
            self.world.trace.note(server.host, "disk is full")
            server.disk.is_full = True
            server.troubled(fault.lasts_s)
            self.world.loop.after(fault.lasts_s, self._disk_empty, server.host, server.disk)

    def _disk_empty(self, host: str, disk: Disk) -> None:
        self.world.trace.note(host, "disk has room again")
        disk.is_full = False

    def _slow_disk(self, fault: PlannedFault) -> None:
        server = _pick(self.machines.servers, fault)
        server.troubled(fault.lasts_s)
        process = server.process
        self.world.trace.note(process, "disk is slow")
        process.disk_s = (0.3, 2.0)
        self.world.loop.after(fault.lasts_s, setattr, process, "disk_s", self.world.scenario.disk_s)

    def _bad_input(self, fault: PlannedFault) -> None:
        bad = BadReplica(self.world, len(self.machines.bad))
        self.machines.bad.append(bad)
        bad.start()

    def _hostile(self, fault: PlannedFault) -> None:
        hostile = HostileClient(self.world, self.machines.servers, len(self.machines.bad), fault.kind, fault.lasts_s)
        self.machines.bad.append(hostile)
        hostile.start()

    def _wrong(self, fault: PlannedFault) -> None:
        wrong = WrongReplica(self.world, self.machines.servers, self.machines.replicas, fault.kind, fault.lasts_s)
        self.machines.wrong.append(wrong)
        wrong.start()


def _pick(things: Sequence[T], fault: PlannedFault) -> T:
    return things[int(fault.pick * 997) % len(things)]
