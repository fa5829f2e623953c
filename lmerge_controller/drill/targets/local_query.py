"""A query that `lmerge up` runs on this machine: its servers and its replicas are killed and frozen.

The supervisor of the query keeps them. So the drill starts nothing again: it waits until the supervisor has done it. A
process is named by its id and its start time, as the supervisor has recorded both.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

from lmerge.errors import Unavailable, UsageError
from lmerge_controller.drill.journal import UndoJournal
from lmerge_controller.drill.process_marks import mark_of
from lmerge_controller.drill.scenario import DrillStep
from lmerge_controller.drill.targets.target import AddressedTarget, Break, Undo
from lmerge_controller.drill.undo import continue_group
from lmerge_controller.local.process_table import ProcessId
from lmerge_controller.local.state_folder import StateFolder
from lmerge_controller.local.status_file import LocalStatus, status_of

POLL_S: Final = 0.02
# A supervisor waits up to some ten seconds between restarts; a process of Spark takes as long to start.
RESTART_S_MAX: Final = 90.0
# A server that answers late lets a replica look as if it had not joined, until the supervisor looks again.
SETTLE_S_MAX: Final = 10.0


class LocalQueryTarget(AddressedTarget):
    """The processes of one query. Servers that it does not run itself cannot be broken."""

    def __init__(self, folder: StateFolder, journal: UndoJournal, security: Any = None) -> None:
        """Read what runs. Raises UsageError if the query is not up, or goes on changing for ``SETTLE_S_MAX``."""
        self._folder, self._journal = folder, journal
        status = _settled_status(folder)
        super().__init__(status.addresses, security)
        self._names = {
            "server": _names(status, "server"),
            "input": [name for name in _names(status, "replica") if name in status.joined],
        }
        self.merge = status.merge

    @property
    def title(self) -> str:
        return f"query {self._folder.name} of lmerge up, servers {', '.join(self._addresses)}"

    @property
    def breaks(self) -> Mapping[str, Break]:
        kinds = {"kill": self._kill, "freeze": self._freeze}
        return {f"{fault} {kind}": kinds[fault] for kind, names in self._names.items() if names for fault in kinds}

    @property
    def numbers(self) -> Mapping[str, int]:
        return {kind: len(names) for kind, names in self._names.items()}

    def check(self) -> None:
        if self._folder.holder() is None:
            raise Unavailable(f"the supervisor of {self._folder.name} has died; lmerge up goes on")

    def _kill(self, number: int, step: DrillStep) -> Undo:
        name, process = self._victim(number, step)
        process.signal(signal.SIGKILL)
        return lambda: self._wait_for_another(name, process)

    def _freeze(self, number: int, step: DrillStep) -> Undo:
        """Stop a process and what it has started: a replica may be a shell around the program that publishes."""
        _, process = self._victim(number, step)
        mark = mark_of(process.pid)
        note = self._journal.note("continue-group", pid=process.pid, mark=mark)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGSTOP)  # each process of a query leads a group

        def undo() -> None:
            continue_group(process.pid, mark)
            self._journal.done(note)

        return undo

    def _victim(self, number: int, step: DrillStep) -> tuple[str, ProcessId]:
        kind = step.victim.kind.value
        names = self._names[kind]
        if number > len(names):
            raise UsageError(f"{self._folder.name} has {len(names)} {kind}s, and no number {number}")
        name = names[number - 1]
        found = self._process(name)
        if found is None or not found.is_alive:
            raise Unavailable(f"{name} of {self._folder.name} does not run")
        return name, found

    def _process(self, name: str) -> ProcessId | None:
        value: Any = self._folder.read("processes").get(name)
        with suppress(KeyError, TypeError, ValueError):
            return ProcessId(int(value["pid"]), str(value["started"]))
        return None

    def _wait_for_another(self, name: str, old: ProcessId) -> None:
        """Wait until the supervisor has started a process again. Raises Unavailable if it does not in time."""
        until_s = time.monotonic() + RESTART_S_MAX
        while True:
            self.check()
            found = self._process(name)
            if found is not None and found != old and found.is_alive:
                return
            if time.monotonic() >= until_s:
                raise Unavailable(f"{name} was not started again within {RESTART_S_MAX:.0f} s")
            time.sleep(POLL_S)


def status_of_query(folder: StateFolder) -> LocalStatus:
    """Return the status of a query that is up. Raises UsageError if it is not."""
    status = status_of(folder.read("status"))
    if folder.holder() is None or status is None or not status.addresses:
        raise UsageError(f"query {folder.name} is not up in {str(folder.path.parent)!r}: lmerge up FILE starts one")
    return status


def _settled_status(folder: StateFolder) -> LocalStatus:
    """Return the status of a query whose replicas have joined, or some are lost for good. Raises UsageError."""
    until_s = time.monotonic() + SETTLE_S_MAX
    while True:
        status = status_of_query(folder)
        is_changing = status.is_true("Progressing")
        if not is_changing and 0 < status.replicas_count <= len(status.joined):
            return status
        if time.monotonic() > until_s:
            break
        time.sleep(POLL_S)
    if is_changing or not status.joined:
        joined = f"{len(status.joined)} of {status.replicas_count} replicas have joined"
        raise UsageError(f"{folder.name} is about to change: {joined}; {status.condition('Progressing')['message']}")
    return status


def _names(status: LocalStatus, kind: str) -> list[str]:
    names = [str(process["name"]) for process in status.processes if process["kind"] == kind]
    return sorted(names, key=lambda name: (len(name), name))  # by number: server-2 before server-10
