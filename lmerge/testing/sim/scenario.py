"""The scenario of a seed: how many of everything, the form of the streams, and the faults with their times.

Swarm style: each seed allows a random subset of the faults, so that some runs have many of one kind and others a mix.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random
from typing import Final

from lmerge.core.elements import Event
from lmerge.core.engines.selection import NATIVE, PYTHON, native_problem
from lmerge.testing.streams.facets import Facets
from lmerge.testing.streams.merge_inputs import MIXED, PLAIN, reference

#: What inputs promise, by the algorithm that follows from it.
PROMISES: Final = {
    "r0": ("insert-only", "strictly-ordered"),
    "r1": ("insert-only", "ordered", "deterministic-ties"),
    "r2": ("insert-only", "ordered", "key"),
    "r3": ("key",),
    "r4": (),
}

FAULTS: Final = (
    "kill-replica",
    "kill-server",
    "kill-subscriber",
    "pause",
    "partition",
    "cut",
    "clock",
    "slow-disk",
    "zombie",
    "leave",
    "bad-input",
    "outage",
    "silent",
    "disk-full",
    "drain",
)


@dataclass(frozen=True)
class PlannedFault:
    """One fault: ``kind`` hits at ``at_s`` and lasts ``lasts_s``; ``pick`` in [0, 1) chooses the target."""

    at_s: float
    kind: str
    lasts_s: float
    pick: float


@dataclass(frozen=True)
class Scenario:
    """Everything about a run that is decided before it begins."""

    seed: int
    case: str
    engine: str
    policy: str
    closing: str
    events: tuple[Event, ...]
    facets: Facets
    replicas: int
    observers: int
    servers: int
    durable: tuple[bool, ...]
    subscribers: int
    lasts_s: float  # how long the replicas publish
    lag_s: float  # how far replicas are apart at most
    burst_s: float  # they publish in such steps
    feedback_lag: int | None
    retain_bytes: int
    segment_bytes: int
    behind_events_max: int  # live events that publishers keep for a server that is away
    delay_s: tuple[float, float]
    disk_s: tuple[float, float]  # the time of a commit
    window_bytes: int
    allowed: tuple[str, ...]
    faults: tuple[PlannedFault, ...]
    family: str = "plain"
    divergence: str = "alarm"
    certify_interval: int = 60_000_000
    lead_max: int | None = None
    lead_wait_s: float = 10.0
    records: bool = False  # servers record their sessions, on the disk of their store

    def __str__(self) -> str:
        stores = ", ".join("durable" if durable else "in memory" for durable in self.durable)
        return (
            f"{self.case} on {self.engine}, {self.policy}, {len(self.events)} events in {self.lasts_s:.0f} s; "
            f"{self.replicas} replicas, {self.observers} observers, {self.servers} servers ({stores}), "
            f"{self.subscribers} subscribers; divergence {self.divergence}; faults: {', '.join(self.allowed) or 'none'}"
        )

    @property
    def healed_at_s(self) -> float:
        """The time from which on nothing goes wrong any more."""
        return max([self.lasts_s, *(fault.at_s + fault.lasts_s for fault in self.faults)])


def scenario(seed: int) -> Scenario:
    """Return the scenario of a seed."""
    random = Random(f"scenario {seed}")
    case = random.choices(tuple(PROMISES), (1, 1, 1, 8, 5))[0]
    count = random.choice((8, 20, 40, 60))
    events = reference(
        random,
        count,
        payloads=random.choice((2, 4, 20)),
        duplicates=case == "r4",
        strict=case == "r0",
        step_max=random.choice((2, 3, 9)),
    )
    servers = random.choice((1, 2, 2))
    lasts = random.choice((3.0, 10.0, 30.0))
    allowed = tuple(sorted(random.sample(FAULTS, random.choice((0, 1, 2, 3, 4, 6)))))
    slow = random.random() < 0.3
    return Scenario(
        seed=seed,
        case=case,
        engine=_engine(random),
        policy=_policy(random, case),
        closing=random.choice(("all", "all", "any")),
        events=tuple(events),
        facets=_facets(random),
        replicas=random.choice((1, 2, 2, 3, 3, 4)),
        observers=random.choice((0, 0, 0, 1)),
        servers=servers,
        durable=tuple(random.random() < 0.5 for _ in range(servers)),
        subscribers=random.choice((1, 1, 2)),
        lasts_s=lasts,
        lag_s=random.choice((0.0, 0.1, 1.0, 4.0)),
        burst_s=random.choice((0.05, 0.3, 1.0)),
        feedback_lag=random.choice((None, None, 0, 5, 20)),
        retain_bytes=random.choice((32 * 2**20, 32 * 2**20, 4000)),
        segment_bytes=random.choice((4 * 2**20, 600, 150)),
        behind_events_max=random.choice((100_000, 100_000, 5)),
        delay_s=(0.005, 0.2) if slow else (0.0002, 0.003),
        disk_s=random.choice(((0.0001, 0.002), (0.01, 0.1), (0.1, 0.6))),
        window_bytes=random.choice((300, 4096, 65536)),
        allowed=allowed,
        faults=_faults(random, allowed, lasts),
    )


def _engine(random: Random) -> str:
    choice = random.choice((PYTHON, NATIVE))
    return PYTHON if native_problem() else choice


def _policy(random: Random, case: str) -> str:
    if case not in ("r3", "r4"):
        return "lazy"
    return random.choice(("lazy", "lazy", "lazy", "eager", "half-frozen-only", "final-only", "quorum:2"))


def _facets(random: Random) -> Facets:
    if random.random() < 0.15:
        return PLAIN
    return replace(
        MIXED,
        places=random.choice((2, 6, 15)),
        revised=random.choice((0.0, 0.3, 0.8)),
        invented=random.choice((0.0, 0.1, 0.3)),
        stables=random.choice((0.1, 0.3)),
        meeting=random.random(),
    )


def _faults(random: Random, allowed: tuple[str, ...], lasts_s: float) -> tuple[PlannedFault, ...]:
    if not allowed:
        return ()
    faults = []
    for _ in range(random.choice((1, 2, 4, 8, 12))):
        kind = random.choice(allowed)
        lasts = random.choice((0.05, 0.5, 3.0, 20.0)) * random.uniform(0.5, 1.5)
        faults.append(PlannedFault(random.uniform(0.0, lasts_s), kind, lasts, random.random()))
    return tuple(sorted(faults, key=lambda fault: fault.at_s))
