"""Which staged parts are kept, and for how long: without a server, without streams, with times from the test."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from service_world import MERGE, ins

from lmerge.core.batch import Batch
from lmerge.errors import LimitExceeded, Unavailable
from lmerge.service.merge.staged_parts import PART_BYTES, ROOM, SUPERSEDED, TIME, PartKey, PartOwner, PartSizes, Staging
from lmerge.service.settings import Settings

QUERY = "counts"
A, B = PartOwner(MERGE, "a"), PartOwner(MERGE, "b")
ONE = Batch.of([ins("x", 1, 5)])
WHATEVER = PartSizes(None, None)


class CheckedStaging:
    """A Staging whose parts all count the same. It is checked after every step."""

    def __init__(self, **settings: Any) -> None:
        self.staging = Staging(Settings(http_port=None, engine="python", **settings))
        self.now_s = 0.0

    def stage(
        self, batch: int, partition: int = 0, attempt: int = 0, *, query: str = QUERY, owner: PartOwner = A
    ) -> None:
        with self.staging.arriving(owner, PartKey(query, batch, partition, attempt), self.now_s) as arriving:
            self.staging.check()
            arriving.add(ONE, 1000)
            self.staging.check()
            arriving.finish(self.now_s)
        self.staging.check()

    def commit(self, batch: int, *parts: int, query: str = QUERY) -> None:
        """Commit parts of replica a, first attempts."""
        listed = [(partition, 0) for partition in parts]
        taken = self.staging.take(A, query, batch, listed, WHATEVER, self.now_s)
        self.staging.check()
        assert len(taken) == len(parts)
        self.staging.give_back(A, taken)
        self.staging.check()

    @property
    def names(self) -> list[str]:
        """The staged parts by age: replica, query, batch, partition, attempt."""
        return [f"{o.replica} {k.query} {k.batch}/{k.partition}/{k.attempt}" for o, k in self.staging._order]


def test_a_commit_drops_other_attempts_and_what_came_before_and_nothing_else() -> None:
    kept = CheckedStaging()
    for batch, partition, attempt in ((3, 0, 0), (4, 0, 0), (4, 1, 0), (4, 1, 1), (5, 0, 0)):
        kept.stage(batch, partition, attempt)
    kept.stage(4, owner=B)
    assert kept.names == ["a counts 4/0/0", "a counts 4/1/0", "a counts 4/1/1", "a counts 5/0/0", "b counts 4/0/0"], (
        "two batches behind is not needed any more, one behind is"
    )
    kept.commit(4, 0, 1)
    assert kept.names == ["a counts 5/0/0", "b counts 4/0/0"]
    kept.stage(4)
    assert kept.names[-1] == "a counts 4/0/0", "run again after a restart"
    kept.stage(6)
    assert kept.names == ["a counts 5/0/0", "b counts 4/0/0", "a counts 6/0/0"]
    assert kept.staging.dropped == {SUPERSEDED: 3}


def test_another_query_of_the_replica_takes_the_place_of_the_one_before() -> None:
    kept = CheckedStaging()
    kept.stage(8)
    kept.stage(8, owner=B)
    kept.stage(0, query="next")
    assert kept.names == ["b counts 8/0/0", "a next 0/0/0"]
    with pytest.raises(Unavailable, match=r"part 0 .* of batch 8 .* is not staged"):
        kept.commit(8, 0)
    assert kept.names == ["b counts 8/0/0"], "the replica runs that query, as it has staged for it"


def test_a_miss_takes_nothing_and_what_it_leaves_is_of_no_use() -> None:
    kept = CheckedStaging()
    for batch, partition in ((4, 0), (4, 1), (5, 0)):
        kept.stage(batch, partition)
    with pytest.raises(Unavailable, match=r"part 2 .*is not staged here \(any more\): attach again"):
        kept.commit(4, 0, 1, 2)
    assert kept.names == ["a counts 5/0/0"]
    kept.staging.check()
    with pytest.raises(Unavailable):
        CheckedStaging().commit(1, 0)


def test_the_oldest_parts_make_room_those_of_the_replica_first() -> None:
    size = PART_BYTES + 1000 + 256 + 200
    kept = CheckedStaging(staged_bytes=4 * size, staged_bytes_per_replica=3 * size)
    kept.stage(1, 0, owner=B)
    for partition in range(4):
        kept.stage(1, partition)
    assert kept.names == ["b counts 1/0/0", "a counts 1/1/0", "a counts 1/2/0", "a counts 1/3/0"]
    kept.stage(1, 1, owner=B)
    assert kept.names == ["a counts 1/1/0", "a counts 1/2/0", "a counts 1/3/0", "b counts 1/1/0"]
    assert kept.staging.bytes == 4 * size
    assert kept.staging.dropped == {ROOM: 2}


def test_a_part_that_alone_is_too_large_is_refused_and_forgotten() -> None:
    kept = CheckedStaging(staged_bytes=5000)
    refusal = pytest.raises(LimitExceeded, match=r"it takes 5032 bytes or more, and .* of a replica may take 5000")
    with refusal, kept.staging.arriving(A, PartKey(QUERY, 1, 0, 0), 0.0) as arriving:
        for _ in range(9):
            arriving.add(ONE, 880)
    kept.staging.check()
    assert (kept.staging.bytes, kept.staging._kept) == (0, {})


def test_parts_that_arrive_or_are_taken_count_and_cannot_be_dropped() -> None:
    size = PART_BYTES + 1000 + 256 + 200
    kept = CheckedStaging(staged_bytes=2 * size)
    staging = kept.staging
    kept.stage(1)
    taken = staging.take(A, QUERY, 1, [(0, 0)], WHATEVER, 0.0)
    assert staging.bytes == size
    with staging.arriving(B, PartKey(QUERY, 1, 0, 0), 0.0) as arriving:
        arriving.add(ONE, 1000)
        with pytest.raises(LimitExceeded, match="the parts that arrive now take all the room"):
            kept.stage(1, 1)
        staging.check()
    assert staging.bytes == size, "it was not finished"
    staging.give_back(A, taken)
    assert (staging.bytes, staging._kept) == (0, {})


def test_what_is_not_used_for_a_while_is_dropped_and_what_is_used_stays() -> None:
    kept = CheckedStaging(staged_keep_s=10.0)
    kept.stage(1)
    kept.stage(1, owner=B)
    kept.now_s = 6.0
    kept.stage(1, 1)
    kept.staging.sweep(9.9)
    assert len(kept.names) == 3
    kept.staging.sweep(10.0)
    assert kept.names == ["a counts 1/0/0", "a counts 1/1/0"]
    kept.staging.sweep(16.0)
    kept.staging.check()
    assert (kept.names, kept.staging.dropped) == ([], {TIME: 3})


def test_whatever_is_staged_committed_missed_and_swept_the_sums_are_right() -> None:
    for seed in range(200):
        random = Random(seed)
        size = PART_BYTES + 1000 + 256 + 200
        kept = CheckedStaging(
            staged_bytes=7 * size, staged_bytes_per_replica=random.randint(1, 9) * size, staged_keep_s=20.0
        )
        for _ in range(40):
            kept.now_s += random.random()
            query, batch = random.choice(("q", "q", "r")), random.randint(0, 4)
            if random.random() < 0.7:
                kept.stage(batch, random.randint(0, 3), random.randint(0, 1), query=query, owner=random.choice((A, B)))
            elif random.random() < 0.7:
                parts = random.sample(range(4), random.randint(0, 3))
                there = set(kept.names)
                try:
                    kept.commit(batch, *parts, query=query)
                except Unavailable:
                    assert not {f"a {query} {batch}/{part}/0" for part in parts} <= there
                else:
                    assert {f"a {query} {batch}/{part}/0" for part in parts} <= there
                assert not [name for name in kept.names if name.startswith(f"a {query} {batch}/")]
            else:
                kept.staging.sweep(kept.now_s + random.uniform(0, 25))
            kept.staging.check()
