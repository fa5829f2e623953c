"""The one place from which commands write: everything from outside is escaped, whatever it is printed as.

Names, reasons and payloads come from other machines, and a terminal obeys control characters. Commands therefore print
through this module alone (``tests/cli/test_terminal.py`` checks that no other writes):

- ``line``, ``lines`` and ``error``: text for people, on standard output and standard error;
- ``json_lines``: JSON for programs; characters are escaped as JSON does, so the values are the same;
- ``table``, ``svg`` and, for what moves, ``Escaped``: what rich lays out, without its markup, so that ``[red]`` in a
  name is only text;
- ``data``: text that belongs to others, such as CSV for a file; escaped only where a terminal would show it.

Where standard output cannot be written (a full disk), a command ends with one line and exit code 1; where its reader
has gone (``| head -1``), without a word, also while nothing is to be written: see ``until_closed``.
"""

from __future__ import annotations

import io
import os
import select
import signal
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

from lmerge.errors import Unavailable
from lmerge.wire.shown import escaped, escaped_json, escaped_line

if TYPE_CHECKING:
    from types import FrameType

    from rich.console import Console, ConsoleOptions, RenderableType, RenderResult

# Only standard error is left to say it, and nobody may be there either.
_CANNOT_WRITE: Final = "cannot write to standard output"
# The thread that waits for standard output to be closed looks so often whether the command has ended.
_LOOK_MS: Final = 500
# By then a signal has been noticed by a main thread that runs.
_AGAIN_S: Final = 1.0


class CannotWrite(Unavailable):
    """Standard output does not take what a command prints."""


def prepare() -> None:
    """At the start of the program: standard streams that were closed are replaced by such as take nothing, so that no
    file or socket gets their numbers; what an encoding cannot show is escaped.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDONLY)  # the lowest free number; writing to it fails
    if sys.stdout is None:
        sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115 - the process's, to its end
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115 - as well
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def line(text: str = "") -> None:
    """Print ``text`` and a newline. Raises CannotWrite, BrokenPipeError."""
    _write(escaped(text) + "\n")


def line_at_once(text: str) -> None:
    """Print ``text`` and a newline, for whoever follows what goes on. Raises CannotWrite, BrokenPipeError."""
    line(text)
    flush()


def lines(text: str) -> None:
    """Print text for people that ends with a newline. Raises CannotWrite, BrokenPipeError."""
    _write(escaped(text))


def error(text: str) -> None:
    """Print ``text`` and a newline on standard error; if nobody takes it, that is that."""
    with suppress(OSError, ValueError):
        sys.stderr.write(escaped(text) + "\n")
        sys.stderr.flush()


def json_lines(text: str) -> None:
    """Print JSON, a value a line, which ends with a newline. Raises CannotWrite, BrokenPipeError."""
    _write(escaped_json(text))


def data(text: str) -> None:
    """Print what others made, as it is, but for a terminal. Raises CannotWrite, BrokenPipeError."""
    _write(escaped(text) if sys.stdout.isatty() else text)


def flush() -> None:
    """Hand on what was printed. Raises CannotWrite, BrokenPipeError."""
    with _writing():
        sys.stdout.flush()


def utf8() -> None:
    """What follows is for programs: UTF-8, and newlines as they are."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8", newline="\n")


def console(*, soft_wrap: bool = False, stderr: bool = False) -> Console:
    """rich's console without markup, emoji and highlighting: for ``table`` and rich's ``Live``."""
    from rich.console import Console

    return Console(markup=False, emoji=False, highlight=False, soft_wrap=soft_wrap, stderr=stderr)


def svg(renderables: Iterable[RenderableType], *, columns: int, title: str) -> str:
    """A picture of what a terminal of so many columns would show."""
    from rich.console import Console

    canvas = Console(
        record=True, width=columns, file=io.StringIO(), force_terminal=True, color_system="truecolor", markup=False,
        emoji=False, highlight=False,
    )
    for renderable in renderables:
        canvas.print(Escaped(renderable))
    return canvas.export_svg(title=title, unique_id="lmerge")


