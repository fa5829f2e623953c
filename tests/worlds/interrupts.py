"""Ctrl-C for the processes of tests, also where the tests themselves run in the background."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager


def accept_interrupts() -> None:
    """Let this process, and each that it starts, receive Ctrl-C although whoever started this one ignored it.

    A shell starts ``make test &`` and ``nohup make test`` with SIGINT ignored, and a process inherits that. A handler
    is not inherited: a started process begins with the default, which ends it.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@contextmanager
def handled_interrupts() -> Iterator[None]:
    """Have a handler for Ctrl-C that raises nothing, as a replica has."""
    before = signal.signal(signal.SIGINT, lambda *_: None)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
