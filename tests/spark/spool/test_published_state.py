"""The keyed state: versions, caches, what is forgotten; and whole lives of a keyed query against its reference."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from spool_world import (
    INTERVALS,
    META,
    UPDATES,
    KeyedRow,
    attempt_at,
    elements_of,
    events_of,
    files_in,
    forget_cached,
    payload_of,
    run,
)

from lmerge.core.elements import INF, NEG_INF, Adjust, Element, Event, Insert, Stable
from lmerge.core.tdb import Tdb
from lmerge.errors import InputViolation, StoreDamaged
from lmerge.spark.options import DROP
from lmerge.spark.sink.elements import RowPlan
from lmerge.spark.spool import published_state, retention
from lmerge.spark.spool.manifest import SpoolPart
from lmerge.spark.spool.published_state import PublishedState
from lmerge.spark.spool.spool import Spool

DROPPING = RowPlan("update", UPDATES.schema, ve="ve", keys=("k",), late=DROP)

SETTINGS = settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make whole states and folds of batches as frequent as possible."""
    monkeypatch.setattr(published_state, "_CHANGED_MIN", 4)
    monkeypatch.setattr(published_state, "_LOOK_BATCHES", 3)
    monkeypatch.setattr(retention, "DROP_BATCHES_MIN", 2)
    monkeypatch.setattr(retention, "DEAD_ELEMENTS_MIN", 4)
    monkeypatch.setattr(retention, "DEAD_BATCHES_MIN", 1)


def entries(spool: Spool, version: int) -> dict[bytes, Any]:
    return dict(PublishedState.load(spool, 0, version).entries)


def test_a_version_is_the_state_after_its_batch(tmp_path: Path) -> None:
    spool = Spool(str(tmp_path))
    run(spool, 0, [[("a", 1, 10, 20), ("b", 1, 10, 20)]])
    run(spool, 1, [[("a", 2, 10, 20)]])
    run(spool, 2, [[]])
    expected = [{}, {"a": 1, "b": 1}, {"a": 2, "b": 1}, {"a": 2, "b": 1}]
    for cached in (True, False):
        for version in (-1, 0, 1, 2):
            if not cached:
                forget_cached()
            found = sorted(payload for _, _, payload in entries(spool, version).values())
            assert found == sorted(payload_of(k, n) for k, n in expected[version + 1].items())


def test_a_batch_that_is_run_again_begins_with_the_version_before(tmp_path: Path) -> None:
    spool = Spool(str(tmp_path))
    run(spool, 0, [[("a", 1, 10, 20)]])
    first = run(spool, 1, [[("a", 2, 10, 20)]])
    again = run(Spool(str(tmp_path)), 1, [[("a", 3, 10, 20)]], attempt=1)
    old, new = payload_of("a", 1), payload_of("a", 3)
    assert elements_of(spool, again) == [Adjust(old, 10, 20, 10), Insert(new, 10, 20)]
    assert first.parts[0].name != again.parts[0].name
    assert list(entries(Spool(str(tmp_path)), 1).values()) == [(10, 20, new)]


def test_a_worker_catches_up_by_what_others_have_written(tmp_path: Path) -> None:
    spool = Spool(str(tmp_path))
    run(spool, 0, [[("a", 1, 10, 20)]])
    mine = dict(published_state._cache)
    for batch in range(1, 4):
        forget_cached()
        run(spool, batch, [[("a", batch + 1, 10, 20), (f"k{batch}", 1, 10, 20)]])
    forget_cached()
    published_state._cache.update(mine)
    whole = tmp_path / (run(spool, 4, [[]]).parts[0].keyed_state or pytest.fail("no state")).name
    first = next(tmp_path.glob("said/0/0-*.whole"))
    good = first.read_bytes()
    first.write_bytes(b"not needed: the worker has it")
    assert len(entries(spool, 3)) == 4
    forget_cached()
    with pytest.raises(StoreDamaged):
        entries(spool, 3)
    first.write_bytes(good)
    assert len(entries(spool, 3)) == 4
    assert whole.exists()


def test_an_attempt_that_fails_halfway_leaves_the_state_as_it_was(tmp_path: Path) -> None:
    spool = Spool(str(tmp_path))
    run(spool, 0, [[("a", 1, 10, 20)]], 5)
    with pytest.raises(InputViolation):
        attempt_at(spool, 1, 0, [("a", 2, 10, 20), ("b", 1, 1, 20)])
    assert len(files_in(tmp_path)) == 3
    again = run(spool, 1, [[("a", 3, 10, 20)]])
    assert elements_of(spool, again) == [Adjust(payload_of("a", 1), 10, 20, 10), Insert(payload_of("a", 3), 10, 20)]


