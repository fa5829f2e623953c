"""The count as one SQL statement in DuckDB over the Arrow data: a batch. The variant is the number of threads."""

from __future__ import annotations

import platform
import time
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from bench.counts.definition import WINDOW_MS
from bench.peers.job import serve

THREADS = {"1 thread": 1, "2 threads": 2}


def run(data: Path, variant: str, output: Path | None) -> float:
    began = time.perf_counter()
    rows = pa.ipc.open_file(pa.memory_map(str(data / "rows.arrow"))).read_all()
    connection = duckdb.connect(config={"threads": THREADS[variant]})
    connection.register("given", rows)
    counted = connection.execute(
        f"SELECT ts // {WINDOW_MS} * {WINDOW_MS} AS window_start, key, count(*) AS n FROM given GROUP BY ALL"
    ).to_arrow_table()
    seconds = time.perf_counter() - began
    if output is not None:
        pq.write_table(counted, output / "counts.parquet")
    return seconds


if __name__ == "__main__":
    serve(run, {"duckdb": duckdb.__version__, "python": platform.python_version()})
