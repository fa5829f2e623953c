"""What the processes of all replicas share: options, and being driven by a parent.

Called by the ``__main__`` of each replica. With ``--supervised`` a parent drives the process by lines of JSON. The
process writes ``loaded`` and reads ``{"start": SECONDS}`` from standard input. (With ``--clock`` that file exists by
then, and counts.) It then writes ``joined`` and ``done``, and leaves when standard input ends, so it never outlives its
parent.
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
from typing import Any

from lmerge.addresses import DEFAULT_SERVER
from lmerge.core.inputs import InputRole
from lmerge_replicas.flights.source import FIRST_DAY, LAST_DAY

DAYS_PER_SECOND = 5.0  # the year in 73 seconds
LEAVE_S = 5.0  # leaving takes milliseconds
INTERRUPTED = 130  # exit code
LOOK_S = 0.1  # how soon a signal is noticed while the parent writes nothing
SECURITY_FILES = {
    "ca": "encrypt, and check the server by these CAs",
    "cert": "the certificate to show",
    "key": "the key that belongs to it",
    "token-file": "the token to show",
}
SECURITY_FLAGS = {
    "tls": "encrypt, and check the server by the system's CAs",
    "insecure": "send a token unencrypted to another machine",
}


def options_parser(prog: str, description: str, kind: str, kinds: Iterable[str]) -> argparse.ArgumentParser:
    """Return a parser with the options that all replicas have. The first argument, ``kind``, is one of ``kinds``."""
    parser = argparse.ArgumentParser(prog=prog, description=description)
    parser.add_argument(kind, choices=list(kinds))
    parser.add_argument("--server", default=DEFAULT_SERVER, help="merge servers, HOST:PORT,...")
    parser.add_argument("--merge", default="flights", help="name of the merge")
    parser.add_argument("--replica", help=f"name of the replica; default: its {kind}")
    roles = [role.value for role in InputRole]
    parser.add_argument("--role", default=roles[0], choices=roles, help="observe: compared, until it is promoted")
    parser.add_argument("--first", type=date.fromisoformat, default=FIRST_DAY, help="first day of departure, in 2013")
    parser.add_argument("--last", type=date.fromisoformat, default=LAST_DAY, help="last day of departure, in 2013")
    parser.add_argument("--speed", type=float, default=DAYS_PER_SECOND, help="days a second")
    parser.add_argument("--start", type=float, help="when the replay began, in seconds since the epoch; default: now")
    parser.add_argument("--clock", type=Path, metavar="FILE", help="follow the clock in this file instead")
    parser.add_argument("--supervised", action="store_true", help="driven by a parent: see the module's documentation")
    shown = parser.add_argument_group("security", "what is not given here comes from LMERGE_TOKEN and the like")
    for name, help_text in SECURITY_FILES.items():
        shown.add_argument(f"--{name}", metavar="FILE", help=help_text)
    for name, help_text in SECURITY_FLAGS.items():
        shown.add_argument(f"--{name}", action="store_true", help=help_text)
    return parser


def security_of(options: argparse.Namespace) -> dict[str, Any]:
    """Return the security options that were given, as fields of ``lmerge.Security``."""
    names = [name.replace("-", "_") for name in (*SECURITY_FILES, *SECURITY_FLAGS)]
    return {name: getattr(options, name) for name in names if getattr(options, name)}


def stop_on_signals(stop: threading.Event | None = None, *, limit_s: float | None = None) -> threading.Event:
    """Return an event that Ctrl-C and SIGTERM set from now on; ``stop`` itself, if it is given.

    ``limit_s``: seconds from the signal until the process ends in any case, with exit code 130. A publisher waits for
    ever for a server that does not answer, and its thread does not look at the event meanwhile. None: no limit.
    """
    event = stop or threading.Event()

    def on_signal(*_: object) -> None:
        if limit_s is not None and not event.is_set():
            last = threading.Timer(limit_s, _end_at_once)
            last.daemon = True
            last.start()
        event.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, on_signal)
    return event


def _end_at_once() -> None:
    print("stopped before a server had merged everything", file=sys.stderr, flush=True)
    os._exit(INTERRUPTED)


def report_to_parent(**message: object) -> None:
    """Write a line for the parent."""
    print(json.dumps(message), flush=True)


def wait_for_start(stop: threading.Event) -> float | None:
    """Return the start from the parent. ``stop`` is set when the parent ends; None if it is set before the start."""
    lines: queue.SimpleQueue[str] = queue.SimpleQueue()
    threading.Thread(target=_leave_with_parent, args=(lines, stop), daemon=True).start()
    while not stop.is_set():
        with contextlib.suppress(queue.Empty):
            return float(json.loads(lines.get(timeout=LOOK_S))["start"])
    return None


def _leave_with_parent(lines: queue.SimpleQueue[str], stop: threading.Event) -> None:
    line = sys.stdin.readline()
    if line:
        lines.put(line)
        sys.stdin.read()
    stop.set()
    time.sleep(LEAVE_S)
    os._exit(1)  # the server may have ended too, and then leaving does not finish
