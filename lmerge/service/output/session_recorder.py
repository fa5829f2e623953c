"""``serve --record``: writes what a merge received as a recorded session (docs/session-format.md), one file a merge.

The order is that in which the merge received it. So ``lmerge replay`` with the same algorithm, policy and closing
prints what the subscribers got. If an input broke its promise, its last line is the offending element, and replay finds
the same violation. Only what the merge accepted is written: refused attaches and elements of fenced incarnations are
not. A newer incarnation that takes a live input's place is written as detach and attach.

A merge that begins anew behind a gap (``stalled_merge``) is a fresh one and gets a new session: what follows is in
``<file>.1``, after the next gap in ``<file>.2``.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Iterable
from contextlib import suppress
from io import FileIO
from pathlib import Path
from typing import Final
from urllib.parse import quote

from lmerge.core.batch import AnyBatch
from lmerge.core.session import format_admit, format_attach, format_detach, format_excuse, format_row
from lmerge.errors import UsageError
from lmerge.files import opened
from lmerge.service import log

RECORDING: Final = "recording"
_NO_ROOM: Final = (errno.ENOSPC, errno.EDQUOT, errno.EIO)


def record_file(template: str, merge: str) -> Path:
    """Return the file for ``merge``: ``{merge}`` is replaced by its name.

    All characters of the name but letters, digits and ``-._~`` are escaped.
    """
    return Path(template.replace("{merge}", quote(merge, safe="")))


class Recorder:
    """Writes one session file. An existing file is replaced: a session starts with a fresh merge.

    A disk that is full, or fails, ends the recording and not the merge. The file is cut off behind the last turn that
    is whole in it, so it can be replayed, and nothing more is written. Later input cannot be replayed without the
    missing part. So a recording begins again only with a fresh merge: behind a gap, or after a restart of the server.
    ``status``: ``recording``, or why it has stopped.
    """

    def __init__(self, path: Path) -> None:
        """Open the file. Raises UsageError if it cannot be written, for another reason than a full disk."""
        self.status = RECORDING
        self._path = path
        self._sessions = 1
        self._turn: list[str] = []
        self._whole_bytes = 0  # counted here: the file may be a pipe, which has no size
        self._file: FileIO | None = None
        try:
            self._open(path)
        except OSError as problem:
            if problem.errno not in _NO_ROOM:
                raise UsageError(f"cannot record to {str(path)!r}: {problem.strerror}") from problem
            self._stop(problem)

    @property
    def has_stopped(self) -> bool:
        """Whether a disk has ended the recording."""
        return self.status != RECORDING

    def begin_anew(self) -> None:
        """Begin another session: the merge is a fresh one from now on."""
        self.flush()
        self.close()
        path = self._path.with_name(f"{self._path.name}.{self._sessions}")
        self._sessions += 1
        try:
            self._open(path)
        except OSError as problem:
            self._stop(problem)

    def attached(self, name: str, properties: Iterable[str], join_at: int | None, role: str) -> None:
        self._write(format_attach(name, properties, join_at, role))

    def admitted(self, name: str) -> None:
        self._write(format_admit(name))

    def excused(self, name: str) -> None:
        self._write(format_excuse(name))

    def applied(self, name: str, batch: AnyBatch, count: int) -> None:
        """Write the first ``count`` elements of ``batch``: those that the merge has read."""
        if self._file is not None:
            rows = batch.rows()
            self._turn += [format_row(next(rows), name) + "\n" for _ in range(count)]

    def detached(self, name: str) -> None:
        self._write(format_detach(name))

    def flush(self) -> None:
        """Write the turn to the file. Called once a turn, before its output is released."""
        turn, self._turn = self._turn, []
        if self._file is None or not turn:
            return
        rest = memoryview("".join(turn).encode())
        whole = self._whole_bytes + len(rest)
        try:
            while rest:
                rest = rest[self._file.write(rest) :]
            self._whole_bytes = whole
        except OSError as problem:
            with suppress(OSError):  # a pipe cannot be truncated
                self._file.truncate(self._whole_bytes)
            self._stop(problem)

    def close(self) -> None:
        if self._file is not None:
            with suppress(OSError):
                self._file.close()
            self._file = None

    def _open(self, path: Path) -> None:
        self._file = FileIO(opened(path), "w")
        self._whole_bytes = 0
        self.status = RECORDING

    def _write(self, line: str) -> None:
        if self._file is not None:
            self._turn.append(line + "\n")

    def _stop(self, problem: OSError) -> None:
        self.close()
        self.status = f"recording has stopped: {problem.strerror}"
        log.event(logging.ERROR, "recording stopped", file=str(self._path), problem=problem.strerror)
