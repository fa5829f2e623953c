"""The count in Bytewax.

Variants: ``count_window`` is Bytewax's own operator, which calls Python several times a row. The others are the count
written by hand, with one worker or two: one stateful step that takes a batch of rows and keeps Counters of each window
until the watermark passes it. That is the fastest form, and no operator of Bytewax.
"""

from __future__ import annotations

import platform
import time
from collections import Counter
from datetime import datetime, timedelta, timezone
from importlib.metadata import version
from pathlib import Path
from typing import Any

import bytewax.operators as op
import bytewax.operators.windowing as win
import pyarrow as pa
from bytewax.dataflow import Dataflow
from bytewax.inputs import FixedPartitionedSource, StatefulSourcePartition
from bytewax.operators import StatefulBatchLogic
from bytewax.outputs import DynamicSink, StatelessSinkPartition
from bytewax.testing import cluster_main

from bench.counts.definition import DELAY_MS, WINDOW_MS
from bench.peers.job import serve

WORKERS = {"count_window": 1, "by hand, 1 worker": 1, "by hand, 2 workers": 2}
TimedKey = tuple[int, str]  # ts, key


class RecordedRows(StatefulSourcePartition[TimedKey, int]):
    def __init__(self, data: Path) -> None:
        self.batches = pa.ipc.open_file(pa.memory_map(str(data / "rows.arrow")))
        self.next = 0

    def next_batch(self) -> list[TimedKey]:
        if self.next == self.batches.num_record_batches:
            raise StopIteration
        batch = self.batches.get_batch(self.next)
        self.next += 1
        return list(zip(batch["ts"].to_numpy().tolist(), batch["key"].to_pylist()))

    def snapshot(self) -> int:
        return self.next


class RecordedFile(FixedPartitionedSource[TimedKey, int]):
    def __init__(self, data: Path) -> None:
        self.data = data

    def list_parts(self) -> list[str]:
        return ["rows"]

    def build_part(self, step_id: str, for_part: str, resume_state: int | None) -> RecordedRows:
        return RecordedRows(self.data)


class CountWindow(StatefulBatchLogic[TimedKey, Any, Any]):
    """Counts of the windows that are open."""

    def __init__(self) -> None:
        self.counts: dict[int, Counter[str]] = {}
        self.newest = 0

    def on_batch(self, values: list[TimedKey]) -> tuple[list[Any], bool]:
        by_window: dict[int, list[str]] = {}
        for ts, key in values:
            by_window.setdefault(ts // WINDOW_MS, []).append(key)
        for window, keys in by_window.items():
            self.counts.setdefault(window, Counter()).update(keys)
        self.newest = max(self.newest, max(values)[0])
        passed = (self.newest - DELAY_MS) // WINDOW_MS
        return self.closed([window for window in self.counts if window < passed]), StatefulBatchLogic.RETAIN

    def on_eof(self) -> tuple[list[Any], bool]:
        return self.closed(list(self.counts)), StatefulBatchLogic.DISCARD

    def closed(self, windows: list[int]) -> list[Any]:
        return [
            (window * WINDOW_MS, key, n) for window in sorted(windows) for key, n in self.counts.pop(window).items()
        ]

    def snapshot(self) -> Any:
        return None


class CountsPartition(StatelessSinkPartition[Any]):
    def __init__(self, path: Path | None) -> None:
        self.file = path.open("w") if path is not None else None
        if self.file:
            self.file.write("window_start,key,n\n")

    def write_batch(self, items: list[Any]) -> None:
        if self.file:
            self.file.writelines(f"{start},{key},{n}\n" for _, (start, key, n) in items)

    def close(self) -> None:
        if self.file:
            self.file.close()


class CountsSink(DynamicSink[Any]):
    def __init__(self, folder: Path | None) -> None:
        self.folder = folder

    def build(self, step_id: str, worker_index: int, worker_count: int) -> CountsPartition:
        return CountsPartition(self.folder / f"{worker_index}.csv" if self.folder is not None else None)


EPOCH = datetime.fromtimestamp(0, timezone.utc)


def windowed(rows: Any) -> Any:
    """Count by Bytewax's own operator."""
    clock = win.EventClock(
        lambda row: EPOCH + timedelta(milliseconds=row[0]), wait_for_system_duration=timedelta(milliseconds=DELAY_MS)
    )
    windower = win.TumblingWindower(length=timedelta(milliseconds=WINDOW_MS), align_to=EPOCH)
    counted = win.count_window("count", rows, clock, windower, lambda row: row[1])
    return op.map("shape", counted.down, lambda one: ("", (one[1][0] * WINDOW_MS, one[0], one[1][1])))


def run(data: Path, variant: str, output: Path | None) -> float:
    workers = WORKERS[variant]
    flow = Dataflow("count")
    rows = op.input("rows", flow, RecordedFile(data))
    if variant == "count_window":
        op.output("output", windowed(rows), CountsSink(output))
        began = time.perf_counter()
        cluster_main(flow, [], 0, worker_count_per_proc=workers)
        return time.perf_counter() - began
    sharded = op.key_on("shard", rows, lambda row: "all" if workers == 1 else row[1][-1])
    counted = op.stateful_batch("count", sharded, lambda _: CountWindow())
    op.output("output", counted, CountsSink(output))
    began = time.perf_counter()
    cluster_main(flow, [], 0, worker_count_per_proc=workers)
    return time.perf_counter() - began


if __name__ == "__main__":
    serve(run, {"bytewax": version("bytewax"), "python": platform.python_version()})
