"""``serve --record``: what a merge was told, as a recorded session (DESIGN 9), one file a merge.

Written in the order in which the merge was told, so ``lmerge replay`` with the same algorithm, policy and closing
prints what the subscribers got. Of an input that broke its promise the offending element is the last that is
written; replay finds the same fault. Only what the merge accepted is written: refused attaches and elements of
fenced incarnations are not. A newer incarnation that takes a live input's place is written as detach and attach.

A merge that begins anew behind a gap (``standstill``) is a fresh one, and so is its session: what follows is in
``<file>.1``, after the next gap in ``<file>.2``.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from urllib.parse import quote

from lmerge.core.batch import AnyBatch
from lmerge.core.session import format_admit, format_attach, format_detach, format_row
from lmerge.errors import UsageError
from lmerge.files import write_text


def record_file(template: str, merge: str) -> Path:
    """The file for ``merge``: its name, with anything but letters, digits and ``-._~`` escaped, for ``{merge}``."""
    return Path(template.replace("{merge}", quote(merge, safe="")))


class Recorder:
    """Appends to one session file. Opened anew: a session starts with a fresh merge."""

    def __init__(self, path: Path) -> None:
        """Raises UsageError if the file cannot be written."""
        self._path = path
        self._sessions = 1
        try:
            self._file = write_text(path)
        except OSError as problem:
            raise UsageError(f"cannot record to {str(path)!r}: {problem.strerror}") from problem

    def begin_anew(self) -> None:
        """The merge is a fresh one from here on, and this is another session."""
        self._file.close()
        path = self._path.with_name(f"{self._path.name}.{self._sessions}")
        self._sessions += 1
        self._file = write_text(path)

    def attached(self, name: str, properties: Iterable[str], join_at: int | None, role: str) -> None:
        self._file.write(format_attach(name, properties, join_at, role) + "\n")

    def admitted(self, name: str) -> None:
        self._file.write(format_admit(name) + "\n")

    def applied(self, name: str, batch: AnyBatch, count: int) -> None:
        """The first ``count`` elements of ``batch`` were told to the merge."""
        rows = batch.rows()
        self._file.writelines(format_row(next(rows), name) + "\n" for _ in range(count))

    def detached(self, name: str) -> None:
        self._file.write(format_detach(name) + "\n")

    def flush(self) -> None:
        """Called once a turn: what subscribers have got is in the file."""
        self._file.flush()

    def close(self) -> None:
        self._file.close()
