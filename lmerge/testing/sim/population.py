"""The machines of one run, by what they are."""

from __future__ import annotations

from lmerge.core.inputs import InputRole
from lmerge.testing.sim.machines import ServerMachine, SimulatedMachine
from lmerge.testing.sim.readers import SubscriberMachine, Witness
from lmerge.testing.sim.replicas import ReplicaMachine
from lmerge.testing.sim.world import SimulatedWorld
from lmerge.testing.sim.wrong import WrongReplica


class Population:
    """The machines in ``world``. ``bad`` and ``wrong`` come with the faults."""

    def __init__(self, world: SimulatedWorld) -> None:
        plan = world.scenario
        self.servers = [
            ServerMachine(world, host, durable=plan.durable[n]) for n, host in enumerate(world.server_hosts)
        ]
        self.replicas = [ReplicaMachine(world, name) for name in "abcdefgh"[: plan.replicas]]
        self.replicas += [ReplicaMachine(world, f"o{n}", InputRole.OBSERVE) for n in range(plan.observers)]
        self.subscribers = [SubscriberMachine(world, self.servers, f"reader{n}") for n in range(plan.subscribers)]
        self.witnesses = [Witness(world, server) for server in self.servers]
        self.bad: list[SimulatedMachine] = []
        self.wrong: list[WrongReplica] = []

    @property
    def planned(self) -> list[SimulatedMachine]:
        """The machines that are there from the beginning, witnesses excepted."""
        return [*self.servers, *self.replicas, *self.subscribers]
