"""The undo journal of a drill: what must be undone is on disk before it is done.

Called by the runner and by ``lmerge drill undo``. A journal is a file of JSON lines, one drill a file. An entry is
written and synced before its fault, and a second line when it was undone. So a drill that is interrupted, even by
SIGKILL, leaves the list of what is still broken. The journal is locked while its drill runs; what is not locked and not
empty is left over.
"""

from __future__ import annotations

import fcntl
import json
import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from lmerge import files
from lmerge.errors import StoreDamaged, UsageError

SUFFIX: Final = ".journal"


@dataclass(frozen=True)
class UndoEntry:
    """One thing to undo. ``action``: a name of ``undo.ACTIONS``; ``values``: its arguments, as JSON."""

    number: int
    action: str
    values: dict[str, Any]


def default_folder() -> Path:
    """Return the folder of the journals: in the user's state (XDG).

    Without a home that can be written, as in a container, it is in the temporary folder. Raises UsageError if that one
    belongs to another user, because a journal holds commands.
    """
    state = os.environ.get("LMERGE_STATE") or os.environ.get("XDG_STATE_HOME")
    if not state:
        home = os.path.expanduser("~")
        if not os.access(home, os.W_OK):
            folder = Path(tempfile.gettempdir()) / f"lmerge-drills-{os.getuid()}"
            if folder.exists() and folder.stat().st_uid != os.getuid():
                raise UsageError(f"{folder} belongs to another user: set LMERGE_STATE to a folder for journals")
            return folder
        state = os.path.join(home, ".local", "state")
    return Path(state) / "lmerge" / "drills"


class UndoJournal:
    """The journal of one drill, locked while it is open. Use it in a ``with``; an empty one is removed at the end."""

    def __init__(self, path: Path) -> None:
        """Open and lock ``path``; it is made if it is not there. Raises BlockingIOError if its drill still runs."""
        files.make_folder(path.parent)
        self.path = path
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, files.PRIVATE_FILE)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._pending = _read(path, self._file)
        except BaseException:
            os.close(self._file)
            raise
        self._number = max(self._pending, default=0)

    def __enter__(self) -> UndoJournal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._pending:
            self.path.unlink(missing_ok=True)
        os.close(self._file)

    @property
    def pending(self) -> list[UndoEntry]:
        """What is still to be undone, the newest first."""
        return [self._pending[number] for number in sorted(self._pending, reverse=True)]

    def note(self, action: str, **values: Any) -> int:
        """Write an entry, and sync it, before the thing is done. Return its number. Raises OSError."""
        self._number += 1
        entry = UndoEntry(self._number, action, values)
        self._write({"number": entry.number, "action": action, "values": values}, sync=True)
        self._pending[entry.number] = entry
        return entry.number

    def done(self, number: int) -> None:
        """Write that an entry was undone. Raises OSError."""
        if self._pending.pop(number, None) is not None:
            self._write({"done": number}, sync=False)

    def _write(self, line: dict[str, Any], *, sync: bool) -> None:
        os.write(self._file, json.dumps(line).encode() + b"\n")
        if sync:
            os.fsync(self._file)


def left_over(folder: Path) -> Iterator[UndoJournal]:
    """Yield the journals of drills that were interrupted, each open and locked."""
    for path in sorted(folder.glob(f"*{SUFFIX}")):
        try:
            journal = UndoJournal(path)
        except BlockingIOError:
            continue  # its drill runs
        with journal:
            yield journal


def _read(path: Path, opened: int) -> dict[int, UndoEntry]:
    """Return the entries that were not undone.

    The last line may be cut off, if the machine failed while it was written. Its fault did not follow, and it goes.
    """
    pending: dict[int, UndoEntry] = {}
    whole, _, rest = path.read_bytes().rpartition(b"\n")
    if rest:
        os.ftruncate(opened, len(whole) + 1 if whole else 0)
    for at, line in enumerate(whole.split(b"\n") if whole else ()):
        try:
            item = json.loads(line)
            if "done" in item:
                pending.pop(item["done"], None)
            else:
                pending[item["number"]] = UndoEntry(item["number"], str(item["action"]), dict(item["values"]))
        except (ValueError, TypeError, KeyError):
            raise StoreDamaged(f"line {at + 1} of the drill's journal {path} cannot be read: {line!r:.80}") from None
    return pending
