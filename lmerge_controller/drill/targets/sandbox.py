"""A sandbox: servers of the drill's own, as local processes. Nothing of the user's is touched.

Each server keeps its port over all its lives. Their folder, their processes and every fault are in the journal.
"""

from __future__ import annotations

import json
import resource
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from lmerge.demo.processes import READY_S_MAX, Child
from lmerge.errors import UsageError
from lmerge_controller.drill.journal import UndoJournal
from lmerge_controller.drill.probe.fleet import frozen
from lmerge_controller.drill.process_marks import mark_of
from lmerge_controller.drill.scenario import DrillNeeds, DrillStep
from lmerge_controller.drill.targets.target import Break, Undo

POLL_S: Final = 0.02
# Short intervals, so that versions are certified and lies are found within a drill of seconds.
INTERVAL_US: Final = 200_000


SERVER_ABILITIES: Final = ("kill server", "stop server", "freeze server", "fill-disk server")


class _SandboxServer:
    """One server over its lives."""

    def __init__(self, number: int, folder: Path, arguments: list[str], journal: UndoJournal) -> None:
        self._number, self._folder, self._arguments, self._journal = number, folder, arguments, journal
        self.port = 0
        self._life = 0
        self._note = 0
        self.child: Child | None = None

    def start(self) -> None:
        """Start a process, without waiting."""
        self._life += 1
        ready = self._ready
        ready.unlink(missing_ok=True)
        arguments = ["serve", "--port", str(self.port), "--http-port", "-1", "--ready-file", str(ready)]
        name = f"server-{self._number}-{self._life}"
        self.child = Child(name, "lmerge", [*arguments, *self._arguments], self._folder, is_bound=True)
        self._note = self._journal.note("end-process", pid=self.child.pid, mark=mark_of(self.child.pid))

    def wait(self) -> None:
        """Wait until it serves. Raises Unavailable with its log."""
        assert self.child is not None
        deadline_s = time.monotonic() + READY_S_MAX
        while time.monotonic() < deadline_s:
            if self.child.exit_code is not None:
                raise self.child.failure("did not start")
            try:
                self.port = int(json.loads(self._ready.read_text())["port"])
                return
            except (OSError, ValueError):
                time.sleep(POLL_S)
        raise self.child.failure(f"was not ready after {READY_S_MAX:.0f} s")

    def end(self, *, within_s: float) -> None:
        """End the process: with SIGKILL at once if ``within_s`` is 0, otherwise with SIGTERM first."""
        if self.child is None:
            return
        if within_s:
            self.child.end(at_s=time.monotonic() + within_s)
        else:
            self.child.kill()
        self.child = None
        self._journal.done(self._note)

    @property
    def _ready(self) -> Path:
        return self._folder / f"server-{self._number}.json"


class ServerSandbox:
    """As many servers as a scenario needs, of the kind that it needs."""

    def __init__(self, needs: DrillNeeds, folder: Path, journal: UndoJournal) -> None:
        self._journal = journal
        self._servers = [
            _SandboxServer(number, folder, _arguments(needs, folder, number), journal)
            for number in range(1, needs.servers + 1)
        ]

    def __enter__(self) -> ServerSandbox:
        try:
            for server in self._servers:
                server.start()
            for server in self._servers:
                server.wait()
        except BaseException:
            self._end(0.0)
            raise
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._end(0.0)

    @property
    def title(self) -> str:
        count = len(self._servers)
        return f"a sandbox of {count} servers" if count > 1 else "a sandbox of one server"

    @property
    def addresses(self) -> list[str]:
        return [f"127.0.0.1:{server.port}" for server in self._servers]

    @property
    def security(self) -> Any:
        return None

    @property
    def breaks(self) -> Mapping[str, Break]:
        return dict(zip(SERVER_ABILITIES, (self._kill, self._stop, self._freeze, self._fill_disk)))

    @property
    def numbers(self) -> Mapping[str, int]:
        return {"server": len(self._servers)}

    def check(self) -> None:
        for server in self._servers:
            if server.child is not None and server.child.exit_code is not None:
                raise server.child.failure("has ended by itself")

    def _kill(self, number: int, step: DrillStep) -> Undo:
        server = self._servers[number - 1]
        server.end(within_s=0.0)
        return lambda: _again(server)

    def _stop(self, number: int, step: DrillStep) -> Undo:
        server = self._servers[number - 1]
        server.end(within_s=READY_S_MAX)
        return lambda: _again(server)

    def _freeze(self, number: int, step: DrillStep) -> Undo:
        return frozen(self._journal, _pid(self._servers[number - 1]))

    def _fill_disk(self, number: int, step: DrillStep) -> Undo:
        """Let every write of the server to a file fail, as on a full disk, by a limit of its process."""
        if not hasattr(resource, "prlimit"):
            raise UsageError("only Linux can limit the files of a process that runs")
        pid = _pid(self._servers[number - 1])
        soft, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
        note = self._journal.note("restore-file-limit", pid=pid, mark=mark_of(pid), soft=soft)
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (0, hard))

        def undo() -> None:
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (soft, hard))
            self._journal.done(note)

        return undo

    def _end(self, within_s: float) -> None:
        for server in self._servers:
            server.end(within_s=within_s)


def _again(server: _SandboxServer) -> None:
    server.start()
    server.wait()


def _pid(server: _SandboxServer) -> int:
    assert server.child is not None
    return server.child.pid


def _arguments(needs: DrillNeeds, folder: Path, number: int) -> list[str]:
    arguments = ["--certify-interval", str(INTERVAL_US)]
    if needs.compared:
        arguments += ["--on-divergence", "majority"]
    if needs.durable:
        arguments += ["--store", str(folder / f"store-{number}")]
    return arguments
