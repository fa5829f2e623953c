"""Entries of inputs that have left are removed in steps. An end costs the same for any number of live events.

Steps are counted, not timed. Sessions have so many live events that old entries stay for a long time. Inputs attach,
leave and are replaced meanwhile. The results must be those of a merge that removes all entries at once.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import pytest

from lmerge.core import index
from lmerge.core.batch import Batch
from lmerge.core.elements import INF, Adjust, Element, Insert, Stable
from lmerge.core.index import Indexed
from lmerge.core.merge import Merge
from lmerge.core.merge_config import MergeConfig
from lmerge.core.snapshot import restored, snapshot_of
from lmerge.testing.merges.declared import INDEX_POLICIES
from lmerge.testing.merges.twins import EngineTwins, result_of

LIVE = 10_000
# The nodes that a batch of one element may visit: the Python engine SWEPT_NODES, the native one four pages of 256.
SWEPT_MAX = index.SWEPT_NODES + 1


def live(n: int = LIVE) -> Batch:
    return Batch.of([Insert(b"event %d" % at, at % 50, 1_000 + at) for at in range(n)])


def large(algorithm: str, policy: str = "lazy") -> Merge:
    """Return a merge of ``a``, ``b`` and ``c`` that all have the same live events."""
    merge = Merge(MergeConfig(algorithm, policy))
    for name in "abc":
        merge.attach(name)
        merge.apply(name, live())
    return merge


def one(at: int) -> Batch:
    return Batch.of([Insert(b"one more", 100 + at, INF)])


@pytest.mark.parametrize("algorithm", ["r3", "r4"])
def test_an_end_looks_at_no_node_and_batches_that_follow_at_a_bounded_number(algorithm: str) -> None:
    merge = large(algorithm)
    before = merge.live_bytes, merge.live_count
    merge.detach("b")
    assert (merge._engine.swept, merge.visits) == (0, 0)
    assert (merge.live_bytes, merge.live_count) == before
    batches, swept = 0, 0
    while merge._engine.swept < LIVE:
        merge.apply("a", one(batches))
        assert merge._engine.swept - swept <= SWEPT_MAX
        batches, swept = batches + 1, merge._engine.swept
    assert LIVE // SWEPT_MAX <= batches <= LIVE // 256 + 2
    merge.check()
    merge.apply("a", one(batches))
    assert merge._engine.swept <= LIVE + batches, "and then it is over"


@pytest.mark.parametrize("algorithm", ["r3", "r4"])
def test_a_new_incarnation_need_not_wait_and_gets_a_slot_without_entries(algorithm: str) -> None:
    merge = large(algorithm)
    before = merge._inputs["b"].slot
    merge.attach("b", incarnation=7)
    assert merge._engine.swept == 0
    slot = merge._inputs["b"].slot
    assert slot != before
    assert merge._inputs["b"].place == 1, "as if all had gone at once"
    merge.apply("b", live())  # enough elements to sweep all nodes
    merge.apply("b", one(0))
    merge.check()
    merge.attach("d")
    assert merge._inputs["d"].slot == before
    assert merge._inputs["d"].place == 3


@pytest.mark.parametrize("algorithm", ["r3", "r4"])
def test_inputs_that_attach_and_leave_without_an_element_do_not_use_up_the_columns(algorithm: str) -> None:
    merge = large(algorithm)
    slots = set()
    for incarnation in range(2, 150):
        merge.attach("b", incarnation=incarnation)
        slots.add(merge._inputs["b"].slot)
        merge.apply("b", Batch.of([Insert(b"event 3", 3, 1_003)]) if incarnation % 10 == 0 else Batch.of([]))
    assert max(slots) < 63, "the native core has a bit for each"
    merge.check()
    assert snapshot_of(merge) == snapshot_of(forgotten(merge))


@pytest.mark.parametrize("algorithm", ["r3", "r4"])
def test_entries_of_an_input_that_has_left_are_not_counted(algorithm: str) -> None:
    merge = large(algorithm)
    (event,) = Batch.of([Insert(b"event 3", 3, 1_003)]).elements()
    assert merge.supporters(Batch.of([event])) == [3]
    merge.detach("b")
    assert merge.supporters(Batch.of([event])) == [2]
    merge.attach("d")
    assert merge.supporters(Batch.of([event])) == [2]
    merge.apply("d", Batch.of([event]))
    assert merge.supporters(Batch.of([event])) == [3]


def forgotten(merge: Merge) -> Merge:
    """Return the same merge without old entries."""
    return restored(snapshot_of(merge))


class Triplets(EngineTwins):
    """Adds a third merge, on Python, that removes all entries at once."""

    def __init__(self, *settings: Any) -> None:
        super().__init__(MergeConfig(*settings), compare_every=40)
        self.merges.append(Merge(replace(MergeConfig(*settings), engine="python")))

    def call(self, method: str, *arguments: object, **options: object) -> None:
        mine, python, at_once = [result_of(getattr(merge, method), *arguments, **options) for merge in self.merges]
        assert mine == python == at_once
        algorithm = self.merges[2]._engine._algorithm  # type: ignore[attr-defined]  # of the Python engine
        assert isinstance(algorithm, Indexed)
        algorithm._sweep_all()
        self.calls += 1
        if self.calls % self.compare_every == 0:
            self.compare()

    def compare(self) -> None:
        """Compare without a snapshot of the Python twin, which would sweep it."""
        mine, python, at_once = self.merges
        mine.check()
        python.check()
        assert mine.inputs() == python.inputs() == at_once.inputs()
        for name in ("stable_point", "live_count", "live_bytes", "visits"):
            assert getattr(mine, name) == getattr(python, name) == getattr(at_once, name), name
        assert snapshot_of(mine) == snapshot_of(at_once)


@pytest.mark.parametrize("algorithm", ["r3", "r4"])
@pytest.mark.parametrize("seed", range(4))
def test_random_sessions_mean_what_they_mean_where_all_entries_go_at_once(
    algorithm: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index, "SWEPT_NODES", 40)
    random = Random(f"{algorithm} {seed}")
    triplets = Triplets(algorithm, random.choice(INDEX_POLICIES), random.choice(("all", "any")))
    n, vs = 3_000, 10_000
    events = [(b"event %d" % at, random.randrange(vs), vs + random.randrange(200)) for at in range(n)]
    ends: dict[str, dict[tuple[bytes, int], int]] = {}
    stable = dict.fromkeys("abcd", 0)
    for name in "abc":
        triplets.call("attach", name)
        triplets.call("apply", name, Batch.of([Insert(payload, vs, ve) for payload, vs, ve in events]))
        ends[name] = {(payload, vs): ve for payload, vs, ve in events}
    at = 0
    for _ in range(120):
        name, chance = random.choice("abcd"), random.random()
        if name not in ends or chance < 0.12:
            if name in ends and random.random() < 0.5:
                triplets.call("detach", name)
                del ends[name]
                continue
            triplets.call("attach", name, join_at=random.choice((None, at)), incarnation=random.randrange(2**40))
            if triplets.merges[0].is_attached(name):
                ends[name], stable[name] = {}, 0
            continue
        delivered: list[Element] = []
        mine, low = ends[name], stable[name]
        for payload, start, ve in random.sample(events, 6):
            end = max(low, random.choice((ve, ve, at, random.randrange(vs, vs + 300), INF)))
            if (payload, start) not in mine and start >= low and end > start:
                delivered.append(Insert(payload, start, end))
                mine[payload, start] = end
            elif mine.get((payload, start), -1) >= low and end > start:
                delivered.append(Adjust(payload, start, mine[payload, start], end))
                mine[payload, start] = end
        if random.random() < 0.3:
            at = min(vs + 250, at + random.randrange(400))
            stable[name] = max(low, at)
            delivered.append(Stable(stable[name]))
        triplets.call("apply", name, Batch.of(delivered))
    triplets.compare()
    assert snapshot_of(triplets.merges[1]) == snapshot_of(triplets.merges[0])
