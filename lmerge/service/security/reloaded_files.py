"""Small files that a server reads again when they change: the helpers that both kinds share."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from lmerge.errors import UsageError

# Some 3,000 entries of an access file, hundreds of certificates. Read on the server's loop, where it costs about 10 ms.
FILE_BYTES_MAX: Final = 2**20


def stamp_of(path: Path) -> tuple[int, int, int] | None:
    """Return a value that changes when the file is written or replaced, also behind a symbolic link.

    None: there is no such file.
    """
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino


def read_bounded(what: str, path: Path) -> bytes:
    """Read the file. ``what``: its kind, for messages. Raises UsageError if it cannot be read or is too large."""
    try:
        with path.open("rb") as file:
            data = file.read(FILE_BYTES_MAX + 1)
    except OSError as problem:
        raise UsageError(f"{what} {str(path)!r} cannot be read: {problem.strerror}") from None
    if len(data) > FILE_BYTES_MAX:
        raise UsageError(f"{what} {str(path)!r} is larger than {FILE_BYTES_MAX} bytes, the limit")
    return data
