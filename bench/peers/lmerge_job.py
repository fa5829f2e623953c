"""The job in lmerge. The variant is the engine that runs the merge, and its threads.

lmerge also reads the stables of its inputs. The figures count only the rows, as for every system.
"""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Iterator
from importlib.metadata import version
from itertools import chain, zip_longest
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bench.peers.job import INPUTS, serve
from lmerge.core.batch import AnyBatch, Batch
from lmerge.core.elements import INSERT, STABLE
from lmerge.core.engines.selection import native_problem
from lmerge.core.merge import Merge
from lmerge.core.merge_config import MergeConfig

# variant: engine, shards
VARIANTS = {"python": ("python", 1), "native": ("native", 1), "native, 2 shards": ("native", 2)}


def engines() -> list[str]:
    """Return the variants that this installation of lmerge can run."""
    return [variant for variant, (engine, _) in VARIANTS.items() if engine == "python" or not native_problem()]


def run(data: Path, variant: str, output: Path | None) -> float:
    began = time.perf_counter()
    engine, shards = VARIANTS[variant]
    merge = Merge(MergeConfig("r3", track_live=False, engine=engine, shards=shards))
    columns_of = lists if engine == "python" else wire_columns
    for at in range(INPUTS):
        merge.attach(str(at), ("key",))
    turns = zip_longest(*(recorded(data / f"input{at}.arrow", columns_of) for at in range(INPUTS)))
    emitted = []
    count = 0
    for at, batch in chain.from_iterable(enumerate(turn) for turn in turns):
        if batch is not None:
            outcome = merge.apply(str(at), batch)
            assert not outcome.detached
            count += outcome.batch.count
            if output is not None:
                emitted.append(outcome.batch)
    seconds = time.perf_counter() - began
    assert count == merge.emitted.inserts + merge.emitted.stables
    if output is not None:
        write(emitted, output)
    return seconds


def recorded(path: Path, columns_of: Callable[[pa.RecordBatch], AnyBatch]) -> Iterator[AnyBatch]:
    """Yield the elements of one recorded input, batch by batch."""
    reader = pa.ipc.open_file(pa.memory_map(str(path)))
    for number in range(reader.num_record_batches):
        yield columns_of(reader.get_batch(number))


def lists(columns: pa.RecordBatch) -> AnyBatch:
    """Return a batch for the Python engine."""
    return Batch(
        columns["kind"].to_numpy().tobytes(),
        columns["vs"].to_numpy().tolist(),
        columns["ve"].to_numpy().tolist(),
        [0] * columns.num_rows,
        columns["payload"].to_pylist(),
    )


def wire_columns(columns: pa.RecordBatch) -> AnyBatch:
    """Return a batch for the native engine: bytes as a publisher sends them, checked as from a network."""
    from lmerge._native import Columns

    _, ends, payloads = columns["payload"].buffers()
    payload_bytes = np.frombuffer(ends, np.uint32)[columns.num_rows]
    return Columns.decode(
        columns["kind"].to_numpy().tobytes(),
        columns["vs"].to_numpy().tobytes(),
        columns["ve"].to_numpy().tobytes(),
        b"",
        np.frombuffer(ends, np.uint32)[1 : columns.num_rows + 1].tobytes(),
        bytes(payloads[:payload_bytes]),
        columns.num_rows,
        int(payload_bytes),
    )


def write(emitted: list[AnyBatch], output: Path) -> None:
    rows = [row for batch in emitted for row in batch.rows() if row[0] != STABLE]
    assert all(row[0] == INSERT for row in rows)
    _, vs, ve, _, payloads = zip(*rows)
    table = pa.table({"vs": vs, "payload": pa.array(payloads, pa.binary()).cast(pa.string()), "ve": ve})
    pq.write_table(table, output / "events.parquet")


if __name__ == "__main__":
    serve(run, {"lmerge": version("lmerge"), "python": platform.python_version()})
