"""Law 12: a restored merge continues like the original. The same calls give the same bytes, on either engine.

In sessions of every policy, inputs join, are admitted early, leave, contradict each other and break what they
declared. A twin of the merge is restored from its own snapshot at random points, on one engine or the other. Each call
must have the same outcome on both, and both must have the same snapshot after it.
"""

from __future__ import annotations

import pytest
from core_world import a, f, m

from lmerge.core.batch import Batch
from lmerge.core.merge import Merge
from lmerge.core.merge_config import MergeConfig
from lmerge.core.snapshot import restored, snapshot_of
from lmerge.testing.merges.declared import R1_PROMISES
from lmerge.testing.merges.sessions import restored_session


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
    assert sum(restored_session(seed) for seed in range(60)) > 150


@pytest.mark.long
def test_a_restored_merge_continues_like_the_original_for_many_seeds(long_seeds: range) -> None:
    for seed in long_seeds:
        restored_session(f"many {seed}")