def test_a_key_whose_event_is_frozen_counts_as_never_published(tmp_path: Path, eager: None) -> None:
    """An event with Ve < S is fully frozen (III.C), one with Ve == S is not. Files and caches make no difference."""
    for forgets in (False, True):
        spool = Spool(str(tmp_path / str(forgets)))
        run(spool, 0, [[("a", 1, 10, 19), ("b", 1, 10, 20)]], 20)
        for batch in range(1, 6 if forgets else 1):
            run(spool, batch, [[("other", batch, 30, 40)]])
        batch = 6 if forgets else 1
        forget_cached()
        new = run(spool, batch, [[("a", 2, 25, 30)]])
        assert elements_of(spool, new) == [Insert(payload_of("a", 2), 25, 30)]
        longer = run(spool, batch + 1, [[("b", 1, 10, 50)]])
        assert elements_of(spool, longer) == [Adjust(payload_of("b", 1), 10, 20, 50)]
        with pytest.raises(InputViolation, match="late-row"):
            run(spool, batch + 2, [[("c", 1, 10, 50)]])


def test_files_are_written_whole_now_and_then_and_old_ones_go(tmp_path: Path, eager: None) -> None:
    spool = Spool(str(tmp_path))
    for batch in range(60):
        run(spool, batch, [[(f"k{batch % 3}", batch, 100 + batch, 200 + batch)]], batch)
        spool.trim(batch)
        assert len(list(tmp_path.glob("said/0/*"))) <= 12
    forget_cached()
    assert len(entries(spool, 59)) == 3


def test_any_last_batch_can_be_run_again(tmp_path: Path, eager: None) -> None:
    """Files of version N-1 stay until batch N+1 is committed, even if batch N wrote its whole state."""
    spool, value = Spool(str(tmp_path)), 0
    for batch in range(20):
        for attempt in (0, 1):
            forget_cached()
            new = run(spool, batch, [[("a", batch, 100, 200), (f"k{batch}", attempt, 100, 200)]], attempt=attempt)
            elements_of_a = [e for e in elements_of(spool, new) if e[0] == payload_of("a", value)]
            assert elements_of_a == ([Adjust(payload_of("a", value), 100, 200, 100)] if batch else elements_of_a)
            spool.trim(0)
        value = batch


def test_a_quiet_partition_forgets_too(tmp_path: Path, eager: None) -> None:
    spool = Spool(str(tmp_path))
    run(spool, 0, [[("a", 1, 10, 20), ("b", 1, 10, INF)]], 5)
    for batch in range(1, 12):
        run(spool, batch, [[]], 10 + batch)
        spool.trim(100)
    forget_cached()
    assert [value[:2] for value in entries(spool, 11).values()] == [(10, 20), (10, INF)]
    for batch in range(12, 20):
        run(spool, batch, [[]], 10 + batch)
        spool.trim(100)
    forget_cached()
    assert [value[:2] for value in entries(spool, 19).values()] == [(10, INF)]
    assert len(list(tmp_path.glob("said/0/*"))) == 1


def test_a_worker_keeps_a_bounded_number_of_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(published_state, "CACHED_KEYS_MAX", 5)
    spool = Spool(str(tmp_path))
    run(spool, 0, [[(f"{p}{i}", 1, 10, 20) for i in range(3)] for p in range(4)])
    assert [partition for _, partition in published_state._cache] == [3]
    run(spool, 1, [[(f"{p}{i}", 2, 10, 20) for i in range(3)] for p in range(4)])
    assert len(events_of(spool.live_before(2))) == 12


