"""The job in Bytewax: one stateful step that keeps each key until the watermark passes it.

The state is kept per shard and not per event, and the step takes a batch of rows at a time: Bytewax runs this form
fastest. The watermark is that of the slowest input. The variant is the number of workers (threads of one process).
"""

from __future__ import annotations

import platform
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import bytewax.operators as op
import pyarrow as pa
from bytewax.dataflow import Dataflow
from bytewax.inputs import FixedPartitionedSource, StatefulSourcePartition
from bytewax.operators import StatefulBatchLogic
from bytewax.outputs import DynamicSink, StatelessSinkPartition
from bytewax.testing import cluster_main

from bench.peers.job import DELAY_MS, INPUTS, serve

BUCKET_MS = 10_000
WORKERS = {"1 worker": 1, "2 workers": 2}
Row = tuple[int, int, str, int]  # input, vs, payload, ve


class RecordedInput(StatefulSourcePartition[Row, int]):
    def __init__(self, data: Path, at: int) -> None:
        self.at = at
        self.batches = pa.ipc.open_file(pa.memory_map(str(data / f"rows{at}.arrow")))
        self.next = 0

    def next_batch(self) -> list[Row]:
        if self.next == self.batches.num_record_batches:
            raise StopIteration
        batch = self.batches.get_batch(self.next)
        self.next += 1
        columns = batch["vs"].to_numpy().tolist(), batch["payload"].to_pylist(), batch["ve"].to_numpy().tolist()
        return list(zip([self.at] * batch.num_rows, *columns))

    def snapshot(self) -> int:
        return self.next


class RecordedFiles(FixedPartitionedSource[Row, int]):
    def __init__(self, data: Path) -> None:
        self.data = data

    def list_parts(self) -> list[str]:
        return [str(at) for at in range(INPUTS)]

    def build_part(self, step_id: str, for_part: str, resume_state: int | None) -> RecordedInput:
        return RecordedInput(self.data, int(for_part))


class Deduplicate(StatefulBatchLogic[Row, Row, Any]):
    """Keeps the keys in buckets of event time, so that the watermark drops a bucket at once."""

    def __init__(self) -> None:
        self.seen: dict[int, set[tuple[int, str]]] = {}
        self.newest = [0] * INPUTS

    def on_batch(self, values: list[Row]) -> tuple[list[Row], bool]:
        seen, newest = self.seen, self.newest
        fresh = []
        for row in values:
            at, vs, payload, _ = row
            bucket = seen.setdefault(vs // BUCKET_MS, set())
            key = (vs, payload)
            if key not in bucket:
                bucket.add(key)
                fresh.append(row)
            if vs > newest[at]:
                newest[at] = vs
        passed = (min(newest) - DELAY_MS) // BUCKET_MS
        for old in [number for number in seen if number < passed]:
            del seen[old]
        return fresh, StatefulBatchLogic.RETAIN

    def snapshot(self) -> Any:
        return None


class CsvPartition(StatelessSinkPartition[Any]):
    def __init__(self, path: Path | None) -> None:
        self.file = path.open("w") if path is not None else None
        if self.file:
            self.file.write("vs,payload,ve\n")

    def write_batch(self, items: list[Any]) -> None:
        if self.file:
            self.file.writelines(f"{vs},{payload},{ve}\n" for _, (_, vs, payload, ve) in items)

    def close(self) -> None:
        if self.file:
            self.file.close()


class CsvSink(DynamicSink[Any]):
    def __init__(self, folder: Path | None) -> None:
        self.folder = folder

    def build(self, step_id: str, worker_index: int, worker_count: int) -> CsvPartition:
        return CsvPartition(self.folder / f"{worker_index}.csv" if self.folder is not None else None)


def run(data: Path, variant: str, output: Path | None) -> float:
    workers = WORKERS[variant]
    flow = Dataflow("merge")
    rows = op.input("inputs", flow, RecordedFiles(data))
    if workers == 1:
        sharded = op.key_on("shard", rows, lambda row: "all")
    else:
        sharded = op.key_on("shard", rows, lambda row: row[2][-1])
    merged = op.stateful_batch("deduplicate", sharded, lambda _: Deduplicate())
    op.output("output", merged, CsvSink(output))
    began = time.perf_counter()
    cluster_main(flow, [], 0, worker_count_per_proc=workers)
    return time.perf_counter() - began


if __name__ == "__main__":
    serve(run, {"bytewax": version("bytewax"), "python": platform.python_version()})
