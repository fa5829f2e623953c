"""Reads and writes the files of a spool. A file is written whole or not at all, on any file system of a checkpoint.

Called by ``record``, ``published_state`` and ``part_files``, which define the contents. A file is written under a
temporary name in the same folder and then moved to its place. So a reader finds the old file, the new one or none. This
is as durable as the checkpoint beside it, because Spark writes that in the same way.

There are two forms. Both carry a format version and checksums, because a file that is read wrong is published wrong:

    JSON     {"format": 1, "crc32": ..., "<kind>": {...}}    the sum is of the inner object, keys in order, no spaces
    frames   the line "lmerge-spool 1 <kind>", then frames: length and crc32 (32 bits, little-endian), and the bytes

One program after another writes a spool. A later version reads what an earlier one wrote, never the reverse: a larger
format version is refused.
"""

from __future__ import annotations

import contextlib
import json
import os
import struct
import zlib
from collections.abc import Iterable, Iterator
from typing import Any, Final

from pyarrow import fs

from lmerge.errors import StoreDamaged, StoreFull, UsageError
from lmerge.spark.spool.layout import token

FORMAT: Final = 1

_MAGIC: Final = "lmerge-spool"
_FRAME: Final = struct.Struct("<II")
_TEMPORARY: Final = ".tmp-"  # in the name of a file that a dead writer left unfinished
# Hadoop's schemes that Arrow names differently.
_SCHEMES: Final = {"s3a": "s3", "s3n": "s3"}


def file_system(uri: str) -> tuple[fs.FileSystem, str]:
    """Return the file system of a path or URI as Spark writes it (``file:/x``, ``s3a://``), and the path in it.

    Raises OSError and ValueError.
    """
    scheme, colon, rest = uri.partition(":")
    if not colon or len(scheme) < 2 or "/" in scheme:
        return fs.LocalFileSystem(), os.path.abspath(uri)
    if scheme == "file":
        return fs.LocalFileSystem(), "/" + rest.strip("/")
    filesystem, path = fs.FileSystem.from_uri(f"{_SCHEMES.get(scheme, scheme)}:{rest}")
    return filesystem, path.rstrip("/")