class Lives:
    """A keyed query with two partitions, its workers and its driver, over restarts and batches that are run again."""

    def __init__(self, folder: Path, seed: int, plan: RowPlan) -> None:
        self.folder, self.random, self.plan = folder, Random(seed), plan
        self.spool = Spool(str(folder))
        self.source_rows: list[list[list[KeyedRow]]] = []  # by batch and partition
        self.elements: list[list[Element]] = []  # per batch: its committed elements
        self.stables: list[int] = []
        self.stream = Tdb("stream")  # what the driver of this life has published
        self.merge_stable = NEG_INF

    def batch(self, partitions: list[list[KeyedRow]], stable: int) -> None:
        """Run the next batch."""
        self.source_rows.append(partitions)
        self.stables.append(stable)
        self.elements.append([])
        self.run(len(self.source_rows) - 1)

    def run(self, batch: int) -> None:
        """Run a batch, with lost attempts and new workers, and commit it."""
        parts: list[SpoolPart] = []
        for partition, rows_of_partition in enumerate(self.source_rows[batch]):
            rows = list(rows_of_partition)
            for attempt in range(self.random.choice((1, 1, 2))):
                self.random.shuffle(rows)
                if self.random.random() < 0.3:
                    forget_cached()
                written = attempt_at(self.spool, batch, partition, rows, self.plan, attempt)
            parts.append(written.part)
        self.random.shuffle(parts)
        manifest = self.spool.commit(batch, parts, self.stables[batch], META)
        self.elements[batch] = elements_of(self.spool, manifest)
        for element in self.elements[batch]:
            self.stream.apply(element)
        if self.random.random() < 0.7:
            self.merge_stable = max(self.merge_stable, self.stables[batch] + self.random.randint(-30, 10))
            self.spool.trim(self.merge_stable)

    def restart(self) -> None:
        """Start a new driver. Spark runs the last batch again, or that batch was done."""
        self.spool = Spool(str(self.folder))
        newest = self.spool.record.newest
        last = -1 if newest is None else newest.batch
        first = last if last >= 0 and self.random.random() < 0.7 else last + 1
        self.stream = Tdb("stream")
        seed = self.spool.live_before(first)
        if seed is not None:
            self.stream.apply_batch(seed)
        before = Tdb("before")
        for elements in self.elements[:first]:
            for element in elements:
                before.apply(element)
        from_ = self.spool.complete_from(first)
        assert from_ <= max(self.merge_stable, NEG_INF)
        assert [e for e in self.stream.events() if e.ve >= from_] == [e for e in before.events() if e.ve >= from_]
        assert self.stream.stable_point == before.stable_point
        if first == last:
            self.run(last)

    def events(self) -> list[Event]:
        """Return the events to which all committed elements reconstitute."""
        tdb = Tdb("all")
        for elements in self.elements:
            for element in elements:
                tdb.apply(element)
        tdb.check()
        return tdb.events()


@SETTINGS
@given(st.integers(0, 2**32))
def test_whole_lives_of_updates_equal_the_reference(
    tmp_path_factory: pytest.TempPathFactory, eager: None, seed: int
) -> None:
    """The last row of each window counts, whatever was published before it, by which attempt, and how often."""
    live_with_updates(tmp_path_factory.mktemp("spool"), seed)


