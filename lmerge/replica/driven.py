"""The process of a replica: how it is stopped, and how a parent drives it by lines of JSON.

The process writes ``loaded`` and reads ``{"start": SECONDS}`` from standard input. It then writes ``joined`` and
``done``, and leaves when standard input ends, so it never outlives its parent. Called by ``lmerge replica run`` and by
the programs of ``lmerge_replicas``.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import Final

LEAVE_S = 5.0  # leaving takes milliseconds
INTERRUPTED: Final = 130  # exit code
LOOK_S: Final = 0.1  # how soon a signal is noticed while the parent writes nothing


def stop_on_signals(
    stop: threading.Event | None = None, *, limit_s: float | None = None, doing: Callable[[], str] | None = None
) -> threading.Event:
    """Return an event that Ctrl-C and SIGTERM set from now on; ``stop`` itself, if it is given.

    ``limit_s``: seconds from the signal until the process ends in any case, with exit code 130. A publisher waits for
    ever for a server that does not answer, and its thread does not look at the event meanwhile. None: no limit.
    ``doing``: what the process does then, for the message; empty: it waits for servers.
    """
    event = stop or threading.Event()

    def on_signal(*_: object) -> None:
        if limit_s is not None and not event.is_set():
            last = threading.Timer(limit_s, _end_at_once, (doing,))
            last.daemon = True
            last.start()
        event.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, on_signal)
    return event


def report_to_parent(**message: object) -> None:
    """Write a line for the parent."""
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def wait_for_start(stop: threading.Event) -> float | None:
    """Return the start from the parent. ``stop`` is set when the parent ends; None if it is set before the start."""
    lines: queue.SimpleQueue[str] = queue.SimpleQueue()
    threading.Thread(target=_leave_with_parent, args=(lines, stop), daemon=True).start()
    while not stop.is_set():
        with contextlib.suppress(queue.Empty):
            return float(json.loads(lines.get(timeout=LOOK_S))["start"])
    return None


def _end_at_once(doing: Callable[[], str] | None) -> None:
    what = "" if doing is None else doing()
    sys.stderr.write(f"stopped {what or 'before a server had merged everything'}\n")
    sys.stderr.flush()
    os._exit(INTERRUPTED)


def _leave_with_parent(lines: queue.SimpleQueue[str], stop: threading.Event) -> None:
    line = sys.stdin.readline()
    if line:
        lines.put(line)
        sys.stdin.read()
    stop.set()
    time.sleep(LEAVE_S)
    os._exit(1)  # the server may have ended too, and then leaving does not finish
