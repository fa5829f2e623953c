"""The source as Spark calls it: slices of servers, offsets, batches, and the errors for what is not there any more."""

from __future__ import annotations

import pickle
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from read_world import MERGE, events_of, latest, options, revised, rows_of_batch, servers, tdb

import lmerge
from lmerge.core.batch import Batch
from lmerge.core.elements import INF, NEG_INF, Event, Insert, Stable
from lmerge.errors import LmergeError, OutOfRange, ServerGone, UnknownMerge, UsageError
from lmerge.spark.source.envelope_rows import ELEMENTS, FINAL, UPSERT, Range
from lmerge.spark.source.options import stream_options
from lmerge.spark.source.slice_reader import Slice, slice_tables

pytest.importorskip("pyspark", reason="the connector needs it")

if TYPE_CHECKING:
    pass

A = (Insert(b"a", 1, 3), Insert(b"b", 2, 9), Stable(5))
B = (Insert(b"c", 6, 7), Stable(8))


# Slices, straight from servers.


def read_slice(target: str, requested: Range, low: int, high: int, envelope: str = FINAL, **given: Any) -> list[Event]:
    chosen = stream_options(options(target, **given))
    tables = slice_tables(chosen, envelope, Slice(requested, low, high))
    return [event for table in tables for event in events_of(table.to_pylist())]


def test_a_slice_is_the_same_from_each_server() -> None:
    events = tdb(1)
    with servers(2, of_0={"policy": "eager"}, of_1={"policy": "half-frozen-only"}) as world:
        world.publish(*revised(1, events), replica="a")
        world.publish(*revised(2, events), replica="b", at=1)
        requested = Range(NEG_INF, 200)
        expected = [event for event in events if event.ve < 200]
        for target in world.targets:
            assert sorted(read_slice(target, requested, NEG_INF, 200)) == expected
            assert sorted(read_slice(target, requested, 100, 200)) == [event for event in expected if event.ve >= 100]


def test_a_server_that_goes_in_the_middle_is_replaced_by_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lmerge.spark.source.slice_reader.ELEMENTS_AT_ONCE", 1)
    events = tdb(2, 2000)
    with servers(2, batch_elements=16) as world:
        world.publish(*revised(1, events))
        read: list[Event] = []
        tables = slice_tables(stream_options(options(world.target)), FINAL, Slice(Range(NEG_INF, INF), NEG_INF, INF))
        for at, table in enumerate(tables):
            read += events_of(table.to_pylist())
            if at == 3:
                world.stop(0)
        assert sorted(read) == events


def test_a_server_that_stands_still_is_left_for_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lmerge.spark.source.slice_reader.STALL_S", 0.2)
    with servers(2, progress_interval_s=0.05) as world:
        world.publish(Stable(2), at=0)
        world.publish(*A, at=1)
        assert read_slice(world.target, Range(NEG_INF, 5), NEG_INF, 5) == [Event(1, b"a", 3)]


def test_what_no_server_has_any_more_is_an_error_or_left_out() -> None:
    with servers() as world, world.publisher() as publisher:
        publisher.publish(Batch.of(A))
        publisher.flush()
        world.restart()
        publisher.publish(Batch.of(B))
        publisher.flush()
        with pytest.raises(OutOfRange, match=r"cannot read merge 'flights' at .* from 1 on: .*failOnDataLoss"):
            read_slice(world.target, Range(1, 8), 1, 8)
        assert read_slice(world.target, Range(1, 8), 1, 8, failOnDataLoss="false") == [Event(6, b"c", 7)]


def test_a_task_ends_after_a_while_without_any_server() -> None:
    with servers() as world:
        world.stop()
        with pytest.raises(ServerGone, match=r"cannot read merge 'flights' at .*, after 0\.3 s: .*cannot be reached"):
            read_slice(world.target, Range(1, 8), 1, 8, giveUpAfter="0.3")


# The reader, as Spark's driver calls it.


def test_a_batch_goes_from_one_stable_point_to_another(readers: Any) -> None:
    with servers() as world, world.publisher() as publisher:
        publisher.publish(Batch.of(A))
        reader = readers(world.target, startingOffsets="flights@-inf")
        start = reader.initialOffset()
        first = latest(reader, start)
        assert first == {"token": "flights@5", "envelope": "final"}
        assert events_of(rows_of_batch(reader, start, first)) == [Event(1, b"a", 3)]
        publisher.publish(Batch.of(B))
        second = latest(reader, first)
        assert events_of(rows_of_batch(reader, first, second)) == [Event(6, b"c", 7)]
        reader.commit(first)
        again = readers(world.target)  # a restart runs the last batch again without ``latestOffset``
        assert events_of(rows_of_batch(again, first, second)) == [Event(6, b"c", 7)]
        assert reader.reportLatestOffset() == second


