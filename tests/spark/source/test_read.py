"""Ranges of the merged stream: each has the same rows at every server, and all together are the TDB."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from lmerge.core.batch import Batch
from lmerge.core.elements import INF, NEG_INF, STABLE, Adjust, Element, Event, Insert, Stable
from lmerge.core.merge import Merge
from lmerge.core.merge_config import MergeConfig
from lmerge.core.tdb import Tdb
from lmerge.errors import InvalidBatch, InvalidRow, UsageError
from lmerge.spark.frames import from_frame
from lmerge.spark.source import frame_rows
from lmerge.spark.source.columns import Layout
from lmerge.spark.source.decided_events import DecidedEvents
from lmerge.spark.source.envelope_rows import (
    ADJUST,
    ELEMENTS,
    ENVELOPES,
    FINAL,
    FRAMES,
    INSERT,
    TABLE,
    UPSERT,
    Range,
    fitting_end,
    rows,
)
from lmerge.spark.source.frame_rows import element_count
from lmerge.spark.source.options import batch_options, stream_options
from lmerge.testing.streams.merge_inputs import MIXED, PLAIN, present, reference
from lmerge.wire.rows import RowCodec
from lmerge.wire.schema import parse_schema
from lmerge.wire.token import Token

pytestmark = pytest.mark.usefixtures("engine")

POLICIES = ("lazy", "eager", "half-frozen-only", "final-only", "quorum:2", "leading-input-only", "eager+lag:3")
SHAPES = (PLAIN, MIXED, replace(MIXED, places=20, stables=0.1), replace(MIXED, revised=0.9, invented=0.5, meeting=0.2))


def stream_of_a_server(random: Random, events: list[Event]) -> list[Element]:
    """Return what a merge of two streams of these events emits, by some policy."""
    merge = Merge(MergeConfig("r4", random.choice(POLICIES)))
    streams = {name: present(random, events, random.choice(SHAPES)) for name in "ab"}
    for name in streams:
        merge.attach(name)
    output: list[Element] = []
    while any(streams.values()):
        name = random.choice([name for name, left in streams.items() if left])
        count = random.randint(1, 5)
        output += merge.apply(name, Batch.of(streams[name][:count])).batch.elements()
        del streams[name][:count]
    return output


def read(random: Random, output: list[Element], begin: int, end: int) -> DecidedEvents:
    """Return the events of a reader that has read from ``begin`` to ``end``.

    It read a snapshot of some earlier time, the elements since, and some later ones.
    """
    tdb = Tdb("server")
    snapshots: list[tuple[int, list[Event], int]] = [(0, [], NEG_INF)]
    last = 0
    for at, element in enumerate(output, 1):
        tdb.apply(element)
        if isinstance(element, Stable) and element.vc <= begin:
            snapshots.append((at, tdb.live_events(), element.vc))
        if isinstance(element, Stable) and element.vc >= end:
            last = at
            break
    assert last, "the server has not come so far"
    at, live, stable = random.choice(snapshots)
    stream: list[Element] = [Insert(event.payload, event.vs, event.ve) for event in live]
    stream += [Stable(stable)] if stable > NEG_INF else []
    stream += output[at : last + random.choice((0, 0, 3, 50))]
    decided = DecidedEvents(begin)
    while stream:
        count = random.randint(1, 7)
        decided.add(Batch.of(stream[:count]))
        del stream[:count]
        if random.random() < 0.3:
            decided.settle(min(decided.stable_point, end))
    decided.settle(end)
    return decided


def ranges(random: Random, events: list[Event]) -> list[Range]:
    """Cut all of time at random moments. For the range that begins before everything, fresh makes no difference."""
    times = [NEG_INF, *sorted({random.choice(event[::2]) for event in events if random.random() < 0.3} - {INF}), INF]
    return [Range(start, end, fresh=start == NEG_INF) for start, end in pairwise(times)]


def whole(envelope: str, requested: Range, decided: DecidedEvents) -> Any:
    return rows(envelope, requested, decided, requested.start, requested.end, is_last=True)


def sliced(random: Random, output: list[Element], envelope: str, requested: Range, times: list[int]) -> Any:
    """Read the range in slices, each by a reader of its own."""
    inside = sorted({t for t in times if requested.start < t < requested.end and random.random() < 0.5})
    bounds = [requested.start, *inside, requested.end]
    return pa.concat_tables(
        [
            rows(envelope, requested, read(random, output, low, high), low, high, is_last=high == requested.end)
            for low, high in pairwise(bounds)
        ]
    )


def events_of(table: Any) -> list[Event]:
    return [Event(row["vs"], row["payload"], row["ve"]) for row in table.to_pylist()]


def elements_of(table: Any) -> Iterator[Element]:
    for row in table.to_pylist():
        if row["kind"] == INSERT:
            yield Insert(row["payload"], row["vs"], row["ve"])
        elif row["kind"] == ADJUST:
            yield Adjust(row["payload"], row["vs"], row["vold"], row["ve"])
        else:
            yield Stable(row["vs"])


def framed(table: Any) -> list[Element]:
    frames = table.column("frame").to_pylist()
    return [element for data in frames for element in from_frame(data).elements()]


@pytest.mark.parametrize("seed", range(12))
def test_a_range_has_the_same_rows_at_every_server(seed: int, engine: str) -> None:
    random = Random(seed)
    events = reference(random, random.randint(0, 60), duplicates=seed % 2 == 0)
    servers = [stream_of_a_server(random, events) for _ in range(2)]
    times = [event.ve for event in events if event.ve < INF]
    for envelope in ENVELOPES:
        for requested in ranges(random, events):
            first, second = (
                whole(envelope, requested, read(random, stream, requested.start, requested.end)) for stream in servers
            )
            assert first.equals(second)
            in_slices = sliced(random, servers[0], envelope, requested, times)
            if envelope == FRAMES:  # a frame belongs to one slice
                assert framed(in_slices) == framed(first)
            else:
                assert in_slices.equals(first)


def test_orders_of_frames_never_fall_and_the_stable_has_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frame_rows, "_FRAME", 3)
    random = Random(3)
    events = reference(random, 50)
    stream = stream_of_a_server(random, events)
    orders: list[int] = []
    for requested in ranges(random, events):
        table = whole(FRAMES, requested, read(random, stream, requested.start, requested.end))
        counts = [from_frame(data).count for data in table.column("frame").to_pylist()]
        assert counts == table.column("elements").to_pylist()
        assert max(counts) <= 3
        assert element_count(table) == sum(counts)
        orders += table.column("order").to_pylist()
        assert from_frame(table.column("frame")[-1].as_py()).kinds == bytes([STABLE])
    assert orders == sorted(orders)
    assert orders[0] > NEG_INF


@pytest.mark.parametrize("seed", range(12))
def test_all_ranges_together_are_the_tdb(seed: int) -> None:
    random = Random(seed)
    events = reference(random, random.randint(1, 60), duplicates=seed % 2 == 0)
    stream = stream_of_a_server(random, events)
    tables: dict[str, list[Any]] = {envelope: [] for envelope in ENVELOPES}
    restored = Tdb("elements")
    for requested in ranges(random, events):
        decided = read(random, stream, requested.start, requested.end)
        for envelope in ENVELOPES:
            tables[envelope].append(whole(envelope, requested, decided))
        for element in elements_of(tables[ELEMENTS][-1]):
            restored.apply(element)  # raises if the stream is not legal
        assert framed(tables[FRAMES][-1]) == list(elements_of(tables[ELEMENTS][-1]))
        assert_is_the_tdb_at(restored, events, requested.end)
    finals = pa.concat_tables(tables[FINAL])
    assert sorted(events_of(finals)) == events
    assert finals.column("ve").to_pylist() == sorted(finals.column("ve").to_pylist())
    upserts = pa.concat_tables(tables[UPSERT]).to_pylist()
    kept = {(row["vs"], row["payload"], row["ordinal"]): row for row in upserts}
    assert sorted(Event(row["vs"], row["payload"], row["ve"]) for row in kept.values()) == events
    assert sum(row["is_final"] for row in upserts) == len(events)
    assert all(row["is_final"] for row in kept.values())


def assert_is_the_tdb_at(restored: Tdb, events: list[Event], t: int) -> None:
    """Fully frozen events are equal, half frozen ones exist (III.D)."""
    read_events = restored.events()
    assert [e for e in read_events if e.ve < t] == [e for e in events if e.ve < t]
    assert Counter((e.vs, e.payload) for e in read_events) == Counter((e.vs, e.payload) for e in events if e.vs < t)


@pytest.mark.parametrize("seed", range(20))
def test_a_fresh_range_begins_with_what_goes_on(seed: int) -> None:
    random = Random(seed)
    events = reference(random, 40, duplicates=True)
    stream = stream_of_a_server(random, events)
    start, end = sorted(random.sample(range(events[0].vs, events[-1].vs + 20), 2))
    requested = Range(start, end, fresh=True)
    elements = list(elements_of(whole(ELEMENTS, requested, read(random, stream, start, end))))
    expected = Counter((e.vs, e.payload, e.ve if e.ve < end else INF) for e in events if e.vs < end and e.ve >= start)
    assert Counter((e.vs, e.payload, e.ve) for e in elements[:-1] if isinstance(e, Insert)) == expected
    assert elements[-1] == Stable(end)


@pytest.mark.parametrize("seed", range(6))
def test_a_limit_ends_a_range_early_and_loses_nothing(seed: int) -> None:
    random = Random(seed)
    events = reference(random, 60, duplicates=True)
    stream = stream_of_a_server(random, events)
    rows_max = random.randint(1, 12)
    for envelope in ENVELOPES:
        start, tables = NEG_INF, []
        while start < INF:
            decided = read(random, stream, start, INF)
            end = fitting_end(envelope, Range(start, INF), decided, rows_max)
            assert end > start
            requested = Range(start, end, fresh=start == NEG_INF)
            table = whole(envelope, requested, read(random, stream, start, end))
            count = element_count(table) - (envelope in (ELEMENTS, FRAMES))
            moments = {event.ve for event in events} | {event.vs for event in events if envelope != FINAL}
            assert count <= rows_max or end == min(min(t for t in moments if t >= start) + 1, INF)
            tables.append(table)
            start = end
        if envelope == FINAL:
            assert sorted(events_of(pa.concat_tables(tables))) == events


def decided_of(*elements: Element, since: int = NEG_INF) -> DecidedEvents:
    decided = DecidedEvents(since)
    decided.add(Batch.of(elements))
    decided.settle(decided.stable_point)
    return decided


def test_an_event_that_ends_at_the_stable_point_is_not_final() -> None:
    decided = decided_of(Insert(b"a", 1, 5), Stable(5))
    assert whole(FINAL, Range(1, 5), decided).num_rows == 0
    decided = decided_of(Insert(b"a", 1, 5), Stable(5), Stable(6), since=5)
    assert events_of(whole(FINAL, Range(5, 6), decided)) == [Event(1, b"a", 5)]


def test_an_event_that_begins_at_the_end_of_a_range_has_not_begun() -> None:
    decided = decided_of(Insert(b"a", 5, 9), Insert(b"b", 4, 9), Stable(5))
    assert [row["payload"] for row in whole(UPSERT, Range(1, 5), decided).to_pylist()] == [b"b"]


def test_an_end_that_is_not_final_is_not_shown() -> None:
    requested = Range(1, 5)
    for elements in ([Insert(b"a", 2, 9)], [Insert(b"a", 2, 6), Adjust(b"a", 2, 6, INF)]):
        table = whole(ELEMENTS, requested, decided_of(*elements, Stable(5)))
        assert list(elements_of(table)) == [Insert(b"a", 2, INF), Stable(5)]
        assert whole(UPSERT, requested, decided_of(*elements, Stable(5))).column("ve").to_pylist() == [INF]


def test_a_batch_query_reads_the_present_ends() -> None:
    requested = Range(5, 5, fresh=True, current_ends=True)
    decided = DecidedEvents(5)
    decided.add(Batch.of([Insert(b"a", 2, 9), Insert(b"b", 1, 3), Insert(b"c", 6, 9), Stable(5)]))
    assert events_of(whole(TABLE, requested, decided)) == [Event(2, b"a", 9)]


def test_what_never_ends_is_final_at_the_end_of_the_stream() -> None:
    decided = decided_of(Insert(b"a", 1, INF), Stable(INF), since=4)
    assert events_of(whole(FINAL, Range(4, INF), decided)) == [Event(1, b"a", INF)]
    assert list(elements_of(whole(ELEMENTS, Range(4, INF), decided))) == [Stable(INF)]


def test_a_stream_that_takes_back_what_it_never_inserted_is_refused() -> None:
    with pytest.raises(InvalidBatch, match="never inserted"):
        decided_of(Adjust(b"a", 1, 3, 4), Stable(9))


def test_equal_events_are_numbered_from_the_one_that_ends_last() -> None:
    elements = [Insert(b"a", 1, ve) for ve in (3, 3, 7, 20, 30)]
    table = whole(UPSERT, Range(NEG_INF, 5), decided_of(*elements, Stable(5)))
    assert [(row["ve"], row["ordinal"]) for row in table.to_pylist()] == [(3, 4), (3, 3), (INF, 2), (INF, 1), (INF, 0)]
    table = whole(UPSERT, Range(5, 8), decided_of(*elements, Stable(8), since=5))
    assert [(row["ve"], row["ordinal"]) for row in table.to_pylist()] == [(7, 2)]


def test_what_was_forgotten_takes_no_memory() -> None:
    decided = decided_of(*(Insert(b"x" * 100, t, t + 1) for t in range(1000)), Stable(900))
    before = decided.bytes
    decided.forget(900)
    assert len(decided) == 0
    assert decided.bytes < before / 5


# Columns.

FLIGHTS = parse_schema({"carrier": "string", "delay": "int?", "vs": "float"})


def flight(carrier: str, delay: int | None = None) -> bytes:
    return RowCodec(FLIGHTS).encode({"carrier": carrier, "delay": delay, "vs": 0.5})


def spark_columns(layout: Layout, table: Any) -> list[dict[str, Any]]:
    batches = list(layout.batches(table, layout.fields()))
    rows: list[dict[str, Any]] = pa.Table.from_batches(batches, schema=layout.fields()).to_pylist()
    return rows


def test_payloads_become_columns_and_infinity_null() -> None:
    decided = decided_of(Insert(flight("UA", 3), 1, 2), Insert(flight("B6"), 1, INF), Stable(5))
    table = whole(UPSERT, Range(NEG_INF, 5), decided)
    assert spark_columns(Layout(UPSERT, FLIGHTS, "long"), table) == [
        {"carrier": "UA", "delay": 3, "payload_vs": 0.5, "vs": 1, "ve": 2, "ordinal": 0, "is_final": True},
        {"carrier": "B6", "delay": None, "payload_vs": 0.5, "vs": 1, "ve": INF, "ordinal": 0, "is_final": False},
    ]
    second = spark_columns(Layout(UPSERT, FLIGHTS, "timestamp"), table)[1]
    assert second["ve"] is None
    assert second["vs"].timestamp() == 1e-6


def test_a_stable_has_no_payload() -> None:
    table = whole(ELEMENTS, Range(NEG_INF, 5), decided_of(Insert(flight("UA", 3), 1, 2), Stable(5)))
    columns = spark_columns(Layout(ELEMENTS, FLIGHTS, "long"), table)
    assert [(row["kind"], row["carrier"], row["vs"], row["ve"], row["vold"]) for row in columns] == [
        ("insert", "UA", 1, 2, None),
        ("stable", None, 5, None, None),
    ]
    assert [row["payload"] for row in spark_columns(Layout(ELEMENTS, None, "long"), table)] == [flight("UA", 3), None]


def test_a_payload_that_is_no_row_is_named() -> None:
    table = whole(FINAL, Range(NEG_INF, 5), decided_of(Insert(b"?", 1, 2), Stable(5)))
    with pytest.raises(InvalidRow, match="vs=1"):
        list(Layout(FINAL, FLIGHTS, "long").batches(table, Layout(FINAL, FLIGHTS, "long").fields()))


def test_a_query_may_read_fewer_columns_and_narrower_ones() -> None:
    layout = Layout(FINAL, FLIGHTS, "long")
    arrow_schema = pa.schema([("ve", pa.int64()), ("delay", pa.int32())])
    layout.check(arrow_schema)
    table = whole(FINAL, Range(NEG_INF, 5), decided_of(Insert(flight("UA", 3), 1, 2), Stable(5)))
    assert [batch.to_pylist() for batch in layout.batches(table, arrow_schema)] == [[{"ve": 2, "delay": 3}]]
    with pytest.raises(UsageError, match="column 'speed'; the columns are carrier, delay, payload_vs, vs, ve"):
        layout.check(pa.schema([("speed", pa.int64())]))
    with pytest.raises(UsageError, match="column 'carrier' as list"):
        layout.check(pa.schema([("carrier", pa.list_(pa.int64()))]))
    big = whole(FINAL, Range(NEG_INF, 5), decided_of(Insert(flight("UA", 2**40), 1, 2), Stable(5)))
    with pytest.raises(UsageError, match="column 'delay' is no int32"):
        list(layout.batches(big, arrow_schema))


def test_two_columns_of_one_name_are_refused() -> None:
    with pytest.raises(UsageError, match="two columns 'payload_vs'"):
        Layout(FINAL, parse_schema({"vs": "int", "payload_vs": "int"}), "long").fields()
    with pytest.raises(UsageError, match="two columns 'ab'"):
        Layout(FINAL, parse_schema({"ab": "int", "AB": "int"}), "long").fields()


# Options.


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"envelope": "retract"}, "envelope is 'retract'; it is final or upsert or elements or frames"),
        ({"startingOffsets": "yesterday"}, "starting_offsets.*latest, earliest"),
        ({"startingOffsets": "delays@5"}, "merge 'delays'"),
        ({"maxRowsPerBatch": "0"}, "max_rows_per_batch is 0"),
        ({"partitions": "many"}, "partitions is 'many'"),
        ({"startingOffset": "latest"}, "did you mean starting_offsets"),
        ({"asOf": "5"}, "unknown option 'asOf'"),
        ({"servers": ""}, "servers is missing"),
        ({"token": "secret"}, "token_file"),
    ],
)
def test_an_option_that_makes_no_sense_is_named(option: dict[str, str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        stream_options({"servers": "h1:7171", "merge": "flights", **option})


def test_options_of_a_batch_query() -> None:
    given = {"servers": "h1:7171,h2:7171", "merge": "flights"}
    options = batch_options({**given, "asOf": "flights@7", "since": "earliest"})
    assert (options.as_of, options.since, options.servers) == (Token(0, 7), "earliest", ("h1:7171", "h2:7171"))
    with pytest.raises(UsageError, match="only a streaming query"):
        batch_options({"servers": "h1:7171", "merge": "flights", "envelope": "elements"})
    with pytest.raises(UsageError, match="unknown option 'maxRowsPerBatch'"):
        batch_options({"servers": "h1:7171", "merge": "flights", "maxRowsPerBatch": "5"})


def test_the_time_zero_is_a_start() -> None:
    assert stream_options({"servers": "h1:7171", "merge": "flights", "startingOffsets": "0"}).start == Token(None, 0)
