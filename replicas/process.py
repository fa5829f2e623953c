"""What the process of any replica has: options, and a parent that may drive it.

Called by the ``__main__`` of each. With ``--supervised`` a parent drives it by lines of JSON: it writes ``loaded``,
reads ``{"start": SECONDS}`` from standard input (with ``--clock`` the file is there by then, and counts), writes
``joined`` and ``done``, and leaves when standard input ends, so it never outlives its parent.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import queue
import signal
import sys
import threading
import time
from collections.abc import Iterable
from datetime import date
from pathlib import Path
from typing import Any, NoReturn

from replicas.flights.source import FIRST_DAY, LAST_DAY

DAYS_PER_SECOND = 5.0  # the year in 73 seconds
LEAVE_S = 5.0  # a goodbye takes milliseconds
LOOK_S = 0.1  # how soon a signal is noticed while the parent says nothing
SECURITY_FILES = {
    "ca": "encrypt, and check the server by these CAs", "cert": "the certificate to show",
    "key": "the key that belongs to it", "token-file": "the token to show",
}
SECURITY_FLAGS = {
    "tls": "encrypt, and check the server by the system's CAs",
    "insecure": "send a token unencrypted to another machine",
}


def options_parser(prog: str, description: str, kind: str, kinds: Iterable[str]) -> argparse.ArgumentParser:
    """The options that all replicas have; the first argument, ``kind``, is one of ``kinds``."""
    parser = argparse.ArgumentParser(prog=prog, description=description)
    parser.add_argument(kind, choices=list(kinds))
    parser.add_argument("--server", default="127.0.0.1:7171", help="merge servers, HOST:PORT,...")
    parser.add_argument("--merge", default="flights", help="name of the merge")
    parser.add_argument("--replica", help=f"name of the replica; default: its {kind}")
    parser.add_argument("--first", type=date.fromisoformat, default=FIRST_DAY, help="first day of departure, in 2013")
    parser.add_argument("--last", type=date.fromisoformat, default=LAST_DAY, help="last day of departure, in 2013")
    parser.add_argument("--speed", type=float, default=DAYS_PER_SECOND, help="days a second")
    parser.add_argument("--start", type=float, help="when the replay began, in seconds since the epoch; default: now")
    parser.add_argument("--clock", type=Path, metavar="FILE", help="follow the clock in this file instead")
    parser.add_argument("--supervised", action="store_true", help="driven by a parent: see the module's documentation")
    shown = parser.add_argument_group("security", "what is not said here is taken from LMERGE_TOKEN and its like")
    for name, help_text in SECURITY_FILES.items():
        shown.add_argument(f"--{name}", metavar="FILE", help=help_text)
    for name, help_text in SECURITY_FLAGS.items():
        shown.add_argument(f"--{name}", action="store_true", help=help_text)
    return parser


def security_of(options: argparse.Namespace) -> dict[str, Any]:
    """Of the options that a server is reached with, those that were said: fields of ``lmerge.client.Security``."""
    names = [name.replace("-", "_") for name in (*SECURITY_FILES, *SECURITY_FLAGS)]
    return {name: getattr(options, name) for name in names if getattr(options, name)}


def stop_on_signals(stop: threading.Event | None = None) -> threading.Event:
    """Set by Ctrl-C and SIGTERM from here on; ``stop`` itself, if it is given."""
    event = stop or threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: event.set())
    return event


def tell(**message: object) -> None:
    """A line for the parent."""
    print(json.dumps(message), flush=True)


def told_to_start(stop: threading.Event) -> float | None:
    """Wait for the parent's word, and watch it from then on: ``stop`` is set when it has gone. None: that did first."""
    lines: queue.SimpleQueue[str] = queue.SimpleQueue()
    threading.Thread(target=_leave_with_parent, args=(lines, stop), daemon=True).start()
    while not stop.is_set():
        with contextlib.suppress(queue.Empty):
            return float(json.loads(lines.get(timeout=LOOK_S))["start"])
    return None


def leave(code: int) -> NoReturn:
    """End the process: a stream that the server no longer reads must not hold it."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _leave_with_parent(lines: queue.SimpleQueue[str], stop: threading.Event) -> None:
    line = sys.stdin.readline()
    if line:
        lines.put(line)
        sys.stdin.read()
    stop.set()
    time.sleep(LEAVE_S)
    os._exit(1)  # the server may have gone too, and then there is nobody to say goodbye to
