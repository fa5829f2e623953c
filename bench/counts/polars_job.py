"""The count as one query in Polars over the Arrow data: a batch. The variant is the number of threads."""

from __future__ import annotations

import os
import platform
import sys
import time
from pathlib import Path

os.environ["POLARS_MAX_THREADS"] = "1" if "1 thread" in sys.argv else "2"

import polars as pl

from bench.counts.definition import WINDOW_MS
from bench.peers.job import serve


def run(data: Path, variant: str, output: Path | None) -> float:
    began = time.perf_counter()
    rows = pl.read_ipc(data / "rows.arrow")
    starts = (pl.col("ts") // WINDOW_MS * WINDOW_MS).alias("window_start")
    counted = rows.group_by(starts, "key").agg(pl.len().alias("n"))
    seconds = time.perf_counter() - began
    if output is not None:
        counted.write_parquet(output / "counts.parquet")
    return seconds


if __name__ == "__main__":
    serve(run, {"polars": pl.__version__, "python": platform.python_version()})
