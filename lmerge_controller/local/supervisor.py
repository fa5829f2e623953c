"""Keeps processes running: an exit is noticed at once, and the process is started again after a wait.

Called by the local backend. Each process has a task of its own::

    start() -> running -- ends --> waiting -- the wait is over --> running
    running -- exit code 0 of a process that runs once --> complete
    any     -- stop() --> stopped

``restarts`` decides the wait. SIGTERM asks a process to end; after its grace it is killed with all that it has started.
What it has started is also killed when it ends by itself. A process that cannot be started is treated as one that ended
at once, and its status has the reason.

No exit is polled for. Only the size of logs is looked at, every ``LOG_LOOK_S``.
"""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import Enum
from types import TracebackType
from typing import Any, Final

from lmerge.time_limit import time_limit
from lmerge_controller.local.process_table import ProcessId
from lmerge_controller.local.restarts import RestartPace, RestartRule
from lmerge_controller.local.spawn import CannotStart, ProcessCommand, RunningProcess, Spawner

# A process that writes 10 MB/s makes its log 100 MB longer than its limit in this time.
LOG_LOOK_S: Final = 10.0
# How long killed processes may take to end; the system cannot end one that waits for a disk.
KILLED_S_MAX: Final = 5.0


class SupervisedPhase(str, Enum):
    """What a supervised process does."""

    STARTING = "starting"
    RUNNING = "running"
    WAITING = "waiting"  # for its next start
    COMPLETE = "complete"  # its work is done
    STOPPING = "stopping"
    STOPPED = "stopped"


@dataclass(frozen=True)
class ProcessStatus:
    """One supervised process.

    ``process``: while it runs. ``starts``: how often it was started. ``ended``: how its last life ended, as text; empty
    if none has; ``exit_code``: of that life, None if it is not known. ``exits``: how often in a row it has ended
    without a good run. ``wait_s``: how long it waits for its next start, in seconds, in phase waiting.
    """

    name: str
    phase: SupervisedPhase
    process: ProcessId | None = None
    starts: int = 0
    ended: str = ""
    exit_code: int | None = None
    exits: int = 0
    wait_s: float = 0.0


