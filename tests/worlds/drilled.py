"""Runs `lmerge drill` as a process, with a folder of its own for journals and temporary files, and own scenarios."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from cli_world import LMERGE

DRILL_S_MAX = 240.0


def scenario_file(folder: Path, *scenarios: str) -> str:
    """Write a file of scenarios, each an item of YAML, and return its path."""
    path = folder / "mine.yaml"
    path.write_text("scenarios:\n" + "".join(f"{scenario.strip()}\n" for scenario in scenarios))
    return str(path)


def long_freeze(victim: str) -> str:
    """Return the scenario ``long``, in which a victim (``server: 1``) stands still for longer than any test runs."""
    return f"""
- name: long
  summary: A part stands still for long.
  needs: {{replicas: 2, servers: 2}}
  steps:
    - {{fault: freeze, victim: {{{victim}}}, after: 0.3, hold: 100}}
"""


def state_of(pid: int) -> str:
    """Return the state of a process as /proc shows it: T if it was stopped, Z if it was not waited for."""
    return _state_in(Path(f"/proc/{pid}/stat"))


def _state_in(stat: Path) -> str:
    return stat.read_text().rpartition(") ")[2][0]


def environment(folder: Path) -> dict[str, str]:
    (folder / "tmp").mkdir(exist_ok=True)
    return {**os.environ, "LMERGE_STATE": str(folder), "TMPDIR": str(folder / "tmp"), "COLUMNS": "200"}


def drill(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*LMERGE, "drill", *arguments],
        env=environment(folder),
        capture_output=True,
        text=True,
        timeout=DRILL_S_MAX,
        check=False,
    )


@contextmanager
def started(folder: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A drill in the background. However the test ends, it is ended, and what it has left is undone."""
    process = subprocess.Popen(
        [*LMERGE, "drill", *arguments],
        env=environment(folder),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            try:
                process.communicate(timeout=30)
            except subprocess.TimeoutExpired:
                process.kill()
        process.communicate()
        drill(folder, "undo")


def wait_for_line(process: subprocess.Popen[str], text: str) -> None:
    """Read the output of a drill up to a line that contains ``text``."""
    assert process.stdout is not None
    for line in process.stdout:
        if text in line:
            return
    raise AssertionError(f"no line with {text!r}; exit code {process.wait()}")


def processes_of(folder: Path) -> list[tuple[int, str, str]]:
    """Return (pid, state, command) of the processes whose environment names the drill's folder."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                named = f"LMERGE_STATE={folder}\0".encode() in (entry / "environ").read_bytes()
                state = _state_in(entry / "stat")
                command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            except OSError:
                continue
            if named and state != "Z":
                found.append((int(entry.name), state, command))
    return found


def wait_until_gone(folder: Path, allowed: Iterable[int] = ()) -> list[tuple[int, str, str]]:
    """Wait until no process of the drill is left. Return those that stay."""
    deadline_s = time.monotonic() + 30.0
    while time.monotonic() < deadline_s:
        left = [found for found in processes_of(folder) if found[0] not in allowed]
        if not left:
            return []
        os.sched_yield()
    return left
