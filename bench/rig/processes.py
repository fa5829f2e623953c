"""Processes of the benchmarks: forked from one that has imported everything, or started as a user would.

Importing gRPC takes half a second of a core. Where processes are killed more than once a second on a machine of two
cores, that would be most of the load and none of what is measured, so they are forked; where the time of a restart
is the measurement, they are executed. Whatever happens to the benchmark, the kernel ends its children.
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

_FORK = multiprocessing.get_context("fork")
_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG
END_S_MAX = 10.0


class RigProcess:
    """One process and, if it was forked, the pipe to it."""

    def __init__(self, name: str, pid: int, exit_code: Callable[[], int | None], log: Path) -> None:
        self.name, self.pid, self.log = name, pid, log
        self.told: Connection | None = None
        self.is_stopped = False
        self._exit_code = exit_code

    @property
    def exit_code(self) -> int | None:
        """None while it runs."""
        return self._exit_code()

    def kill(self) -> None:
        """SIGKILL, and it has gone."""
        self._signal(signal.SIGKILL)
        self._gone()

    def stop(self) -> None:
        """SIGSTOP."""
        self.is_stopped = True
        self._signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """SIGCONT."""
        self.is_stopped = False
        self._signal(signal.SIGCONT)

    def say(self, word: object) -> None:
        """To the other end of its pipe."""
        assert self.told is not None
        self.told.send(word)

    def hear(self) -> Any:
        """What it says next. Raises RuntimeError, with the end of its log, if it goes instead."""
        assert self.told is not None
        try:
            return self.told.recv()
        except (EOFError, OSError):
            raise self.failure() from None

    def failure(self) -> RuntimeError:
        """What it said last."""
        lines = self.log.read_text(errors="replace").splitlines()[-12:] if self.log.exists() else []
        return RuntimeError(f"{self.name} has gone by itself ({self.exit_code}); its log ends:\n" + "\n".join(lines))

    def _signal(self, number: int) -> None:
        if self.exit_code is None:
            os.kill(self.pid, number)

    def _gone(self) -> None:
        until = time.monotonic() + END_S_MAX
        while self.exit_code is None:
            if time.monotonic() > until:
                raise RuntimeError(f"{self.name} (process {self.pid}) does not go")
            time.sleep(0.001)
        if self.told is not None:
            self.told.close()


def forked(
    name: str, folder: Path, work: Callable[..., None], *arguments: Any, before: Callable[[], None] | None = None
) -> RigProcess:
    """``work(*arguments, its end of the pipe)`` in a process of its own, after ``before``."""
    mine, its = _FORK.Pipe()
    log = folder / f"{name}.log"
    child = _FORK.Process(target=_child, args=(log, before, work, (*arguments, its)), name=name, daemon=True)
    child.start()
    its.close()
    assert child.pid is not None
    process = RigProcess(name, child.pid, lambda: child.exitcode, log)
    process.told = mine
    return process


def executed(name: str, folder: Path, *command: str, given: object = None) -> RigProcess:
    """``python -m command`` as a user would start it. ``given``: sent over a pipe, the last argument."""
    log = folder / f"{name}.log"
    mine, its = _FORK.Pipe()
    with log.open("ab") as stderr:
        child = subprocess.Popen(
            [sys.executable, "-m", *command, *([str(its.fileno())] if given else [])], stdin=subprocess.DEVNULL,
            stdout=stderr, stderr=stderr, pass_fds=(its.fileno(),), preexec_fn=_die_with_parent,
        )
    its.close()
    process = RigProcess(name, child.pid, child.poll, log)
    if given is None:
        mine.close()
    else:
        mine.send(given)
        process.told = mine
    return process


def _child(
    log: Path, before: Callable[[], None] | None, work: Callable[..., None], arguments: tuple[Any, ...]
) -> None:
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
