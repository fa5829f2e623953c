"""Real processes under load are killed, stopped and cut off; a judge checks every element of the output.

``bench/kills.py`` does the work and also measures. These tests check only what must be right on any machine.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from bench.rig.wan import problem

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are forked, and end with their parent")

ROOT = Path(__file__).resolve().parents[2]


def kills(*arguments: str, timeout_s: float = 250.0) -> str:
    """Run ``bench.kills``, assert that its output was right, and return what it printed."""
    done = subprocess.run(
        [sys.executable, "-m", "bench.kills", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert "lost 0, duplicated 0, unexpected 0, with a wrong end 0; contradictions 0, gaps 0" in done.stdout
    return done.stdout


def test_replicas_links_and_servers_die_and_nothing_is_lost_or_doubled() -> None:
    assert "12 faults from seed 2" in kills("--part", "merged", "--faults", "12", "--seed", "2")


def test_a_durable_server_is_killed_and_restarted_and_nothing_is_lost_or_doubled() -> None:
    assert "2 kills" in kills("--part", "durable", "--faults", "2")


def test_a_lone_replica_that_is_restarted_stops_the_output_but_loses_nothing() -> None:
    assert "1 kills" in kills("--part", "alone", "--faults", "1")


@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("seed", ["11", "12"])
def test_three_hundred_faults_lose_and_double_nothing(seed: str) -> None:
    assert "300 faults" in kills("--part", "merged", "--faults", "300", "--seed", seed, timeout_s=1100.0)


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_durable_server_is_killed_thirty_times_and_nothing_is_lost_or_doubled() -> None:
    assert "30 kills" in kills("--part", "durable", "--faults", "30", timeout_s=550.0)


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.skipif(problem() is not None, reason=f"no line with delay and loss: {problem()}")
def test_over_a_line_with_delay_and_loss_faults_lose_and_double_nothing() -> None:
    assert "100 faults" in kills("--part", "wan", "--faults", "100", timeout_s=550.0)
