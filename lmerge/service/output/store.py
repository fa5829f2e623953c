"""The SQLite file of one merge: its journal, and the state that must outlive the server.

It uses WAL, ``synchronous`` full unless set otherwise, and one transaction a commit. There is one connection, in
exclusive mode, used by one thread at a time.

The content is checked when the file is opened: SQLite's ``quick_check``, a checksum in every row, message numbers
without holes, and the number of commits against a mark beside the file. SQLite treats a torn tail of its log as a
transaction that was never finished. The mark shows that it was finished. The mark exists from the first commit on. A
mark that is gone, or empty, is reported (``mark_problem``): nothing proves then that no commit was lost at the end.

Everything here blocks: ``durable_merges`` calls it in a thread.
"""

from __future__ import annotations

import sqlite3
import threading
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple

from lmerge.errors import StoreDamaged, StoreFull, StoreInUse
from lmerge.files import make_file, replace
from lmerge.service.output.fanout import Message, encoded
from lmerge.service.output.journal import Segment
from lmerge.service.output.transaction import Changes
from lmerge.wire.frames import Frames
from lmerge.wire.limits import BatchLimits

VERSION: Final = 1
_APPLICATION: Final = 0x6C6D7267  # "lmrg"
# Messages are up to a megabyte where it matters: with pages of 8 KiB, writing and forgetting them took twice the CPU
# (5.6 ms a megabyte, and 2.7 with these); small ones cost the same.
_PAGE_BYTES: Final = 32_768
# The mark is replaced after every commit, but not synced each time: it has to survive a kill only, as SQLite's log
# survives everything else. It is synced once in so many seconds, so that a power failure leaves a whole mark.
_MARK_SYNC_S: Final = 1.0
# Free pages are used again. The file shrinks only when there are more than this many times as many free as used pages.
_FREE_FACTOR: Final = 2

_TABLES: Final = """
CREATE TABLE fact (name TEXT PRIMARY KEY, value BLOB, crc INTEGER) WITHOUT ROWID;
CREATE TABLE incarnation (replica TEXT PRIMARY KEY, newest TEXT, crc INTEGER) WITHOUT ROWID;
CREATE TABLE segment (number INTEGER PRIMARY KEY, first INTEGER, stable_point INTEGER, complete_from INTEGER,
                      bytes INTEGER, events INTEGER, crc INTEGER);
CREATE TABLE snapshot (segment INTEGER, part INTEGER, elements INTEGER, inserts INTEGER, data BLOB, crc INTEGER,
                       PRIMARY KEY (segment, part));
CREATE TABLE message (number INTEGER PRIMARY KEY, segment INTEGER, elements INTEGER, inserts INTEGER, data BLOB,
                      crc INTEGER);
"""


class LoadedStore(NamedTuple):
    """The content of a file. ``last``: the snapshot of the last segment and the messages since, in order."""

    facts: dict[str, bytes]
    incarnations: dict[str, int]
    segments: list[Segment]
    last: list[bytes]


