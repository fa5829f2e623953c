"""The calendar against a plain dictionary."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from lmerge.core.batch import Batch
from lmerge.core.calendar import Calendar
from lmerge.core.elements import INF, NEG_INF, Adjust, Insert, Stable
from lmerge.core.merge import Merge
from lmerge.core.merge_config import MergeConfig
from lmerge.core.tdb import Tdb

pytestmark = pytest.mark.python_engine


def run(seed: int) -> None:
    random = Random(seed)
    calendar, now = Calendar(), NEG_INF
    expected: dict[int, Any] = {}
    for step in range(200):
        base = now if now > NEG_INF else 0
        if random.random() < 0.7:
            far = random.choice((10, 300, 70_000, 2**40, 2**62))
            due = min(INF, max(now, base + random.randint(-50 if now == NEG_INF else 0, far)))
            node: Any = [due, step]
            expected[step] = node
            calendar.add(node)
        elif random.random() < 0.2 and expected:
            node = expected[random.choice(list(expected))]
            if random.random() < 0.5:  # it dies
                node[0] = None
                del expected[node[1]]
            elif node[0] > now:  # its due time becomes earlier
                node[0] = random.randint(max(now, NEG_INF), node[0] - 1)
                calendar.add(node)
        else:
            now = min(INF, base + random.choice((0, 1, 10, 300, 70_000, 2**40)) - (100 if now == NEG_INF else 0))
            due_now = {node[1] for node in calendar.pop_below(now) if node[0] is not None and node[0] < now}
            assert due_now == {at for at, node in expected.items() if node[0] < now}
            for at in due_now:
                expected.pop(at)[0] = None  # removed: its stale entry must not count
            calendar.check()


@pytest.mark.parametrize("seed", range(100))
def test_pop_below_gives_exactly_what_is_due(seed: int) -> None:
    run(seed)


@pytest.mark.long
def test_pop_below_gives_exactly_what_is_due_for_many_seeds(long_seeds: range) -> None:
    for seed in long_seeds:
        run(10_000 + seed)


def test_nothing_is_due_twice() -> None:
    calendar = Calendar()
    calendar.add([5, "x"])
    assert len(calendar.pop_below(6)) == 1
    assert calendar.pop_below(6) == []
    assert calendar.pop_below(INF) == []


def test_open_ended_events_leave_nothing_behind() -> None:
    """An event without an end is never due: an entry for it would stay after its event, and memory would grow."""
    tdb = Tdb(keep_frozen=False)
    for at in range(1000):
        tdb.apply(Insert(b"%d" % at, at, INF))
        tdb.apply(Adjust(b"%d" % at, at, INF, at + 1))
        tdb.apply(Stable(at))
    assert len(tdb._calendar.entries()) < 10
    merge = Merge(MergeConfig("r3", engine="python"))
    merge.attach("a", ("key",))
    for at in range(1000):
        merge.apply("a", Batch.of([Insert(b"%d" % at, at, INF), Stable(at), Adjust(b"%d" % at, at, INF, at + 1)]))
    assert len(merge._engine._algorithm.calendar.entries()) < 10  # type: ignore[attr-defined]  # Python's


def test_due_times_of_both_signs_and_at_both_ends() -> None:
    calendar = Calendar()
    for due in (NEG_INF, -1, 0, 1, INF):
        calendar.add([due, due])
    assert sorted(node[1] for node in calendar.pop_below(0)) == [NEG_INF, -1]
    assert sorted(node[1] for node in calendar.pop_below(INF)) == [0, 1]
    assert [node[1] for node in calendar.entries()] == [INF]
