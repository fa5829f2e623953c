"""The log of one process: what it writes to standard output and standard error, in a file of bounded size.

The process writes into the file itself. A pipe through the supervisor would make the process wait for the supervisor,
and would break with it. So the file cannot be renamed under the process. A log that is too long is copied to
``NAME.log.1``, and the file is emptied; the process appends at its new end. Lines that are written between the two
steps are lost. Copies move up to ``NAME.log.<copies>``, and the oldest is removed.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from lmerge.files import PRIVATE_FILE

# A server writes some hundred bytes for each input that comes or goes: 8 MB are weeks, and open at once in an editor.
LOG_BYTES_MAX: Final = 8_000_000
COPIES_MAX: Final = 2
# The end of the log that is read for an error message: more than any traceback that a person reads.
_TAIL_BYTES: Final = 65_536


@dataclass(frozen=True)
class LogFile:
    """The file at ``path`` and its older copies."""

    path: Path
    bytes_max: int = LOG_BYTES_MAX
    copies: int = COPIES_MAX

    def opened(self) -> int:
        """Return a descriptor for a process that appends. Raises OSError."""
        return os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, PRIVATE_FILE)

    def write(self, text: str) -> None:
        """Append a line of the supervisor's own. Raises OSError."""
        descriptor = self.opened()
        try:
            os.write(descriptor, f"{text}\n".encode("utf-8", "replace"))
        finally:
            os.close(descriptor)

    def rotate(self) -> bool:
        """Begin a new file if the present one is longer than ``bytes_max``. Return whether it did. Raises OSError."""
        try:
            if self.path.stat().st_size <= self.bytes_max:
                return False
        except FileNotFoundError:
            return False
        for number in range(self.copies - 1, 0, -1):
            if self.copy(number).exists():
                self.copy(number).replace(self.copy(number + 1))
        with self.path.open("rb") as old, open(os.open(self.copy(1), _NEW, PRIVATE_FILE), "wb") as copy:
            old.seek(-self.bytes_max, os.SEEK_END)  # a process may have written much more since the last look
            shutil.copyfileobj(old, copy)
        os.truncate(self.path, 0)
        return True

    def copy(self, number: int) -> Path:
        """Return the path of an older copy; 1 is the newest."""
        return self.path.with_name(f"{self.path.name}.{number}")

    def last_lines(self, count: int) -> list[str]:
        """Return the last lines; fewer, or none, if there are no more. Raises nothing: a log may be gone."""
        try:
            with self.path.open("rb") as file:
                file.seek(max(file.seek(0, os.SEEK_END) - _TAIL_BYTES, 0))
                return file.read().decode("utf-8", "replace").splitlines()[-count:]
        except OSError:
            return []


_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