class Store:
    """The file at ``path``, made by the first commit. ``pages_max``: SQLite's own bound of the file, in pages."""

    def __init__(self, path: Path, sync: str = "full", pages_max: int | None = None) -> None:
        self.path = path
        self._sync = sync
        self._pages_max = pages_max
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        self._is_closed = False
        self._commits = 0
        self._mark_synced_s = -_MARK_SYNC_S
        self.mark_problem: str | None = None  # found by ``load``
        self.bytes = 0  # of the file and SQLite's log, after the last commit

    @property
    def mark(self) -> Path:
        """The file that holds the number of commits."""
        return self.path.with_suffix(".mark")

    def commit(self, changes: list[Changes], frames: Frames, limits: BatchLimits) -> None:
        """Write all changes or none. Raises StoreDamaged; StoreFull if there is no room or the disk fails."""
        with self._lock, self._translated_errors():
            connection = self._open()
            connection.execute("BEGIN IMMEDIATE")
            try:
                for one in changes:
                    _write(connection, one, frames, limits)
                _put_fact(connection, "commits", b"%d" % (self._commits + 1))
                connection.execute("COMMIT")
            except BaseException:
                with suppress(sqlite3.Error):
                    connection.execute("ROLLBACK")
                raise
            self._commits += 1
            self._mark()
            self._measure()
            if any(one.forgotten or one.is_reset for one in changes):
                self._shrink(connection)

    def read(self, segment: int | None, start: int, end: int, bytes_max: int) -> list[Message]:
        """Read messages from number ``start`` to before ``end``, or parts of the snapshot of ``segment``.

        Returns up to ``bytes_max``, but at least one message. None if they are not retained any more. Raises
        StoreDamaged.
        """
        found: list[Message] = []
        size = 0
        table, where = ("message", "number") if segment is None else ("snapshot", "part")
        choice = "" if segment is None else f"segment = {segment} AND "
        with self._lock, self._translated_errors():
            rows = self._open().execute(
                f"SELECT {where}, segment, elements, inserts, data, crc FROM {table} "
                f"WHERE {choice}{where} >= ? AND {where} < ? ORDER BY {where}",
                (start, end),
            )
            for number, of, elements, inserts, data, crc in rows:
                self._check_row(f"{table} {number}", crc, data, number, of, elements, inserts)
                if number != start + len(found):  # those before it are forgotten
                    break
                if found and size + len(data) > bytes_max:
                    break
                found.append(Message(data, elements, inserts))
                size += len(data)
        return found

    def holds(self, segment: int) -> bool:
        """Whether the segment is retained. Raises StoreDamaged."""
        with self._lock, self._translated_errors():
            return self._open().execute("SELECT 1 FROM segment WHERE number = ?", (segment,)).fetchone() is not None

    def load(self) -> LoadedStore:
        """Open the file and check all of it. Raises StoreDamaged, StoreInUse, StoreFull; the file is closed then.

        No tables are made here: a file without tables is left of a first commit that found no room.
        """
        try:
            with self._lock:
                self._is_closed = False
                if not self.path.stat().st_size:  # opening it could roll back an unfinished commit, and so write
                    self._check_mark()
                    return LoadedStore({}, {}, [], [])
                return self._load(self._open(make=False))
        except StoreDamaged:
            self.close()
            raise
        except (sqlite3.Error, OSError, LookupError, ValueError, TypeError) as problem:
            self.close()
            if isinstance(problem, sqlite3.OperationalError) and "locked" in str(problem):
                raise StoreInUse(f"cannot use the store {self.path}: another process has it open") from problem
            if isinstance(problem, sqlite3.OperationalError) and "full" in str(problem):
                raise StoreFull(f"cannot read the store {self.path}: the disk is full") from problem
            raise self._damaged(str(problem)) from problem

    def close(self) -> None:
        """Close the file until the next ``load``. A late read or write could meet another server's file."""
        with self._lock:
            self._is_closed = True
            if self._connection is not None:
                with suppress(sqlite3.Error):
                    self._connection.close()
                self._connection = None

    # The connection.

    @contextmanager
    def _translated_errors(self) -> Iterator[None]:
        """Raise SQLite's errors as errors of lmerge."""
        try:
            yield
        except (sqlite3.OperationalError, OSError) as problem:
            text = "the disk is full" if "full" in str(problem) else f"the disk fails ({problem})"
            raise StoreFull(f"cannot write {self.path}: {text}; output is held until it can be written") from problem
        except sqlite3.DatabaseError as problem:
            raise self._damaged(str(problem)) from problem

    def _open(self, *, make: bool = True) -> sqlite3.Connection:
        """Return the connection; open it if needed. ``make``: also make the tables, if there are none."""
        if self._is_closed:
            raise StoreInUse(f"cannot use the store {self.path}: it was closed, and another process may use it")
        if self._connection is None:
            if make:
                make_file(self.path)  # SQLite gives its own files beside it the same mode
            connection = sqlite3.connect(self.path, timeout=1.0, isolation_level=None, check_same_thread=False)
            try:
                self._prepare(connection, make)
            except BaseException:
                connection.close()
                raise
            self._connection = connection
        return self._connection

    def _prepare(self, connection: sqlite3.Connection, make: bool) -> None:
        run = connection.execute
        run("PRAGMA locking_mode = EXCLUSIVE")
        is_blank = _is_blank(connection)
        if is_blank and not make:
            return
        if is_blank:  # these two write
            run(f"PRAGMA page_size = {_PAGE_BYTES}")
            run("PRAGMA auto_vacuum = INCREMENTAL")
        run("PRAGMA journal_mode = WAL")
        run(f"PRAGMA synchronous = {self._sync.upper()}")
        if self._pages_max is not None:
            run(f"PRAGMA max_page_count = {self._pages_max}")
        version = run("PRAGMA user_version").fetchone()[0]
        if is_blank:
            run("BEGIN IMMEDIATE")
            for statement in _TABLES.split(";")[:-1]:
                run(statement)
            run(f"PRAGMA application_id = {_APPLICATION}")
            run(f"PRAGMA user_version = {VERSION}")
            run("COMMIT")
            self._mark()  # for zero commits: from now on the mark always exists
        elif version != VERSION or run("PRAGMA application_id").fetchone()[0] != _APPLICATION:
            raise self._damaged(f"it is not a store of version {VERSION}")

    def _measure(self) -> None:
        with suppress(OSError):
            self.bytes = sum(path.stat().st_size for path in (self.path, self.path.with_name(self.path.name + "-wal")))

    def _shrink(self, connection: sqlite3.Connection) -> None:
        free = connection.execute("PRAGMA freelist_count").fetchone()[0]
        used = connection.execute("PRAGMA page_count").fetchone()[0] - free
        if free > _FREE_FACTOR * used:
            with suppress(sqlite3.OperationalError):  # a later commit tries again
                connection.execute(f"PRAGMA incremental_vacuum({free - used})").fetchall()

    # What is wrong with it.

    def _damaged(self, problem: str) -> StoreDamaged:
        return StoreDamaged(
            f"the store {self.path} is damaged ({problem}) and was not opened; put back a whole copy of it; or move "
            f"away {self.path.name} and the other files that begin with {self.path.stem}, or run lmerge reset, and the "
            "merge begins anew"
        )

    def _check_row(self, what: str, crc: object, data: object, *values: object) -> None:
        if not isinstance(data, bytes) or crc != _crc(data, *values):
            raise self._damaged(f"{what}: wrong checksum")

    def _mark(self) -> None:
        """Replace the mark as a whole: a kill in the middle leaves the one before."""
        now_s = time.monotonic()
        sync = now_s - self._mark_synced_s >= _MARK_SYNC_S
        with suppress(OSError):
            replace(self.mark, b"%d\n" % self._commits, sync=sync)
            self._mark_synced_s = now_s if sync else self._mark_synced_s

    def _check_mark(self) -> None:
        """Raise StoreDamaged if the mark counts more commits than the file. Set ``mark_problem`` if it has no count."""
        try:
            marked = int(self.mark.read_bytes())
        except FileNotFoundError:
            self.mark_problem = "it is gone"
        except OSError as problem:
            self.mark_problem = f"it cannot be read ({problem.strerror})"
        except ValueError:
            self.mark_problem = "it holds no number"
        if self.mark_problem is not None:
            if self._commits:
                self.mark_problem += f"; it is unknown whether commits after the {self._commits} in the file are lost"
                self._mark()
            else:
                self.mark_problem = None  # nothing was ever committed
            return
        if marked > self._commits:
            raise self._damaged(f"{marked} commits were made, and only {self._commits} are in it: its end is lost")

    def _load(self, connection: sqlite3.Connection) -> LoadedStore:
        if _is_blank(connection):
            self._check_mark()
            connection.close()
            self._connection = None
            return LoadedStore({}, {}, [], [])
        problems = [row[0] for row in connection.execute("PRAGMA quick_check(1)")]
        if problems != ["ok"]:
            raise self._damaged(problems[0])
        facts: dict[str, bytes] = {}
        for name, value, crc in connection.execute("SELECT name, value, crc FROM fact"):
            self._check_row(f"fact {name}", crc, value, name)
            facts[name] = value
        self._commits = int(facts.pop("commits", b"0"))
        self._check_mark()
        incarnations = {}
        for replica, newest, crc in connection.execute("SELECT replica, newest, crc FROM incarnation"):
            self._check_row(f"incarnation of {replica!r}", crc, b"", replica, newest)
            incarnations[replica] = int(newest)
        return LoadedStore(facts, incarnations, *self._load_journal(connection))

    def _load_journal(self, connection: sqlite3.Connection) -> tuple[list[Segment], list[bytes]]:
        segments: list[Segment] = []
        for *row, crc in connection.execute(
            "SELECT number, first, stable_point, complete_from, bytes, events, crc FROM segment ORDER BY number"
        ):
            self._check_row(f"segment {row[0]}", crc, b"", *row)
            segments.append(Segment(*row))
        last = []
        for part, of, elements, inserts, data, crc in connection.execute(
            "SELECT part, segment, elements, inserts, data, crc FROM snapshot ORDER BY segment, part"
        ):
            self._check_row(f"snapshot {of}, part {part}", crc, data, part, of, elements, inserts)
            if of == segments[-1].number:
                last.append(data)
        self._load_messages(connection, {segment.number: segment for segment in segments}, segments, last)
        return segments, last

    def _load_messages(
        self, connection: sqlite3.Connection, by_number: dict[int, Segment], segments: list[Segment], last: list[bytes]
    ) -> None:
        due = segments[0].first if segments else None
        for number, of, elements, inserts, data, crc in connection.execute(
            "SELECT number, segment, elements, inserts, data, crc FROM message ORDER BY number"
        ):
            self._check_row(f"message {number}", crc, data, number, of, elements, inserts)
            if due is None or number != due:
                raise self._damaged(f"message {number} stands where message {due} should be")
            due += 1
            segment = by_number[of]
            segment.next = due
            segment.message_bytes += len(data)
            segment.inserts += inserts
            if segment is segments[-1]:
                last.append(data)
        if due is not None and segments[-1].next != due:
            raise self._damaged(f"message {segments[-1].first} is missing")


