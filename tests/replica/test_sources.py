"""Sources of every kind give the same events, say where a row is wrong, and go on from a position."""

from __future__ import annotations

import json
import math
import socket
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from datetime import date, datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from replica_world import flight_rows, write_csv

from lmerge.core.elements import INF
from lmerge.errors import InvalidRow, Unavailable, UsageError
from lmerge.replica import ArrowSocket, CsvFile, JsonLinesFile, JsonLinesSocket, ParquetFile, PythonItems, in_order
from lmerge.replica.feeds import SourceFeed, feed_of, opened_at
from lmerge.replica.sources.declared import PhysicalSource, SourceContext
from lmerge.temporal.changes import Change
from lmerge.temporal.running import Item
from lmerge.wire.schema import parse_schema

SCHEMA = parse_schema({"origin": "string", "delay": "int?"})
ROWS = flight_rows(1500)
POINTS: list[Item] = [Change((row["origin"], row["delay"]), row["at"], row["at"], row["at"] + 1) for row in ROWS]
TYPES = {
    "b": "bool",
    "i": "int?",
    "f": "float(1)",
    "s": "string",
    "y": "bytes",
    "t": "timestamp",
    "d": "date",
    "m": "decimal(2)",
}
TYPED = (True, None, -0.0 + 2.5, "é,", b"\0\1", 1_767_225_600_000_000, 20_454, Decimal("-1.50"))
AT = datetime(2026, 1, 1, tzinfo=timezone.utc)


def fed(source: PhysicalSource, position: Any = None, schema: Any = SCHEMA, **context: Any) -> SourceFeed:
    made = SourceContext("flights", parse_schema(schema) if isinstance(schema, dict) else schema, **context)
    reader = source.open(made, opened_at(source, position)[0])
    return feed_of("flights", source, reader, position, threading.Event())


def read(feed: SourceFeed, limit: int = 4096, most: int = 10**9) -> list[Item]:
    items: list[Item] = []
    with closing(feed):
        while not feed.has_ended and len(items) < most:
            if feed.next_release() is not None:
                taken = feed.take(min(limit, most - len(items)), None)
                assert isinstance(taken, list)
                items += taken
    return items


def write_json(path: Path, rows: Any) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def write_parquet(path: Path, rows: list[dict[str, Any]], group: int = 200) -> Path:
    pq.write_table(pa.Table.from_pylist(rows), path, row_group_size=group)
    return path


def made_source(kind: str, folder: Path) -> PhysicalSource:
    if kind == "csv":
        return CsvFile(path=write_csv(folder / "f.csv", ROWS), time="at")
    if kind == "json":
        return JsonLinesFile(path=write_json(folder / "f.json", ROWS), time="at")
    if kind == "parquet":
        return ParquetFile(path=write_parquet(folder / "f.parquet", ROWS), time="at")
    return PythonItems(items=lambda: iter(ROWS), time="at")


@pytest.mark.parametrize("kind", ["csv", "json", "parquet", "python"])
def test_rows_become_point_events_and_an_end(kind: str, tmp_path: Path) -> None:
    assert read(fed(made_source(kind, tmp_path))) == [*POINTS, INF]


@pytest.mark.parametrize("kind", ["csv", "json", "parquet", "python"])
@pytest.mark.parametrize("taken", [0, 1, 511, 512, 700, 1499, 1500, 1501])
def test_a_restart_goes_on_behind_what_was_taken(kind: str, taken: int, tmp_path: Path) -> None:
    source = made_source(kind, tmp_path)
    first = fed(source)
    before = read(first, 100, taken)
    after = read(fed(source, json.loads(json.dumps(first.position))))
    assert before + after == [*POINTS, INF] + [INF] * (taken == 1501)


