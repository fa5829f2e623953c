"""Skipping events that are not needed: what a batch leaves out and forgets, and when the skip is announced."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from client_world import ThreadedWorld, threaded_world
from hypothesis import example, given, settings
from hypothesis import strategies as st
from spark_world import MERGE, recorded, table
from spool_world import APPENDS, INTERVALS, META, SCHEMA, UPDATES, KeyedRow, attempt_at, elements_of, payload_of

import lmerge
from lmerge.client import describe_merge
from lmerge.core.batch import Batch
from lmerge.core.elements import INF, NEG_INF, Adjust, Element, Event, Insert, Stable
from lmerge.errors import UsageError
from lmerge.spark import skipped_until
from lmerge.spark.options import SinkOptions, schema_text
from lmerge.spark.sink import intervals
from lmerge.spark.sink.committer import BatchCommitter, Commit, seed_of
from lmerge.spark.sink.elements import RowPlan
from lmerge.spark.sink.intervals import ABORT, END, START, VOID, WHOLE
from lmerge.spark.spool import published_state
from lmerge.spark.spool.manifest import Manifest
from lmerge.spark.spool.published_state import PublishedState
from lmerge.spark.spool.spool import Spool

# What a batch leaves out.


def run(
    spool: Spool, batch: int, rows: Sequence[KeyedRow], stable: int, skipped: int = NEG_INF, plan: RowPlan = APPENDS
) -> list[Element]:
    """Run a batch and return its elements. Later batches leave out events that end before ``skipped``."""
    written = attempt_at(spool, batch, 0, rows, plan)
    return elements_of(spool, spool.commit(batch, [written.part], stable, META, skipped))


def test_a_batch_leaves_out_what_the_one_before_announced_to_the_servers(tmp_path: Path) -> None:
    spool = Spool(str(tmp_path))
    rows: list[KeyedRow] = [("a", 1, 1, 9), ("b", 2, 2, 10), ("c", 3, 3, None)]
    elements = run(spool, 0, rows, 0, skipped=10)
    assert elements == [
        Insert(payload_of("a", 1), 1, 9),
        Insert(payload_of("b", 2), 2, 10),
        Insert(payload_of("c", 3), 3, INF),
        Stable(0),
    ]
    written = attempt_at(spool, 1, 0, rows, APPENDS)
    assert (written.tally.rows, written.tally.unneeded, written.tally.late) == (3, 1, 0)
    assert run(spool, 1, rows, 1) == [*elements[1:3], Stable(1)]


def test_a_batch_that_runs_again_leaves_out_the_same(tmp_path: Path) -> None:
    spool = Spool(str(tmp_path))
    rows: list[KeyedRow] = [("a", 1, 5, 9), ("b", 2, 6, 19), ("c", 3, 7, 29)]
    run(spool, 0, rows, 0, skipped=10)
    first = run(spool, 1, rows, 1, skipped=20)
    assert (spool.skips_to(0), spool.skips_to(1), spool.skips_to(2), spool.skips_next()) == (NEG_INF, 10, 20, 20)
    assert run(Spool(str(tmp_path)), 1, rows, 1, skipped=25) == first
    assert Spool(str(tmp_path)).skips_to(2) == 25


def test_what_was_left_out_once_is_left_out_for_good(tmp_path: Path) -> None:
    spool = Spool(str(tmp_path))
    run(spool, 0, [], 0, skipped=10)
    for batch in range(1, 30):
        run(spool, batch, [("a", batch, batch, 900)], batch)
        spool.trim(batch)
    assert Spool(str(tmp_path)).skips_to(30) == 10
    assert spool.complete_from(30) >= 10


def test_a_batch_that_the_spool_does_not_record_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is empty"):
        Spool(str(tmp_path)).skips_to(3)


def test_a_row_that_is_not_needed_is_not_late(tmp_path: Path) -> None:
    """It may lack rows of its window, and it gives a query that fails over late rows no reason to fail."""
    spool = Spool(str(tmp_path))
    run(spool, 0, [], 8, skipped=10)
    assert run(spool, 1, [("a", 1, 3, 9), ("b", 1, 8, 12)], 9) == [Insert(payload_of("b", 1), 8, 12), Stable(9)]


# The state of keys.


def entries(spool: Spool, version: int) -> dict[bytes, Any]:
    return dict(PublishedState.load(spool, 0, version).entries)


def test_keys_that_are_not_needed_are_forgotten_at_once(tmp_path: Path) -> None:
    spool = Spool(str(tmp_path))
    rows: list[KeyedRow] = [(f"k{at}", 1, at, at + 5) for at in range(10)]
    run(spool, 0, rows, 0, skipped=10, plan=UPDATES)
    assert len(entries(spool, 0)) == 10
    elements = run(spool, 1, [("k2", 2, 2, 7), ("k9", 2, 9, 14)], 1, plan=UPDATES)
    assert elements == [Adjust(payload_of("k9", 1), 9, 14, 9), Insert(payload_of("k9", 2), 9, 14), Stable(1)]
    assert {entry[1] for entry in entries(spool, 1).values()} == {10, 11, 12, 13, 14}


def test_an_event_that_was_begun_gets_its_end_even_if_that_is_not_needed(tmp_path: Path) -> None:
    spool = Spool(str(tmp_path))
    run(spool, 0, [("open", 1, 1, None), ("short", 1, 2, 8)], 0, skipped=10, plan=INTERVALS)
    elements = run(
        spool,
        1,
        [("open", 1, None, 9), ("short", 1, None, 5), ("new", 1, 3, 6), ("new", 2, 7, None)],
        1,
        plan=INTERVALS,
    )
    assert elements == [Adjust(payload_of("open", 1), 1, INF, 9), Insert(payload_of("new", 2), 7, INF), Stable(1)]
    assert b"".join(mark[2] for mark in entries(spool, 1)[key_of("new")]) == payload_of("new", 2)


def key_of(key: str) -> bytes:
    from lmerge.wire.rows import RowCodec
    from lmerge.wire.schema import parse_schema

    return RowCodec(parse_schema({"k": "string"})).encode({"k": key})


MARKS = st.lists(
    st.tuples(st.integers(0, 12), st.sampled_from([END, ABORT, VOID, WHOLE, START]), st.sampled_from([b"p", b"q"])),
    max_size=9,
)


@settings(deadline=None)
@example([(1, START, b"p"), (5, END, b""), (5, START, b"q")], [], 6)
@given(MARKS, MARKS, st.integers(0, 13))
def test_a_payload_that_is_forgotten_was_of_an_interval_that_ends_before(
    first: list[intervals.Mark], more: list[intervals.Mark], until: int
) -> None:
    """With any later marks, intervals that end at the point or after it are the same, and so are the times of all."""

    def sound(marks: list[intervals.Mark]) -> list[intervals.Mark]:
        return sorted({(t, kind, payload if kind >= WHOLE else b"") for t, kind, payload in marks})

    kept = sound(first)
    emptied = intervals.emptied(kept, until)
    assert list(emptied) == sorted(emptied)
    before = intervals.read_marks(sound([*kept, *more])).intervals
    after = intervals.read_marks(sound([*emptied, *more])).intervals
    assert [interval[:2] for interval in after] == [interval[:2] for interval in before]
    assert [interval for interval in after if interval[1] >= until] == [
        interval for interval in before if interval[1] >= until
    ]


# The seed of a restarted publisher.


def test_a_replica_that_skips_may_still_publish_what_begins_before_the_point() -> None:
    live = Batch.of([Insert(b"x", 1, 50), Stable(3)])
    seed, rest = seed_of(live, 20)
    assert seed is not None
    assert list(seed.elements()) == [Insert(b"x", 1, 50), Stable(3)]
    assert rest is None


# Replicas and servers. Rows are (key, n, vs, ve).


class PublishingQuery:
    """A query that publishes, without Spark: it does the work of tasks and agent, batch by batch."""

    def __init__(self, servers: str, folder: Path, *, skips: bool = True) -> None:
        self.options = SinkOptions(
            tuple(servers.split(",")),
            MERGE,
            "slow",
            str(folder),
            str(folder / "lmerge"),
            mode="append",
            schema=schema_text(SCHEMA),
            properties=("insert-only", "key"),
            skips=skips,
        )
        self.spool = Spool(self.options.spool)
        self.next = 0
        self.restart()

    def restart(self, back: int = 0) -> None:
        """Restart as after the death of the driver. ``back``: the number of batches that run again."""
        self.run, self.next = f"run {self.next}", self.next - back
        self.committer = BatchCommitter()

    def batch(self, rows: Sequence[KeyedRow] = (), stable: int | None = None) -> Manifest:
        """Run one more batch."""
        batch, self.next = self.next, self.next + 1
        part = attempt_at(Spool(self.options.spool), batch, 0, rows, APPENDS).part
        self.committer.commit(Commit(self.options, "q", self.run, batch, (part,), stable))
        manifest = Spool(self.options.spool).record.manifest(batch)
        assert manifest is not None
        return manifest

    def until_it_skips_to(self, t: int) -> None:
        """Run empty batches until the feedback of the servers has arrived."""
        pause = threading.Event()
        while self.batch().skipped != t:
            pause.wait(0.005)

    def close(self) -> None:
        self.committer.close()


@pytest.fixture
def world() -> Iterator[ThreadedWorld]:
    with threaded_world(feedback_lag=100, feedback_interval_s=0.0) as world:
        yield world


def fast(world: ThreadedWorld, replica: str = "fast") -> lmerge.Publisher:
    return lmerge.Publisher(world.target, MERGE, replica, schema=SCHEMA, properties=("insert-only", "key"))


def state_of(world: ThreadedWorld, replica: str = "slow") -> tuple[Any, ...]:
    """Return its state, the time to which it has skipped, and where it joined."""
    for one in describe_merge(world.target, MERGE).inputs:
        if one.replica == replica:
            fields = (getattr(one, name) if one.HasField(name) else None for name in ("skipped_until", "join_at"))
            return (one.state, *fields)
    raise AssertionError(f"no input {replica}")


def rows_until(end: int, start: int = 0) -> list[KeyedRow]:
    """Return events of length 10, one every 5."""
    return [("k", at, at, at + 10) for at in range(start, end, 5)]


def events(rows: Sequence[KeyedRow]) -> list[Event]:
    return sorted(Event(vs or 0, payload_of(key, n), INF if ve is None else ve) for key, n, vs, ve in rows)


def publish_rows(publisher: lmerge.Publisher, rows: Sequence[KeyedRow], stable: int) -> None:
    publisher.publish(
        Batch.of([*(Insert(payload_of(k, n), vs or 0, ve or INF) for k, n, vs, ve in rows), Stable(stable)])
    )
    publisher.flush()


def test_a_skip_is_announced_before_the_first_event_is_left_out(tmp_path: Path, world: ThreadedWorld) -> None:
    slow = PublishingQuery(world.target, tmp_path)
    with recorded(world.target) as reader, fast(world) as ahead:
        publish_rows(ahead, rows_until(1000), 1000)
        assert slow.batch(rows_until(20), 20).parts[0].elements == 4
        slow.until_it_skips_to(1000)
        assert slow.batch(rows_until(1000, 20), 980).elements == 2
        assert state_of(world)[:2] == ("skipping", 1000)
        slow.batch(rows_until(1200, 1000), 1150)
        assert state_of(world)[:2] == ("joined", 1000)
        ahead.close()
        slow.batch(rows_until(1400, 1200), 1400)
        assert table(reader.until_stable(1400)) == events(rows_until(1400))
    slow.close()


def test_a_commit_comes_back_when_a_server_has_merged_its_batch(tmp_path: Path, world: ThreadedWorld) -> None:
    query = PublishingQuery(world.target, tmp_path)
    for at in range(20, 420, 20):
        query.batch(rows_until(at, at - 20), at)
        assert [one.stable_point for one in describe_merge(world.target, MERGE).inputs] == [at]
    query.close()


def test_a_query_that_does_not_skip_leaves_nothing_out(tmp_path: Path, world: ThreadedWorld) -> None:
    slow = PublishingQuery(world.target, tmp_path, skips=False)
    with fast(world) as ahead:
        publish_rows(ahead, rows_until(1000), 1000)
        slow.batch(rows_until(20), 20)
        while describe_merge(world.target, MERGE).inputs[-1].fast_forwarded_to != 1000:
            pass
        slow.batch(rows_until(40, 20), 40)
        assert slow.batch(rows_until(60, 40), 60).skipped == NEG_INF
        assert state_of(world)[:2] == ("joined", None)
    slow.close()


def test_one_that_is_alone_never_leaves_out_what_it_alone_has(tmp_path: Path) -> None:
    with threaded_world(feedback_lag=0, feedback_interval_s=0.0) as world, recorded(world.target) as reader:
        slow = PublishingQuery(world.target, tmp_path)
        for at in range(0, 200, 20):
            manifest = slow.batch(rows_until(at + 20, at), at)
            assert (manifest.skipped, manifest.elements) == (NEG_INF, 4)
        slow.batch(stable=200)
        assert table(reader.until_stable(200)) == events(rows_until(200))
        slow.close()


def test_events_that_a_dead_replica_never_published_are_not_left_out(tmp_path: Path, world: ThreadedWorld) -> None:
    """The replica ahead has gone. Events before its stable point are decided, only this replica has the rest."""
    slow = PublishingQuery(world.target, tmp_path)
    with recorded(world.target) as reader:
        ahead = fast(world)
        publish_rows(ahead, rows_until(500), 500)
        slow.batch(rows_until(20), 20)
        slow.until_it_skips_to(500)
        ahead.abort()
        slow.batch(rows_until(900, 20), 900)
        assert slow.batch(rows_until(1000, 900), 1000).skipped == 500
        assert table(reader.until_stable(1000)) == events(rows_until(1000))
    slow.close()


def test_of_several_servers_the_least_counts(tmp_path: Path) -> None:
    settings = {"feedback_lag": 100, "feedback_interval_s": 0.0}
    with threaded_world(**settings) as first, threaded_world(**settings) as second:
        slow = PublishingQuery(f"{first.target},{second.target}", tmp_path)
        with fast(first, "one") as one, fast(second, "other") as other:
            slow.batch(rows_until(20), 20)
            for world in (first, second):  # an unreachable server would not count
                while "slow" not in [one.replica for one in describe_merge(world.target, MERGE).inputs]:
                    pass
            publish_rows(one, rows_until(1000), 1000)
            publish_rows(other, rows_until(200), 200)
            slow.until_it_skips_to(200)
            assert slow.batch(rows_until(300, 20), 21).elements == len(
                [row for row in rows_until(300, 20) if (row[3] or 0) >= 200]
            )
            publish_rows(other, rows_until(2000, 200), 2000)
            slow.until_it_skips_to(1000)
            for world in (first, second):
                assert state_of(world)[0] == "skipping"
        slow.close()


def test_one_that_is_no_longer_behind_does_not_skip(tmp_path: Path, world: ThreadedWorld) -> None:
    slow = PublishingQuery(world.target, tmp_path)
    with fast(world) as ahead:
        publish_rows(ahead, rows_until(1000), 1000)
        manifest = slow.batch(rows_until(1000), 1000)
        assert slow.batch().skipped == manifest.skipped == NEG_INF
        assert state_of(world)[:2] == ("joined", None)
    slow.close()


def test_a_restart_leaves_out_what_it_left_out_and_may_publish_the_rest(tmp_path: Path, world: ThreadedWorld) -> None:
    """Its own stable point is far below the time to which it skips. Events that continue there must be published."""
    slow = PublishingQuery(world.target, tmp_path)
    goes_on: list[KeyedRow] = [("long", 1, 30, 5000)]
    with recorded(world.target) as reader:
        with fast(world) as ahead:
            publish_rows(ahead, [*rows_until(1000), *goes_on], 1000)
            slow.batch(rows_until(20), 20)
            slow.until_it_skips_to(1000)
            first = slow.batch([*rows_until(500, 20), *goes_on], 25)
            slow.restart(back=1)
            again = slow.batch([*rows_until(500, 20), *goes_on], 25)
            assert (again.elements, again.skipped) == (first.elements, first.skipped) == (1, 1000)
            assert state_of(world)[2] == 1000
            slow.batch(rows_until(1200, 500), 1100)
        slow.batch(rows_until(1400, 1200), 1400)
        assert table(reader.until_stable(1400)) == events([*rows_until(1400), *goes_on])
    slow.close()


def test_a_server_that_comes_later_learns_what_is_missing(tmp_path: Path, world: ThreadedWorld) -> None:
    """Its stable point is below the skip. The replica joins there, and counts only once another one has come so far."""
    slow = PublishingQuery(world.target, tmp_path)
    with fast(world) as ahead:
        publish_rows(ahead, rows_until(1000), 1000)
        slow.batch(rows_until(20), 20)
        slow.until_it_skips_to(1000)
        slow.batch(rows_until(990, 20), 900)
    with threaded_world() as late, recorded(late.target) as reader:
        slow.committer.interrupt()
        slow.restart()
        slow.options = SinkOptions(**{**vars(slow.options), "servers": (late.target,)})
        with fast(late) as other:
            publish_rows(other, rows_until(300), 100)
            slow.batch(rows_until(1500, 990), 1200)
            assert state_of(late)[0] == "joining"
            assert state_of(late)[2] == 1000
            assert describe_merge(late.target, MERGE).summary.stable_point == 100
            publish_rows(other, rows_until(1500, 300), 1300)
            assert table(reader.until_stable(1300))[:200] == events(rows_until(1000))
        slow.close()


# ``skipped_until`` and ``skip_to``.


def test_outside_of_a_task_it_is_that_of_the_next_batch(tmp_path: Path) -> None:
    assert skipped_until(str(tmp_path)) == NEG_INF
    spool = Spool(str(tmp_path / "lmerge"))
    run(spool, 0, [], 0, skipped=10)
    run(spool, 1, [], 1, skipped=20)
    assert skipped_until(str(tmp_path)) == skipped_until(spool=str(tmp_path / "lmerge")) == 20


@pytest.mark.parametrize("given", [{}, {"checkpoint": "/a", "spool": "/a/lmerge"}])
def test_the_place_of_the_spool_is_given_exactly_once(given: dict[str, str]) -> None:
    with pytest.raises(UsageError, match="and not both"):
        skipped_until(**given)


def test_a_state_that_is_large_is_looked_through_less_often(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(published_state, "_LOOK_KEYS_PER_BATCH", 4)
    spool = Spool(str(tmp_path))
    run(spool, 0, [(f"k{at}", 1, 1, 5) for at in range(10)], 0, skipped=10, plan=UPDATES)
    sizes = []
    for batch in range(1, 5):
        run(spool, batch, [("new", batch, 1, 50)], 0, plan=UPDATES)
        sizes.append(len(entries(spool, batch)))
    assert sizes == [11, 11, 1, 1]
