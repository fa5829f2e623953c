"""The oracle over random sessions: output TDB = reference TDB, C1-C3 and all invariants after every step."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from lmerge.core.elements import INF, Element
from lmerge.core.merge import Merge
from lmerge.core.merge_config import MergeConfig
from lmerge.testing.merges.declared import INDEX_POLICIES, PROMISES
from lmerge.testing.oracle import Follow
from lmerge.testing.streams.merge_inputs import joining, ordered, present, reference

CASES = [(algorithm, policy) for algorithm in ("r3", "r4") for policy in INDEX_POLICIES] + [
    (algorithm, policy) for algorithm in ("r0", "r1", "r2") for policy in ("lazy", "eager", "lazy+lag:3")
]


def run(seed: int, algorithm: str, policy: str, *, leaves: bool = True) -> None:
    """Play one session: streams of one TDB, batches in random order, inputs that join, leave and are restored."""
    random = Random(f"{seed} {algorithm} {policy}")
    duplicates = algorithm in ("r1", "r4") and random.random() < 0.7
    events = reference(random, random.randint(1, 20), duplicates=duplicates, strict=algorithm == "r0")

    def stream() -> list[Element]:
        if algorithm in ("r3", "r4"):
            return present(random, events)
        return ordered(random, events, ties="shuffled" if algorithm == "r2" else "payload")

    follow = Follow(Merge(MergeConfig(random.choice((algorithm, "auto")), policy)))
    streams = {f"first{at}": stream() for at in range(random.randint(1, 3))}
    for name in streams:
        follow.attach(name, PROMISES[algorithm])
    late = 0
    while any(streams.values()):
        chance = random.random()
        if chance < 0.03 and late < 3:
            late += 1
            stable = follow.merge.stable_point
            join_at = 0 if stable == INF else min(INF, max(stable, 0) + random.choice((0, random.randint(0, 10))))
            streams[f"late{late}"] = joining(stream(), join_at, events)
            follow.attach(f"late{late}", PROMISES[algorithm], join_at=join_at)
        elif chance < 0.05 and leaves and len(streams) > 1:
            name = random.choice([name for name in streams if name != "first0"])
            follow.detach(name)
            del streams[name]
        elif chance < 0.1:
            follow.restore()
        else:
            name = random.choice([name for name in streams if streams[name]])
            count = random.randint(1, 4)
            part, streams[name] = streams[name][:count], streams[name][count:]
            assert not follow.publish(name, *part).detached
    assert follow.events() == events
    assert follow.merge.stable_point == INF


@pytest.mark.parametrize(("algorithm", "policy"), CASES)
def test_output_is_the_reference_and_compatible_at_every_step(
    algorithm: str, policy: str, seeds_of: Callable[[int, int], range]
) -> None:
    for seed in seeds_of(15, 2):
        run(seed, algorithm, policy)


@pytest.mark.long
@pytest.mark.parametrize(("algorithm", "policy"), CASES)
def test_output_is_the_reference_for_many_seeds(algorithm: str, policy: str, long_seeds: range) -> None:
    for seed in long_seeds:
        run(10_000 + seed, algorithm, policy)
