"""Q23 of the sources of the algebra, with real files, programs and a server (2.4 of the description).

Input adapters make events of external rows, output adapters take them out, each with an offset where it can seek.
"""

from __future__ import annotations

import json
import socket
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from client_world import MERGE, ThreadedWorld, threaded_world
from replica_world import Reading, counts_by_window, flight_rows, write_csv

from lmerge.replica import (
    ArrowSocket,
    CsvFile,
    JsonLinesFile,
    JsonLinesSocket,
    ParquetFile,
    PythonItems,
    Query,
    ReplicaOptions,
    ReplicaRun,
    after,
)
from lmerge.replica.sources.declared import PhysicalSource
from lmerge.temporal.expressions.functions import FunctionRegistry
from lmerge.temporal.expressions.surface import col
from lmerge.temporal.plan.stream import Stream, count, source

ROWS = flight_rows(3_000)
FLIGHTS = source("flights", {"origin": "string", "delay": "int?"}, shape="point")
PROGRESS = after(20)


@pytest.fixture
def world() -> Iterator[ThreadedWorld]:
    with threaded_world() as made:
        yield made


def counted(flights: Stream) -> Stream:
    return flights.where(col.delay > 15).group_by(col.origin).tumbling(50).agg(n=count(), form="eager")


def file_of(kind: str, folder: Path) -> PhysicalSource:
    if kind == "csv":
        return CsvFile(path=write_csv(folder / "rows.csv", ROWS), time="at", progress=PROGRESS)
    if kind == "json":
        path = folder / "rows.json"
        path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
        return JsonLinesFile(path=path, time="at", progress=PROGRESS)
    if kind == "parquet":
        path = folder / "rows.parquet"
        pq.write_table(pa.Table.from_pylist(ROWS), path, row_group_size=700)
        return ParquetFile(path=path, time="at", progress=PROGRESS)
    return PythonItems(items=lambda: iter(ROWS), time="at", progress=PROGRESS)


@pytest.mark.parametrize("kind", ["csv", "json", "parquet", "python"])
def test_q23_rows_of_a_file_are_taken_once_over_restarts(kind: str, world: ThreadedWorld, tmp_path: Path) -> None:
    """A run stops amid the rows, and another goes on at the offset that the checkpoint keeps."""
    seen: list[str] = []
    stops, runs, is_complete = [1, 900, 2_000], list[ReplicaRun](), False

    def note(origin: str) -> bool:
        seen.append(origin)
        if stops and len(seen) >= stops[0]:
            stops.pop(0)
            runs[-1].stop()
        return True

    noted = FunctionRegistry().scalar(["string"], "bool", name="noted")(note)
    query = Query({"p": counted(FLIGHTS.where(noted(col.origin)))}, {"flights": file_of(kind, tmp_path)})
    options = ReplicaOptions(checkpoint=tmp_path / "kept")
    with Reading(world.target, MERGE) as reading:
        while not is_complete:
            runs.append(ReplicaRun(query, "p", servers=world.target, merge=MERGE, replica="a", options=options))
            with runs[-1] as begun:
                is_complete = begun.run()
        assert reading.table() == counts_by_window(ROWS)
    assert len(runs) > 2
    assert seen == [row["origin"] for row in ROWS]


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


def send_lines(connection: socket.socket) -> None:
    connection.sendall("".join(json.dumps(row) + "\n" for row in ROWS).encode())


def send_arrow(connection: socket.socket) -> None:
    table = pa.Table.from_pylist(ROWS)
    with connection.makefile("wb") as stream, pa.ipc.new_stream(stream, table.schema) as writer:
        writer.write_table(table, 300)


async def asynchronous_rows() -> AsyncIterator[Mapping[str, Any]]:
    for row in ROWS:
        yield row


def merged(world: ThreadedWorld, declared: PhysicalSource) -> Counter[tuple[Any, ...]]:
    with Reading(world.target, MERGE) as reading:
        query = Query({"p": counted(FLIGHTS)}, {"flights": declared})
        options = ReplicaOptions()
        with ReplicaRun(query, "p", servers=world.target, merge=MERGE, replica="a", options=options) as begun:
            assert begun.run()
        return reading.table()


def test_q23_rows_of_programs_are_taken_as_they_come(world: ThreadedWorld) -> None:
    """Sockets and asynchronous iterables cannot seek; what comes gives the same table."""
    with sending(send_lines) as address:
        assert merged(world, JsonLinesSocket(address=address, time="at", progress=PROGRESS)) == counts_by_window(ROWS)


def test_q23_batches_of_arrow_are_taken_as_they_come(world: ThreadedWorld) -> None:
    """As lines are, from a program that speaks Arrow."""
    with sending(send_arrow) as address:
        assert merged(world, ArrowSocket(address=address, time="at", progress=PROGRESS)) == counts_by_window(ROWS)


def test_q23_asynchronous_rows_are_taken_as_they_come(world: ThreadedWorld) -> None:
    """As lines are, from this process."""
    assert merged(world, PythonItems(items=asynchronous_rows(), time="at", progress=PROGRESS)) == counts_by_window(ROWS)


def test_q23_results_come_out_as_arrow(tmp_path: Path) -> None:
    """The same query over a file of the same rows, without a server."""
    rows = sorted(ROWS, key=lambda row: int(row["at"]))
    history = pa.table(
        {"vs": [row["at"] for row in rows]} | {name: [row[name] for row in rows] for name in ("origin", "delay")}
    )
    found = counted(FLIGHTS).collect({"flights": history}).to_pylist()
    assert Counter((one["origin"], one["n"], one["vs"], one["ve"]) for one in found) == counts_by_window(ROWS)
