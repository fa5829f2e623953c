"""The backend for processes of this machine. Called by the loop; ``lmerge_controller.backend`` is its contract.

The supervisor starts a process again that has ended, as the kubelet does on Kubernetes: such a process is RESTARTING.
The plan decides everything else. A replica whose work is complete (exit code 0) has EXITED.

Every change is recorded in the state folder: an adopting supervisor finds the processes there, and `lmerge down` too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from lmerge import clock
from lmerge.errors import UsageError
from lmerge.time_limit import time_limit
from lmerge_controller.backend import ActionOutcome
from lmerge_controller.local.part_commands import addresses, replica_command, rule_of, server_command, server_name
from lmerge_controller.local.process_table import ProcessId, end_all
from lmerge_controller.local.spawn import ProcessCommand, RunningProcess, Spawner
from lmerge_controller.local.state_folder import StateFolder
from lmerge_controller.local.status_file import LocalStatus
from lmerge_controller.local.supervisor import ProcessStatus, SupervisedPhase, Supervisor
from lmerge_controller.model.query import ReplicatedQuery
from lmerge_controller.plan.actions import ProcessAction, ReplaceReplica, StartReplica, StartServer, StopServer
from lmerge_controller.plan.conditions import QueryPlan
from lmerge_controller.plan.observed import ObservedProcess, ProcessPhase, RunningParts
from lmerge_controller.plan.record import Record, record_of

# A replica that is replaced does not answer, lags or is wrong: it has little to finish.
REPLACED_GRACE_S: Final = 1.0

_PHASES: Final = {
    SupervisedPhase.STARTING: ProcessPhase.STARTING,
    SupervisedPhase.RUNNING: ProcessPhase.RUNNING,
    SupervisedPhase.WAITING: ProcessPhase.RESTARTING,
    SupervisedPhase.COMPLETE: ProcessPhase.EXITED,
    SupervisedPhase.STOPPING: ProcessPhase.STOPPING,
    SupervisedPhase.STOPPED: ProcessPhase.STOPPING,
}


@dataclass(frozen=True)
class LocalPart:
    """What the supervisor does not need of a process: which part of the query it is, and when its lives were."""

    is_server: bool
    version: str = ""
    index: int = 0
    fingerprint: str = ""
    role: str = "active"
    started_at_s: float = 0.0
    exited_at_s: float | None = None
    life: str = ""


class LocalBackend:
    """The processes of one query. An async context manager that ends all of them.

    ``on_status`` is called with each new status. ``query`` may be replaced at any time by another description of the
    same name; the next plan acts on it.
    """

    def __init__(
        self, query: ReplicatedQuery, state: StateFolder, spawner: Spawner, on_status: Callable[[LocalStatus], None]
    ) -> None:
        self.query = query
        self.supervisor = Supervisor(spawner, self._note)
        self._state = state
        self._spawner = spawner
        self._on_status = on_status
        self._parts: dict[str, LocalPart] = {}
        self._commands: dict[str, ProcessCommand] = {}
        self._changed = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._record: Record | None = None
        self._status = LocalStatus(query.name)

    async def __aenter__(self) -> LocalBackend:
        await self.supervisor.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for task in self._tasks:
            task.cancel()
        # Replicas leave while there are servers to leave from.
        await asyncio.gather(*(self.supervisor.stop(name) for name, part in self._of(is_server=False)))
        await self.supervisor.__aexit__(kind, error, trace)

    async def adopt(self, run: str) -> tuple[str, ...]:
        """Take the processes that an earlier supervisor of this run has left; end what cannot be taken.

        Returns the names of those that were taken.
        """
        recorded, taken = self._state.read("processes"), {}
        for name, value in recorded.items():
            found = await self._adopted(name, value)
            if found is not None:
                taken[name] = found
        kept = {running.id for running, _, _ in taken.values()}
        end_all(run, [process for process in self._state.recorded() if process not in kept], besides=taken)
        for name, (running, command, part) in taken.items():
            self._parts[name] = part
            self._keep(command, running)
        return tuple(taken)

    async def running(self) -> RunningParts:
        """Return what runs now, and the record."""
        return RunningParts(
            addresses=addresses(self.query, self._state),
            servers=tuple(self._observed(name) for name, _ in self._of(is_server=True)),
            replicas=tuple(self._observed(name) for name, _ in self._of(is_server=False)),
            record=self._stored_record(),
        )

    async def persist(self, record: Record) -> None:
        """Store the record. Raises UsageError."""
        if record != self._record:
            self._state.write("record", record.as_json(), sync=True)
            self._record = record

    async def act(self, action: ProcessAction) -> None:
        """Begin one change. Raises UsageError for a program that is not there."""
        if isinstance(action, StartServer):
            command = server_command(self.query, action.index, self._state)
            part = LocalPart(is_server=True, index=action.index, fingerprint=action.fingerprint)
            self._start(command, part)
        elif isinstance(action, StartReplica):
            self._start(self._command(action), _part_of(action))
        elif isinstance(action, ReplaceReplica):
            if self._is_life(action.replica, action.uid):
                self._begin(self._replace(self._command(action), _part_of(action)))
        else:
            name = server_name(action.index) if isinstance(action, StopServer) else action.replica
            if self._is_life(name, action.uid):
                self._begin(self.supervisor.stop(name))

    async def report(self, plan: QueryPlan, outcomes: Sequence[ActionOutcome]) -> None:
        """Show decisions and conditions in the status file, and in the log of the run."""
        now_s = clock.wall_us() / 1e6
        self._publish(
            replace(
                self._status.after(plan, outcomes, now_s),
                merge=self.query.merge.name,
                addresses=addresses(self.query, self._state),
                processes=self._shown(),
            )
        )

    async def wait(self, timeout_s: float) -> None:
        """Return when a process has started or ended, or the description was replaced, or after ``timeout_s``."""
        try:
            async with time_limit(timeout_s):
                await self._changed.wait()
        except asyncio.TimeoutError:
            return
        self._changed.clear()

    def answer(self, request: str, refusal: str) -> None:
        """Show that a request was taken, or why it was refused, and let the loop look."""
        count = self._status.replicas_count if refusal else 0  # not settled until the next plan
        self._publish(replace(self._status, request=request, refusal=refusal, replicas_count=count))
        self.wake()

    @property
    def running_names(self) -> frozenset[str]:
        """The processes that the supervisor keeps."""
        return frozenset(self.supervisor.statuses)

    def wake(self) -> None:
        """End the present ``wait``."""
        self._changed.set()

    # What runs.

    def _of(self, *, is_server: bool) -> list[tuple[str, LocalPart]]:
        return [
            (name, self._parts[name]) for name in self.supervisor.statuses if self._parts[name].is_server is is_server
        ]

    def _observed(self, name: str) -> ObservedProcess:
        part, status = self._parts[name], self.supervisor.statuses[name]
        return ObservedProcess(
            name=name,
            uid=part.life,
            phase=_PHASES[status.phase],
            version=part.version,
            index=part.index,
            fingerprint=part.fingerprint,
            role=part.role,
            started_at_s=part.started_at_s,
            exits=status.exits,
            exited_at_s=part.exited_at_s,
            exit_code=status.exit_code,
            problem=self._problem(status),
        )

    def _problem(self, status: ProcessStatus) -> str:
        """Return why a process does not run, with the last line of its log."""
        if status.phase is not SupervisedPhase.WAITING:
            return ""
        lines = [line for line in self._state.log(status.name).last_lines(20) if line.strip() and _OWN not in line]
        return f"{status.ended}; its log ends with: {lines[-1].strip()}" if lines else status.ended

    def _stored_record(self) -> Record | None:
        if self._record is None:
            try:
                self._record = record_of(self._state.read("record"))
            except (KeyError, TypeError, ValueError):
                return None
        return self._record

    def _is_life(self, name: str, uid: str) -> bool:
        status = self.supervisor.statuses.get(name)
        is_ending = status is not None and status.phase in (SupervisedPhase.STOPPING, SupervisedPhase.STOPPED)
        return status is not None and not is_ending and self._parts[name].life == uid

    # Changes.

    def _command(self, action: StartReplica | ReplaceReplica) -> ProcessCommand:
        started_s = clock.wall_us() / 1e6 if self._record is None else self._record.started_s
        return replica_command(self.query, action, started_s, self._state)

    def _start(self, command: ProcessCommand, part: LocalPart) -> None:
        status = self.supervisor.statuses.get(command.name)
        if status is None:
            self._parts[command.name] = part
            self._keep(command, None)
        elif status.phase is SupervisedPhase.COMPLETE:
            self._begin(self._replace(command, part))

    async def _replace(self, command: ProcessCommand, part: LocalPart) -> None:
        await self.supervisor.stop(command.name, grace_s=REPLACED_GRACE_S)
        self._start(command, part)

    def _keep(self, command: ProcessCommand, running: RunningProcess | None) -> None:
        self._commands[command.name] = command
        self.supervisor.start(command, rule_of(self.query), running)

    def _begin(self, change: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(change)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self.supervisor.fail(error)
        self.wake()

    def _note(self, status: ProcessStatus) -> None:
        """Note a change of a process: its times, the record for others, and that the loop should look."""
        now_s, part = clock.wall_us() / 1e6, self._parts[status.name]
        if status.process is not None and status.phase is SupervisedPhase.RUNNING:
            life = f"{status.process.pid}.{status.process.started}"
            part = replace(part, life=life, started_at_s=now_s if life != part.life else part.started_at_s)
        elif status.phase in (SupervisedPhase.WAITING, SupervisedPhase.COMPLETE):
            part = replace(part, exited_at_s=now_s, life=part.life or f"start-{status.starts}")
        self._parts[status.name] = part
        self._record_processes()
        shown = replace(self._status, processes=self._shown())
        if status.phase is SupervisedPhase.WAITING:
            text = f"{status.name}: {self._problem(status)}; it is started again in {status.wait_s:.1f} s"
            shown = shown.with_event(text, now_s, is_warning=True)
        elif status.phase is SupervisedPhase.COMPLETE:
            shown = shown.with_event(f"{status.name} has published everything", now_s)
        self._publish(shown)
        self.wake()

    def _record_processes(self) -> None:
        table = {
            name: {**asdict(status.process), "part": asdict(self._parts[name]), **_as_json(self._commands[name])}
            for name, status in self.supervisor.statuses.items()
            if status.process is not None
        }
        with suppress(UsageError):  # a full disk ends no stream; the mark of the run finds the processes too
            self._state.write("processes", table)

    async def _adopted(self, name: str, value: Any) -> tuple[RunningProcess, ProcessCommand, LocalPart] | None:
        try:
            process = ProcessId(int(value["pid"]), str(value["started"]))
            command = _command_of(name, value, self._state)
            part = LocalPart(**value["part"])
        except (KeyError, TypeError, ValueError):  # of another version of lmerge
            return None
        running = await self._spawner.adopt(process, name)
        return None if running is None else (running, command, part)

    # What is shown.

    def _shown(self) -> tuple[Mapping[str, Any], ...]:
        return tuple(
            {
                "name": name,
                "kind": "server" if part.is_server else "replica",
                "version": part.version,
                "role": part.role,
                "phase": str(status.phase.value),
                "pid": None if status.process is None else status.process.pid,
                "starts": status.starts,
                "since": part.started_at_s,
                "exits": status.exits,
                "problem": self._problem(status),
                "log": str(self._state.log(name).path),
            }
            for is_server in (True, False)
            for name, part in self._of(is_server=is_server)
            for status in (self.supervisor.statuses[name],)
        )

    def _publish(self, status: LocalStatus) -> None:
        if status != self._status:
            for event in status.events_after(self._status):
                with suppress(OSError):
                    self._state.log("up").write(event.text)
            self._status = status
            with suppress(UsageError):  # as well; `lmerge ps` then shows what was before
                self._state.write("status", status.as_json())
            self._on_status(status)


# In lines that the supervisor adds to a log.
_OWN: Final = " lmerge up: "


def _part_of(action: StartReplica | ReplaceReplica) -> LocalPart:
    return LocalPart(False, action.version, action.index, action.fingerprint, action.role)


def _as_json(command: ProcessCommand) -> dict[str, Any]:
    return {
        "argv": command.argv,
        "environment": dict(command.environment),
        "folder": str(command.folder),
        "grace_s": command.grace_s,
        "runs_once": command.runs_once,
        "prepare": command.prepare,
    }


def _command_of(name: str, value: Mapping[str, Any], state: StateFolder) -> ProcessCommand:
    return ProcessCommand(
        name,
        tuple(map(str, value["argv"])),
        state.log(name),
        environment=dict(value["environment"]),
        folder=Path(value["folder"]),
        grace_s=float(value["grace_s"]),
        runs_once=bool(value["runs_once"]),
        prepare=tuple(map(str, value["prepare"])),
    )