def table(console: Console, renderable: RenderableType) -> None:
    """Print what rich lays out. Raises CannotWrite, BrokenPipeError."""
    with _writing():
        console.print(Escaped(renderable))
        sys.stdout.flush()


class Escaped:
    """A renderable of rich whose text is escaped when it is laid out; its styles are rich's own."""

    def __init__(self, renderable: RenderableType) -> None:
        self._renderable = renderable

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from rich.segment import Segment

        for segment in console.render(self._renderable, options):
            if segment.control:
                yield segment
            else:
                yield Segment(escaped(segment.text), segment.style)


@contextmanager
def until_closed() -> Iterator[None]:
    """While a command prints a stream: a reader that goes away (``| head -1``) ends it without a word.

    Writing notices it, and so does a thread for a stream that is quiet, which ends the command as Ctrl-C would.
    """
    done, gone, noticed = threading.Event(), threading.Event(), threading.Event()
    handler = signal.getsignal(signal.SIGINT)

    def interrupt(number: int, frame: FrameType | None) -> None:
        if gone.is_set():
            noticed.set()
            raise KeyboardInterrupt
        if callable(handler):  # a shell's background job is to ignore Ctrl-C
            handler(number, frame)

    signal.signal(signal.SIGINT, interrupt)
    threading.Thread(target=_watch, args=(done, gone, noticed), name="stdout", daemon=True).start()
    try:
        yield
        flush()
    except BrokenPipeError:
        _give_up_stdout()
    except KeyboardInterrupt:
        if not gone.is_set():
            raise
        _give_up_stdout()
    finally:
        done.set()
        signal.signal(signal.SIGINT, handler)


def _watch(done: threading.Event, gone: threading.Event, noticed: threading.Event) -> None:
    """Until ``done``: interrupt the main thread once the other end of standard output is closed.

    Again and again until that is ``noticed``: a signal that comes just before a wait begins does not end the wait.
    """
    try:
        poll = select.poll()
        poll.register(sys.stdout.fileno(), 0)  # POLLERR and POLLHUP are always reported, and nothing else is asked for
    except (OSError, ValueError):  # standard output is no file, or none at all
        return
    main = threading.main_thread().ident
    assert main is not None
    while not done.is_set():
        found = poll.poll(_LOOK_MS)
        if done.is_set():
            return
        if any(event & (select.POLLERR | select.POLLHUP) for _, event in found):
            gone.set()
            while not done.is_set():
                signal.pthread_kill(main, signal.SIGINT)  # to the thread that waits, or the wait goes on
                if noticed.wait(_AGAIN_S):
                    return
            return
        if found:  # POLLNVAL: it was closed in this process
            return


def _give_up_stdout() -> None:
    """Python flushes standard output once more at exit; give it something that takes it."""
    with suppress(OSError, ValueError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
        os.close(null)


def settle() -> None:
    """At the end of every command: what was printed must have gone out. Raises CannotWrite, BrokenPipeError."""
    if sys.stdout is not None and not sys.stdout.closed:
        flush()


def give_up() -> None:
    """After CannotWrite: nothing more is written, not even by Python at its end."""
    _give_up_stdout()


def _write(text: str) -> None:
    with _writing():
        sys.stdout.write(text)


@contextmanager
def _writing() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as problem:
        raise CannotWrite(f"{_CANNOT_WRITE}: {escaped_line(problem.strerror or str(problem))}") from None


class JsonOut:
    """What takes JSON lines as a file would, and prints them."""

    def write(self, text: str) -> None:
        json_lines(text)

    def flush(self) -> None:
        flush()


class JsonError:
    """The same on standard error."""

    def write(self, text: str) -> None:
        with suppress(OSError, ValueError):
            sys.stderr.write(escaped_json(text))

    def flush(self) -> None:
        with suppress(OSError, ValueError):
            sys.stderr.flush()


class DataOut:
    """What takes ``data`` as a file would, and prints it."""

    def write(self, text: str) -> None:
        data(text)
