"""``lmerge tdb``: print the temporal database that a stream reconstitutes to (docs/session-format.md).

One JSON line an event, in order of (vs, payload, ve), so that equivalent streams print the same bytes. Only live events
are in memory. Fully frozen events go to sorted runs in temporary files, which are merged at the end.
"""

from __future__ import annotations

import heapq
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from typing import IO, Annotated, Final

import typer

from lmerge import terminal
from lmerge.cli.lines import opened, read_lines
from lmerge.core.elements import Event
from lmerge.core.session import ElementLine, format_event
from lmerge.core.tdb import Tdb
from lmerge.errors import InputViolation, MalformedLine

RUN_EVENTS_MAX: Final = 100_000  # held in memory before a run is written: about 20 MB of short payloads
RUN_FILES_MAX: Final = 64  # open files; then the runs are merged into one


def tdb(
    stream: Annotated[str, typer.Argument(metavar="FILE", help="Stream or session, JSON lines; - for standard input.")],
    input_name: Annotated[
        str | None, typer.Option("--input", metavar="NAME", help="The input to read, if FILE is a session of several.")
    ] = None,
) -> None:
    """Print the TDB of a stream: one event a line, ordered by vs, payload, ve.

    Example: lmerge replay session.jsonl | lmerge tdb -

    Equivalent streams print the same. Exit code 2: a malformed line, or an element that is not legal there; the error
    gives its line.
    """
    terminal.utf8()
    with opened(stream, "stream") as source, ExitStack() as files, terminal.until_closed():
        runs = Runs(files)
        table = Tdb(input_name or "stream")
        for line, item in elements_of(source, input_name):
            try:
                table.apply_row(item.row)
            except InputViolation as violation:
                raise MalformedLine(line, str(violation)) from None
            runs.add(table.take_frozen())
        for event in runs.merged(table.live_events()):
            terminal.json_lines(format_event(*event) + "\n")


def elements_of(source: Iterable[bytes], input_name: str | None) -> Iterator[tuple[int, ElementLine]]:
    """Yield the element lines of a stream or of one input of a session. Raises MalformedLine if that is ambiguous."""
    only: str | None = input_name
    plain = False
    for line, item in read_lines(source):
        if not isinstance(item, ElementLine):
            continue
        if item.input is None:
            if input_name is not None or only is not None:
                raise MalformedLine(line, 'an element without "input" in a session')
            plain = True
        elif plain:
            raise MalformedLine(line, 'an element with "input" in a stream without')
        elif input_name is None and only is not None and item.input != only:
            raise MalformedLine(line, f"a session of several inputs, {only!r} and {item.input!r}: choose with --input")
        else:
            only = only or item.input
        if item.input == only:
            yield line, item


class Runs:
    """Sorts events in temporary files."""

    def __init__(self, files: ExitStack) -> None:
        self._files = files
        self._runs: list[IO[bytes]] = []
        self._pending: list[Event] = []

    def add(self, events: list[Event]) -> None:
        """Add fully frozen events."""
        self._pending += events
        if len(self._pending) >= RUN_EVENTS_MAX:
            self._write(iter(sorted(self._pending)))
            self._pending = []
            if len(self._runs) > RUN_FILES_MAX:
                runs, self._runs = self._runs, []
                self._write(heapq.merge(*(_read(run) for run in runs)))
                for run in runs:
                    run.close()

    def merged(self, rest: list[Event]) -> Iterator[Event]:
        """Return all events and ``rest``, in order."""
        return heapq.merge(*(_read(run) for run in self._runs), sorted(self._pending + rest))

    def _write(self, events: Iterator[Event]) -> None:
        file = self._files.enter_context(tempfile.TemporaryFile())  # noqa: SIM115 - closed with the others
        for vs, payload, ve in events:
            file.write(b"%d %d %d\n" % (vs, ve, len(payload)))
            file.write(payload)
        self._runs.append(file)


def _read(run: IO[bytes]) -> Iterator[Event]:
    run.seek(0)
    while header := run.readline():
        vs, ve, length = (int(number) for number in header.split())
        yield Event(vs, run.read(length), ve)
