"""Writes the recorded inputs: files for every system, each in the form that is fastest for it.

Under the folder of the recording: ``input<n>.arrow`` (Arrow IPC with stables, for lmerge), ``rows<n>.arrow`` (the same
without stables), ``rows<n>.parquet``, ``segments/<n>/*.parquet`` (the same cut in pieces, for a system that reads
files in micro-batches), ``rows<n>.csv``, and ``reference.arrow``: the events, each once. Payloads are 16 hexadecimal
digits, which are valid both as text and as bytes. Times are milliseconds since the epoch.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pcsv
import pyarrow.parquet as pq

from bench.peers.job import DELAY_MS, INPUTS
from lmerge.core.batch import Batch
from lmerge.core.elements import ADJUST, INSERT
from lmerge.testing.streams.large_inputs import LARGE, STEP, LargeInputs

ROWS_A_BATCH = 8_192
SEGMENTS = 10
BEGIN_MS = 1_700_000_000_000
"""The first start. Not 0: Spark's watermark begins there and drops the row."""
COLUMNS = ("vs", "payload", "ve")


def record(folder: Path, events: int) -> Path:
    """Return the folder of the recording of ``events`` events, which is made once and kept under ``folder``."""
    target = folder / str(events)
    if (target / "reference.arrow").exists():
        return target
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    spec = LargeInputs(replace(LARGE, events=events, displaced=0.2, stables=0.01), payload_bytes=8, inputs=INPUTS)
    assert spec.places * STEP * 2 <= DELAY_MS
    reference: pa.Table | None = None
    for at, batches in enumerate(spec.batches()):
        elements = _columns(batches)
        _write_arrow(elements, target / f"input{at}.arrow")
        rows = elements.filter(pc.equal(elements["kind"], INSERT)).select(COLUMNS)
        rows = rows.set_column(1, "payload", rows["payload"].cast(pa.string()))
        _write_rows(rows, target, at)
        ordered = rows.sort_by([(name, "ascending") for name in COLUMNS])
        assert reference is None or ordered.equals(reference), "the inputs carry different events"
        reference = ordered
    assert reference is not None
    assert reference.num_rows == events
    _write_arrow(reference, target / "reference.arrow")
    return target


def read(path: Path) -> pa.Table:
    """Return a recorded Arrow file."""
    return pa.ipc.open_file(pa.memory_map(str(path))).read_all()


def _columns(batches: list[Batch]) -> pa.Table:
    rows = [row for batch in batches for row in batch.rows()]
    kinds, vs, ve, _, payloads = zip(*rows)
    assert ADJUST not in kinds
    kind = pa.array(kinds, pa.uint8())
    is_insert = pc.equal(kind, INSERT)
    return pa.table(
        {
            "kind": kind,
            "vs": pc.add(pa.array(vs, pa.int64()), BEGIN_MS),
            "ve": pc.if_else(is_insert, pc.add(pa.array(ve, pa.int64()), BEGIN_MS), 0),  # a stable has none
            "payload": pa.array([payload.hex().encode() for payload in payloads], pa.binary()),
        }
    )


def _write_arrow(table: pa.Table, path: Path) -> None:
    with pa.ipc.new_file(str(path), table.schema) as writer:
        writer.write_table(table.combine_chunks(), max_chunksize=ROWS_A_BATCH)


def _write_rows(rows: pa.Table, target: Path, at: int) -> None:
    _write_arrow(rows, target / f"rows{at}.arrow")
    pq.write_table(rows, target / f"rows{at}.parquet")
    pcsv.write_csv(rows, target / f"rows{at}.csv", pcsv.WriteOptions(quoting_style="none"))
    segments = target / "segments" / str(at)
    segments.mkdir(parents=True)
    size = -(-rows.num_rows // SEGMENTS)
    for number in range(SEGMENTS):
        path = segments / f"{number:03}.parquet"
        pq.write_table(rows.slice(number * size, size), path)
        os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))  # files are read in the order of their times
