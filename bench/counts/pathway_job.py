"""The count in Pathway: a tumbling window with a behaviour that waits for late rows and then forgets.

Variants: ``streaming`` feeds rows through a Python connector with regular commits. ``one commit`` reads a CSV file with
the connector in Rust in static mode, which ingests everything in one commit: not a stream. Two threads.
"""

from __future__ import annotations

import os
import platform
import time
from importlib.metadata import version
from pathlib import Path

os.environ["PATHWAY_THREADS"] = "2"

import pathway as pw
import pyarrow as pa
from pathway.internals.parse_graph import G

from bench.counts.definition import DELAY_MS, WINDOW_MS
from bench.peers.job import serve

BATCHES_A_COMMIT = 8


class KeySchema(pw.Schema):
    ts: int
    key: str


class RecordedKeys(pw.io.python.ConnectorSubject):
    def __init__(self, data: Path) -> None:
        super().__init__()
        self.data = data

    @property
    def _deletions_enabled(self) -> bool:  # documented as faster where nothing is deleted
        return False

    def run(self) -> None:
        reader = pa.ipc.open_file(pa.memory_map(str(self.data / "rows.arrow")))
        for number in range(reader.num_record_batches):
            batch = reader.get_batch(number)
            for ts, key in zip(batch["ts"].to_numpy().tolist(), batch["key"].to_pylist()):
                self.next(ts=ts, key=key)
            if number % BATCHES_A_COMMIT == 0:
                self.commit()


def run(data: Path, variant: str, output: Path | None) -> float:
    G.clear()  # the graph of the run before
    starts = pw.this.ts // WINDOW_MS * WINDOW_MS
    if variant == "streaming":
        rows = pw.io.python.read(RecordedKeys(data), schema=KeySchema, autocommit_duration_ms=None)
        windows = rows.windowby(
            pw.this.ts,
            window=pw.temporal.tumbling(duration=WINDOW_MS),
            behavior=pw.temporal.exactly_once_behavior(shift=DELAY_MS),
            instance=pw.this.key,
        )
        counted = windows.reduce(
            window_start=pw.this["_pw_window_start"], key=pw.this["_pw_instance"], n=pw.reducers.count()
        )
    else:
        rows = pw.io.csv.read(str(data / "rows.csv"), schema=KeySchema, mode="static")
        rows = rows.select(pw.this.key, window_start=starts)
        counted = rows.groupby(pw.this.window_start, pw.this.key).reduce(
            pw.this.window_start, pw.this.key, n=pw.reducers.count()
        )
    if output is None:
        pw.io.null.write(counted)
    else:
        pw.io.csv.write(counted, str(output / "counts.csv"))
    began = time.perf_counter()
    pw.run(monitoring_level=pw.MonitoringLevel.NONE)
    return time.perf_counter() - began


if __name__ == "__main__":
    serve(run, {"pathway": version("pathway"), "python": platform.python_version()})
