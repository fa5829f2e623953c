"""Starts one process of a run, and finds again one that an earlier supervisor has started.

Called by the supervisor. A process gets a session of its own, so that Ctrl-C in a terminal reaches only the supervisor,
which then ends the processes in order. What a process has started is killed when it has ended: two lives of one replica
never run side by side.

A *bound* process ends with its supervisor: Linux sends it SIGTERM when the supervisor dies, however that happens. One
that is not bound goes on, and a new supervisor adopts it.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

from lmerge.errors import Unavailable, UsageError
from lmerge.time_limit import time_limit
from lmerge_controller.local.log_file import LogFile
from lmerge_controller.local.process_table import MARK, ProcessId, kill_rest, mark_of, process_id

# Runs the command in place of itself. A hook between fork and exec would make Python fork the supervisor with the
# threads of gRPC in it. Python ignores SIGPIPE, and so would the command. The supervisor may be dead already.
_TIE: Final = """
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, signal.SIGTERM)
if os.getppid() != int(sys.argv[1]):
    sys.exit(128 + signal.SIGTERM)
signal.signal(signal.SIGPIPE, signal.SIG_DFL)
try:
    os.execvp(sys.argv[2], sys.argv[2:])
except OSError as problem:
    sys.exit(f"cannot run {sys.argv[2]!r}: {problem.strerror}")
"""

# A checkpoint of a merge is a subscription that waits for the first stable point: 10 s by its own limit.
PREPARE_S_MAX: Final = 30.0


class CannotStart(Unavailable):
    """The system does not start the process."""


@dataclass(frozen=True)
class ProcessCommand:
    """What to run.

    ``argv``: the program and its arguments. ``environment``: added to the supervisor's. ``folder``: its working
    folder. ``grace_s``: how long it may take to end after SIGTERM. ``runs_once``: exit code 0 means that its work is
    done, and it is not started again. ``prepare``: a command that runs to its end before each start.
    """

    name: str
    argv: tuple[str, ...]
    log: LogFile
    environment: Mapping[str, str] = field(default_factory=dict)
    folder: Path = field(default_factory=Path.cwd)
    grace_s: float = 10.0
    runs_once: bool = False
    prepare: tuple[str, ...] = ()


class RunningProcess(Protocol):
    """A process that was started. It leads its group."""

    @property
    def id(self) -> ProcessId: ...

    async def wait(self) -> int | None:
        """Return its exit code when it has ended, at once; negative: a signal; None: not known."""

    def terminate(self) -> None:
        """Send it SIGTERM, if it runs."""

    def kill_all(self) -> None:
        """Send SIGKILL to it and to what it has started, if it runs."""


class Spawner(Protocol):
    """Starts processes: those of this machine, or those of a simulation."""

    async def start(self, command: ProcessCommand) -> RunningProcess:
        """Start a process. Raises CannotStart."""

    async def adopt(self, process: ProcessId, name: str) -> RunningProcess | None:
        """Return a process that an earlier supervisor has started; None if it has ended or cannot be watched."""


@dataclass(frozen=True)
class LocalSpawner:
    """Starts processes of this machine with the mark of ``run``. ``bound``: they end with this process."""

    run: str
    bound: bool = True

    async def start(self, command: ProcessCommand) -> RunningProcess:
        """Start a process. Raises CannotStart."""
        if command.prepare:
            await self._prepare(command)
        return _OwnChild(await self._spawn(command, command.argv), self.run, command.name)

    async def _prepare(self, command: ProcessCommand) -> None:
        """Run what comes before the start. Raises CannotStart if it fails, or takes longer than PREPARE_S_MAX."""
        child = _OwnChild(await self._spawn(command, command.prepare), self.run, command.name)
        try:
            async with time_limit(PREPARE_S_MAX):
                code = await child.wait()
        except asyncio.TimeoutError:
            raise CannotStart(f"what comes before its start took longer than {PREPARE_S_MAX:.0f} s") from None
        finally:
            child.kill_all()
        if code != 0:
            lines = command.log.last_lines(1)
            raise CannotStart(f"what comes before its start ended with exit code {code}: {''.join(lines)}")

    async def _spawn(self, command: ProcessCommand, argv: Sequence[str]) -> asyncio.subprocess.Process:
        try:
            log = command.log.opened()
        except OSError as problem:
            raise CannotStart(f"cannot write the log {str(command.log.path)!r}: {problem.strerror}") from None
        try:
            return await asyncio.create_subprocess_exec(
                *self._tied(argv),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=command.folder,
                env={**os.environ, **command.environment, MARK: mark_of(self.run, command.name)},
                start_new_session=True,
            )
        except (OSError, ValueError) as problem:
            reason = problem.strerror if isinstance(problem, OSError) else str(problem)
            raise CannotStart(f"cannot run {argv[0]!r} in {str(command.folder)!r}: {reason}") from None
        finally:
            os.close(log)

    async def adopt(self, process: ProcessId, name: str) -> RunningProcess | None:
        """Return a process of an earlier supervisor; None if it has ended, or the system cannot watch it."""
        if sys.platform != "linux":
            return None
        try:
            descriptor = os.pidfd_open(process.pid)
        except OSError:
            return None
        if process.is_alive:  # checked with the descriptor open: from here on it means this process and no other
            return _Adopted(process, descriptor, self.run, name)
        os.close(descriptor)
        return None

    def _tied(self, argv: Sequence[str]) -> Sequence[str]:
        if self.bound and sys.platform == "linux":
            return (sys.executable, "-I", "-S", "-c", _TIE, str(os.getpid()), *argv)
        return argv


class _OwnChild:
    """A child of this process."""

    def __init__(self, process: asyncio.subprocess.Process, run: str, name: str) -> None:
        self._process = process
        self._run, self._name = run, name
        self.id = process_id(process.pid) or ProcessId(process.pid, "")  # "": it has ended already

    async def wait(self) -> int | None:
        return await self._process.wait()

    def terminate(self) -> None:
        with suppress(ProcessLookupError):
            self._process.terminate()

    def kill_all(self) -> None:
        kill_rest(self._process.pid, self._run, self._name)


class _Adopted:
    """A process that is no child of this one. Its exit code is not known."""

    def __init__(self, process: ProcessId, descriptor: int, run: str, name: str) -> None:
        self.id = process
        self._run, self._name = run, name
        self._descriptor = descriptor
        self._ended = asyncio.Event()
        asyncio.get_running_loop().add_reader(descriptor, self._end)  # readable when the process has ended

    async def wait(self) -> int | None:
        await self._ended.wait()
        return None

    def terminate(self) -> None:
        self.id.signal(signal.SIGTERM)

    def kill_all(self) -> None:
        kill_rest(self.id.pid, self._run, self._name)

    def _end(self) -> None:
        asyncio.get_running_loop().remove_reader(self._descriptor)
        os.close(self._descriptor)
        self._ended.set()


def check_runs(argv: Sequence[str], folder: Path, environment: Mapping[str, str]) -> None:
    """Raise UsageError if there is no such program, or this user may not run it."""
    program = argv[0]
    if not folder.is_dir():
        raise UsageError(f"cannot run {program!r}: there is no folder {str(folder)!r}")
    if os.sep in program:
        path = folder / program
        if not path.is_file():
            raise UsageError(f"there is no program {str(path)!r}")
        if not os.access(path, os.X_OK):
            raise UsageError(f"{str(path)!r} is not executable")
    else:
        searched = environment.get("PATH", os.environ.get("PATH", os.defpath))
        if shutil.which(program, path=searched) is None:
            raise UsageError(f"there is no program {program!r} in the folders of PATH")
