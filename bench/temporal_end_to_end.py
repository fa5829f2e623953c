"""How many events a second go from a Parquet file through a plan and a server to a reader, everything on 2 cores?

Real processes, as a user starts them: ``lmerge replica run`` of a query in a file, ``lmerge serve`` and a reader. The
file has events of four columns in the order of their starts. Two plans: a filter with a projection, whose result has
nearly every event, and a count by key in tumbling windows. Counted are the events of the file, from the start of the
replica's program, behind its imports, until the reader has the end of the stream. The output of a smaller file is
compared with what Arrow computes, before the clock starts. Target: 1,000,000 events/s for each plan.
"""

from __future__ import annotations

import os
import tempfile
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from bench.harness import Panel, begin, bench_parser, plot
from bench.rig.fleet import MERGE, import_all, serve
from bench.rig.processes import executed, forked
from lmerge.client import AsyncSubscriber
from lmerge.core.elements import INF, NEG_INF, STABLE, Stable
from lmerge.core.tdb import Tdb
from lmerge.wire.rows import RowCodec
from lmerge.wire.schema import parse_schema
from lmerge.wire.token import format_token

EVENTS: Final = 8_000_000
CHECKED: Final = 100_000
REPEATS: Final = 5
TARGET: Final = 1e6
KEYS: Final = 1_000
WINDOW: Final = 10_000
SCHEMAS: Final = {
    "filter and project": {"key": "int", "a": "int", "twice": "int", "more": "float"},
    "count by key": {"key": "int", "n": "int"},
}

_STABLE: Final = bytes([STABLE])

QUERY = """
import time
from pathlib import Path

import lmerge.temporal as lt
from lmerge.replica import ParquetFile, Query, in_order

readings = lt.source(
    "readings", {{"key": "int", "a": "int", "b": "int", "x": "float"}}, promises=["ordered", "insert-only"]
)
plans = {{
    "filter and project": readings.where(lt.col.a >= 5).select("key", "a", twice=lt.col.b * 2, more=lt.col.x + 1.0),
    "count by key": readings.group_by("key").tumbling({window}).agg(n=lt.count()),
}}
query = Query(
    {{{plan!r}: plans[{plan!r}]}}, {{"readings": ParquetFile(path={path!r}, time="at", progress=in_order())}}
)
Path({began!r}).write_text(str(time.monotonic()))
"""


def write_readings(path: Path, events: int) -> Any:
    """Write the events of the source, and return them as a table."""
    random = np.random.default_rng(15)
    table = pa.table(
        {
            "at": np.arange(events),
            "key": random.integers(0, KEYS, events),
            "a": random.integers(0, 100, events),
            "b": random.integers(0, 1_000, events),
            "x": random.integers(0, 1_000, events) / 8.0,
        }
    )
    pq.write_table(table, path, row_group_size=1 << 20)
    return table


def expected(plan: str, readings: Any) -> list[tuple[int, int, tuple[Any, ...]]]:
    """Return the events of a plan's result as (start, end, values), by Arrow alone."""
    if plan == "filter and project":
        kept = readings.filter(pc.greater_equal(readings["a"], 5))
        columns = [kept["key"], kept["a"], pc.multiply(kept["b"], 2), pc.add(kept["x"], 1.0)]
        rows = zip(*(column.to_pylist() for column in columns), strict=True)
        return [(at, at + 1, row) for at, row in zip(kept["at"].to_pylist(), rows, strict=True)]
    window = pc.multiply(pc.divide(readings["at"], WINDOW), WINDOW)
    counted = pa.table({"at": window, "key": readings["key"]}).group_by(["at", "key"]).aggregate([([], "count_all")])
    rows = zip(counted["at"].to_pylist(), counted["key"].to_pylist(), counted["count_all"].to_pylist(), strict=True)
    return sorted((at, at + WINDOW, (key, count)) for at, key, count in rows)


def read(target: str, is_checked: bool, pipe: Connection) -> None:
    """Run the reader's process. It sends (the moment of the end, elements, the events if they are checked)."""
    import asyncio

    pipe.send(asyncio.run(_read(target, is_checked)))


async def _read(target: str, is_checked: bool) -> tuple[float, int, list[Any]]:
    table, elements = Tdb("output"), 0
    async for batch in AsyncSubscriber(target, MERGE, resume=format_token(MERGE, NEG_INF)).batches():
        elements += batch.count
        if is_checked:
            table.apply_batch(batch)
        if batch.kinds[-1:] == _STABLE and batch.element(batch.count - 1) == Stable(INF):
            break
    return time.monotonic(), elements, [tuple(event) for event in table.events()] if is_checked else []


def run(plan: str, path: Path, *, is_checked: bool = False) -> tuple[float, int, list[Any]]:
    """Run a plan over a file with one server and one reader; return seconds, elements and events of the output."""
    with tempfile.TemporaryDirectory(prefix="lmerge-end-to-end-", ignore_cleanup_errors=True) as scratch:
        folder = Path(scratch)
        file, began = folder / "query.py", folder / "began"
        file.write_text(QUERY.format(plan=plan, path=str(path), began=str(began), window=WINDOW))
        server, port = serve("server", folder, "--merge", MERGE)
        target = f"127.0.0.1:{port}"
        processes = [server]
        try:
            reader = forked("reader", folder, read, target, is_checked)
            processes.append(reader)
            place = ("--plan", plan, "-s", target, "-m", MERGE, "-r", "a")
            replica = executed("replica", folder, "lmerge", "replica", "run", str(file), *place)
            processes.append(replica)
            assert reader.pipe is not None
            while not reader.pipe.poll(1):
                if replica.exit_code:
                    raise replica.failure()
            ended, elements, events = reader.receive()
            return ended - float(began.read_text()), elements, events
        finally:
            for process in processes:
                process.kill()


def check(plan: str, folder: Path) -> None:
    """Assert that a plan's output for a smaller file is right."""
    path = folder / "checked.parquet"
    readings = write_readings(path, CHECKED)
    codec = RowCodec(parse_schema(SCHEMAS[plan]))
    _, _, events = run(plan, path, is_checked=True)
    found = sorted((vs, ve, tuple(codec.decode(payload).values())) for vs, payload, ve in events)
    assert found == expected(plan, readings), f"{plan}: the output is wrong"


def main() -> None:
    parser = bench_parser(__doc__, "temporal_end_to_end", "fewer events")
    quick = parser.parse_args().quick
    import_all()
    report = begin((__doc__ or "").splitlines()[0])
    count = 2_000_000 if quick else EVENTS
    panel = Panel("Parquet, plan, server, reader on 2 cores", "repeat", "events/s")
    with tempfile.TemporaryDirectory(prefix="lmerge-readings-") as scratch:
        folder = Path(scratch)
        path = folder / "readings.parquet"
        write_readings(path, count)
        for plan in SCHEMAS:
            check(plan, folder)
            runs = [run(plan, path) for _ in range(1 if quick else REPEATS)]
            row = report.add(plan, [count / seconds for seconds, _, _ in runs], "events/s")
            panel.add_repeats(plan, row)
            verdict = "reached" if row.median >= TARGET else "MISSED"
            report.note(
                f"{plan}: output as expected, {runs[0][1]:,} elements for {count:,} events; target 1,000,000: "
                f"{verdict} ({row.median:,.0f}); load {os.getloadavg()[0]:.1f}"
            )
    if not quick:
        report.save("temporal_end_to_end")
        plot(
            "temporal_end_to_end", "A plan from a Parquet file to a reader, 3 processes on 2 cores", [panel], columns=1
        )


if __name__ == "__main__":
    main()