def test_every_type_is_read_from_text_json_and_arrow(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(
        'b,i,f,s,y,t,d,m,x\ntrue,,2.54,"é,",AAE=,2026-01-01T01:00:00+01:00,2026-01-01,-1.5,2026-01-01T00:00:00Z\n'
    )
    row = {"b": True, "i": None, "f": 2.54, "s": "é,", "y": "AAE=", "d": "2026-01-01", "m": "-1.5", "x": 0}
    write_json(tmp_path / "t.json", [row | {"t": "2026-01-01T00:00:00Z", "x": "2026-01-01T00:00:00Z"}])
    arrow = {"b": True, "i": None, "f": 2.54, "s": "é,", "y": b"\0\1", "t": AT, "d": date(2026, 1, 1), "x": AT}
    table = pa.Table.from_pylist(
        [arrow | {"m": Decimal("-1.5")}],
        pa.schema(
            {
                "b": pa.bool_(),
                "i": pa.int64(),
                "f": pa.float64(),
                "s": pa.string(),
                "y": pa.binary(),
                "t": pa.timestamp("ns", "UTC"),
                "d": pa.date32(),
                "m": pa.decimal128(9, 1),
                "x": pa.timestamp("us", "Europe/Berlin"),
            }
        ),
    )
    pq.write_table(table, tmp_path / "t.parquet")
    for source in (
        CsvFile(path=tmp_path / "t.csv", time="x"),
        JsonLinesFile(path=tmp_path / "t.json", time="x"),
        ParquetFile(path=tmp_path / "t.parquet", time="x"),
    ):
        start = 1_767_225_600_000_000
        assert read(fed(source, schema=TYPES)) == [Change(TYPED, start, start, start + 1), INF]


def test_intervals_have_ends_or_do_not_end(tmp_path: Path) -> None:
    rows: list[Any] = [
        {"origin": "A", "delay": 1, "dep": 3, "arr": 9},
        {"origin": "B", "delay": None, "dep": 4, "arr": None},
    ]
    expected = [Change(("A", 1), 3, 3, 9), Change(("B", None), 4, 4, INF), INF]
    write_csv(tmp_path / "i.csv", [{name: "" if v is None else v for name, v in row.items()} for row in rows])
    for source in (
        CsvFile(path=tmp_path / "i.csv", start="dep", end="arr"),
        JsonLinesFile(path=write_json(tmp_path / "i.json", rows), start="dep", end="arr"),
        ParquetFile(path=write_parquet(tmp_path / "i.parquet", rows), start="dep", end="arr"),
        PythonItems(items=rows, start="dep", end="arr"),
    ):
        assert read(fed(source)) == expected


def test_elements_revise_and_are_stable(tmp_path: Path) -> None:
    row = {"origin": "A", "delay": 1}
    lines = [
        {"op": "insert", "row": row, "vs": 1, "ve": "inf"},
        {"op": "adjust", "row": row, "vs": 1, "vold": "inf", "ve": 5},
        {"op": "stable", "vc": 4},
        {"op": "adjust", "row": row, "vs": 1, "vold": 5, "ve": 7},
        {"op": "stable", "vc": "inf"},
    ]
    source = JsonLinesFile(path=write_json(tmp_path / "e.json", lines), elements=True)
    a = ("A", 1)
    assert read(fed(source)) == [Change(a, 1, 1, INF), Change(a, 1, INF, 5), 4, Change(a, 1, 5, 7), INF]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("origin,at\nA,1\n", "line 1: there is no column 'delay'; there are origin, at"),
        ("", "line 1: there is no column 'origin'; there are "),
        ("origin,delay,at,at\n", "line 1: there are several columns 'at'"),
        ("origin,delay,at\nA,1\n", "line 2: it has 2 fields, and line 1 has 3"),
        ("origin,delay,at\nA,1,1\nA,x,2\n", r"line 3: column 'delay' \(int\?\): 'x' is not a whole number"),
        ("origin,delay,at\nA,1,noon\n", "line 2: column 'at', a time: 'noon' is no time such as 2013-01-01T05:15"),
        ("origin,delay,at\nA,1,2013-01-01T00:00:00\n", "line 2: .* has no time zone, so it names no moment"),
        ('origin,delay,at\n"A,1,2\n', "line 2: unexpected end of data"),
        (b"origin,delay,at\nA,1,1\n\xe9,1,1\n", "line 3: it is no UTF-8: 0xe9 at byte 1 of it"),
    ],
)
def test_a_wrong_line_of_csv_is_named(text: str | bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "wrong.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(InvalidRow, match=f"^source 'flights' \\(.*wrong.csv\\), {message}"):
        read(fed(CsvFile(path=path, time="at")))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "it is no JSON"),
        ("[1]", r"it is '\[1\]', and no object"),
        ('{"at": 1, "delay": 1}', "there is no column 'origin'"),
        ('{"at": 1, "origin": null, "delay": 1}', r"column 'origin' \(string\): None is not a string"),
        ('{"at": 1.5, "origin": "A", "delay": 1}', "column 'at', a time: 1.5 is no time"),
        ('{"at": true, "origin": "A", "delay": 1}', "column 'at', a time: True is no time"),
        ('{"origin": "A", "delay": 1}', "column 'at', a time, is not there"),
        ('{"at": 99999999999999999999, "origin": "A", "delay": 1}', "is out of the range of times"),
        ('{"at": 1, "origin": "\\ud800", "delay": 1}', "holds half of a surrogate pair, which has no UTF-8"),
        ("[" * 100_000, "nested too deep|no JSON"),
    ],
)
def test_a_wrong_line_of_json_is_named(line: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "wrong.json"
    path.write_text('{"at": 1, "origin": "A", "delay": 1}\n\n' + line + "\n")
    with pytest.raises(InvalidRow, match=f"^source 'flights' \\(.*wrong.json\\), line 3: .*{message}"):
        read(fed(JsonLinesFile(path=path, time="at")))


def test_a_wrong_file_of_parquet_is_named(tmp_path: Path) -> None:
    (tmp_path / "no.parquet").write_text("text")
    with pytest.raises(UsageError, match=r"source 'flights' \(.*no.parquet\) cannot be read: "):
        fed(ParquetFile(path=tmp_path / "no.parquet", time="at"))
    with pytest.raises(UsageError, match="cannot be read"):
        fed(ParquetFile(path=tmp_path / "gone.parquet", time="at"))
    path = write_parquet(tmp_path / "p.parquet", [{"origin": "A", "at": 1, "delay": 1.5}])
    with pytest.raises(InvalidRow, match=r"row 0: column 'delay' \(int\?\): 1.5 is not a whole number"):
        read(fed(ParquetFile(path=path, time="at")))
    with pytest.raises(InvalidRow, match="there is no column 'when'; there are origin, at, delay"):
        fed(ParquetFile(path=path, time="when"))
    rows = [{"origin": "A", "delay": 1, "dep": at, "arr": at + 1 - 2 * (at == 450)} for at in range(500)]
    path = write_parquet(tmp_path / "q.parquet", rows)
    with pytest.raises(InvalidRow, match="row 450: the event ends at 449, and starts at 450"):
        read(fed(ParquetFile(path=path, start="dep", end="arr")))


@pytest.mark.parametrize(
    ("item", "message"),
    [
        ({"at": 1, "delay": 1}, "there is no column 'origin'"),
        ("text", "'text' is no row, no change and no stable point"),
        ({"at": math.nan, "origin": "A", "delay": 1}, "nan is no time"),
    ],
)
def test_a_wrong_item_is_named(item: Any, message: str) -> None:
    good = {"at": 1, "origin": "A", "delay": 1}
    with pytest.raises(InvalidRow, match=rf"source 'flights' \(a Python list\), item \d: .*{message}|{message}"):
        read(fed(PythonItems(items=[good, item], time="at")))


def test_changes_of_python_fit_the_columns_of_their_source() -> None:
    with pytest.raises(InvalidRow, match=r"source 'flights', item 1, .*column 'delay' \(int\?\): '5' is not a whole"):
        read(fed(PythonItems(items=[POINTS[0], Change(("JFK", "5"), 1, 1, 2)])))


def test_a_declaration_that_does_not_fit_is_refused() -> None:
    with pytest.raises(UsageError, match="needs time=, for points, or start= and end=, for intervals"):
        CsvFile(path="f.csv")
    with pytest.raises(UsageError, match="has points, at 'at', and they have no end="):
        CsvFile(path="f.csv", time="at", end="arr")
    with pytest.raises(UsageError, match="a rule of progress has 'later'; there are drop, move, fail"):
        in_order().__class__(late="later")  # type: ignore[arg-type]  # a user's mistake
    with pytest.raises(UsageError, match="which CSV cannot hold"):
        fed(CsvFile(path=__file__, time="at"), schema={"l": "list<int>"})


def test_asynchronous_items_come_one_by_one() -> None:
    async def rows() -> AsyncIterator[Mapping[str, Any]]:
        for row in ROWS[:20]:
            yield row

    source = PythonItems(items=rows(), time="at")
    assert source.is_live
    assert read(fed(source)) == [*POINTS[:20], INF]


def test_parquet_leaves_out_row_groups_that_nothing_needs(tmp_path: Path) -> None:
    source = ParquetFile(path=write_parquet(tmp_path / "f.parquet", ROWS), time="at", progress=in_order())
    feed = fed(source, may_skip=True)
    assert feed.next_release() is not None
    taken = feed.take(100, None)
    feed.reader.fast_forward(1000)
    latest = []
    while not feed.has_ended:
        assert feed.next_release() is not None
        skipped = feed.take_latest()
        if skipped is not None:
            latest.append(skipped)
        else:
            taken += feed.take(4096, None)
    feed.close()
    in_groups = [POINTS[at : at + 200] for at in range(0, 1500, 200)]
    needed = [group for at, group in enumerate(in_groups) if not at or max(one.new for one in group) >= 1000]
    assert taken == [item for group in needed for item in group] + [INF]
    assert latest == [max(one.vs for one in group) for group in in_groups if group not in needed]
    assert len(latest) > 2


@contextmanager
def sending(send: Callable[[socket.socket], None]) -> Iterator[str]:
    """Give the address of a program that sends to who connects."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def accept() -> None:
            connection, _ = server.accept()
            with connection:
                send(connection)

        thread = threading.Thread(target=accept)
        thread.start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        thread.join()


def test_rows_come_from_sockets() -> None:
    def lines(connection: socket.socket) -> None:
        connection.sendall("".join(json.dumps(row) + "\n" for row in ROWS).encode())

    def arrow(connection: socket.socket) -> None:
        table = pa.Table.from_pylist(ROWS)
        with connection.makefile("wb") as stream, pa.ipc.new_stream(stream, table.schema) as writer:
            writer.write_table(table, 300)

    with sending(lines) as address:
        assert read(fed(JsonLinesSocket(address=address, time="at"))) == [*POINTS, INF]
    with sending(arrow) as address:
        assert read(fed(ArrowSocket(address=address, time="at"))) == [*POINTS, INF]


def test_a_socket_that_sends_something_else_is_named() -> None:
    def text(connection: socket.socket) -> None:
        connection.sendall(b"hello, world\n")

    with sending(text) as address, pytest.raises(InvalidRow, match=f"{address}.*it is no stream of Arrow"):
        read(fed(ArrowSocket(address=address, time="at")))
    with sending(text) as address, pytest.raises(InvalidRow, match=f"{address}.*line 1: it is no JSON"):
        read(fed(JsonLinesSocket(address=address, time="at")))
    with pytest.raises(Unavailable, match="cannot be reached"):
        fed(JsonLinesSocket(address=address, time="at"))


@pytest.mark.parametrize(
    ("needed_from", "may_skip", "first"), [(200, True, 0), (201, True, 200), (201, False, 0), (401, True, 400)]
)
def test_a_row_group_that_ends_when_it_is_needed_is_read(
    needed_from: int, may_skip: bool, first: int, tmp_path: Path
) -> None:
    rows = [{"origin": "A", "delay": 1, "at": at} for at in range(600)]
    feed = fed(ParquetFile(path=write_parquet(tmp_path / "g.parquet", rows), time="at"), may_skip=may_skip)
    feed.reader.fast_forward(needed_from)
    while feed.next_release() is not None and feed.take_latest() is not None:
        pass
    taken = feed.take(1, None)
    feed.close()
    assert isinstance(taken, list)
    (change,) = taken
    assert isinstance(change, Change)
    assert change.vs == first
    assert feed.reader.parts_skipped == first // 200
