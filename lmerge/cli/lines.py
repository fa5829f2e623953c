"""Opens and reads files of JSON lines, for the commands that take them."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final

from lmerge.core.session import Line, parse_line
from lmerge.errors import MalformedLine, UsageError
from lmerge.wire.limits import PAYLOAD_BYTES

# Ten times the payload limit of the wire, in the longest escapes: six bytes for one.
LINE_BYTES_MAX: Final = 64 * PAYLOAD_BYTES


def read_lines(source: Iterable[bytes]) -> Iterator[tuple[int, Line]]:
    """Yield the lines of a session or stream with their numbers, from 1; blank lines are counted and skipped.

    Raises MalformedLine, also for a line longer than ``LINE_BYTES_MAX``. No more than that is read of such a line.
    """
    for number, text in enumerate(_bounded(source), 1):
        if len(text) > LINE_BYTES_MAX:
            raise MalformedLine(number, f"longer than {LINE_BYTES_MAX} bytes, the limit of a line")
        line = parse_line(text, number)
        if line is not None:
            yield number, line


def _bounded(source: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the lines; of one that is too long, the first ``LINE_BYTES_MAX + 1`` bytes."""
    readline = getattr(source, "readline", None)
    if readline is None:
        yield from source
        return
    while text := readline(LINE_BYTES_MAX + 1):
        yield text


@contextmanager
def opened(path: str, what: str) -> Iterator[IO[bytes]]:
    """Yield the file at ``path``, or standard input for ``-``. Raises UsageError if it cannot be read."""
    if path == "-":
        yield sys.stdin.buffer
        return
    try:
        file = Path(path).open("rb")  # noqa: SIM115 - closed below; only the opening may fail with this message
    except OSError as problem:
        raise UsageError(f"cannot read the {what} {path!r}: {problem.strerror}") from None
    with file:
        yield file


def is_regular(file: IO[bytes]) -> bool:
    """Return whether ``file`` is complete on disk, so that no program waits for an answer to each line."""
    return stat.S_ISREG(os.fstat(file.fileno()).st_mode)
