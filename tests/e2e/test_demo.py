"""`lmerge demo` for real on a few days of flights: server and replicas are processes, the kill is SIGKILL."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")

# With Spark: tests/spark/test_replicas.py.
COMMAND = [sys.executable, "-m", "lmerge", "demo", "--months", "2", "--days", "10", "--spark", "no"]


@contextlib.contextmanager
def demo(*options: str) -> Iterator[subprocess.Popen[str]]:
    """The running demo, in a session and a scratch folder of its own, both gone when the test ends."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as scratch:
        process = subprocess.Popen(
            [*COMMAND, *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            env={**os.environ, "TMPDIR": scratch},
        )
        try:
            yield process
        finally:
            process.kill()
            process.communicate()


def is_running(pid: int) -> bool:
    """Whether the process exists and is no zombie."""
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


def descendants(pid: int) -> set[int]:
    """The processes that ``pid`` has started and that are still its children."""
    children = set()
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(OSError):
            children |= {int(child) for child in (task / "children").read_text().split()}
    return children


def test_a_killed_winner_costs_nothing_and_the_verdict_is_right() -> None:
    with demo("--seconds", "24", "--kills", "1", "--server-kills", "1", "--json") as process:
        stdout, stderr = process.communicate(timeout=200)
    assert process.returncode == 0, stderr
    verdict = json.loads(stdout)
    assert verdict["ok"] is True
    assert verdict["problems"] == []
    assert verdict["expected_events"] == verdict["merged_events"] == 7_561
    assert (verdict["lost"], verdict["duplicates"], verdict["contradictions"]) == (0, 0, 0)
    assert verdict["longest_stall_ms"] > 0
    (kill,) = verdict["kills"]
    assert kill["rejoined_s"] > kill["at_s"] > 0
    (server_kill,) = verdict["server_kills"]
    assert server_kill["server"] == "server 2"
    assert server_kill["rejoined_s"] > server_kill["at_s"] > 0
    assert verdict["replicas"][kill["replica"]]["incarnations"] == 2
    assert all(totals["inserts"] > 0 for totals in verdict["replicas"].values())
    assert "SIGKILL" in stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda number: number.name)
def test_an_interrupted_demo_leaves_no_process_behind(number: signal.Signals) -> None:
    with demo("--seconds", "600", "--plain") as process:
        assert process.stdout is not None
        for line in process.stdout:
            if "the replay begins" in line:
                break
        children = descendants(process.pid)
        assert len(children) == 6, "two servers and four replicas"
        os.kill(process.pid, number)
        assert process.wait(30) == 130
        assert not [child for child in children if is_running(child)]


def test_a_killed_demo_takes_its_processes_with_it() -> None:
    with demo("--seconds", "600", "--plain") as process:
        assert process.stdout is not None
        for line in process.stdout:
            if "the replay begins" in line:
                break
        children = descendants(process.pid)
        assert len(children) == 6, "two servers and four replicas"
        process.kill()
        process.wait()
        gone = threading.Event()
        for _ in range(300):
            if not any(is_running(child) for child in children):
                return
            gone.wait(0.1)
    pytest.fail(f"still running: {[child for child in children if is_running(child)]}")


def test_months_that_cannot_be_read_end_with_a_clear_error() -> None:
    with demo("--months", "13") as process:
        _, stderr = process.communicate(timeout=60)
    assert process.returncode == 2
    assert "--months '13' cannot be read" in stderr
