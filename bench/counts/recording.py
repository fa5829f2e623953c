"""The recorded input of the grouped count: rows of a time in milliseconds and one of 1,000 keys, 20 % of them late.

Under the folder of the recording, the same rows in the form that is fastest for each system: ``rows.arrow`` (Arrow IPC,
batches of 8,192), ``rows.parquet``, ``segments/*.parquet`` (cut in pieces), ``rows.csv``; and ``reference.arrow``: the
count of every key in every window of 10 seconds.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.csv as pcsv
import pyarrow.parquet as pq

from bench.counts.definition import BEGIN_MS, COLUMNS, KEYS, LATE_MS, WINDOW_MS

ROWS_A_BATCH: Final = 8_192
SEGMENTS: Final = 10


def record(folder: Path, events: int) -> Path:
    """Return the folder of the recording of ``events`` rows, which is made once and kept under ``folder``."""
    target = folder / f"counts-{events}"
    if (target / "reference.arrow").exists():
        return target
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    random = np.random.default_rng(15)
    times = BEGIN_MS + np.arange(events, dtype=np.int64)
    late = np.where(random.random(events) < 0.2, random.integers(0, LATE_MS, events), 0)
    arrival = np.argsort(times + late, kind="stable")
    keys = np.char.add("k", random.integers(0, KEYS, events).astype(str))
    rows = pa.table({"ts": times[arrival], "key": pa.array(keys[arrival].tolist(), pa.string())})
    _write_arrow(rows, target / "rows.arrow")
    pq.write_table(rows, target / "rows.parquet")
    pcsv.write_csv(rows, target / "rows.csv", pcsv.WriteOptions(quoting_style="none"))
    (target / "segments").mkdir()
    size = -(-events // SEGMENTS)
    for number in range(SEGMENTS):
        path = target / "segments" / f"{number:03}.parquet"
        pq.write_table(rows.slice(number * size, size), path)
        os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))  # files are read in the order of their times
    starts = pa.array(times[arrival] // WINDOW_MS * WINDOW_MS)
    counted = pa.table({"window_start": starts, "key": rows["key"]}).group_by(["window_start", "key"])
    reference = counted.aggregate([([], "count_all")]).rename_columns(list(COLUMNS))
    _write_arrow(in_order(reference), target / "reference.arrow")
    return target


def in_order(counts: pa.Table) -> pa.Table:
    """Return counts sorted by window and key."""
    return counts.select(COLUMNS).sort_by([(name, "ascending") for name in COLUMNS]).combine_chunks()


def read(path: Path) -> pa.Table:
    """Return a recorded Arrow file."""
    return pa.ipc.open_file(pa.memory_map(str(path))).read_all()


def verdict(output: Path, data: Path) -> str:
    """Return ``""`` if the Parquet or CSV files of ``output`` hold the reference's counts once; else what differs."""
    schema = pa.schema([("window_start", pa.int64()), ("key", pa.string()), ("n", pa.int64())])
    tables = [schema.empty_table()]
    for path in sorted(output.rglob("*.parquet")):
        tables.append(pq.ParquetFile(path).read().select(COLUMNS).cast(schema))
    for path in sorted(output.rglob("*.csv")):
        table = pcsv.read_csv(path, convert_options=pcsv.ConvertOptions(column_types=schema))
        # A system whose output is differences: what it took back does not count.
        if "diff" in table.column_names:
            table = _held(table)
        tables.append(table.select(COLUMNS).cast(schema))
    counts, reference = in_order(pa.concat_tables(tables)), read(data / "reference.arrow")
    if counts.equals(reference.combine_chunks()):
        return ""
    expected, got = (set(zip(*(table[name].to_pylist() for name in COLUMNS))) for table in (reference, counts))
    missing, wrong, doubled = len(expected - got), len(got - expected), counts.num_rows - len(got)
    return f"{missing:,} of {reference.num_rows:,} counts missing, {wrong:,} wrong, {doubled:,} twice"


def _held(changes: pa.Table) -> pa.Table:
    totals = changes.group_by(list(COLUMNS)).aggregate([("diff", "sum")])
    return totals.filter(pa.compute.not_equal(totals["diff_sum"], 0)).select(COLUMNS)


def _write_arrow(table: pa.Table, path: Path) -> None:
    with pa.ipc.new_file(str(path), table.schema) as writer:
        writer.write_table(table.combine_chunks(), max_chunksize=ROWS_A_BATCH)