def live_with_updates(folder: Path, seed: int) -> None:
    random = Random(seed)
    lives = Lives(folder, seed, UPDATES)
    forget_cached()
    final: dict[str, Event] = {}
    stable = 0
    for _ in range(random.randint(3, 25)):
        partitions: dict[int, dict[str, KeyedRow]] = {0: {}, 1: {}}
        for _ in range(random.randint(0, 6)):
            vs = -(-stable // 10) * 10 + 10 * random.randint(0, 5)
            key = f"{random.choice('abc')}{vs}"
            ve = random.choice((vs, vs + 10, vs + 10, vs + 25, INF))
            partitions[vs // 10 % 2][key] = (key, random.randint(0, 3), vs, ve)
        for rows in partitions.values():
            for key, (_, n, start, end) in rows.items():
                assert start is not None
                assert end is not None
                final[key] = Event(start, payload_of(key, n), end)
        stable += random.choice((0, 3, 10, 40))
        lives.batch([list(rows.values()) for rows in partitions.values()], stable)
        if random.random() < 0.3:
            lives.restart()
    assert lives.events() == sorted(event for event in final.values() if event.ve > event.vs)
    close(lives, stable)


def close(lives: Lives, stable: int) -> None:
    """Run batches without rows until everything that ends is frozen. Only events without an end are kept."""
    for _ in range(9):
        stable += 100
        lives.batch([[], []], stable)
        lives.merge_stable = stable
        lives.spool.trim(stable)
    forget_cached()
    version = len(lives.source_rows) - 1
    open_ = [event for event in lives.events() if event.ve == INF]
    kept = [v for p in (0, 1) for v in PublishedState.load(lives.spool, p, version).entries.values()]
    assert len(kept) == len(open_)
    assert len(list(lives.folder.glob("said/*/*"))) <= 2
    retained = Spool(str(lives.folder))
    assert events_of(retained.live_before(version + 1)) == open_


class Naive:
    """The reference for a keyed stream: converts one row at a time and keeps everything."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.key: dict[str, Event] = {}
        self.late = 0

    def row(self, row: KeyedRow, stable: int) -> None:
        key, n, vs, ve = row
        assert vs is not None
        new = Event(vs, payload_of(key, n), INF if ve is None else ve)
        old = self.key.get(key)
        if old is not None and old.ve < stable:
            old = None
        if old == new:
            return
        if old is not None and old[:2] == new[:2]:
            legal = new.ve >= stable
        else:
            legal = new.vs >= stable and (old is None or old.vs >= stable)
        if not legal:
            self.late += 1
            return
        if old is not None:
            self.events.remove(old)
            del self.key[key]
        if new.ve > new.vs:
            self.events.append(new)
            self.key[key] = new


@SETTINGS
@given(st.integers(0, 2**32))
def test_whatever_rows_come_the_stream_is_legal_and_late_rows_are_left_out(
    tmp_path_factory: pytest.TempPathFactory, eager: None, seed: int
) -> None:
    live_with_any_rows(tmp_path_factory.mktemp("spool"), seed)


def live_with_any_rows(folder: Path, seed: int) -> None:
    random = Random(seed)
    lives, naive, stable = Lives(folder, seed, DROPPING), Naive(), 0
    forget_cached()
    for batch in range(random.randint(3, 20)):
        partitions: list[list[KeyedRow]] = [[], []]
        for partition, keys in enumerate(("abc", "de")):
            for key in keys:
                if random.random() < 0.6:
                    vs = max(0, stable + random.randint(-15, 30))
                    value, ve = random.randint(0, 1), random.choice((vs, vs + 5, vs + 20, INF))
                    partitions[partition].append((key, value, vs, ve))
        for rows in partitions:
            for row in rows:
                naive.row(row, stable if batch else NEG_INF)
        stable += random.choice((0, 2, 8))
        lives.batch(partitions, stable)
        if random.random() < 0.3:
            lives.restart()
    assert lives.events() == sorted(naive.events)


@SETTINGS
@given(st.integers(0, 2**32))
def test_whole_lives_of_intervals_equal_the_reference(
    tmp_path_factory: pytest.TempPathFactory, eager: None, seed: int
) -> None:
    """Starts and ends come in any order, but before the stable point has passed them."""
    live_with_intervals(tmp_path_factory.mktemp("spool"), seed)


def live_with_intervals(folder: Path, seed: int) -> None:
    random = Random(seed)
    lives = Lives(folder, seed, INTERVALS)
    forget_cached()
    due: list[tuple[int, int, KeyedRow]] = []
    expected: list[Event] = []
    for number in range(random.randint(1, 25)):
        key, vs = f"k{number % 4}", 0
        vs = max((event.ve for event in expected if event.payload == payload_of(key, 1)), default=random.randint(0, 9))
        if vs == INF:
            continue
        vs += random.randint(0, 9)
        ve = random.choice((vs + random.randint(1, 30), vs + random.randint(1, 30), INF))
        expected.append(Event(vs, payload_of(key, 1), ve))
        due.append((vs, number % 4 % 2, (key, 1, vs, None)))
        if ve < INF:
            due.append((ve, number % 4 % 2, (key, 0, None, ve)))
    stable = 0
    while due:
        partitions: list[list[KeyedRow]] = [[], []]
        chosen = [row for row in due if row[0] < stable + 10 or random.random() < 0.2]
        for row in chosen:
            due.remove(row)
            partitions[row[1]].append(row[2])
        lives.batch(partitions, stable)
        stable = min([stable + 10, *(t for t, _, _ in due)])
        if random.random() < 0.3:
            lives.restart()
    assert lives.events() == sorted(expected)
    close(lives, max(stable, 500))


@pytest.mark.long
@pytest.mark.parametrize("live", [live_with_updates, live_with_any_rows, live_with_intervals])
def test_many_lives(tmp_path: Path, eager: None, long_seeds: range, live: Callable[[Path, int], None]) -> None:
    for seed in long_seeds:
        folder = tmp_path / str(seed)
        live(folder, seed)
        shutil.rmtree(folder)


def test_a_stream_ends_with_its_last_rows(tmp_path: Path) -> None:
    spool = Spool(str(tmp_path))
    manifest = run(spool, 0, [[("a", 1, 10, 20)]], 15)
    assert elements_of(spool, manifest)[-1] == Stable(15)