def _write(connection: sqlite3.Connection, changes: Changes, frames: Frames, limits: BatchLimits) -> None:
    run = connection.execute
    if changes.is_reset:
        for table in ("fact", "incarnation", "segment", "snapshot", "message"):
            run(f"DELETE FROM {table}")
    for name, value in changes.facts.items():
        _put_fact(connection, name, value)
    for replica, incarnation in changes.incarnations.items():
        if incarnation is None:
            run("DELETE FROM incarnation WHERE replica = ?", (replica,))
            continue
        row = (replica, str(incarnation))
        run("INSERT OR REPLACE INTO incarnation VALUES (?, ?, ?)", (*row, _crc(b"", *row)))
    for segment in changes.segments:
        plain = segment[:-1]
        run("INSERT INTO segment VALUES (?, ?, ?, ?, ?, ?, ?)", (*plain, _crc(b"", *plain)))
        for part, message in enumerate(encoded([segment.live], frames, limits)):
            key = (part, segment.number, message.elements, message.inserts)
            run(
                "INSERT INTO snapshot (part, segment, elements, inserts, data, crc) VALUES (?, ?, ?, ?, ?, ?)",
                (*key, message.data, _crc(message.data, *key)),
            )
    connection.executemany(
        "INSERT INTO message VALUES (?, ?, ?, ?, ?, ?)",
        (
            (number, segment, elements, inserts, data, _crc(data, number, segment, elements, inserts))
            for number, segment, data, elements, inserts in changes.messages
        ),
    )
    for number in changes.forgotten:
        run("DELETE FROM snapshot WHERE segment = ?", (number,))
        run("DELETE FROM segment WHERE number = ?", (number,))
    if changes.forgotten:
        run("DELETE FROM message WHERE number < (SELECT coalesce(min(first), 9223372036854775807) FROM segment)")


def _is_blank(connection: sqlite3.Connection) -> bool:
    """Whether no table has ever been made."""
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    return version == 0 and not connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]


def _put_fact(connection: sqlite3.Connection, name: str, value: bytes) -> None:
    connection.execute("INSERT OR REPLACE INTO fact VALUES (?, ?, ?)", (name, value, _crc(value, name)))


def _crc(data: bytes, *values: object) -> int:
    return zlib.crc32(data, zlib.crc32(repr(values).encode()))