class Supervisor:
    """Keeps processes running; an async context manager that stops all of them.

    ``on_change`` is called in the loop with each new status. A mistake in it, or in the supervisor itself, ends the
    context with that exception, and everything is stopped.
    """

    def __init__(self, spawner: Spawner, on_change: Callable[[ProcessStatus], None]) -> None:
        self._spawner = spawner
        self._on_change = on_change
        self._kept: dict[str, _Kept] = {}
        self._failed: asyncio.Future[None] | None = None
        self._logs: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Supervisor:
        self._failed = asyncio.get_running_loop().create_future()
        self._logs = asyncio.create_task(self._bound_logs(), name="logs")
        self._logs.add_done_callback(self._check)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._failed is not None
        assert self._logs is not None
        self._logs.cancel()
        await self.stop_all()
        failed = self._failed.exception() if self._failed.done() else None
        self._failed.cancel()
        if failed is not None and error is None:
            raise failed

    @property
    def statuses(self) -> Mapping[str, ProcessStatus]:
        """All processes by name, in the order in which they were started."""
        return {name: kept.status for name, kept in self._kept.items()}

    def start(self, command: ProcessCommand, rule: RestartRule, adopted: RunningProcess | None = None) -> None:
        """Start a process and keep it running. ``adopted``: its present life, from ``Spawner.adopt``.

        Raises ValueError if a process of that name is kept already.
        """
        if command.name in self._kept:
            raise ValueError(f"{command.name} is kept already")
        kept = _Kept(command, RestartPace(rule), self._spawner, self._on_change, adopted)
        self._kept[command.name] = kept
        kept.task = asyncio.create_task(kept.keep(), name=command.name)
        kept.task.add_done_callback(self._check)

    async def stop(self, name: str, *, grace_s: float | None = None) -> None:
        """End a process and forget it. Returns when it, and what it has started, has ended.

        ``grace_s``: how long it may take to end by itself; None: as its command states.
        """
        kept = self._kept.get(name)
        if kept is not None:
            if grace_s is not None:
                kept.grace_s = grace_s
            kept.stopping.set()
            assert kept.task is not None
            await asyncio.wait({kept.task})
            if self._kept.get(name) is kept:
                del self._kept[name]

    async def stop_all(self) -> None:
        """End all processes, side by side."""
        await asyncio.gather(*(self.stop(name) for name in list(self._kept)))

    def fail(self, error: BaseException) -> None:
        """End the context with ``error``, a mistake in what uses the supervisor."""
        assert self._failed is not None
        if not self._failed.done():
            self._failed.set_exception(error)

    async def failed(self) -> None:
        """Wait for a mistake in the supervisor itself, and raise it."""
        assert self._failed is not None
        await asyncio.shield(self._failed)

    def _check(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self.fail(error)

    async def _bound_logs(self) -> None:
        while True:
            await asyncio.sleep(LOG_LOOK_S)
            for kept in self._kept.values():
                kept.rotate_log()


class _Kept:
    """One process and its task."""

    def __init__(
        self,
        command: ProcessCommand,
        pace: RestartPace,
        spawner: Spawner,
        on_change: Callable[[ProcessStatus], None],
        adopted: RunningProcess | None,
    ) -> None:
        self.status = ProcessStatus(command.name, SupervisedPhase.STARTING)
        self.stopping = asyncio.Event()
        self.task: asyncio.Task[None] | None = None
        self.grace_s = command.grace_s
        self._command = command
        self._pace = pace
        self._spawner = spawner
        self._on_change = on_change
        self._adopted = adopted

    async def keep(self) -> None:
        """Run the process, life after life, until it is stopped or complete."""
        now = asyncio.get_running_loop().time
        while self._adopted is not None or not self.stopping.is_set():  # an adopted life is there to be ended
            began_s = now()
            code = await self._life()
            if code == 0 and self._command.runs_once and not self.stopping.is_set():
                self._report(SupervisedPhase.COMPLETE)
                await self.stopping.wait()
            if not self.stopping.is_set():
                wait_s = self._pace.ended(now(), now() - began_s)
                self.status = replace(self.status, exits=self._pace.failures)
                self._log(f"{self.status.ended}; it is started again in {wait_s:.1f} s")
                self._report(SupervisedPhase.WAITING, wait_s=wait_s)
                with suppress(asyncio.TimeoutError):
                    async with time_limit(wait_s):
                        await self.stopping.wait()
        self._report(SupervisedPhase.STOPPED)

    async def _life(self) -> int | None:
        """Start the process, or take the adopted one, and return its exit code when it has ended."""
        self.rotate_log()
        running, self._adopted = self._adopted, None
        self._pace.started(asyncio.get_running_loop().time())
        try:
            running = running or await self._spawner.start(self._command)
        except CannotStart as problem:
            self.status = replace(self.status, starts=self.status.starts + 1, ended=str(problem), exit_code=None)
            return None
        self.status = replace(self.status, starts=self.status.starts + 1)
        ended = asyncio.ensure_future(running.wait())
        try:
            self._report(SupervisedPhase.RUNNING, process=running.id)
            await self._until_ended(running, ended)
        finally:
            running.kill_all()  # what it has started, and itself if this task is cancelled
        await asyncio.wait({ended}, timeout=KILLED_S_MAX)
        code = ended.result() if ended.done() else None
        ended.cancel()
        self.status = replace(self.status, ended=how_it_ended(code), exit_code=code)
        return code

    async def _until_ended(self, running: RunningProcess, ended: asyncio.Future[int | None]) -> None:
        """Wait for the end of the process; ask it to end when it is to stop, and return after its grace."""
        stopping = asyncio.ensure_future(self.stopping.wait())
        try:
            futures: set[asyncio.Future[Any]] = {ended, stopping}
            await asyncio.wait(futures, return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopping.cancel()
        if not ended.done():
            self._report(SupervisedPhase.STOPPING, process=running.id)
            running.terminate()
            await asyncio.wait({ended}, timeout=self.grace_s)

    def rotate_log(self) -> None:
        with suppress(OSError):  # a full disk: the process goes on, and its log is looked at again
            self._command.log.rotate()

    def _log(self, text: str) -> None:
        with suppress(OSError):
            self._command.log.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} lmerge up: {self._command.name}: {text}")

    def _report(self, phase: SupervisedPhase, *, process: ProcessId | None = None, wait_s: float = 0.0) -> None:
        self.status = replace(self.status, phase=phase, process=process, wait_s=wait_s)
        self._on_change(self.status)


def how_it_ended(code: int | None) -> str:
    """Return an exit code as text; None: it is not known."""
    if code is None:
        return "it ended"
    if code < 0:
        with suppress(ValueError):
            return f"it was ended by {signal.Signals(-code).name}"
        return f"it was ended by signal {-code}"
    return f"it ended with exit code {code}"
