"""Tests that interrupt a process pass where Ctrl-C is ignored: in the background of a script, or under nohup."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

WAITS = "import signal; print('ready', flush=True); signal.pause()"
REPORTS = "import signal; print('ignored' if signal.getsignal(signal.SIGINT) is signal.SIG_IGN else 'default')"
IGNORING = "trap '' INT; exec \"$@\""  # as a shell starts `make test &`


def test_a_process_of_a_test_is_interrupted() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", WAITS], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == -signal.SIGINT


def test_a_process_of_a_test_is_interrupted_in_the_background_too() -> None:
    test = f"{Path(__file__).name}::{test_a_process_of_a_test_is_interrupted.__name__}"
    done = subprocess.run(
        ["sh", "-c", IGNORING, "sh", sys.executable, "-m", "pytest", "-p", "no:cacheprovider", f"tests/{test}"],
        cwd=Path(__file__).parents[1],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout


def test_without_the_reset_the_background_would_be_inherited() -> None:
    program = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {REPORTS!r}])"
    done = subprocess.run(
        ["sh", "-c", IGNORING, "sh", sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert done.stdout == "ignored\n"
