"""The count in lmerge: a plan of one tumbling window by key. The variant is the implementation, and the form.

The plan's source is stable 4 seconds behind the latest start, and checks the order of what comes. ``final`` emits a
count once; ``watermark`` and ``eager`` emit counts before and revise them, which no peer here does. The native
implementation takes Arrow tables and keeps its results in columns; the Python one takes and makes rows.
"""

from __future__ import annotations

import platform
import time
from collections.abc import Iterable, Iterator
from importlib.metadata import version
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from bench.counts.definition import DELAY_MS, WINDOW_MS
from bench.counts.recording import read
from bench.peers.job import serve
from lmerge.core.elements import INF
from lmerge.core.engines import selection
from lmerge.temporal.changes import Change
from lmerge.temporal.columns import AnyDelta, as_rows
from lmerge.temporal.entrance import ProgressRule
from lmerge.temporal.plan.stream import count, source
from lmerge.temporal.running import Item, QueryRun, ResultTable, SourceSettings


def variants() -> list[str]:
    """Return the variants that this installation of lmerge can run."""
    native = [] if selection.native_problem() else ["native, final", "native, watermark", "native, eager"]
    return [*native, "python, final"]


def run(data: Path, variant: str, output: Path | None) -> float:
    began = time.perf_counter()
    implementation, form = variant.split(", ")
    counted = source("given", {"key": "string"}).group_by("key").tumbling(WINDOW_MS).agg(n=count(), form=form)
    running = QueryRun(
        {"counts": counted.node}, {"given": SourceSettings(ProgressRule(delay=DELAY_MS))}, implementation=implementation
    )
    batches = read(data / "rows.arrow").to_batches()
    results = [*(by_columns if implementation == "native" else by_rows)(running, batches)]
    seconds = time.perf_counter() - began
    if output is not None:
        table = ResultTable()
        for delta in results:
            table.apply(as_rows(delta))
        rows = [(event.vs, *event.row) for event in table.events.elements()]
        columns = zip(*rows, strict=True)
        pq.write_table(pa.table(dict(zip(("window_start", "key", "n"), columns, strict=True))), output / "c.parquet")
    return seconds


def by_columns(running: QueryRun, batches: Iterable[pa.RecordBatch]) -> Iterator[AnyDelta]:
    """Yield the batches of the result of tables that are taken as they are."""
    for batch in batches:
        table = pa.table({"vs": batch["ts"], "ve": pc.add(batch["ts"], 1), "key": batch["key"]})
        for step in running.take_arrow("given", table):
            yield step["counts"]
    for last in running.end():
        yield last["counts"]


def by_rows(running: QueryRun, batches: Iterable[pa.RecordBatch]) -> Iterator[AnyDelta]:
    """Yield the batches of the result of rows that are taken one by one."""
    for batch in batches:
        items: list[Item] = [
            Change((key,), ts, ts, ts + 1)
            for ts, key in zip(batch["ts"].to_numpy().tolist(), batch["key"].to_pylist(), strict=True)
        ]
        for step in running.take("given", items):
            yield step["counts"]
    for last in running.take("given", [INF]):
        yield last["counts"]


if __name__ == "__main__":
    serve(run, {"lmerge": version("lmerge"), "python": platform.python_version()})
