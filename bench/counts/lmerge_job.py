"""The count in lmerge: a plan of one tumbling window by key. The variant is the implementation, and the form.

The plan's source is stable 4 seconds behind the latest start, and checks the order of what comes. ``final`` emits a
count once; ``eager`` emits every count at once and revises it, which no peer here does.
"""

from __future__ import annotations

import platform
import time
from importlib.metadata import version
from pathlib import Path

from bench.counts.definition import DELAY_MS, WINDOW_MS
from bench.counts.recording import read
from bench.peers.job import serve
from lmerge.core.elements import INF
from lmerge.temporal.changes import Change
from lmerge.temporal.entrance import ProgressRule
from lmerge.temporal.plan.stream import count, source
from lmerge.temporal.running import Item, QueryRun, ResultTable, SourceSettings


def variants() -> list[str]:
    """Return the variants that this installation of lmerge can run."""
    return ["python, final"]


def run(data: Path, variant: str, output: Path | None) -> float:
    import pyarrow as pa
    import pyarrow.parquet as pq

    began = time.perf_counter()
    form = variant.split(", ")[1]
    counted = source("given", {"key": "string"}).group_by("key").tumbling(WINDOW_MS).agg(n=count(), form=form)
    running = QueryRun({"counts": counted.node}, {"given": SourceSettings(ProgressRule(delay=DELAY_MS))})
    table = ResultTable()
    for batch in read(data / "rows.arrow").to_batches():
        items: list[Item] = [
            Change((key,), ts, ts, ts + 1)
            for ts, key in zip(batch["ts"].to_numpy().tolist(), batch["key"].to_pylist(), strict=True)
        ]
        for step in running.take("given", items):
            table.apply(step["counts"])
    for step in running.take("given", [INF]):
        table.apply(step["counts"])
    seconds = time.perf_counter() - began
    if output is not None:
        rows = [(event.vs, *event.row) for event in table.events.elements()]
        columns = zip(*rows, strict=True)
        pq.write_table(pa.table(dict(zip(("window_start", "key", "n"), columns, strict=True))), output / "c.parquet")
    return seconds


if __name__ == "__main__":
    serve(run, {"lmerge": version("lmerge"), "python": platform.python_version()})
