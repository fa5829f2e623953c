"""A machine with merge servers as a model in virtual time, for the local backend: its processes live and die by a seed.

``ModelSpawner`` takes the place of the system's processes, ``ModelServers`` that of the calls to servers. A replica
attaches to each server that lives, some time after its start, in the role that its environment names, and joins later.
A replica of a version in ``wrong`` differs from the others in every interval.

The model notes what must never be: two lives of one process side by side, and a stop that leaves the stream without a
joined replica.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random

from lmerge.errors import StaleIncarnation
from lmerge.testing.sim.loop import later
from lmerge_controller.local.process_table import ProcessId
from lmerge_controller.local.spawn import CannotStart, ProcessCommand
from lmerge_controller.observe.server_calls import ServerCalls
from lmerge_controller.plan.actions import DemoteInput, DetachInput, InputAction, PromoteInput
from lmerge_controller.plan.observed import ObservedInput, ObservedServer

# No process of the real machine has such a number.
FIRST_PID = 10_000_000
INTERVAL_S = 0.5
# A death is seen by the next round of the loop.
SEEN_S = 1.0


@dataclass
class ModelInput:
    """An input of a replica at one server."""

    incarnation: int
    role: str
    attached_s: float
    joins_s: float


@dataclass
class ModelProcess:
    """One life of a process."""

    command: ProcessCommand
    id: ProcessId
    machine: Machine
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    code: int | None = None
    attaches_s: float = 0.0
    inputs: dict[str, ModelInput] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.command.name

    def end(self, code: int) -> None:
        """End it, whatever the reason; code 0: a supervisor has asked for it."""
        if not self.ended.is_set():
            if code:
                self.machine.died_s = self.machine.loop.time()
            self.code = code
            self.ended.set()
            self.machine.living.pop(self.name, None)


@dataclass
class ModelHandle:
    """A supervisor's hold on a process. One of a supervisor that was killed has no effect any more."""

    process: ModelProcess
    supervisor: int

    @property
    def id(self) -> ProcessId:
        return self.process.id

    async def wait(self) -> int | None:
        await self.process.ended.wait()
        return self.process.code

    def terminate(self) -> None:
        machine = self.process.machine
        if self.supervisor != machine.supervisors:
            return
        machine.note_stop(self.process)
        delay_s = machine.random.choice((0.0, 0.05, 0.5, 3.0, 60.0))  # 60 s: it does not end by itself
        machine.loop.call_later(delay_s, self.process.end, 0)

    def kill_all(self) -> None:
        if self.supervisor == self.process.machine.supervisors:
            self.process.end(-signal.SIGKILL)


