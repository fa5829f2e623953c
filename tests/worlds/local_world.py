"""Helpers of the tests of the local backend: processes that report what they do, and a supervisor that is watched."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from lmerge.client import describe_merge
from lmerge.errors import Unavailable, UnknownMerge
from lmerge_controller.local.log_file import LogFile
from lmerge_controller.local.spawn import ProcessCommand
from lmerge_controller.local.supervisor import ProcessStatus, SupervisedPhase
from lmerge_controller.model.query import ReplicatedQuery
from lmerge_controller.model.reading import parse_query

PYTHON = (sys.executable, "-I", "-S", "-c")
# A process that runs until it is ended.
ENDLESS = "import signal; print('ready', flush=True); signal.pause()"
# One that does not end when it is asked to.
STUBBORN = "import signal; signal.signal(15, signal.SIG_IGN); print('ready', flush=True)\nwhile True: signal.pause()"
# One that starts a second process in its group, and a third one in a session of its own; both print their numbers.
PARENT = (
    "import signal, subprocess, sys\n"
    "child = 'import signal\\nwhile True: signal.pause()'\n"
    "for own in (False, True):\n"
    "    print(subprocess.Popen([sys.executable, '-c', child], start_new_session=own).pid, flush=True)\n"
    "print('ready', flush=True)\n"
    "signal.pause()\n"
)


def command(logs: Path, program: str, name: str = "p", **changes: Any) -> ProcessCommand:
    """Return a command that runs a program in Python, with its log in ``logs``, its working folder."""
    made = ProcessCommand(name, (*PYTHON, program), LogFile(logs / f"{name}.log"), folder=logs)
    return replace(made, **changes)


class Watched:
    """The statuses that a supervisor reports, in order, and waits for one of them."""

    def __init__(self) -> None:
        self.statuses: list[ProcessStatus] = []
        self._changed = asyncio.Event()

    def __call__(self, status: ProcessStatus) -> None:
        self.statuses.append(status)
        self._changed.set()

    @property
    def phases(self) -> list[SupervisedPhase]:
        return [status.phase for status in self.statuses]

    async def until(self, fits: Callable[[ProcessStatus], bool]) -> ProcessStatus:
        """Return the first status that fits, also one from the past."""
        while True:
            self._changed.clear()
            for status in self.statuses:
                if fits(status):
                    return status
            await self._changed.wait()

    async def life(self, number: int, name: str = "p") -> ProcessStatus:
        """Return the status in which a process runs for the ``number``-th time."""
        return await self.until(lambda s: (s.name, s.phase, s.starts) == (name, SupervisedPhase.RUNNING, number))


async def printed(path: Path, text: str = "ready") -> list[str]:
    """Return the lines of a log when one of them is ``text``."""
    while text not in _lines(path):  # noqa: ASYNC110 - a file and other processes have no event
        await asyncio.sleep(0.001)
    return _lines(path)


async def gone(*pids: int) -> None:
    """Wait until processes are gone, or dead and not waited for."""
    while any(is_alive(pid) for pid in pids):  # noqa: ASYNC110 - processes that are not our children have no event
        await asyncio.sleep(0.001)


def _lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def is_alive(pid: int) -> bool:
    """Whether a process runs, by the system's own answer."""
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


DESCRIPTION = """
apiVersion: lmerge.dev/v1alpha1
kind: ReplicatedQuery
metadata: {name: q}
spec:
  merge: {certifyInterval: 43200000000}
  servers: {count: 2}
  versions:
    - name: v1
      run: {replica: aggressive, args: [--speed, "4", --last, "2013-03-31", --start, "{started}"]}
      alternatives:
        - {replica: conservative, args: [--speed, "4", --last, "2013-03-31", --start, "{started}"]}
    - name: gone
      run: {command: [no-such-program]}
    - name: done
      run: {command: ["true"]}
  active: v1
  replicas: 2
  restart: {backoffSeconds: 0.05, backoffMaxSeconds: 1}
"""


def described(folder: Path, text: str = DESCRIPTION) -> ReplicatedQuery:
    """Return the query of a description whose file is in ``folder``."""
    return parse_query(text, folder=str(folder))


async def joined(address: str, merge: str, replicas: set[str]) -> None:
    """Wait until exactly these replicas have joined at a server."""
    while await asyncio.to_thread(_joined, address, merge) != replicas:  # noqa: ASYNC110 - another process
        await asyncio.sleep(0.005)


def _joined(address: str, merge: str) -> set[str]:
    try:
        return {found.replica for found in describe_merge(address, merge).inputs if found.state == "joined"}
    except (UnknownMerge, Unavailable):
        return set()
