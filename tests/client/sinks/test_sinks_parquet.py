"""The Parquet sink: every final event in exactly one whole file, over kills at any moment."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import duckdb
import pytest
from pyarrow import parquet
from scripted import MERGE, Scripted, kill_often, subscribing, world

from lmerge.client.sinks import SinkProgress
from lmerge.client.sinks.parquet import ParquetSink, pieces, token_in
from lmerge.client.subscribe.follower import SubscriptionGap
from lmerge.client.views.arrow_tables import event_table
from lmerge.core.elements import INF, NEG_INF, Element, Event, Insert, Stable
from lmerge.errors import InvalidRow, UsageError
from lmerge.wire.rows import RowCodec
from lmerge.wire.schema import parse_schema


def events_in(folder: Path) -> list[Event]:
    """Return all events of all complete files, as DuckDB reads them."""
    rows = duckdb.sql(f"select vs, payload, ve from '{folder}/*.parquet' order by all").fetchall()
    return sorted(Event(*row) for row in rows)


def assert_a_set_of_files(folder: Path) -> None:
    """Check that the files follow one another, that each holds what its name declares, and that none is unfinished."""
    found = pieces(folder, MERGE)
    for before, after in zip(found, found[1:]):  # noqa: RUF007
        assert before.end == after.start
    for start, end, path in found:
        ends = parquet.read_table(path)["ve"].to_pylist()
        assert ends == sorted(ends)
        assert all(start <= ve < end or end == INF for ve in ends)
        assert token_in(path) == f"flights@{'inf' if end == INF else end}"
    assert [path.name for path in folder.iterdir() if path.suffix != ".parquet"] == [".flights.lock"]


async def sunk(
    folder: Path, elements: Sequence[Element], *, schema: Any = None, gaps: Any = (), **options: Any
) -> SinkProgress:
    return await ParquetSink(folder, MERGE, **options).run(lambda token: Scripted(elements, schema=schema, gaps=gaps))


@pytest.mark.parametrize("seed", range(3))
async def test_every_final_event_is_in_one_file(tmp_path: Path, seed: int) -> None:
    events, servers = world(seed, 300)
    progress = await sunk(tmp_path, servers[0], file_events_max=50)
    assert events_in(tmp_path) == events
    assert_a_set_of_files(tmp_path)
    assert (progress.token, progress.written) == ("flights@inf", len(events))
    assert len(pieces(tmp_path, MERGE)) == progress.steps > 3


async def test_a_sink_goes_on_behind_the_last_file_at_any_server(tmp_path: Path) -> None:
    events, servers = world(4, 400)
    random = Random(4)
    for stops in range(1, 6):
        sink = ParquetSink(tmp_path, MERGE, file_events_max=random.randint(5, 60))

        def stop(progress: SinkProgress, sink: ParquetSink = sink, stops: int = stops) -> None:
            if progress.steps == stops:
                sink.stop()

        sink._on_progress = stop
        await sink.run(subscribing(servers, random))
    await ParquetSink(tmp_path, MERGE).run(subscribing(servers, random))
    assert events_in(tmp_path) == events
    assert_a_set_of_files(tmp_path)
    await ParquetSink(tmp_path, MERGE).run(subscribing(servers, random))  # all is there already
    assert events_in(tmp_path) == events


async def test_a_stopped_sink_completes_its_file(tmp_path: Path) -> None:
    stream: list[Element] = [Insert(b"A", 1, 3), Insert(b"B", 2, 9), Stable(5)]
    assert (await sunk(tmp_path, stream)).token == "flights@5"
    assert [(piece.start, piece.end) for piece in pieces(tmp_path, MERGE)] == [(NEG_INF, 5)]
    assert events_in(tmp_path) == [Event(1, b"A", 3)]


async def test_files_roll_by_bytes_by_time_and_by_age(tmp_path: Path) -> None:
    stream = [e for t in range(0, 100, 2) for e in (Insert(b"x" * 10, t, t + 1), Stable(t + 2))]
    await sunk(tmp_path / "bytes", stream, file_bytes_max=100)
    assert [piece.end for piece in pieces(tmp_path / "bytes", MERGE)] == [20, 40, 60, 80, 100]
    await sunk(tmp_path / "time", stream, roll_interval=50)
    assert [piece.end for piece in pieces(tmp_path / "time", MERGE)] == [50, 100]
    await sunk(tmp_path / "age", stream, roll_s=1e-9)
    assert len(pieces(tmp_path / "age", MERGE)) > 20


async def test_a_fresh_sink_records_where_it_began(tmp_path: Path) -> None:
    await sunk(tmp_path, [Insert(b"A", 1, 13), Stable(10), Stable(20)])
    assert [piece.path.name for piece in pieces(tmp_path, MERGE)] == ["flights_10_20.parquet"]


async def test_rows_have_the_columns_of_the_schema(tmp_path: Path) -> None:
    schema = parse_schema({"carrier": "string", "delay": "float?", "at": "timestamp", "vs": "int"})
    codec = RowCodec(schema)
    stream: list[Element] = [Insert(codec.encode({"carrier": "UA", "delay": None, "at": 0, "vs": 7}), 1, 2), Stable(3)]
    await sunk(tmp_path, stream, schema=schema)
    table = parquet.read_table(pieces(tmp_path, MERGE)[0].path)
    assert table.column_names == ["carrier", "delay", "at", "payload_vs", "vs", "ve"]
    assert [table[name][0].as_py() for name in ("carrier", "delay", "payload_vs", "vs", "ve")] == ["UA", None, 7, 1, 2]


async def test_a_gap_is_in_the_metadata_and_in_the_progress(tmp_path: Path) -> None:
    gap = SubscriptionGap(5, 8)
    progress = await sunk(tmp_path, [Insert(b"A", 1, 3), Stable(5), Insert(b"B", 6, 9), Stable(10)], gaps=[gap])
    assert progress.gaps == [gap]
    assert parquet.read_metadata(pieces(tmp_path, MERGE)[0].path).metadata[b"lmerge.gaps"] == b"5..8"


async def test_two_sinks_of_one_merge_do_not_share_a_folder_and_two_merges_do(tmp_path: Path) -> None:
    async def second(number: int) -> None:
        if number == 0:
            with pytest.raises(UsageError, match="another sink writes merge 'flights'"):
                await sunk(tmp_path, [])
            other: list[Element] = [Insert(b"B", 1, 3), Stable(5)]
            await ParquetSink(tmp_path, "a/b_1").run(lambda token: Scripted(other))

    stream: list[Element] = [Insert(b"A", 1, 3), Stable(5)]
    await ParquetSink(tmp_path, MERGE).run(lambda token: Scripted(stream, before_batch=second))
    assert [pieces(tmp_path, name)[0].path.name for name in ("a/b_1", MERGE)] == [
        "a%2Fb_1_-inf_5.parquet",
        "flights_-inf_5.parquet",
    ]


async def test_files_that_no_sink_wrote_are_refused(tmp_path: Path) -> None:
    (tmp_path / "flights_0_9.parquet").write_bytes(b"not parquet")
    with pytest.raises(UsageError, match="cannot read"):
        await sunk(tmp_path, [])
    parquet.write_table(event_table(None, [(1, 2, b"A")]), tmp_path / "flights_0_9.parquet")
    with pytest.raises(UsageError, match="it holds no token"):
        await sunk(tmp_path, [])
    parquet.write_table(event_table(None, [(1, 2, b"A")]), tmp_path / "flights_5_7.parquet")
    with pytest.raises(UsageError, match="overlap"):
        await sunk(tmp_path, [])


async def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="cannot write to folder"):
        await sunk(tmp_path / "file" / "out", [])


async def test_an_event_that_is_no_row_is_named_and_no_file_is_left(tmp_path: Path) -> None:
    schema = parse_schema({"i": "int"})
    good = RowCodec(schema).encode({"i": 1})
    with pytest.raises(InvalidRow, match=r"the event at vs=2: row 0: the payload is not MessagePack"):
        await sunk(tmp_path, [Insert(good, 1, 2), Insert(b"\xc1", 2, 3), Stable(9)], schema=schema)
    assert_a_set_of_files(tmp_path)


def test_a_sink_that_is_killed_at_any_moment_loses_and_repeats_nothing(tmp_path: Path) -> None:
    killed = kill_often("parquet", str(tmp_path), 31, 4, lines=(0, 2), within_s=0.05)
    assert killed == 4
    assert events_in(tmp_path) == world(31)[0]
    assert_a_set_of_files(tmp_path)


@pytest.mark.parametrize(
    "limits", [{"file_events_max": 0}, {"file_bytes_max": 0}, {"roll_interval": 0}, {"roll_s": -1}]
)
def test_a_limit_that_makes_no_sense_is_refused(tmp_path: Path, limits: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="positive"):
        ParquetSink(tmp_path, MERGE, **limits)


def test_without_pyarrow_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(UsageError, match=r"pip install 'lmerge\[arrow\]'"):
        ParquetSink(tmp_path, MERGE)


async def test_a_sink_that_is_stopped_before_it_runs_does_nothing(tmp_path: Path) -> None:
    sink = ParquetSink(tmp_path, MERGE)
    sink.stop()
    assert (await asyncio.wait_for(sink.run(lambda token: Scripted([])), 5)).steps == 0
