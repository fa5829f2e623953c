"""The process of one replica: ``python -m replicas.flights STYLE --server HOST:PORT``.

It reads the raw table, asks the servers how far the merge has come, attaches as a new incarnation that joins
there, and replays. It keeps nothing on disk: after a SIGKILL the next process does exactly the same.

With ``--supervised`` a parent drives it by lines of JSON: it writes ``loaded``, reads ``{"start": SECONDS}`` from
standard input, writes ``joined`` and ``done``, and leaves when standard input ends, so it never outlives its parent.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Sequence
from datetime import date

from lmerge.client import Publisher, describe_merge
from lmerge.core.elements import INF, NEG_INF
from lmerge.errors import LmergeError, ServerGone, UnknownMerge
from replicas.flights.flight import Flight, read_flights
from replicas.flights.replay import ReplayClock, first_instant, replay
from replicas.flights.source import FIRST_DAY, LAST_DAY, Days
from replicas.flights.stream import FlightStream
from replicas.flights.style import STYLES, Style

DAYS_PER_SECOND = 5.0  # the year in 73 seconds
LEAVE_S = 5.0  # a goodbye takes milliseconds


def main(argv: Sequence[str] | None = None) -> int:
    """Run one replica; 0 if its stream is complete."""
    options = _parse(argv)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    try:
        return _run(options, stop)
    except LmergeError as error:
        print(f"replica {options.replica}: {error}", file=sys.stderr)
        return 1


def _run(options: argparse.Namespace, stop: threading.Event) -> int:
    days = Days(options.first, options.last)
    gc.disable()  # loading makes 300,000 objects and no garbage
    flights = read_flights(days)
    gc.freeze()
    gc.enable()
    start = time.time()
    if options.supervised:
        _tell(event="loaded", flights=len(flights))
        line = sys.stdin.readline()
        if not line:
            return 1
        start = json.loads(line)["start"]
        threading.Thread(target=_leave_with_parent, args=(stop,), daemon=True).start()
    clock = ReplayClock(start, first_instant(days), options.speed * 86_400)
    is_complete = _publish(options, flights, STYLES[options.style], clock, stop)
    return 0 if is_complete or options.supervised else 1


def _publish(
    options: argparse.Namespace, flights: Sequence[Flight], style: Style, clock: ReplayClock, stop: threading.Event,
) -> bool:
    merged_to = _stable_point(options.server, options.merge)
    join_at = None if merged_to == NEG_INF else merged_to
    stream = FlightStream(flights, style)
    with Publisher(
        options.server, options.merge, options.replica, properties=style.properties, join_at=join_at,
    ) as publisher:
        if join_at is not None:
            publisher.publish(stream.join(max(clock.now(), 0 if join_at == INF else join_at), join_at))
        if options.supervised:
            _tell(event="joined", join_at=join_at)
        is_complete = replay(stream.steps(), clock, publisher.publish, stop)
        if not is_complete:
            publisher.abort()
            return False
        publisher.flush()
        if options.supervised:
            _tell(event="done")
            stop.wait()  # attached until the parent has read the last counters
    return True


def _stable_point(servers: str, merge: str) -> int:
    """How far the merge has come at every server that knows it; a new one has not."""
    points = []
    for server in servers.split(","):
        with contextlib.suppress(UnknownMerge, ServerGone):
            points.append(int(describe_merge(server, merge).summary.stable_point))
    return min(points, default=NEG_INF)


def _tell(**message: object) -> None:
    print(json.dumps(message), flush=True)


def _leave_with_parent(stop: threading.Event) -> None:
    sys.stdin.read()
    stop.set()
    time.sleep(LEAVE_S)
    os._exit(1)  # the server may have gone too, and then there is nobody to say goodbye to


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    styles = "; ".join(f"{style.name}: {style.summary}" for style in STYLES.values())
    description = f"One replica of the flights of 2013. {styles}."
    parser = argparse.ArgumentParser(prog="python -m replicas.flights", description=description)
    parser.add_argument("style", choices=STYLES)
    parser.add_argument("--server", default="127.0.0.1:7171", help="merge servers, HOST:PORT,...")
    parser.add_argument("--merge", default="flights", help="name of the merge")
    parser.add_argument("--replica", help="name of the replica; default: its style")
    parser.add_argument("--first", type=date.fromisoformat, default=FIRST_DAY, help="first day of departure, in 2013")
    parser.add_argument("--last", type=date.fromisoformat, default=LAST_DAY, help="last day of departure, in 2013")
    parser.add_argument("--speed", type=float, default=DAYS_PER_SECOND, help="days a second")
    parser.add_argument("--supervised", action="store_true", help="driven by a parent: see the module's documentation")
    options = parser.parse_args(argv)
    options.replica = options.replica or options.style
    return options


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    os._exit(code)  # a stream that the server no longer reads must not hold the process