@pytest.mark.parametrize("envelope", [FINAL, UPSERT, ELEMENTS])
def test_rows_from_the_driver_and_from_servers_are_equal(
    readers: Any, envelope: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = tdb(3, 500)
    with servers(2) as world:
        world.publish(*revised(1, events))
        held = readers(world.target, startingOffsets="flights@-inf", envelope=envelope)
        alone = readers(world.target, startingOffsets="flights@-inf", envelope=envelope, partitions="3")
        start, tasks = held.initialOffset(), 0
        while start["token"] != "flights@inf":
            end = latest(held, start, 120)
            rows = rows_of_batch(held, start, end)
            assert rows_of_batch(alone, start, end) == rows  # it has no feed: tasks read from servers
            monkeypatch.setattr("lmerge.spark.source.readers.INLINE_BYTES", 1)
            monkeypatch.setattr("lmerge.spark.source.readers.ROWS_PER_SLICE", 20)
            tasks = max(tasks, len(held.partitions(start, end)))
            assert rows_of_batch(held, start, end) == rows
            monkeypatch.undo()
            start = end
        assert tasks > 1


def test_admission_control_keeps_batches_small(readers: Any) -> None:
    events = tdb(4, 400)
    with servers() as world:
        world.publish(*revised(1, events))
        reader = readers(world.target, startingOffsets="flights@-inf", maxRowsPerBatch="25")
        start, read = reader.initialOffset(), []
        while start["token"] != "flights@inf":
            end = latest(reader, start)
            rows = events_of(rows_of_batch(reader, start, end))
            assert len(rows) <= 25 or len({event.ve for event in rows}) == 1
            read += rows
            start = end
        assert sorted(read) == events


def test_a_query_that_begins_now_pins_that_moment(readers: Any) -> None:
    with servers() as world, world.publisher() as publisher:
        publisher.publish(Batch.of(A))
        publisher.flush()
        reader = readers(world.target, envelope=ELEMENTS)
        start = reader.initialOffset()
        pinned = latest(reader, start)
        assert pinned == {"token": "flights@5", "envelope": "elements", "fresh": True}
        assert reader.partitions(start, pinned) == []
        publisher.publish(Batch.of(B))
        publisher.flush()
        again = readers(world.target, envelope=ELEMENTS)  # as if the first batch had failed
        assert again.initialOffset() == start
        assert again.partitions(again.initialOffset(), pinned) == []
        end = latest(again, pinned)
        assert [(row["kind"], row["payload"], row["vs"]) for row in rows_of_batch(again, pinned, end)] == [
            ("insert", b"c", 6),
            ("insert", b"b", 2),
            ("stable", None, 8),
        ]


def test_earliest_is_what_servers_retain(readers: Any) -> None:
    with servers() as world, world.publisher(origin=lmerge.Origin(join_at=4)) as publisher:
        publisher.publish(Batch.of([Insert(b"b", 2, 9), Stable(5)]))
        publisher.flush()
        reader = readers(world.target, startingOffsets="earliest")
        pinned = latest(reader, reader.initialOffset())
        assert pinned["token"] == "flights@4"
        resolved = latest(reader, pinned)  # what is stable already is new as well
        assert resolved["token"] == "flights@5"
        assert events_of(rows_of_batch(reader, pinned, resolved)) == []
        publisher.publish(Batch.of([Stable(10)]))
        assert events_of(rows_of_batch(reader, resolved, latest(reader, resolved))) == [Event(2, b"b", 9)]


def test_a_merge_that_does_not_exist_yet_is_waited_for(readers: Any) -> None:
    with servers() as world:
        reader = readers(world.target)
        pinned = latest(reader, reader.initialOffset())
        assert pinned["token"] == "flights@-inf"
        assert reader.latestOffset(pinned, reader.getDefaultReadLimit()) == pinned
        world.publish(*A)
        assert events_of(rows_of_batch(reader, pinned, latest(reader, pinned))) == [Event(1, b"a", 3)]


def test_a_merge_that_no_server_has_is_an_error_on_request(readers: Any) -> None:
    from lmerge.spark.source import readers as source_readers

    with servers() as world:
        reader = readers(world.target, waitForMerge="false")
        with pytest.raises(UnknownMerge, match=f"cannot read merge 'flights' at {world.target}"):
            reader.latestOffset(reader.initialOffset(), reader.getDefaultReadLimit())
        with pytest.raises(UnknownMerge, match=r"set \.schema\(\.\.\.\) or payload=binary"):
            source_readers.schema({"servers": world.target, "merge": MERGE})


def test_servers_that_are_away_end_the_query_after_a_while(readers: Any) -> None:
    from lmerge.spark.source import readers as source_readers

    with servers() as world:
        world.stop()
        reader = readers(world.target, giveUpAfter="0.2", startingOffsets="flights@5")
        with pytest.raises(ServerGone, match="cannot be reached"):
            latest(reader, reader.initialOffset())
        reader = readers(world.target, giveUpAfter="0.2")
        with pytest.raises(ServerGone, match="cannot be reached"):
            latest(reader, reader.initialOffset())
        with pytest.raises(ServerGone, match="cannot read merge 'flights'"):
            source_readers.schema({"servers": world.target, "merge": MERGE})


def test_a_checkpoint_that_is_too_old_is_an_error(readers: Any) -> None:
    with servers() as world, world.publisher() as publisher:
        publisher.publish(Batch.of(A))
        publisher.flush()
        world.restart()  # it only has what its replica still has
        publisher.publish(Batch.of(B))
        publisher.flush()
        reader = readers(world.target, startingOffsets="flights@1")
        with pytest.raises(OutOfRange, match=r"cannot resume merge 'flights' at 1"):
            latest(reader, reader.initialOffset())
        lossy = readers(world.target, startingOffsets="flights@1", failOnDataLoss="false")
        end = latest(lossy, lossy.initialOffset())
        assert end == {"token": "flights@8", "envelope": "final", "lost": [[1, 5]]}
        assert events_of(rows_of_batch(lossy, lossy.initialOffset(), end)) == [Event(6, b"c", 7)]


@pytest.mark.parametrize(
    ("offset", "message"),
    [
        ({"token": "delays@5", "envelope": "final"}, "it is one of merge 'delays'"),
        ({"token": "flights@5", "envelope": "elements"}, "envelope elements, the query asks for final"),
        ({"partition": 3}, "the checkpoint is of something else"),
    ],
)
def test_a_checkpoint_of_another_query_is_an_error(readers: Any, offset: dict[str, Any], message: str) -> None:
    reader = readers("h:1")
    with pytest.raises(UsageError, match=message):
        reader.latestOffset(offset, reader.getDefaultReadLimit())


def test_available_now_reads_what_is_there_and_no_more(readers: Any) -> None:
    with servers() as world, world.publisher() as publisher:
        publisher.publish(Batch.of(A))
        publisher.flush()
        reader = readers(world.target, startingOffsets="flights@-inf")
        reader.prepareForTriggerAvailableNow()
        publisher.publish(Batch.of(B))
        publisher.flush()
        end = reader.latestOffset(reader.initialOffset(), reader.getDefaultReadLimit())  # one call
        assert end["token"] == "flights@5"
        assert reader.latestOffset(end, reader.getDefaultReadLimit()) == end


def test_all_that_is_available_goes_beyond_what_the_driver_holds(readers: Any) -> None:
    from pyspark.sql.streaming.datasource import ReadAllAvailable

    events = tdb(5)
    with servers() as world:
        world.publish(*revised(1, events))
        reader = readers(world.target, startingOffsets="flights@-inf")
        start = reader.initialOffset()
        end = reader.latestOffset(start, ReadAllAvailable())
        assert sorted(events_of(rows_of_batch(reader, start, end))) == events


def test_a_driver_that_holds_enough_waits_for_the_query(readers: Any) -> None:
    events = tdb(6, 2000)
    with servers(batch_elements=64) as world:
        world.publish(*revised(1, events))
        reader = readers(world.target, startingOffsets="flights@-inf", bufferBytes="2000")
        start, read = reader.initialOffset(), []
        while start["token"] != "flights@inf":
            end = latest(reader, start)
            read += events_of(rows_of_batch(reader, start, end))
            start = end
        assert sorted(read) == events
        assert reader._feed._events_read.bytes < 200_000


def test_a_full_driver_wakes_a_waiting_query_though_nothing_new_is_stable(readers: Any) -> None:
    """Otherwise a query with availableNow stands still until it gives up."""
    pause = threading.Event()
    with servers(policy="eager") as world, world.publisher() as publisher:
        publisher.publish(Batch.of(A))
        publisher.flush()
        reader = readers(world.target, startingOffsets="flights@-inf", bufferBytes="2000")
        latest(reader, reader.initialOffset())
        feed = reader._feed
        woken: list[bool] = []
        waiting = threading.Thread(target=lambda: woken.append(feed.wait_beyond(3, 8, 3600.0)), daemon=True)
        waiting.start()
        while not feed._changed._waiters:
            pause.wait(0.01)
        publisher.publish(Batch.of(Insert(b"%0100d" % at, 6, 7) for at in range(100)))
        publisher.flush()
        waiting.join(60)
        assert woken == [True]


def test_executors_get_no_secrets(readers: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LMERGE_TOKEN", "secret")
    reader = readers("h:1")
    assert reader._options.security.token == "secret"
    assert b"secret" not in pickle.dumps(reader)
    assert pickle.loads(pickle.dumps(reader))._options == reader._options


def test_a_reader_without_the_right_gets_an_error(readers: Any, tmp_path: Path) -> None:
    from spark_world import secure

    with secure(tmp_path) as world:
        token = tmp_path / "wrong"
        token.write_text("nobody")
        reader = readers(world.target, token_file=str(token), ca=str(world.authority.path), startingOffsets="5")
        with pytest.raises(LmergeError, match="token"):
            latest(reader, reader.initialOffset())
