"""The processes of this machine: which one a number means, what belongs to a run, and how all of it is ended.

Called by the supervisor, and by `lmerge down` after a supervisor that was killed.

The system uses the number of a process again. So a process is named by its number and its start time, and never
signalled by its number alone. Every process has a mark in its environment, ``RUN/NAME``, and so has all that it starts,
also in sessions of their own. Linux shows the environment of a process in /proc. There the mark finds what no file
names: a process that was started just before the supervisor was killed.

Elsewhere `ps` gives the start time, in whole seconds, and only recorded processes and their groups are found.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

MARK: Final = "LMERGE_RUN"
# In /proc/PID/stat after the command: state, parent, group, and so on; see proc(5).
_STATE, _START_TIME = 0, 19
_DEAD: Final = frozenset("ZXx")


@dataclass(frozen=True)
class ProcessId:
    """A process for ever: ``pid`` and ``started``, an opaque text that differs for another process of that number."""

    pid: int
    started: str

    @property
    def is_alive(self) -> bool:
        """Whether it still runs; a process that has ended and was not waited for does not."""
        return started_of(self.pid) == self.started

    def signal(self, number: int) -> None:
        """Send it a signal. Does nothing if it has ended. Raises PermissionError."""
        if self.is_alive:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)


def process_id(pid: int) -> ProcessId | None:
    """Return the process that has this number now, or None."""
    started = started_of(pid)
    return None if started is None else ProcessId(pid, started)


def started_of(pid: int) -> str | None:
    """Return the start time of a process that runs, as an opaque text; None if there is none."""
    if sys.platform != "linux":
        return _started_by_ps(pid)
    fields = _stat_of(pid)
    return None if fields is None or fields[_STATE] in _DEAD else fields[_START_TIME]


def kill_group(group: int) -> None:
    """Send SIGKILL to every process of a group. Does nothing if there is none."""
    with suppress(ProcessLookupError, PermissionError):  # macOS: PermissionError for a group of dead processes
        os.killpg(group, signal.SIGKILL)


def mark_of(run: str, name: str) -> str:
    """Return the value of ``MARK`` of a process and of all that it starts."""
    return f"{run}/{name}"


def marked(run: str, name: str = "") -> list[ProcessId]:
    """Return the processes with the mark of ``name``, or of any process of the run, that run now.

    Without this process itself. Empty where there is no /proc.
    """
    mark = f"{MARK}={mark_of(run, name)}".encode()
    return [
        found
        for found in _all()
        if found.pid != os.getpid()
        and any(line == mark or (not name and line.startswith(mark)) for line in _environment_of(found.pid))
    ]


def kill_rest(group: int, run: str, name: str) -> None:
    """Send SIGKILL to the group of a process and to all that has its mark."""
    kill_group(group)
    for found in marked(run, name):
        found.signal(signal.SIGKILL)


def end_all(run: str, recorded: Iterable[ProcessId] = (), *, besides: Collection[str] = ()) -> list[int]:
    """Send SIGKILL to all that belongs to a run: the recorded processes with their groups, and what has its mark.

    ``besides``: names whose processes, and what they have started, are left. Returns the numbers of the processes that
    ran. Nothing that was asked to end runs when this returns, but for
    processes that the system cannot end now, such as one that waits for a disk.
    """
    ended = []
    for process in recorded:
        if process.is_alive:
            ended.append(process.pid)
            kill_group(process.pid)  # each leads a group of its own
            process.signal(signal.SIGKILL)
    spared = {process for name in besides for process in marked(run, name)}
    while found := [process for process in marked(run) if process.pid not in ended and process not in spared]:
        for process in found:  # a process may start another one until it is dead: look again
            ended.append(process.pid)
            process.signal(signal.SIGKILL)
    return ended


def _all() -> Iterator[ProcessId]:
    if sys.platform == "linux":
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                found = process_id(int(entry.name))
                if found is not None:
                    yield found


def _environment_of(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:  # it has ended, or belongs to another user
        return []


def _stat_of(pid: int) -> list[str] | None:
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return None
    return text.rpartition(")")[2].split()  # the name of the command, in parentheses, may contain anything


def _started_by_ps(pid: int) -> str | None:
    shown = subprocess.run(
        ["ps", "-o", "state=,lstart=", "-p", str(pid)], capture_output=True, text=True, check=False, env={"LC_ALL": "C"}
    ).stdout.split(maxsplit=1)
    return None if len(shown) < 2 or shown[0][0] in _DEAD else " ".join(shown[1].split())
