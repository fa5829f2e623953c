"""Files that only their owner may read: what servers and commands write holds payloads, names and secrets.

The mode is set when a file is made, so there is no moment in which others could open it; the umask can take
rights away and cannot add any. A file or folder that exists already keeps its mode.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

PRIVATE_FILE: Final = 0o600
PRIVATE_FOLDER: Final = 0o700
# For files that hold no secret and are made for other programs, such as the ports of a server.
PUBLIC_FILE: Final = 0o644


def make_folder(path: Path) -> None:
    """Make ``path``, and the folders above it that are missing, for their owner only. Raises OSError."""
    missing = []
    for folder in (path, *path.parents):
        if folder.is_dir():
            break
        missing.append(folder)
    for folder in reversed(missing):
        folder.mkdir(PRIVATE_FOLDER, exist_ok=True)


def make_file(path: Path) -> None:
    """Make ``path`` for its owner only, empty, if there is none. Raises OSError."""
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT, PRIVATE_FILE))


def write_bytes(path: Path, data: bytes) -> None:
    """Write ``data`` to ``path``, which may be a device. A new file is made for its owner only. Raises OSError."""
    with open(opened(path), "wb") as file:
        file.write(data)


def replace(path: Path, data: bytes, *, sync: bool = True, mode: int = PRIVATE_FILE) -> None:
    """Make ``data`` the whole content of ``path``.

    A reader finds all of the old or all of the new, also after a kill, and with ``sync`` after a power failure. Raises
    OSError.
    """
    written = path.with_name(f".{path.name}.new")
    with open(os.open(written, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode), "wb") as file:
        file.write(data)
        if sync:
            file.flush()
            os.fsync(file.fileno())
    written.replace(path)
    if sync:
        sync_path(path.parent)


def sync_path(path: Path) -> None:
    """Make what is in a file, or the names in a folder, survive a power failure. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def opened(path: Path) -> int:
    """Return a descriptor of ``path`` for writing; made for its owner only, emptied if it is there. Raises OSError."""
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, PRIVATE_FILE)
