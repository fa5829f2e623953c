"""The disk of a simulated server: a folder of real files that survives a crash as it would on a real disk.

A crash leaves what was written. A function that was writing in a thread at that moment, and had not ended yet, may
have written a part: SQLite's log is cut at a random byte of what the function has added, and what is written after the
log is as it was before. A full disk raises SQLite's own error where SQLite would raise it, and the system's own error
for a file of text.
"""

from __future__ import annotations

import errno
import io
import shutil
import sqlite3
from pathlib import Path
from random import Random
from typing import Any, Final

from lmerge.testing.sim.loop import PROCESS

#: The first keywords of statements that need room.
WRITES: Final = ("INSERT", "UPDATE", "REPLACE", "CREATE", "COMMIT", "DELETE")


class Disk:
    """The folder of one server over its lives. Each life has a copy of its own, because a dead process holds locks."""

    def __init__(self, folder: Path, random: Random) -> None:
        self.is_full = False
        self._folder = folder
        self._random = random
        self._lives = 0
        self._logs: dict[Path, int] = {}  # sizes of log files before the function that is running
        self._marks: dict[Path, bytes | None] = {}  # the small files beside them
        self.path.mkdir(parents=True)

    @property
    def path(self) -> Path:
        """The folder of the present life."""
        return self._folder / str(self._lives)

    def crash(self) -> None:
        """Kill the process; the next one finds what it has left."""
        left = self.path
        self._lives += 1
        shutil.copytree(left, self.path, ignore=shutil.ignore_patterns("*-shm"))
        for before, size in self._logs.items():
            log = self.path / before.name
            if log.exists() and log.stat().st_size > size and self._random.random() < 0.7:
                with log.open("r+b") as file:
                    file.truncate(self._random.randint(size, log.stat().st_size - 1))
                self._restore_marks()
        self.function_ends()

    def function_begins(self) -> None:
        """Note the files before a function writes."""
        stores = sorted(self.path.glob("*.lmerge"))
        self._logs = {path: _size(path) for path in (store.with_name(store.name + "-wal") for store in stores)}
        self._marks = {path: _content(path) for path in (store.with_suffix(".mark") for store in stores)}

    def function_ends(self) -> None:
        """Note that the function has ended, and its caller has been notified."""
        self._logs, self._marks = {}, {}

    def _restore_marks(self) -> None:
        for before, content in self._marks.items():
            mark = self.path / before.name
            if content is None:
                mark.unlink(missing_ok=True)
            else:
                mark.write_bytes(content)


class DiskConnection(sqlite3.Connection):
    """A connection of a process whose disk may be full."""

    def execute(self, sql: str, *parameters: Any) -> sqlite3.Cursor:
        _check_room(sql)
        return super().execute(sql, *parameters)

    def executemany(self, sql: str, *parameters: Any) -> sqlite3.Cursor:
        _check_room(sql)
        return super().executemany(sql, *parameters)

    def commit(self) -> None:
        if self.in_transaction:
            _check_room("COMMIT")
        super().commit()


def connect(database: Any, *args: Any, **options: Any) -> sqlite3.Connection:
    """Connect as ``sqlite3.connect`` does, on the disk of the calling process."""
    options.setdefault("factory", DiskConnection)
    connection = _connect(database, *args, **options)
    assert isinstance(connection, sqlite3.Connection)
    return connection


_connect: Final = sqlite3.connect


class File(io.FileIO):
    """A file of text on the disk of the process that opens it. A dead process writes nothing."""

    def __init__(self, file: Any, mode: str) -> None:
        super().__init__(file, mode)
        self._process: Any = PROCESS.get()

    def __del__(self) -> None:
        self.close()  # the system silently closes the files of a dead process

    def write(self, data: Any) -> int:
        if not self._process.is_alive:
            return memoryview(data).nbytes
        if self._process.disk.is_full:
            raise OSError(errno.ENOSPC, "No space left on device")
        return super().write(data)


def _check_room(sql: str) -> None:
    disk = getattr(PROCESS.get(), "disk", None)
    if isinstance(disk, Disk) and disk.is_full and sql.lstrip().upper().startswith(WRITES):
        raise sqlite3.OperationalError("database or disk is full")


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _content(path: Path) -> bytes | None:
    return path.read_bytes() if path.exists() else None
