"""A replica that is killed goes on from its checkpoint: nothing lost, nothing computed twice that was in it."""

from __future__ import annotations

import re
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli_world import Served
from replica_world import Reading, counts_by_window, flight_rows, replica_process, write_csv, write_query

from lmerge.replica.checkpoints import NAME

ROWS = flight_rows(1200, seed=3)
PACED = ("--speed", "0.001", "--checkpoint-every", "0")


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    folder = tmp_path / "served"
    folder.mkdir()
    server = Served(folder, "--merge", "m")
    try:
        yield server
    finally:
        server.stop()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_csv(tmp_path / "flights.csv", ROWS)
    write_query(tmp_path)
    return tmp_path


@pytest.mark.parametrize("form", ["final", "eager"])
def test_a_killed_replica_goes_on_from_its_checkpoint(form: str, served: Served, folder: Path) -> None:
    options = ("query.py", "--plan", form, "-s", served.target, "-m", "m", "-r", "a", "--checkpoint", "kept", *PACED)
    with Reading(served.target, "m") as reading:
        for stable in (200, 500, 800):
            process = replica_process(folder, *options)
            reading.until(stable)
            process.kill()
            process.communicate()
        process = replica_process(folder, *options)
        errors = process.communicate(timeout=60)[1]
        assert process.returncode == 0, errors
        assert reading.table() == counts_by_window(ROWS)
    assert items_of(errors) < 600


def test_a_stopped_replica_leaves_and_goes_on(served: Served, folder: Path) -> None:
    options = ("query.py", "--plan", "final", "-s", served.target, "-m", "m", "-r", "a", "--checkpoint", "kept")
    with Reading(served.target, "m") as reading:
        process = replica_process(folder, *options, "--speed", "0.001")
        reading.until(400)
        process.send_signal(signal.SIGTERM)
        errors = process.communicate(timeout=60)[1]
        assert process.returncode == 130, errors
        assert "a: stopped" in errors
        taken = items_of(errors)
        process = replica_process(folder, *options)
        errors = process.communicate(timeout=60)[1]
        assert process.returncode == 0, errors
        assert taken + items_of(errors) == len(ROWS) + 1
        assert reading.table() == counts_by_window(ROWS)


def test_another_replica_begins_with_a_copy(served: Served, folder: Path) -> None:
    options = ("query.py", "--plan", "eager", "-s", served.target, "-m", "m", *PACED)
    with Reading(served.target, "m") as reading:
        first = replica_process(folder, *options, "-r", "a", "--checkpoint", "kept")
        reading.until(400)
        (folder / "copied").mkdir()
        shutil.copy(folder / "kept" / NAME, folder / "copied")
        second = replica_process(folder, *options, "-r", "b", "--checkpoint", "copied")
        reading.until(700)
        first.kill()
        first.communicate()
        errors = second.communicate(timeout=60)[1]
        assert second.returncode == 0, errors
        assert items_of(errors) < 900
        assert reading.table() == counts_by_window(ROWS)


def test_a_replica_of_a_complete_merge_has_nothing_to_do(served: Served, folder: Path) -> None:
    options = ("query.py", "--plan", "final", "-s", served.target, "-m", "m", "-r", "a")
    for last in (
        f"{len(ROWS) + 1:,} items of its sources",
        "a: merge m is complete already: there is nothing to publish",
    ):
        process = replica_process(folder, *options)
        errors = process.communicate(timeout=60)[1]
        assert process.returncode == 0, errors
        assert errors.splitlines()[-1].endswith(last)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda data: data[:-7], "its checksum does not match, so it is damaged or cut short"),
        (lambda data: b"", "it begins otherwise"),
        (lambda data: data.replace(b"checkpoint 1", b"checkpoint 9"), "it is of another version"),
    ],
    ids=["cut", "empty", "version"],
)
def test_a_damaged_checkpoint_is_refused(damage: object, message: str, served: Served, folder: Path) -> None:
    options = ("query.py", "--plan", "final", "-s", served.target, "-m", "m", "-r", "a", "--checkpoint", "kept")
    assert callable(damage)
    process = replica_process(folder, *options)
    assert process.communicate(timeout=60)[1]
    path = folder / "kept" / NAME
    path.write_bytes(damage(path.read_bytes()))
    process = replica_process(folder, *options)
    errors = process.communicate(timeout=60)[1]
    assert process.returncode == 2
    assert f"lmerge: kept/{NAME} is no checkpoint of a replica that can be read: {message}" in errors


def test_a_checkpoint_of_another_plan_or_merge_is_refused(served: Served, folder: Path) -> None:
    common = ("-s", served.target, "-r", "a", "--checkpoint", "kept")
    process = replica_process(folder, "query.py", "--plan", "final", "-m", "m", *common)
    process.communicate(timeout=60)
    process = replica_process(folder, "query.py", "--plan", "final", "-m", "other", *common)
    assert (
        "is a checkpoint of plan 'final' for merge 'm', and this is plan 'final' for merge 'other'"
        in (process.communicate(timeout=60)[1])
    )
    assert process.returncode == 2
    path = folder / "query.py"
    # Of another size: Python goes by it and by whole seconds to see that a module has changed.
    path.write_text(path.read_text().replace("delay > 15", "delay > 160"))
    process = replica_process(folder, "query.py", "--plan", "final", "-m", "m", *common)
    errors = process.communicate(timeout=60)[1]
    assert process.returncode == 2
    assert "the snapshot is one of another plan" in errors


def items_of(errors: str) -> int:
    """Return how many items of its sources a run has reported."""
    return int(re.findall(r"([\d,]+) items of its sources", errors)[-1].replace(",", ""))
