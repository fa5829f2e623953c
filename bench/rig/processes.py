"""Processes of the benchmarks: forked from one that has imported everything, or started as a user would start them.

Importing gRPC takes half a second of a core. If processes are killed more than once a second on a machine of two cores,
that would be most of the load and is not what is measured, so they are forked. If the time of a restart is measured,
they are executed. The kernel ends the children when the benchmark ends, however that happens.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from lmerge.demo.processes import bound

_FORK = multiprocessing.get_context("fork")
_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG
END_S_MAX = 10.0


class RigProcess:
    """One process and, if it was forked, the pipe to it."""

    def __init__(self, name: str, pid: int, exit_code: Callable[[], int | None], log: Path) -> None:
        self.name, self.pid, self.log = name, pid, log
        self.pipe: Connection | None = None
        self.is_stopped = False
        self._exit_code = exit_code

    @property
    def exit_code(self) -> int | None:
        """None while it runs."""
        return self._exit_code()

    def kill(self) -> None:
        """Kill it with SIGKILL and wait until it has ended."""
        self._signal(signal.SIGKILL)
        self._await_end()

    def stop(self) -> None:
        """Stop it with SIGSTOP."""
        self.is_stopped = True
        self._signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """Continue it with SIGCONT."""
        self.is_stopped = False
        self._signal(signal.SIGCONT)

    def send(self, message: object) -> None:
        """Send a message over its pipe."""
        assert self.pipe is not None
        self.pipe.send(message)

    def receive(self) -> Any:
        """Return its next message. Raises RuntimeError, with the end of its log, if it ends instead."""
        assert self.pipe is not None
        try:
            return self.pipe.recv()
        except (EOFError, OSError):
            raise self.failure() from None

    def failure(self) -> RuntimeError:
        """Return an error with the end of its log."""
        lines = self.log.read_text(errors="replace").splitlines()[-12:] if self.log.exists() else []
        ended = f"{self.name} has ended by itself ({self.exit_code}); the end of its log:\n"
        return RuntimeError(ended + "\n".join(lines))

    def _signal(self, number: int) -> None:
        if self.exit_code is None:
            os.kill(self.pid, number)

    def _await_end(self) -> None:
        until = time.monotonic() + END_S_MAX
        while self.exit_code is None:
            if time.monotonic() > until:
                raise RuntimeError(f"{self.name} (process {self.pid}) does not end")
            time.sleep(0.001)
        if self.pipe is not None:
            self.pipe.close()


def forked(
    name: str, folder: Path, work: Callable[..., None], *arguments: Any, before: Callable[[], None] | None = None
) -> RigProcess:
    """Fork a process that calls ``before()`` and then ``work(*arguments, its end of the pipe)``."""
    mine, its = _FORK.Pipe()
    log = folder / f"{name}.log"
    child = _FORK.Process(target=_child, args=(log, before, work, (*arguments, its)), name=name, daemon=True)
    child.start()
    its.close()
    assert child.pid is not None
    process = RigProcess(name, child.pid, lambda: child.exitcode, log)
    process.pipe = mine
    return process


def executed(name: str, folder: Path, *command: str, given: object = None) -> RigProcess:
    """Start ``python -m command`` as a user would. ``given`` is sent over a pipe, which is its last argument."""
    log = folder / f"{name}.log"
    mine, its = _FORK.Pipe()
    started = [sys.executable, "-m", *command, *([str(its.fileno())] if given else [])]
    with log.open("ab") as stderr:
        child = subprocess.Popen(
            bound(started, signal.SIGKILL),
            stdin=subprocess.DEVNULL,
            stdout=stderr,
            stderr=stderr,
            pass_fds=(its.fileno(),),
        )
    its.close()
    process = RigProcess(name, child.pid, child.poll, log)
    if given is None:
        mine.close()
    else:
        mine.send(given)
        process.pipe = mine
    return process


def _child(log: Path, before: Callable[[], None] | None, work: Callable[..., None], arguments: tuple[Any, ...]) -> None:
    _die_with_parent()
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    for descriptor in (1, 2):
        os.dup2(file, descriptor)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the benchmark ends its children itself
    if before is not None:
        before()
    work(*arguments)


def _die_with_parent() -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_DEATH_SIGNAL, signal.SIGKILL)