class Machine:
    """The processes that live, and the servers among them. ``supervisors``: how many there have been."""

    def __init__(self, random: Random, wrong: Sequence[str] = ()) -> None:
        self.random, self.wrong = random, frozenset(wrong)
        self.loop = asyncio.get_running_loop()
        self.living: dict[str, ModelProcess] = {}
        self.supervisors = 1
        self.is_ending = False
        self.died_s = 0.0  # the last death that no supervisor has asked for
        self.harm: list[str] = []
        self._count = 0

    def start(self, command: ProcessCommand) -> ModelProcess:
        """Begin a life. Raises CannotStart, rarely."""
        if self.random.random() < 0.03:
            raise CannotStart("the system has no memory left")
        if command.name in self.living:
            self.harm.append(f"{self.loop.time():.2f}: {command.name} lives twice")
        self._count += 1
        process = ModelProcess(command, ProcessId(FIRST_PID + self._count, str(self._count)), self)
        process.attaches_s = self.loop.time() + self.random.uniform(0.1, 1.5)
        self.living[command.name] = process
        if self.random.random() < 0.1:
            self.loop.call_later(self.random.uniform(0.0, 2.0), process.end, 1)
        return process

    def kill(self, name: str) -> None:
        """Kill a process, as a fault."""
        if name in self.living:
            self.living[name].end(-signal.SIGKILL)

    def servers(self) -> dict[str, str]:
        """Return name -> address of the servers that listen now."""
        return {
            name: f"127.0.0.1:{process.command.argv[process.command.argv.index('--port') + 1]}"
            for name, process in self.living.items()
            if name.startswith("server-") and process.attaches_s <= self.loop.time()
        }

    def inputs(self, address: str) -> dict[str, ModelInput]:
        """Return the inputs at a server now, by replica."""
        now_s = self.loop.time()
        for process in self.living.values():
            if process.name.startswith("server-") or now_s < process.attaches_s:
                continue
            role = process.command.environment["LMERGE_ROLE"]
            if address not in process.inputs:
                self._count += 1
                joins_s = now_s + self.random.uniform(0.0, 1.0)
                process.inputs[address] = ModelInput(self._count, role, now_s, joins_s)
        return {name: p.inputs[address] for name, p in self.living.items() if address in p.inputs}

    def joined(self) -> set[str]:
        """Return the active replicas that are joined at every server that listens."""
        addresses = list(self.servers().values())
        tables = [self.inputs(address) for address in addresses]
        return {
            name
            for name in self.living
            if addresses
            and all(
                name in table and table[name].role == "active" and table[name].joins_s <= self.loop.time()
                for table in tables
            )
        }

    def note_stop(self, process: ModelProcess) -> None:
        """Note as harm that a stop takes the last joined replica."""
        joined = self.joined()
        has_seen = self.loop.time() - self.died_s > SEEN_S
        if has_seen and not self.is_ending and process.name in joined and not joined - {process.name}:
            self.harm.append(f"{self.loop.time():.2f}: {process.name} is stopped, and no other one is joined")


@dataclass
class ModelSpawner:
    """The system's processes for one supervisor."""

    machine: Machine
    supervisor: int

    async def start(self, command: ProcessCommand) -> ModelHandle:
        await later(self.machine.random.uniform(0.0, 0.05))
        return ModelHandle(self.machine.start(command), self.supervisor)

    async def adopt(self, process: ProcessId, name: str) -> ModelHandle | None:
        found = self.machine.living.get(name)
        return None if found is None or found.id != process else ModelHandle(found, self.supervisor)


class ModelServers(ServerCalls):
    """The calls to the servers of a machine."""

    def __init__(self, machine: Machine) -> None:
        super().__init__()
        self._machine = machine

    async def observe(self, addresses: Sequence[str], merge: str) -> tuple[ObservedServer, ...]:
        await later(self._machine.random.uniform(0.0, 0.02))
        return tuple(self._observed(address) for address in addresses)

    async def act(self, merge: str, action: InputAction) -> None:
        await later(self._machine.random.uniform(0.0, 0.02))
        found = self._machine.inputs(action.server).get(action.replica)
        if isinstance(action, PromoteInput | DemoteInput | DetachInput):
            if found is None or found.incarnation != action.incarnation:
                raise StaleIncarnation("another life")
            if isinstance(action, DetachInput):
                return
            found.role = "active" if isinstance(action, PromoteInput) else "observe"

    def _observed(self, address: str) -> ObservedServer:
        machine, now_s = self._machine, self._machine.loop.time()
        if address not in machine.servers().values():
            return ObservedServer(address, is_reachable=False, problem="connection refused")
        inputs = []
        for name, found in machine.inputs(address).items():
            observes, intervals = found.role == "observe", int((now_s - found.attached_s) / INTERVAL_S)
            is_wrong = any(f"-{version}-" in name for version in machine.wrong)
            state = "observing" if observes else "joined" if found.joins_s <= now_s else "joining"
            inputs.append(
                ObservedInput(
                    name,
                    found.incarnation,
                    found.role,
                    state,
                    int(now_s),
                    now_s - found.attached_s,
                    lacks="" if state == "joined" else "it has not joined",
                    equal_intervals=0 if is_wrong else intervals,
                    compared_intervals=intervals,
                    unequal_intervals=intervals if is_wrong else 0,
                )
            )
        return ObservedServer(
            address, True, has_merge=True, stable_point=int(now_s), divergence_policy="alarm", inputs=tuple(inputs)
        )
