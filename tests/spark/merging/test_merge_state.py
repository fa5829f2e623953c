"""The state of a merge in Spark: what a batch writes, what a restart needs, what is removed, what is refused."""

from __future__ import annotations

from copy import deepcopy
from random import Random
from typing import Any

import pytest
from local_query import LocalQuery
from merging_world import plan_of, row_of

from lmerge.core.elements import INF, Insert, Stable
from lmerge.core.snapshot import restored, snapshot_of
from lmerge.errors import StoreDamaged, UsageError
from lmerge.spark.frames import Report, least
from lmerge.spark.merging import packs, shard, state_files
from lmerge.spark.merging.current_batch import CurrentBatch
from lmerge.spark.merging.shard_task import run_shard
from lmerge.spark.merging.state_files import StateFiles


def test_what_is_written_follows_the_changes_not_the_live_events() -> None:
    """A batch of one element writes one element, even if thousands are live. A new base comes once in a long log."""
    query = LocalQuery(plan_of("r4", 1), Random(1))
    query.batch({0: [row_of(Insert(b"p%05d" % i, i, INF), i) for i in range(5_000)]})
    files = StateFiles(str(query.folder), 0)
    first, _ = files.known(0)
    assert first.base == 0
    assert first.base_bytes > 200_000
    sizes = []
    for at in range(1, 41):
        query.batch({0: [row_of(Stable(6_000 + at), 10_000 + at)]})
        head, parts = files.known(at)
        assert head.base == 0
        sizes.append(sum(map(len, parts)))
    assert max(sizes) < 2_000


def test_files_that_no_batch_needs_are_removed() -> None:
    """What is left: the base of the last batch to which a query may be set back, and what came behind it."""
    query = LocalQuery(plan_of("r4", 1), Random(1))
    for at in range(60):
        query.batch({0: [row_of(Insert(b"p%05d" % i, i, INF), i) for i in range(50 * at, 50 * at + 50)]})
    names = sorted(int(path.name) for path in (query.folder / "0").iterdir())
    head, _ = StateFiles(str(query.folder), 0).known(59)
    assert names == list(range(head.oldest, 60))
    assert 0 < head.oldest <= 59 - state_files.KEPT_BATCHES
    (query.folder / "0" / "3").write_bytes(b"left behind by a writer that was killed")
    shard._held.clear()
    query.batch({0: [row_of(Stable(1), 10_000)]})
    assert not (query.folder / "0" / "3").exists()


def test_a_worker_that_missed_batches_repeats_only_those(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shard, "LOG_BYTES_MIN", 10**9)
    query = LocalQuery(plan_of("r4", 1), Random(3))
    query.changes_worker = lambda: False
    held = {}
    for at in range(6):
        query.batch({0: [row_of(Insert(b"p%d" % at, at, INF), at)]})
        if at == 1:
            held = deepcopy_of(shard._held, query)
    shard._held.clear()
    shard._held.update(held)
    for old in (0, 1):
        (query.folder / "0" / str(old)).unlink()
    rows_now = query.batch({0: [row_of(Stable(5), 10)]})
    assert [row["kind"] for row in rows_now] == ["stable"]
    assert shard._held[StateFiles(str(query.folder), 0).place].merge.live_count == 6


def deepcopy_of(held: Any, query: LocalQuery) -> Any:
    """Return what a worker holds now, as another worker has it that gets no batch for a while."""
    place = StateFiles(str(query.folder), 0).place
    one = held[place]
    again = restored(snapshot_of(one.merge))
    return {place: shard._Held(one.batch, deepcopy(one.head), again)}


def test_a_missing_or_damaged_state_is_an_error() -> None:
    query = LocalQuery(plan_of("r4", 2), Random(1))
    for at in range(2):
        query.batch({0: [row_of(Insert(b"p%d" % i, at, INF), at) for i in range(9)]})
    path = query.folder / "1" / "1"
    data = path.read_bytes()
    path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    query.run = "run after a restart"
    with pytest.raises(StoreDamaged, match=r"checksum of frame \d+ is wrong"):
        query.batch({})
    path.unlink()
    with pytest.raises(
        StoreDamaged, match=r"cannot continue with batch 2: its state after batch 1, .*/1/1, is missing"
    ):
        query.batch({})


