"""The output of all commands. Text from outside is escaped, in whatever form it is printed.

Names, reasons and payloads come from other machines, and a terminal obeys control characters. Commands therefore print
through this module alone. ``tests/cli/test_terminal.py`` checks that no other module writes.

- ``line``, ``lines`` and ``error``: text for people, on standard output and standard error.
- ``json_lines``: JSON for programs. Characters are escaped as JSON does, so the values are the same.
- ``table``, ``svg`` and, for live views, ``Escaped``: what rich lays out, without its markup, so that ``[red]`` in a
  name is only text.
- ``data``: data for programs, such as CSV for a file. It is escaped only for a terminal.
- Warnings of the log that nothing else takes, such as a server that cannot be reached, on standard error.

If standard output cannot be written (a full disk), a command ends with one line and exit code 1. If its reader has gone
(``| head -1``), it ends without a message, also while there is nothing to write: see ``until_closed``.
"""

from __future__ import annotations

import io
import logging
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

# Goes to standard error, which may be closed as well.
_CANNOT_WRITE: Final = "cannot write to standard output"
# The thread that waits for standard output to be closed checks so often whether the command has ended.
_LOOK_MS: Final = 500
# A main thread that runs has handled a signal by then. Otherwise the signal is sent again.
_AGAIN_S: Final = 1.0


class CannotWrite(Unavailable):
    """Standard output cannot be written."""


def prepare() -> None:
    """Prepare the standard streams, at the start of the program.

    A stream that was closed is replaced by one that cannot be written, so that no file or socket gets its number.
    Characters that the encoding cannot show are escaped. Warnings of the log are printed unless a command sends the log
    elsewhere.
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
    logging.lastResort = _LogOut(logging.WARNING)


def line(text: str = "") -> None:
    """Print ``text`` and a newline. Raises CannotWrite, BrokenPipeError."""
    _write(escaped(text) + "\n")


def line_at_once(text: str) -> None:
    """Print ``text`` and a newline, and flush. Raises CannotWrite, BrokenPipeError."""
    line(text)
    flush()


def lines(text: str) -> None:
    """Print text for people that ends with a newline. Raises CannotWrite, BrokenPipeError."""
    _write(escaped(text))


def error(text: str) -> None:
    """Print ``text`` and a newline on standard error. A failure to write is ignored."""
    with suppress(OSError, ValueError):
        sys.stderr.write(escaped(text) + "\n")
        sys.stderr.flush()


def json_lines(text: str) -> None:
    """Print JSON, one value a line, that ends with a newline. Raises CannotWrite, BrokenPipeError."""
    _write(escaped_json(text))


def data(text: str) -> None:
    """Print data: unchanged, or escaped on a terminal. Raises CannotWrite, BrokenPipeError."""
    _write(escaped(text) if sys.stdout.isatty() else text)


def flush() -> None:
    """Flush standard output. Raises CannotWrite, BrokenPipeError."""
    with _writing():
        sys.stdout.flush()


def utf8() -> None:
    """Set standard output to UTF-8 without translation of newlines, for programs."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8", newline="\n")


def console(*, soft_wrap: bool = False, stderr: bool = False) -> Console:
    """Return a console of rich without markup, emoji and highlighting, for ``table`` and rich's ``Live``."""
    from rich.console import Console

    return Console(markup=False, emoji=False, highlight=False, soft_wrap=soft_wrap, stderr=stderr)


def svg(renderables: Iterable[RenderableType], *, columns: int, title: str) -> str:
    """Return a picture of what a terminal of ``columns`` columns would show."""
    from rich.console import Console

    canvas = Console(
        record=True,
        width=columns,
        file=io.StringIO(),
        force_terminal=True,
        color_system="truecolor",
        markup=False,
        emoji=False,
        highlight=False,
    )
    for renderable in renderables:
        canvas.print(Escaped(renderable))
    return canvas.export_svg(title=title, unique_id="lmerge")


def table(console: Console, renderable: RenderableType) -> None:
    """Print a renderable of rich. Raises CannotWrite, BrokenPipeError."""
    with _writing():
        console.print(Escaped(renderable))
        sys.stdout.flush()


class Escaped:
    """A renderable of rich. Its text is escaped when it is laid out; its styles are those of rich."""

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
    """Run the block, in which a command prints a stream; end the command quietly if its reader goes (``| head -1``).

    A write to a closed pipe fails. For a stream with no output a thread watches the pipe and ends the command as Ctrl-C
    would.
    """
    done, gone, noticed = threading.Event(), threading.Event(), threading.Event()
    handler = signal.getsignal(signal.SIGINT)

    def interrupt(number: int, frame: FrameType | None) -> None:
        if gone.is_set():
            noticed.set()
            raise KeyboardInterrupt
        if callable(handler):  # a background job of a shell ignores Ctrl-C
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
    """Interrupt the main thread once the other end of standard output is closed. Runs until ``done``.

    The signal is repeated until it is ``noticed``: one that comes just before a wait begins does not end the wait.
    """
    try:
        poll = select.poll()
        poll.register(sys.stdout.fileno(), 0)  # POLLERR and POLLHUP are always reported; nothing else is needed
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
                signal.pthread_kill(main, signal.SIGINT)  # only a signal to the waiting thread ends its wait
                if noticed.wait(_AGAIN_S):
                    return
            return
        if found:  # POLLNVAL: it was closed in this process
            return


def _give_up_stdout() -> None:
    """Redirect standard output to the null device: Python flushes it once more at exit."""
    with suppress(OSError, ValueError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
        os.close(null)


def settle() -> None:
    """Flush what a command has printed, at its end. Raises CannotWrite, BrokenPipeError."""
    if sys.stdout is not None and not sys.stdout.closed:
        flush()


def give_up() -> None:
    """Stop writing after CannotWrite; Python writes nothing at exit either."""
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


class _LogOut(logging.Handler):
    """Prints a record of the log as ``lmerge: MESSAGE`` on standard error."""

    def emit(self, record: logging.LogRecord) -> None:
        error(f"lmerge: {self.format(record)}")


class JsonOut:
    """A file that prints the JSON lines written to it."""

    def write(self, text: str) -> None:
        json_lines(text)

    def flush(self) -> None:
        flush()


class JsonError:
    """A file that prints the JSON lines written to it on standard error."""

    def write(self, text: str) -> None:
        with suppress(OSError, ValueError):
            sys.stderr.write(escaped_json(text))

    def flush(self) -> None:
        with suppress(OSError, ValueError):
            sys.stderr.flush()


class DataOut:
    """A file that prints the ``data`` written to it."""

    def write(self, text: str) -> None:
        data(text)
