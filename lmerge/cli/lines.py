"""What the commands that read and write JSON lines share: opening, and reading."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from lmerge.core.session import Line, parse_line
from lmerge.errors import UsageError


def read_lines(source: Iterable[bytes]) -> Iterator[tuple[int, Line]]:
    """The lines of a session or stream with their numbers, from 1; blank lines are counted and skipped.

    Raises MalformedLine.
    """
    for number, text in enumerate(source, 1):
        line = parse_line(text, number)
        if line is not None:
            yield number, line


@contextmanager
def opened(path: str, what: str) -> Iterator[IO[bytes]]:
    """The file at ``path``, or standard input for ``-``. Raises UsageError if it cannot be read."""
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
    """Whether everything that will ever come is there already: then nobody waits for an answer to a line."""
    return stat.S_ISREG(os.fstat(file.fileno()).st_mode)

