"""The count by key and window: the recording has late rows within the delay, and wrong counts are found."""

from __future__ import annotations

import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bench.counts.definition import DELAY_MS
from bench.counts.lmerge_job import variants
from bench.counts.recording import read, record, verdict
from bench.peers.runner import run

ROWS = 30_000


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return record(tmp_path_factory.mktemp("recordings"), ROWS)


def test_some_rows_are_late_and_none_by_more_than_the_delay(data: Path) -> None:
    newest, late = 0, 0
    for ts in read(data / "rows.arrow")["ts"].to_pylist():
        newest = max(newest, ts)
        late += newest > ts
        assert newest - ts < DELAY_MS
    assert late > ROWS / 10


def test_missing_wrong_and_doubled_counts_are_found(data: Path, tmp_path: Path) -> None:
    counts = read(data / "reference.arrow")
    pq.write_table(counts, tmp_path / "right.parquet")
    assert verdict(tmp_path, data) == ""
    wrong = counts.slice(0, 1).set_column(2, "n", pa.array([99]))
    pq.write_table(pa.concat_tables([counts.slice(2), counts.slice(5, 1), wrong]), tmp_path / "right.parquet")
    assert verdict(tmp_path, data) == f"2 of {counts.num_rows:,} counts missing, 1 wrong, 1 twice"


@pytest.mark.parametrize("variant", variants())
def test_the_count_of_lmerge_is_right(variant: str, data: Path) -> None:
    ran = run("bench.counts.lmerge_job", variant, sys.executable, data, 1, verdict)
    assert ran.wrong == ""
    assert len(ran.seconds) == 1
