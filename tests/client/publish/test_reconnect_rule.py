"""The reconnect rule against the core alone: replicas die and come back with their live events, at random, for many
seeds; the output must be the reference TDB and every step legal. For inputs that do not agree the output stays
legal."""

from __future__ import annotations

from random import Random

import pytest

from lmerge.client.publish.engine_live_events import live_events
from lmerge.core.batch import Batch
from lmerge.core.elements import NEG_INF, Element, Event, Insert
from lmerge.core.merge import Merge, Outcome
from lmerge.core.merge_config import MergeConfig
from lmerge.core.tdb import Tdb
from lmerge.testing.streams.merge_inputs import ordered, present, reference

pytestmark = pytest.mark.usefixtures("engine")

PROPERTIES = {
    "r0": ("insert-only", "strictly-ordered"),
    "r1": ("insert-only", "ordered", "deterministic-ties"),
    "r2": ("insert-only", "ordered", "key"),
    "r3": ("key",),
    "r4": (),
}
POLICIES = ("lazy", "eager", "half-frozen-only", "final-only", "quorum:2", "leading-input-only")


class ReconnectingReplica:
    """One replica: its stream, and its publisher's live events."""

    def __init__(self, name: str, stream: list[Element]) -> None:
        self.name = name
        self.stream = stream
        self.live = live_events(name)
        self.has_attached = False


class ReconnectWorld:
    """A merge and its output, checked after every step."""

    def __init__(self, algorithm: str, policy: str) -> None:
        self.properties = PROPERTIES[algorithm]
        self.merge = Merge(MergeConfig(algorithm, policy))
        self.output = Tdb("output")

    def absorb(self, outcome: Outcome) -> None:
        self.output.apply_batch(outcome.batch)
        self.merge.check()
        live = [Event(e.vs, e.payload, e.ve) for e in self.merge.live_events().elements() if isinstance(e, Insert)]
        assert live == self.output.live_events()

    def attach(self, replica: ReconnectingReplica) -> None:
        """Attach as the publisher does: join at the merge's stable point as last acked, then send the live events."""
        join_at = replica.live.trimmed if replica.live.trimmed > NEG_INF else None
        self.absorb(self.merge.attach(replica.name, self.properties, join_at=join_at))
        if replica.has_attached:
            outcome = self.merge.apply(replica.name, replica.live.prelude())
            assert not outcome.detached
            self.absorb(outcome)
        replica.has_attached = True


def streams(random: Random, algorithm: str, events: list[Event], count: int) -> list[list[Element]]:
    if algorithm in ("r3", "r4"):
        return [present(random, events) for _ in range(count)]
    ties = "shuffled" if algorithm == "r2" else "payload"
    return [ordered(random, events, ties=ties) for _ in range(count)]


def run(seed: int, algorithm: str) -> None:
    random = Random(f"{seed} {algorithm}")
    duplicates = algorithm in ("r1", "r4") and random.random() < 0.6
    events = reference(random, random.randint(5, 40), duplicates=duplicates, strict=algorithm == "r0")
    world = ReconnectWorld(algorithm, random.choice(POLICIES) if algorithm in ("r3", "r4") else "lazy")
    parts = streams(random, algorithm, events, random.randint(2, 3))
    replicas = [ReconnectingReplica(str(at), stream) for at, stream in enumerate(parts)]
    for replica in replicas:
        world.attach(replica)
    while any(replica.stream for replica in replicas):
        if random.random() < 0.06:
            replica = random.choice(replicas)
            if not world.merge.is_attached(replica.name):
                world.attach(replica)
            elif len(world.merge.inputs()) > 1:
                world.absorb(world.merge.detach(replica.name))
            continue
        replica = random.choice([replica for replica in replicas if replica.stream])
        if not world.merge.is_attached(replica.name):
            world.attach(replica)
        count = random.randint(1, 4)
        batch, replica.stream = Batch.of(replica.stream[:count]), replica.stream[count:]
        for row in batch.rows():
            replica.live.apply_row(row)
        outcome = world.merge.apply(replica.name, batch)
        assert not outcome.detached
        world.absorb(outcome)
        if random.random() < 0.5:
            replica.live.trim(world.merge.stable_point)
    for replica in replicas:
        if not world.merge.is_attached(replica.name):
            world.attach(replica)
    assert world.output.events() == events


@pytest.mark.parametrize("algorithm", PROPERTIES)
def test_replicas_that_die_and_come_back_lose_nothing_and_double_nothing(algorithm: str) -> None:
    for seed in range(40):
        run(seed, algorithm)


@pytest.mark.long
@pytest.mark.parametrize("algorithm", PROPERTIES)
def test_replicas_that_die_and_come_back_for_many_seeds(algorithm: str, long_seeds: range) -> None:
    for seed in long_seeds:
        run(10_000 + seed, algorithm)


@pytest.mark.parametrize("algorithm", PROPERTIES)
def test_inputs_that_contradict_each_other_never_make_the_output_break_its_own_promises(algorithm: str) -> None:
    """Each replica presents another table; some join late. The output follows one of them, and is always legal."""
    for seed in range(40):
        random = Random(f"{seed} {algorithm} contradiction")
        world = ReconnectWorld(algorithm, random.choice(POLICIES) if algorithm in ("r3", "r4") else "lazy")
        rest: dict[str, list[Element]] = {}
        for name in ("a", "b", "c"):
            events = reference(random, 25, duplicates=algorithm == "r4", strict=algorithm == "r0", payloads=2)
            rest[name] = streams(random, algorithm, events, 1)[0]
            world.absorb(world.merge.attach(name, world.properties, join_at=random.choice((None, None, 5))))
        while any(rest.values()):
            name = random.choice([name for name in rest if rest[name]])
            batch, rest[name] = Batch.of(rest[name][:2]), rest[name][2:]
            world.absorb(world.merge.apply(name, batch))
