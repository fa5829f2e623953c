"""What `lmerge up` keeps in files: one folder for each query, so that another process can show, change and end it.

    .lmerge/NAME/            for its owner only; another base folder: --state DIR
        lock                 held by the supervisor as long as it lives; contains its process
        run.json             the mark of the run, and the ports of servers, which stay the same until `lmerge down`
        processes.json       the processes that run, as an adopting supervisor and `lmerge down` need them
        record.json          what the plan remembers
        status.json          what `lmerge ps` shows
        request.json         the description that a later `lmerge up` has asked the supervisor to take
        logs/, checkpoints/

Each file is replaced as a whole: a reader finds the old one or the new one. The lock is the system's (flock): it is
free as soon as its holder is dead, however it died.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import socket
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

from lmerge.errors import Unavailable, UsageError
from lmerge.files import PRIVATE_FILE, make_folder, replace
from lmerge_controller.local.log_file import LogFile
from lmerge_controller.local.process_table import ProcessId, process_id

DEFAULT_BASE: Final = Path(".lmerge")
HOST: Final = "127.0.0.1"
# What `lmerge down` removes. Logs stay for a look at what went wrong, until the next `lmerge up`.
_OF_A_RUN: Final = ("run.json", "processes.json", "record.json", "status.json", "request.json")


class QueryIsUp(Unavailable):
    """Another process has the lock of the query."""


@dataclass(frozen=True)
class StateFolder:
    """The files of one query. Methods that write raise UsageError if the folder cannot be written."""

    path: Path

    @property
    def name(self) -> str:
        """The name of the query."""
        return self.path.name

    def make(self) -> None:
        """Make the folder if it is not there. Raises UsageError."""
        try:
            for folder in (self.path, self.path / "logs", self.path / "checkpoints"):
                make_folder(folder)
        except OSError as problem:
            raise UsageError(f"cannot make the folder {str(self.path)!r}: {problem.strerror}") from None

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the lock in the block. Raises QueryIsUp, with the holder, if another process has it."""
        self.make()
        with open(os.open(self.path / "lock", os.O_RDWR | os.O_CREAT, PRIVATE_FILE), "r+") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise QueryIsUp(f"{self.name} is run by {self._holder_text()}") from None
            file.truncate()
            own = process_id(os.getpid())
            assert own is not None
            json.dump({"pid": own.pid, "started": own.started}, file)
            file.flush()
            try:
                yield
            finally:
                file.seek(0)
                file.truncate()

    def holder(self) -> ProcessId | None:
        """Return the supervisor that holds the lock now, or None."""
        try:
            file = (self.path / "lock").open("r+")
        except OSError:
            return None
        with file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return _process_of(_parsed(file.read()))
        return None

    def read(self, name: str) -> dict[str, Any]:
        """Return the content of ``NAME.json``; empty if there is none, or it is damaged."""
        try:
            return _parsed((self.path / f"{name}.json").read_text())
        except OSError:
            return {}

    def write(self, name: str, value: Mapping[str, Any], *, sync: bool = False) -> None:
        """Make ``value`` the content of ``NAME.json``. ``sync``: also after a power failure. Raises UsageError."""
        try:
            replace(self.path / f"{name}.json", json.dumps(value).encode() + b"\n", sync=sync)
        except OSError as problem:
            raise UsageError(f"cannot write {str(self.path / name)!r}.json: {problem.strerror}") from None

    def log(self, name: str) -> LogFile:
        """Return the log of a process."""
        return LogFile(self.path / "logs" / f"{name}.log")

    def run_mark(self) -> str:
        """Return the mark of the run, a new one if there is none."""
        run = self.read("run")
        if not isinstance(run.get("mark"), str):
            run["mark"] = uuid4().hex
            self.write("run", run)
        return str(run["mark"])

    def port(self, use: str, asked: int = 0) -> int:
        """Return the port for ``use``: ``asked``; if that is 0, a free one that stays the same until `lmerge down`."""
        if asked:
            return asked
        run = self.read("run")
        ports = run.setdefault("ports", {})
        if not isinstance(ports.get(use), int):
            ports[use] = free_port(taken=set(ports.values()))
            self.write("run", run)
        return int(ports[use])

    def give_up_port(self, use: str) -> None:
        """Forget the port for ``use``, which something else has taken."""
        run = self.read("run")
        if run.get("ports", {}).pop(use, None) is not None:
            self.write("run", run)

    def forget_run(self) -> None:
        """Remove what belongs to a run that has ended; logs stay."""
        for name in _OF_A_RUN:
            (self.path / name).unlink(missing_ok=True)
        shutil.rmtree(self.path / "checkpoints", ignore_errors=True)

    def recorded(self) -> list[ProcessId]:
        """Return the processes that the supervisor has recorded."""
        found = (_process_of(value) for value in self.read("processes").values() if isinstance(value, dict))
        return [process for process in found if process is not None]

    def _holder_text(self) -> str:
        with suppress(OSError):
            holder = _process_of(_parsed((self.path / "lock").read_text()))
            if holder is not None:
                return f"process {holder.pid}"
        return "another process"


def state_folders(base: Path) -> list[StateFolder]:
    """Return the folders of all queries below ``base``, by name."""
    with suppress(OSError):
        return [StateFolder(path) for path in sorted(base.iterdir()) if (path / "lock").is_file()]
    return []


def is_free(port: int) -> bool:
    """Whether a server could listen on a port of this machine now."""
    with closing(socket.socket()) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as servers do: a closed connection is no owner
        try:
            listener.bind((HOST, port))
        except OSError:
            return False
    return True


def free_port(taken: set[int]) -> int:
    """Return a port of this machine on which nothing listens, and that is not in ``taken``."""
    while True:
        with closing(socket.socket()) as listener:
            listener.bind((HOST, 0))
            port: int = listener.getsockname()[1]
            if port not in taken:
                return port


def _parsed(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _process_of(value: Mapping[str, Any]) -> ProcessId | None:
    pid, started = value.get("pid"), value.get("started")
    return ProcessId(pid, started) if isinstance(pid, int) and isinstance(started, str) else None
