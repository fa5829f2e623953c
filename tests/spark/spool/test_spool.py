"""The spool: what it returns, removes and refuses."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from spool_world import (
    META,
    attempt_at,
    commit_elements,
    elements_of,
    events_of,
    files_in,
    keyed_batches,
    payload_of,
    run,
    seed_of,
)

from lmerge.client.publish.outbox import Outbox
from lmerge.core.batch import Batch
from lmerge.core.elements import INF, NEG_INF, Adjust, Event, Insert, Stable
from lmerge.errors import LimitExceeded, UsageError
from lmerge.spark.spool.files import file_system
from lmerge.spark.spool.manifest import Base, Manifest, SpoolPart
from lmerge.spark.spool.retention import Cut, cut_of
from lmerge.spark.spool.spool import Spool

# What it returns.


def test_parts_are_read_as_they_were_written(engine: str, tmp_path: Path) -> None:
    spool = Spool(str(tmp_path))
    elements = [Insert(b"x%d" % i, i, i + 5) for i in range(20_000)] + [Adjust(b"x7", 7, 12, 30)]
    part = spool.write_part(3, 1, 0, [Batch.of(elements[:9_000]), Batch.of([]), Batch.of(elements[9_000:])])
    assert [e for batch in spool.read_part(part) for e in batch.elements()] == elements
    assert (part.elements, part.adjusts, part.largest_end, part.smallest_vold) == (20_001, 1, 20_004, 12)
    assert part.messages == len(spool.files.read_frames(part.name, "part")) == 4
    assert part.bytes == (tmp_path / part.name).stat().st_size


def test_a_part_without_elements_has_no_file(tmp_path: Path) -> None:
    spool = Spool(str(tmp_path))
    part = spool.write_part(0, 0, 0, [])
    assert (part.name, spool.read_part(part), files_in(tmp_path)) == ("", [], [])


def test_a_stable_does_not_stand_in_a_part(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="only the whole batch may have one"):
        Spool(str(tmp_path)).write_part(0, 0, 0, [Batch.of([Insert(b"x", 1, 2), Stable(1)])])
    assert files_in(tmp_path) == []


def test_a_payload_that_no_server_takes_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LimitExceeded, match="payload of element 0"):
        Spool(str(tmp_path)).write_part(0, 0, 0, [Batch.of([Insert(b"x" * (2**20 + 1), 1, 2)])])
    assert files_in(tmp_path) == []


def test_live_events_are_those_of_all_batches_before(engine: str, tmp_path: Path) -> None:
    spool = Spool(str(tmp_path))
    commit_elements(spool, 0, [Insert(b"a", 1, INF), Insert(b"b", 2, 9)], 2)
    commit_elements(spool, 1, [Adjust(b"a", 1, INF, 7), Insert(b"c", 4, 5), Adjust(b"b", 2, 9, 2)])
    commit_elements(spool, 2, [Adjust(b"a", 1, 7, 20)], 6)
    again = Spool(str(tmp_path))
    assert again.live_before(0) is None
    assert seed_of(again, 1) == [Insert(b"a", 1, INF), Insert(b"b", 2, 9), Stable(2)]
    assert seed_of(again, 2) == [Insert(b"a", 1, 7), Insert(b"c", 4, 5), Stable(2)]
    assert events_of(again.live_before(3)) == [Event(1, b"a", 20), Event(4, b"c", 5)]
    assert [again.last_stable(batch) for batch in range(4)] == [NEG_INF, 2, 2, 6]


def test_live_events_without_any_stable_are_a_seed_all_the_same(engine: str, tmp_path: Path) -> None:
    spool = Spool(str(tmp_path))
    commit_elements(spool, 0, [Insert(b"a", 1, INF)])
    seed = spool.live_before(1)
    assert seed is not None
    assert seed_of(spool, 1) == [Insert(b"a", 1, INF), Stable(NEG_INF)]
    outbox = Outbox("a")
    outbox.seed(seed)
    assert list(outbox.live.prelude().elements()) == [Insert(b"a", 1, INF)]


def test_a_stable_that_does_not_advance_is_not_published(tmp_path: Path) -> None:
    spool = Spool(str(tmp_path))
    manifests = [commit_elements(spool, batch, [], stable) for batch, stable in enumerate([None, 5, 5, 3, 6])]
    assert [(m.stable, m.stable_point) for m in manifests] == [(None, NEG_INF), (5, 5), (None, 5), (None, 5), (6, 6)]


def test_a_batch_that_is_run_again_replaces_itself_and_what_came_after(tmp_path: Path) -> None:
    spool = Spool(str(tmp_path))
    for batch in range(4):
        commit_elements(spool, batch, [Insert(b"old", 10 + batch, 50)], batch)
    again = Spool(str(tmp_path))
    commit_elements(again, 2, [Insert(b"new", 40, 50)], 2)
    for opened in (again, Spool(str(tmp_path))):
        assert opened.record.newest is not None
        assert opened.record.newest.batch == 2
        assert opened.record.manifest(3) is None
        assert events_of(opened.live_before(3)) == [Event(10, b"old", 50), Event(11, b"old", 50), Event(40, b"new", 50)]


def test_parts_are_published_in_order_of_partition(tmp_path: Path) -> None:
    spool = Spool(str(tmp_path))
    parts = [spool.write_part(0, p, 9 - p, [Batch.of([Insert(b"%d" % p, p, 9)])]) for p in (2, 0, 1)]
    manifest = spool.commit(0, parts, None, META)
    assert [part.partition for part in manifest.parts] == [0, 1, 2]
    assert elements_of(Spool(str(tmp_path)), manifest) == [Insert(b"%d" % p, p, 9) for p in (0, 1, 2)]


@pytest.mark.parametrize("form", ["{}", "file:{}", "file://{}", "{}/"])
def test_a_place_is_a_path_or_a_uri(tmp_path: Path, form: str) -> None:
    commit_elements(Spool(form.format(tmp_path)), 0, [Insert(b"a", 1, 5)])
    assert events_of(Spool(str(tmp_path)).live_before(1)) == [Event(1, b"a", 5)]


def test_a_place_is_found_however_spark_writes_it() -> None:
    for uri in ("/a%20b/c", "file:/a%20b/c", "file:///a%20b/c/"):  # Hadoop's paths are used unchanged
        assert file_system(uri)[1] == "/a%20b/c"


def test_a_place_of_no_file_system_is_refused() -> None:
    with pytest.raises(UsageError, match="cannot use 'nowhere://x' as a spool"):
        Spool("nowhere://x")


# What it removes.


def test_inserts_that_are_frozen_go_without_being_read(engine: str, tmp_path: Path, eager: None) -> None:
    spool = Spool(str(tmp_path))
    for batch in range(20):
        commit_elements(spool, batch, [Insert(b"x", 10 * batch, 10 * batch + 15)], 10 * batch)
    for part in (spool.record.manifest(3), spool.record.manifest(4)):
        assert part is not None
        (tmp_path / part.parts[0].name).write_bytes(b"never read")
    spool.trim(155)
    # F = min(155, stable of batch 17) = 155; batch 13 ends at 145, batch 14 at 155, which is not frozen.
    assert sorted(path.name for path in (tmp_path / "manifests").iterdir()) == [f"{n}.json" for n in range(14, 20)]
    assert sorted(path.name for path in (tmp_path / "batches").iterdir()) == [str(n) for n in range(14, 20)]
    again = Spool(str(tmp_path))
    assert again.complete_from(20) == 146
    assert events_of(again.live_before(20)) == [Event(10 * b, b"x", 10 * b + 15) for b in range(14, 20)]


def test_a_replica_that_is_behind_the_merge_keeps_what_it_may_adjust(tmp_path: Path, eager: None) -> None:
    """The stable point before the batch that may be run again decides what is frozen."""
    spool = Spool(str(tmp_path))
    for batch, stable in enumerate((10, 10, 10, 40)):
        commit_elements(spool, batch, [Insert(b"x", 10 + batch, 20)], stable)
    spool.trim(90)
    again = Spool(str(tmp_path))
    commit_elements(again, 3, [Adjust(b"x", 10, 20, 30)], 15)
    assert Event(10, b"x", 30) in events_of(again.live_before(4))


def test_the_two_last_batches_always_stay(tmp_path: Path, eager: None) -> None:
    spool = Spool(str(tmp_path))
    for batch in range(5):
        commit_elements(spool, batch, [Insert(b"x", 100 * batch, 100 * batch + 1)], 100 * batch + 50)
        spool.trim(INF)
    assert (tmp_path / "manifests/3.json").exists()
    assert (tmp_path / "manifests/4.json").exists()
    assert not (tmp_path / "manifests/2.json").exists()
    for batch in (3, 4, 5):
        assert Spool(str(tmp_path)).live_before(batch) is not None
    with pytest.raises(UsageError, match=r"cannot continue with batch 2.* up to each of the batches 2 to 4"):
        Spool(str(tmp_path)).live_before(2)


def test_open_events_become_a_snapshot(engine: str, tmp_path: Path, eager: None) -> None:
    spool = Spool(str(tmp_path))
    commit_elements(spool, 0, [Insert(b"a", 1, INF), Insert(b"b", 2, INF)], 5)
    commit_elements(spool, 1, [Adjust(b"a", 1, INF, 8)], 9)
    commit_elements(spool, 2, [Adjust(b"b", 2, INF, 30)], 20)
    commit_elements(spool, 3, [Insert(b"c", 25, INF)], 25)
    expected = {batch: events_of(spool.live_before(batch), 9) for batch in (3, 4)}
    spool.trim(12)
    assert [path.name for path in (tmp_path / "live").iterdir()] == ["1.snapshot"]
    again = Spool(str(tmp_path))
    assert {batch: events_of(again.live_before(batch), 9) for batch in (3, 4)} == expected
    assert again.complete_from(3) == 9  # its own stable point after batch 1 is below the merge's
    assert events_of(again.live_before(2)) == [Event(2, b"b", INF)]


def test_what_the_merge_has_not_frozen_is_kept(engine: str, tmp_path: Path, eager: None) -> None:
    """A replica that is ahead of the merge: the servers may still need what it has frozen."""
    spool = Spool(str(tmp_path))
    for batch in range(6):
        vs = 10 * batch
        commit_elements(spool, batch, [Insert(b"x", vs, vs + 5), Insert(b"y", vs, INF)], vs + 10)
        spool.trim(7)
    again = Spool(str(tmp_path))
    assert [e for e in events_of(again.live_before(6)) if e.payload == b"x"] == [
        Event(10 * batch, b"x", 10 * batch + 5) for batch in range(1, 6)
    ]
    assert again.complete_from(6) <= 7


def test_what_is_mostly_alive_is_not_read_again(tmp_path: Path) -> None:
    """The work of trimming is a constant for each element: with nothing dead, nothing is done."""
    ends = (INF,) * 8
    manifests = [Manifest(n, (SpoolPart(n, 0, 0, "f", 1, 100_000, 0, 1, INF, INF, ends),), n, n) for n in range(40)]
    assert cut_of(None, manifests, 30) is None
    dying = [Manifest(n, (SpoolPart(n, 0, 0, "f", 1, 100_000, 60_000, 1, INF, 5, ends),), n, n) for n in range(40)]
    assert cut_of(None, dying, 30) == Cut(37, folds=True)
    base = Base(37, 37, 30, 1, 10_000_000, INF, ends)
    assert cut_of(base, [replace(m, batch=m.batch + 38) for m in dying], 30) is None


def test_many_small_batches_are_put_together() -> None:
    ends = (INF,)
    manifests = [Manifest(n, (SpoolPart(n, 0, 0, "f", 1, 10, 0, 1, INF, INF, ends),), n, n) for n in range(66)]
    assert cut_of(None, manifests[:65], 30) is None
    assert cut_of(None, manifests, 30) == Cut(63, folds=True)
    assert cut_of(Base(-1, 0, 0, 1, 100_000, INF, ends), manifests, 30) is None


def test_a_batch_stays_while_a_later_one_adjusts_its_events(tmp_path: Path, eager: None) -> None:
    spool = Spool(str(tmp_path))
    commit_elements(spool, 0, [Insert(b"p", 1, 5)], 2)
    commit_elements(spool, 1, [Adjust(b"p", 1, 5, 90)], 30)
    commit_elements(spool, 2, [Insert(b"q", 60, 70)], 40)
    commit_elements(spool, 3, [Insert(b"r", 60, 70)], 50)
    spool.trim(20)
    assert events_of(Spool(str(tmp_path)).live_before(3), 20) == [Event(1, b"p", 90), Event(60, b"q", 70)]


def test_orphans_go_with_their_batch(tmp_path: Path, eager: None) -> None:
    spool = Spool(str(tmp_path))
    for batch in range(8):
        spool.write_part(batch, 0, 0, [Batch.of([Insert(b"lost", 1, 2)])])
        (tmp_path / f"batches/{batch}/0-7-x.part.tmp-1").write_bytes(b"half")
        commit_elements(spool, batch, [Insert(b"x", batch, batch + 1)], 100)
    spool.trim(INF)
    assert {name.split("/")[1] for name in files_in(tmp_path) if name.startswith("batches")} == {"6", "7"}


def test_what_was_aborted_is_removed_and_what_counts_is_not(tmp_path: Path) -> None:
    spool = Spool(str(tmp_path))
    lost = attempt_at(spool, 0, 0, [("a", 1, 1, 5)]).part
    won = attempt_at(spool, 0, 0, [("a", 1, 1, 5)], attempt=1).part
    spool.abort(0, [lost, None])
    assert set(files_in(tmp_path)) == {won.name, won.keyed_state.name if won.keyed_state else ""}
    spool.commit(0, [won], None, META)
    carried = attempt_at(spool, 1, 0, []).part
    spool.abort(0, [won])
    spool.abort(1, [carried])
    assert events_of(spool.live_before(1)) == [Event(1, payload_of("a", 1), 5)]
    assert won.keyed_state is not None
    assert (tmp_path / won.keyed_state.name).exists()


# What it refuses.


@pytest.mark.parametrize("field", sorted(META))
def test_another_stream_is_refused_by_name(tmp_path: Path, field: str) -> None:
    commit_elements(Spool(str(tmp_path)), 0, [Insert(b"a", 1, 5)])
    other = META | {field: "other"}
    attempts: tuple[Callable[[Spool], object], ...] = (lambda s: s.check(other), lambda s: s.commit(1, [], None, other))
    for attempt in attempts:
        with pytest.raises(UsageError, match=f"holds a stream whose {field} is '.*', and this one's is 'other'"):
            attempt(Spool(str(tmp_path)))
    Spool(str(tmp_path)).check(META | {"incarnation": "8"})
    assert Spool(str(tmp_path)).record.manifest(1) is None


def test_a_snapshot_remembers_whose_stream_it_is(tmp_path: Path, eager: None) -> None:
    keyed_batches(Spool(str(tmp_path)), 6)
    Spool(str(tmp_path)).trim(58)
    shutil.rmtree(tmp_path / "manifests")
    with pytest.raises(UsageError, match="whose replica is 'a'"):
        Spool(str(tmp_path)).check(META | {"replica": "b"})


def test_a_query_that_has_run_without_the_spool_gets_an_error(tmp_path: Path) -> None:
    spool = Spool(str(tmp_path))
    for attempt in (
        lambda: spool.last_stable(7),
        lambda: spool.commit(7, [], None, META),
        lambda: spool.live_before(7),
        lambda: spool.state_ref(0, 6),
    ):
        with pytest.raises(UsageError, match=r"cannot continue with batch 7: the spool .* is empty"):
            attempt()


def test_parts_of_another_batch_and_parts_that_come_twice_are_refused(tmp_path: Path) -> None:
    spool = Spool(str(tmp_path))
    with pytest.raises(UsageError, match="a part is of batch 1"):
        spool.commit(0, [SpoolPart(1, 0, 0)], None, META)
    with pytest.raises(UsageError, match="partition 2 came twice"):
        spool.commit(0, [SpoolPart(0, 2, 0), SpoolPart(0, 2, 1)], None, META)


def test_another_number_of_partitions_is_refused_where_keys_are_remembered(tmp_path: Path) -> None:
    spool = Spool(str(tmp_path))
    run(spool, 0, [[("a", 1, 1, 5)], [("b", 1, 1, 5)]])
    with pytest.raises(UsageError, match="the number of partitions of a keyed stream is fixed"):
        attempt_at(spool, 1, 2, [("c", 1, 1, 5)])
    with pytest.raises(UsageError, match="now there is 1 without number 1"):
        run(spool, 1, [[("c", 1, 1, 5)]])
    # A batch without rows may come in fewer partitions: the keyed state is carried on.
    run(spool, 1, [[]])
    assert [part.keyed_state is not None for part in run(spool, 2, [[("a", 2, 1, 5)], []]).parts] == [True, True]
    assert events_of(spool.live_before(3)) == [Event(1, payload_of("a", 2), 5), Event(1, payload_of("b", 1), 5)]