class SpoolFiles:
    """The files below one folder. ``root`` is a path of ``filesystem`` without a slash at its end."""

    def __init__(self, filesystem: fs.FileSystem, root: str) -> None:
        self.filesystem = filesystem
        self.root = root.rstrip("/")
        self._made: set[str] = set()

    @classmethod
    def at(cls, uri: str) -> SpoolFiles:
        """Open the folder that a path or URI names, as Spark writes it. Raises UsageError."""
        try:
            return cls(*file_system(uri))
        except (OSError, ValueError) as problem:
            raise UsageError(f"cannot use {uri!r} as a spool: {problem}") from problem

    def path(self, name: str) -> str:
        """Return the full path of a file, for messages and for the file system."""
        return f"{self.root}/{name}"

    def write(self, name: str, pieces: Iterable[bytes]) -> int:
        """Write or replace a file and return its size in bytes.

        Raises StoreFull, and what ``pieces`` raises. The old file then stays as it was.
        """
        folder, _, base = name.rpartition("/")
        temporary = self.path(f"{folder}/{base}{_TEMPORARY}{token()}".lstrip("/"))
        size = 0
        try:
            self._make(folder)
            with self.filesystem.open_output_stream(temporary, compression=None) as stream:
                for piece in pieces:
                    size += stream.write(piece)
            self._move(temporary, self.path(name))
        except Exception as problem:
            with contextlib.suppress(OSError, StoreFull):
                self._remove_file(temporary)
            if isinstance(problem, OSError):
                raise StoreFull(f"cannot write {self.path(name)}: {problem}") from problem
            raise
        return size

    def read(self, name: str) -> bytes | None:
        """Return the contents of a file, or None if there is no file. Raises StoreDamaged if it cannot be read."""
        try:
            # A stream does not have the file's size and grows its buffer: ten times the work for some MB.
            with self.filesystem.open_input_file(self.path(name)) as file:
                data: bytes = file.read()
                return data
        except FileNotFoundError:
            return None
        except OSError as problem:
            raise StoreDamaged(f"cannot read {self.path(name)}: {problem}") from problem

    def names(self, folder: str) -> list[str]:
        """Return the names in a folder, in order. A missing folder has none. Raises StoreDamaged."""
        try:
            infos = self.filesystem.get_file_info(fs.FileSelector(self.path(folder), allow_not_found=True))
        except OSError as problem:
            raise StoreDamaged(f"cannot list {self.path(folder)}: {problem}") from problem
        return sorted(info.base_name for info in infos)

    def first_missing(self, names: Iterable[str]) -> str | None:
        """Return the first of ``names`` that has no file, or None if all have one. Raises StoreDamaged."""
        listed = list(names)
        try:
            infos = self.filesystem.get_file_info([self.path(name) for name in listed])
        except OSError as problem:
            raise StoreDamaged(f"cannot look into {self.root}: {problem}") from problem
        return next((name for name, info in zip(listed, infos) if info.type == fs.FileType.NotFound), None)

    def remove(self, name: str) -> None:
        """Remove a file if it exists."""
        self._remove_file(self.path(name))

    def remove_folder(self, name: str) -> None:
        """Remove a folder and all that is in it, if it exists."""
        self._made.discard(name)
        try:
            self.filesystem.delete_dir(self.path(name))
        except FileNotFoundError:
            pass
        except OSError as problem:
            raise StoreFull(f"cannot remove {self.path(name)}: {problem}") from problem

    def _make(self, folder: str) -> None:
        if folder not in self._made:
            self.filesystem.create_dir(self.path(folder).rstrip("/"), recursive=True)
            self._made.add(folder)

    def _move(self, temporary: str, path: str) -> None:
        try:
            self.filesystem.move(temporary, path)
        except OSError:
            # HDFS does not move onto an existing file. A lost old file does no harm: it is about to be replaced.
            if self.filesystem.get_file_info(path).type != fs.FileType.File:
                raise
            self.filesystem.delete_file(path)
            self.filesystem.move(temporary, path)

    def _remove_file(self, path: str) -> None:
        try:
            self.filesystem.delete_file(path)
        except FileNotFoundError:
            pass
        except OSError as problem:
            if self.filesystem.get_file_info(path).type != fs.FileType.NotFound:
                raise StoreFull(f"cannot remove {path}: {problem}") from problem

    # JSON.

    def write_json(self, name: str, kind: str, body: dict[str, Any]) -> None:
        """Write an object as JSON. Raises StoreFull."""
        sealed = {"format": FORMAT, "crc32": zlib.crc32(_canonical(body)), kind: body}
        self.write(name, [json.dumps(sealed).encode() + b"\n"])

    def read_json(self, name: str, kind: str) -> dict[str, Any] | None:
        """Return the object in a JSON file, or None if there is no file.

        Raises StoreDamaged, or UsageError if a newer version wrote the file.
        """
        data = self.read(name)
        if data is None:
            return None
        try:
            sealed = json.loads(data)
            version, body, crc32 = sealed["format"], sealed.get(kind), sealed["crc32"]
        except (ValueError, LookupError, TypeError, AttributeError):
            raise self.damaged(name, f"it is not a {kind} in JSON") from None
        self._check_version(name, version)
        if not isinstance(body, dict):
            raise self.damaged(name, f"it holds no {kind}")
        if zlib.crc32(_canonical(body)) != crc32:
            raise self.damaged(name, "its checksum is wrong")
        return body

    # Frames.

    def write_frames(self, name: str, kind: str, frames: Iterable[bytes]) -> int:
        """Write frames as they come and return the size of the file in bytes.

        Raises StoreFull, and what ``frames`` raises.
        """
        return self.write(name, _framed(kind, frames))

    def read_frames(self, name: str, kind: str) -> list[bytes]:
        """Return the frames in a file.

        Raises StoreDamaged if the file is missing or damaged, UsageError if a newer version wrote it.
        """
        data = self.read(name)
        if data is None:
            raise self.damaged(name, "it is missing")
        line, newline, _ = data[:256].partition(b"\n")
        fields = line.decode("ascii", "replace").split(" ")
        if not newline or len(fields) != 3 or fields[0] != _MAGIC or not fields[1].isdigit():
            raise self.damaged(name, f"it is not a {kind} of a spool")
        self._check_version(name, int(fields[1]))
        if fields[2] != kind:
            raise self.damaged(name, f"it is a {fields[2]:.32} where a {kind} should be")
        return self._unframed(name, data, len(line) + 1)

    def damaged(self, name: str, what: str) -> StoreDamaged:
        """Return the error for a file that cannot be used."""
        return StoreDamaged(f"the file {self.path(name)} of the spool cannot be used: {what}")

    def _unframed(self, name: str, data: bytes, at: int) -> list[bytes]:
        frames: list[bytes] = []
        while at < len(data):
            start = at + _FRAME.size
            if start > len(data):
                raise self.damaged(name, f"it ends inside frame {len(frames)}")
            size, crc32 = _FRAME.unpack_from(data, at)
            at = start + size
            frame = data[start:at]
            if len(frame) < size:
                raise self.damaged(name, f"it ends inside frame {len(frames)}")
            if zlib.crc32(frame) != crc32:
                raise self.damaged(name, f"the checksum of frame {len(frames)} is wrong")
            frames.append(frame)
        return frames

    def _check_version(self, name: str, version: object) -> None:
        if not isinstance(version, int) or isinstance(version, bool) or version < 1:
            raise self.damaged(name, f"its format version is {version!r:.32}")
        if version > FORMAT:
            raise UsageError(
                f"the file {self.path(name)} was written by a newer lmerge: its format is {version}, and this one "
                f"reads up to {FORMAT}"
            )


def _framed(kind: str, frames: Iterable[bytes]) -> Iterator[bytes]:
    yield f"{_MAGIC} {FORMAT} {kind}\n".encode()
    for frame in frames:
        yield _FRAME.pack(len(frame), zlib.crc32(frame))
        yield frame


def _canonical(body: dict[str, Any]) -> bytes:
    return json.dumps(body, sort_keys=True, separators=(",", ":")).encode()