def test_packs_stay_as_long_as_a_shard_needs_them() -> None:
    """One shard has much and settles it soon; the other has little, no base, and needs its first pack to the end."""
    query = LocalQuery(plan_of("r4", 2), Random(1))
    query.changes_worker = lambda: False
    names = [b"p%05d" % i for i in range(4_000)]
    many = [name for name in names if packs.shard_of(name, 2) == 0]
    few = next(name for name in names if packs.shard_of(name, 2) == 1)
    query.batch({0: [row_of(Insert(few, 1, INF), 0), *[row_of(Insert(many[i], 1, INF), 1 + i) for i in range(20)]]})
    for at in range(1, 30):
        given = many[20 * at : 20 * at + 20]
        query.batch({0: [row_of(Insert(name, 1, INF), 1_000 * at + i) for i, name in enumerate(given)]})
    kept = sorted(int(path.name) for path in (query.folder / "packs").iterdir())
    heads = [StateFiles(str(query.folder), shard).known(29)[0] for shard in (0, 1)]
    assert heads[0].settled > 5
    assert heads[1].settled == -1
    assert kept[0] == 0
    query.run = "run after a restart"
    shard._held.clear()
    query.batch({0: [row_of(Stable(5), 10**6)]})
    live = [shard._held[StateFiles(str(query.folder), at).place].merge.live_count for at in (0, 1)]
    assert live == [600, 1]


def test_packs_that_no_shard_needs_are_removed() -> None:
    query = LocalQuery(plan_of("r4", 2), Random(1))
    for at in range(60):
        query.batch({0: [row_of(Insert(b"p%05d" % i, i, INF), i) for i in range(50 * at, 50 * at + 50)]})
    heads = [StateFiles(str(query.folder), number).known(59)[0] for number in (0, 1)]
    kept = sorted(int(path.name) for path in (query.folder / "packs").iterdir())
    assert 0 < kept[0] <= min(head.settled for head in heads) + 1
    assert kept[-1] == 59


def test_reports_make_a_stable_only_together() -> None:
    reports = [Report(5, 9, 3), Report(4, 7, 3), Report(4, 8, 3)]
    assert least(reports) == 7
    assert least(reports[:2]) is None
    assert least([Report(4, 9, 2), Report(4, 4, 2)]) is None, "the slowest shard has not moved"
    assert least([]) is None


def test_two_merges_of_a_query_need_different_names() -> None:
    query = LocalQuery(plan_of("r4", 1), Random(1))
    query.batch({0: [row_of(Insert(b"p", 1, INF), 0)]})
    query.number = 0
    with pytest.raises(UsageError, match="two merges of a query need different names"):
        query.batch({0: [row_of(Insert(b"p", 1, INF), 0), row_of(Insert(b"q", 1, INF), 1)]})


def test_a_state_of_other_settings_is_refused() -> None:
    query = LocalQuery(plan_of("r4", 1), Random(1))
    query.batch({0: [row_of(Stable(1), 0)]})
    query.run = "run after a restart"
    for plan, name in (
        (plan_of("r3", 1), "algorithm"),
        (plan_of("r4", 2), "shards"),
        (plan_of("r4", 1, "abc"), "inputs"),
        (plan_of("r4", 1, policy="eager"), "policy"),
    ):
        for number in range(plan.shards):
            with pytest.raises(UsageError, match=f"{name} is .* begin with a new checkpoint"):
                list(run_shard(plan, str(query.folder), CurrentBatch(query.query, query.run, 1, number), iter([])))


@pytest.mark.parametrize("begins", [True, False])
def test_a_query_with_the_checkpoint_of_another_one_is_refused(begins: bool) -> None:
    """Whether it begins, or goes on where the other one is; and the other one goes on undisturbed."""
    query = LocalQuery(plan_of("r4", 1), Random(1))
    rows = [row_of(Insert(b"%d" % at, at, INF), at) for at in range(25)]
    for row in rows[:-1]:
        query.batch({0: [row]})
    here, query.number = query.number, 0 if begins else query.number
    query.query, query.run = "query 1", "its run"
    with pytest.raises(UsageError, match=r"is of the query query 0, and this is query 1; `checkpoint=` must be"):
        query.batch({0: [rows[0]]})
    query.query, query.run, query.number = "query 0", "run 0", here
    assert [row["payload"] for row in query.batch({0: rows[-1:]})] == [b"24"]


def test_a_query_begins_again_before_its_first_batch_is_done() -> None:
    query = LocalQuery(plan_of("r4", 1), Random(1))
    first = query.batch({0: [row_of(Insert(b"p", 1, INF), 0)]})
    query.number, query.run = 0, "run after a restart"
    assert query.batch({0: [row_of(Insert(b"p", 1, INF), 0)]}) == first
