"""Live views: a query sees the table as of one stable point, and all of it."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from random import Random

import pytest
from client_world import MERGE, ThreadedWorld, threaded_world
from hypothesis import given, settings
from hypothesis import strategies as st

from lmerge.client import Publisher
from lmerge.client.views.arrow_tables import import_pyarrow, payload_table
from lmerge.client.views.view import View, import_duckdb, view
from lmerge.client.views.view_table import EMPTY_MAX, ViewTable
from lmerge.core.batch import Batch
from lmerge.core.elements import INF, NEG_INF, Adjust, Element, Event, Insert, Stable
from lmerge.core.tdb import Tdb
from lmerge.errors import InvalidRow, Unavailable, UnknownMerge, UsageError
from lmerge.testing.streams.merge_inputs import MIXED, present, reference
from lmerge.wire.arrow import decode_table
from lmerge.wire.rows import RowCodec
from lmerge.wire.schema import parse_schema

MANY = 10**9


@pytest.fixture
def world() -> Iterator[ThreadedWorld]:
    with threaded_world() as world:
        yield world


def events_in(table: ViewTable) -> list[Event]:
    rows = table.table(None)[1]
    return sorted(Event(*row) for row in zip(*(rows[name].to_pylist() for name in ("vs", "payload", "ve"))))


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32), keep=st.sampled_from([0, 3, 10, INF]), sweeps=st.booleans())
def test_the_table_is_the_tdb_of_the_last_stable_point(seed: int, keep: int, sweeps: bool) -> None:
    random = Random(seed)
    stream = present(random, reference(random, 20, duplicates=True), MIXED)
    table, reached, stream_tdb = ViewTable(keep, MANY), Tdb(), Tdb()
    for at, element in enumerate(stream):
        stream_tdb.apply(element)
        table.take(Batch.of([element]))
        if isinstance(element, Stable):
            reached = Tdb()
            for earlier in stream[: at + 1]:
                reached.apply(earlier)
            if sweeps:
                table._sweep()
        if random.random() < 0.4:
            bound = NEG_INF if reached.stable_point == NEG_INF else max(NEG_INF, reached.stable_point - keep)
            assert events_in(table) == [event for event in reached.events() if event.ve >= bound]
            final = table.table(None)[1]
            assert final["is_final"].to_pylist() == [ve < table.at or table.at == INF for ve in final["ve"].to_pylist()]
            assert final["vs"].to_pylist() == sorted(final["vs"].to_pylist())


def test_what_follows_the_last_stable_is_not_seen_yet() -> None:
    table = ViewTable(0, MANY)
    assert table.take(Batch.of([Insert(b"A", 1, 9), Stable(2), Adjust(b"A", 1, 9, 5), Insert(b"B", 3, 9)]))
    assert (table.at, events_in(table)) == (2, [Event(1, b"A", 9)])
    assert not table.take(Batch.of([Insert(b"C", 3, 9)]))
    table.take(Batch.of([Stable(3)]))
    assert events_in(table) == [Event(1, b"A", 5), Event(3, b"B", 9), Event(3, b"C", 9)]


def test_memory_is_bounded_by_what_is_live_and_kept() -> None:
    table = ViewTable(INF, 100)
    for t in range(0, 4 * EMPTY_MAX, 10):
        table.take(Batch.of([*(Insert(b"x", s, s + 1) for s in range(t, t + 10)), Stable(t + 10)]))
        assert len(table._there) <= 2 * EMPTY_MAX + 200
        if t % 5000 == 0:
            events_in(table)
    assert events_in(table)[-1] == Event(t + 9, b"x", t + 10)
    table._sweep()
    assert len(events_in(table)) == 101  # one is live


def test_columns_are_decoded_as_the_codec_does() -> None:
    schema = parse_schema({"b": "bool", "i": "int", "f": "float?", "s": "string", "raw": "bytes?"})
    codec = RowCodec(schema)
    rows = [
        {"b": True, "i": n, "f": None if n % 3 else 0.5, "s": f"{n}", "raw": None if n % 2 else b"\0"} for n in range(9)
    ]
    payloads = [codec.encode(row) for row in rows]
    assert payload_table(schema, payloads) == decode_table(codec, payloads)
    for damaged in (b"\xc1", b"\x01", codec.encode(rows[0])[:-1], RowCodec({"b": "int"}).encode({"b": 1})):
        with pytest.raises(InvalidRow, match="row 9"):
            payload_table(schema, [*payloads, damaged])
    wrong = RowCodec({"b": "int", "i": "bool", "f": "float?", "s": "string", "raw": "bytes?"})
    with pytest.raises(InvalidRow, match="column 'b'"):
        payload_table(schema, [wrong.encode({"b": 1, "i": True, "f": 0.5, "s": "x", "raw": b""})])


def test_sql_and_arrow_answer_as_of_a_stable_point(world: ThreadedWorld) -> None:
    schema = {"carrier": "string", "delay": "int", "vs": "string"}
    with (
        Publisher(world.target, MERGE, "a", schema=schema) as publisher,
        view(MERGE, world.target, keep=100) as flights,
    ):
        publisher.stable(0)
        flights.wait_until(0, timeout_s=20)  # a view that comes later has not what has ended
        for n, carrier in enumerate(("UA", "DL", "UA")):
            publisher.insert({"carrier": carrier, "delay": n * 10, "vs": "own"}, n, n + 10)
        publisher.stable(12)
        assert flights.wait_until(12, timeout_s=20) == 12
        assert flights.sql("select carrier, sum(delay) d from flights group by 1 order by 1").to_pylist() == [
            {"carrier": "DL", "d": 10},
            {"carrier": "UA", "d": 20},
        ]
        counted = "select count(*) n from events where is_final and delay >= ?"
        assert flights.sql(counted, [10]).to_pylist() == [{"n": 1}]
        table = flights.arrow()
        assert table.column_names == ["carrier", "delay", "payload_vs", "vs", "ve", "is_final"]
        assert flights.arrow() is table  # nothing has changed
        assert flights.snapshot() == (12, table)
        with pytest.raises(UsageError, match="cannot be answered"):
            flights.sql("select nonsense")
    assert flights.sql("select count(*) n from flights").to_pylist()[0]["n"] == 3  # closed, and still there
    assert flights.gaps == []


def test_a_merge_without_a_schema_has_a_binary_column_and_any_name(world: ThreadedWorld) -> None:
    with Publisher(world.target, "my merge", "a") as publisher, View("my merge", world.target) as seen:
        publisher.insert(b"\xff", 1, 9)
        publisher.stable(2)
        seen.wait_until(timeout_s=20)
        (row,) = seen.sql('select payload, vs, ve from "my merge"').to_pylist()
        assert row == {"payload": b"\xff", "vs": 1, "ve": 9}


def test_queries_of_many_threads_see_whole_stables_only(world: ThreadedWorld) -> None:
    wrong: list[object] = []
    with Publisher(world.target, MERGE, "a") as publisher, View(MERGE, world.target, keep=INF) as seen:
        done = threading.Event()

        def ask() -> None:
            while not done.is_set():
                at, table = seen.snapshot()
                starts = table["vs"].to_pylist()
                if len(starts) % 7 or (starts and max(starts) >= at):
                    wrong.append((at, starts))

        publisher.stable(1)
        seen.wait_until(1, timeout_s=30)  # a view that comes later has not what has ended
        threads = [threading.Thread(target=ask) for _ in range(3)]
        for thread in threads:
            thread.start()
        for t in range(1, 150):
            rows: list[Element] = [Insert(b"%d" % n, t, t + 1 + n) for n in range(7)]
            for row in rows:
                publisher.publish(Batch.of([row]))
            publisher.stable(t + 1)
        publisher.flush()
        seen.wait_until(150, timeout_s=30)
        done.set()
        for thread in threads:
            thread.join()
    assert wrong == []
    assert seen.arrow().num_rows == 149 * 7


def test_waiting_ends_with_what_ended_the_view(world: ThreadedWorld) -> None:
    seen = View(MERGE, world.target)
    with pytest.raises(Unavailable, match=r"view of 'flights' is at -inf, not at 5, after 0.01 s"):
        seen.wait_until(5, timeout_s=0.01)
    seen.close()
    with pytest.raises(Unavailable, match="was closed at -inf, before 5"):
        seen.wait_until(5)
    with View("missing", world.target, wait_for_merge=False) as missing:
        with pytest.raises(UnknownMerge):
            missing.wait_until(5)
        with pytest.raises(UnknownMerge):
            missing.arrow()


def test_an_event_that_is_no_row_is_named() -> None:
    table = ViewTable(0, MANY)
    schema = parse_schema({"i": "int"})
    table.take(Batch.of([Insert(RowCodec(schema).encode({"i": 1}), 1, 9), Insert(b"\xc1", 2, 9), Stable(3)]))
    with pytest.raises(InvalidRow, match="the event at vs=2: row 0"):
        table.table(schema)


def test_a_negative_past_is_refused(world: ThreadedWorld) -> None:
    with pytest.raises(UsageError, match="negative"):
        View(MERGE, world.target, keep=-1)


@pytest.mark.parametrize(("module", "extra"), [("pyarrow", "arrow"), ("duckdb", "sql")])
def test_a_missing_library_is_named_with_its_extra(module: str, extra: str, monkeypatch: pytest.MonkeyPatch) -> None:
    load = {"pyarrow": import_pyarrow, "duckdb": import_duckdb}[module]
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(UsageError, match=rf"pip install 'lmerge\[{extra}\]'"):
        load()
