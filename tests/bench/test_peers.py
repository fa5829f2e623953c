"""The comparison with peers: recordings carry the same events in several orders, wrong outputs are found."""

from __future__ import annotations

import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bench.peers.check import verdict
from bench.peers.job import DELAY_MS, INPUTS
from bench.peers.lmerge_job import engines
from bench.peers.recording import record
from bench.peers.runner import run

EVENTS = 3_000


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return record(tmp_path_factory.mktemp("recordings"), EVENTS)


def rows(data: Path, at: int) -> pa.Table:
    return pq.ParquetFile(data / f"rows{at}.parquet").read()


def test_every_input_carries_every_event_in_an_order_of_its_own(data: Path) -> None:
    inputs = [rows(data, at).to_pylist() for at in range(INPUTS)]
    assert all(len(events) == EVENTS for events in inputs)
    assert inputs[0] != inputs[1] != inputs[2] != inputs[0]
    assert len({frozenset((row["vs"], row["payload"], row["ve"]) for row in events) for events in inputs}) == 1


def test_no_row_is_later_than_the_delay_that_the_peers_allow(data: Path) -> None:
    for at in range(INPUTS):
        newest = 0
        for vs in rows(data, at)["vs"].to_pylist():
            newest = max(newest, vs)
            assert newest - vs < DELAY_MS


def test_segments_are_the_input_cut_in_pieces(data: Path) -> None:
    pieces = [pq.ParquetFile(path).read() for path in sorted((data / "segments" / "0").iterdir())]
    assert pa.concat_tables(pieces).equals(rows(data, 0))


def test_an_input_is_a_right_output_in_any_order(data: Path, tmp_path: Path) -> None:
    pq.write_table(rows(data, 2), tmp_path / "part.parquet")
    assert verdict(tmp_path, data) == ""


def test_missing_and_doubled_events_are_counted(data: Path, tmp_path: Path) -> None:
    events = rows(data, 0)
    pq.write_table(pa.concat_tables([events.slice(2), events.slice(10, 5)]), tmp_path / "part.parquet")
    assert verdict(tmp_path, data) == "2 of 3,000 events missing, 5 too many"


@pytest.mark.parametrize("engine", engines())
def test_the_job_of_lmerge_gives_the_reference(engine: str, data: Path) -> None:
    ran = run("bench.peers.lmerge_job", engine, sys.executable, data, 1, verdict)
    assert ran.wrong == ""
    assert len(ran.seconds) == 1


def test_a_job_that_fails_is_not_timed(data: Path) -> None:
    ran = run("bench.peers.lmerge_job", "python", sys.executable, data / "nowhere", 1, verdict)
    assert ran.wrong.startswith("exit 1: ")
    assert not ran.seconds
