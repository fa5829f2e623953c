"""Law 12: a restored merge continues like the original. The same calls give the same bytes, on either engine.

In sessions of every policy, inputs join, are admitted early, leave, contradict each other and break what they
declared. A twin of the merge is restored from its own snapshot at random points, on one engine or the other. Each call
must have the same outcome on both, and both must have the same snapshot after it.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from broken_world import POLICIES, World
from core_world import INDEX_POLICIES, R1_PROMISES, a, f, m

from lmerge.core.batch import Batch
from lmerge.core.elements import INF, NEG_INF, Element
from lmerge.core.engines import selection
from lmerge.core.merge import Merge
from lmerge.core.merge_config import MergeConfig
from lmerge.core.snapshot import restored, snapshot_of
from lmerge.errors import LmergeError

CLOSINGS = ("all", "any", "quorum:2")


class Twins:
    """A merge that continues, and one that is restored repeatedly."""

    def __init__(self, random: Random, policy: str) -> None:
        self.random = random
        self.engines = [selection.PYTHON] if selection.native_problem() else [selection.PYTHON, selection.NATIVE]
        closing, allowed = random.choice(CLOSINGS), random.random() < 0.8
        config = MergeConfig("auto", policy, closing, allow_downgrade=allowed)
        self.going = Merge(config)
        self.restored = Merge(replace(config, engine=random.choice(self.engines)))
        self.restores = 0

    def restore(self) -> None:
        before = snapshot_of(self.going)
        assert snapshot_of(self.restored) == before
        self.restored = restored(before, engine=self.random.choice(self.engines))
        assert snapshot_of(self.restored) == before
        self.restored.check()
        self.restores += 1

    def call(self, method: str, *arguments: object, **options: object) -> None:
        one, other = (self._outcome(merge, method, *arguments, **options) for merge in (self.going, self.restored))
        assert one == other, (method, arguments)

    @staticmethod
    def _outcome(merge: Merge, method: str, *arguments: object, **options: object) -> object:
        try:
            outcome = getattr(merge, method)(*arguments, **options)
        except LmergeError as error:
            return type(error), str(error)
        ended = [(d.input, d.incarnation, d.reason) for d in outcome.detached]
        status = [(i.name, i.state, i.stable_point, i.late, i.won) for i in merge.inputs()]
        return list(outcome.batch.elements()), ended, outcome.joined, outcome.switched, outcome.refused, status


def play(seed: object) -> int:
    """Play one session. Returns the number of restores."""
    random = Random(f"{seed} restore")
    by_due_times = ("final-only", "leading-input-only", "final-only+lag:3")
    policy = random.choice(random.choice((INDEX_POLICIES, POLICIES, by_due_times)))
    worlds = [World(random, size=12) for _ in range(random.choice((1, 2, 3)))]
    twins = Twins(random, policy)
    streams: dict[str, list[Element]] = {}

    def attach(name: str) -> None:
        world = random.choice(worlds)
        stable = twins.going.stable_point
        at = 0 if stable in (NEG_INF, INF) else stable
        join_at = random.choice((None, None, at, at + random.randint(1, 12)))
        streams[name] = world.stream() if join_at is None or random.random() < 0.3 else world.late(join_at)
        role = "observe" if random.random() < 0.05 else "active"
        newer = twins.going._fence.newest.get(name, 0) + 1
        twins.call("attach", name, world.promises(), join_at=join_at, role=role, incarnation=newer)

    for name in "abc"[: random.randint(1, 3)]:
        attach(name)
    for _ in range(80):
        chance = random.random()
        if chance < 0.06:
            attach(random.choice("abcd"))
        elif chance < 0.12:
            twins.call("detach", random.choice("abcd"))
            twins.restore()  # the entries of inputs that left are what a snapshot could miss most
        elif chance < 0.17:
            twins.call("admit", random.choice("abcd"))
        elif chance < 0.3:
            twins.restore()
        else:
            names = [name for name in streams if streams[name]]
            if not names:
                break
            name = random.choice(names)
            count = random.randint(1, 3)
            part, streams[name] = streams[name][:count], streams[name][count:]
            twins.call("apply", name, Batch.of(part))
    twins.restore()
    return twins.restores


def test_a_switch_after_a_restore_forgets_what_has_ended() -> None:
    """Two events of one key that have ended are no reason for R4, whether the merge still has them or not."""
    for restores in (False, True):
        merge = Merge(MergeConfig(allow_downgrade=True))
        merge.attach("1", (*R1_PROMISES, "key"))
        merge.apply("1", Batch.of([a("A", 1, 4), a("A", 1, 4), a("B", 7, 20), f(7)]))
        if restores:
            merge = restored(snapshot_of(merge))
        merge.apply("1", Batch.of([m("B", 7, 20, 12)]))
        assert merge.algorithm == "r3"


def test_a_due_time_that_an_input_left_behind_is_restored() -> None:
    """Final-only: the input that delivered A has left; whether stable(6) drops A must not depend on a restore."""
    outputs = []
    for restores in (False, True):
        merge = Merge(MergeConfig("r3", "final-only"))
        for name in "12":
            merge.attach(name, ("key",))
        merge.apply("1", Batch.of([a("A", 1, 9), f(5)]))
        merge.detach("1")
        if restores:
            merge = restored(snapshot_of(merge))
        outputs.append([list(merge.apply("2", Batch.of([f(vc)])).batch.elements()) for vc in (6, 8, 10)])
    assert outputs[0] == outputs[1]


def test_a_restored_merge_continues_like_the_original() -> None:
    assert sum(play(seed) for seed in range(60)) > 150


@pytest.mark.long
def test_a_restored_merge_continues_like_the_original_for_many_seeds(long_seeds: range) -> None:
    for seed in long_seeds:
        play(f"many {seed}")
