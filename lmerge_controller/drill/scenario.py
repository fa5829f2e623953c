"""What a drill does, as data: steps with faults, their victims and times, what they need and what they may cost. Pure.

Scenarios come from files (``scenario_file``). The runner takes the steps one after the other: it waits until the
redundancy is whole for ``after_s``, breaks the victim, holds it for ``hold_s``, undoes the fault, and waits for the
redundancy to come back.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from lmerge_controller.drill.judging.verdict import DrillLimits

# Starting the probe, its servers and the reader takes a few seconds; a loaded machine may take many times as long.
START_S_MAX = 60.0
# The redundancy of a whole system comes back within seconds; a restarted pod takes up to minutes.
RECOVERY_S = 60.0


class FaultKind(str, Enum):
    """What a step breaks."""

    KILL = "kill"
    STOP = "stop"
    FREEZE = "freeze"
    SLOW = "slow"
    CUT = "cut"
    LIE = "lie"
    FILL_DISK = "fill-disk"
    SKEW_CLOCK = "skew-clock"
    CUTOVER = "cutover"
    DRAIN = "drain"


class VictimKind(str, Enum):
    """Whom a step breaks: replicas of the probe, replicas of the user's query, servers, or parts of the cluster."""

    REPLICA = "replica"
    INPUT = "input"
    SERVER = "server"
    NODE = "node"
    API_SERVER = "api-server"


@dataclass(frozen=True)
class StepVictim:
    """The victims of a step.

    ``which``: a number from 1; of replicas also ``winner`` (the one that causes most of the output) and ``others`` (all
    but the winner); of inputs, servers and nodes also ``each`` (one after the other).
    """

    kind: VictimKind
    which: int | str = 1

    def __str__(self) -> str:
        return f"{self.kind.value} {self.which}"


@dataclass(frozen=True)
class DrillStep:
    """One fault. ``options``: of its kind, such as ``direction`` of a cut. Times are in seconds."""

    fault: FaultKind
    victim: StepVictim
    after_s: float = 1.0
    hold_s: float = 1.0
    repeat: int = 1
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def ability(self) -> str:
        """What a target must be able to do, such as ``kill replica``."""
        return f"{self.fault.value} {self.victim.kind.value}"

    @property
    def text(self) -> str:
        """The step in one line."""
        options = ", ".join(f"{name} {_shown(value)}" for name, value in self.options.items())
        times = "" if self.repeat == 1 else f", {self.repeat} times"
        extra = f" ({options})" if options else ""
        return f"{self.fault.value} {self.victim}{extra} for {self.hold_s:g} s{times}"


@dataclass(frozen=True)
class DrillNeeds:
    """What a scenario requires before it begins.

    ``replicas``, ``servers``: so many at least. ``durable``: servers with a store. ``compared``: servers that withhold
    what only one replica publishes: ``--on-divergence`` majority, hold or quarantine.
    """

    replicas: int = 2
    servers: int = 1
    durable: bool = False
    compared: bool = False


@dataclass(frozen=True)
class DrillScenario:
    """A drill by name. ``events_per_s``: the rate of the probe stream."""

    name: str
    summary: str
    steps: tuple[DrillStep, ...]
    needs: DrillNeeds = DrillNeeds()
    limits: DrillLimits = field(default_factory=DrillLimits)
    events_per_s: int = 500
    time_limit_s: float | None = None

    @property
    def abilities(self) -> tuple[str, ...]:
        """What a target must be able to do, in the order of the steps, each once."""
        return tuple(dict.fromkeys(step.ability for step in self.steps))

    def planned_s(self, servers: int = 2) -> float:
        """Return the seconds of all steps, without the time in which the redundancy comes back."""
        return sum((step.after_s + step.hold_s) * step.repeat * _victims(step, servers) for step in self.steps)

    def limit_s(self, servers: int = 2) -> float:
        """Return the seconds after which a run is ended and has failed."""
        if self.time_limit_s is not None:
            return self.time_limit_s
        faults = sum(step.repeat * _victims(step, servers) for step in self.steps)
        return START_S_MAX + self.planned_s(servers) + faults * (self.limits.recovery_s or RECOVERY_S)


def _victims(step: DrillStep, servers: int) -> int:
    return servers if step.victim.which == "each" else 1


def _shown(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
