"""A process is named by its number and its start; a run's processes are found by its mark."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest
from local_world import ENDLESS, PYTHON, gone, is_alive

from lmerge_controller.local.process_table import MARK, ProcessId, end_all, mark_of, marked, process_id, started_of

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="marks are read in /proc")


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    started = subprocess.Popen(
        [*PYTHON, ENDLESS],
        stdout=subprocess.DEVNULL,
        env={**os.environ, MARK: mark_of("run-of-the-test", "p")},
        start_new_session=True,
    )
    yield started
    started.kill()
    started.wait()


def test_a_process_is_not_one_that_has_its_number_later(process: subprocess.Popen[bytes]) -> None:
    found = process_id(process.pid)
    assert found is not None
    assert found.is_alive
    other = ProcessId(found.pid, found.started + "1")
    other.signal(signal.SIGKILL)
    assert end_all("another run", [other]) == []
    assert process.poll() is None


def test_a_process_that_was_not_waited_for_is_not_alive(process: subprocess.Popen[bytes]) -> None:
    found = process_id(process.pid)
    assert found is not None
    found.signal(signal.SIGKILL)
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert not found.is_alive
    assert process_id(process.pid) is None
    found.signal(signal.SIGTERM)


def test_start_times_by_ps_name_a_process_too(
    process: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    started = started_of(process.pid)
    assert started is not None
    assert started == started_of(process.pid)
    assert marked("run-of-the-test") == []
    process.kill()
    process.wait()
    assert started_of(process.pid) is None


async def test_all_of_a_run_is_found_by_its_mark_and_ended(process: subprocess.Popen[bytes]) -> None:
    assert [found.pid for found in marked("run-of-the-test")] == [process.pid]
    assert [found.pid for found in marked("run-of-the-test", "p")] == [process.pid]
    assert marked("run-of-the-tes") == marked("run-of-the-test", "q") == []
    assert end_all("run-of-the-test") == [process.pid]
    await gone(process.pid)
    assert end_all("run-of-the-test") == []
    assert is_alive(os.getpid())
