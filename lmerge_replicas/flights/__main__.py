"""The process of one replica: ``python -m lmerge_replicas.flights STYLE --server HOST:PORT``.

It reads the raw table, asks the servers how far the merge has come, attaches as a new incarnation that joins there, and
replays. It keeps nothing on disk: after a SIGKILL the next process does exactly the same. `lmerge.replica.driven`
describes how a parent drives it (``--supervised``).
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import threading
import time
from collections.abc import Sequence

from lmerge.client import Origin, Publisher, describe_merge
from lmerge.client.connection.security import Security
from lmerge.client.metrics import asked_metrics
from lmerge.core.elements import INF, NEG_INF
from lmerge.errors import LmergeError, ServerGone, UnknownMerge
from lmerge.replica.driven import LEAVE_S, report_to_parent, stop_on_signals, wait_for_start
from lmerge.replica_programs import leave
from lmerge_replicas.flights.replay import FileClock, ReplayClock, first_instant, replay
from lmerge_replicas.flights.source import Days
from lmerge_replicas.flights.stream import FlightStream
from lmerge_replicas.flights.style import STYLES, Style
from lmerge_replicas.flights.timetable import Timetable
from lmerge_replicas.process import options_parser, security_of


def main(argv: Sequence[str] | None = None) -> int:
    """Run one replica and return the exit code: 0 if its stream is complete."""
    options = _parse(argv)
    stop = stop_on_signals(limit_s=LEAVE_S)
    try:
        return _run(options, stop)
    except LmergeError as error:
        print(f"replica {options.replica}: {error}", file=sys.stderr)
        return 1


def _run(options: argparse.Namespace, stop: threading.Event) -> int:
    days = Days(options.first, options.last)
    timetable = Timetable(days)
    start = time.time() if options.start is None else options.start
    if options.supervised:
        report_to_parent(event="loaded", flights=timetable.count)
        start_s = wait_for_start(stop)
        if start_s is None:
            return 1
        start = start_s
    clock = (
        FileClock(options.clock)
        if options.clock is not None
        else ReplayClock(start, first_instant(days), options.speed * 86_400)
    )
    is_complete = _publish(options, timetable, STYLES[options.style], clock, stop)
    return 0 if is_complete or options.supervised else 1


def _publish(
    options: argparse.Namespace,
    timetable: Timetable,
    style: Style,
    clock: ReplayClock | FileClock,
    stop: threading.Event,
) -> bool:
    security = Security.from_environment(**security_of(options))
    merged_to = _stable_point(options.server, options.merge, security)
    join_at = None if merged_to == NEG_INF else merged_to
    stream = FlightStream(timetable, style)
    with Publisher(
        options.server,
        options.merge,
        options.replica,
        properties=style.properties,
        role=options.role,
        origin=Origin(join_at=join_at),
        security=security,
    ) as publisher:
        metrics = asked_metrics(os.environ)
        if metrics is not None:
            metrics.watch(publisher)
        if join_at is not None:
            publisher.publish(stream.join(max(clock.now(), 0 if join_at == INF else join_at), join_at))
        if options.supervised:
            report_to_parent(event="joined", join_at=join_at)
        is_complete = replay(stream.steps(), clock, publisher.publish, stop)
        if not is_complete:
            publisher.abort()
            return False
        publisher.flush()
        if options.supervised:
            report_to_parent(event="done")
            stop.wait()  # attached until the parent has read the last counters
    return True


def _stable_point(servers: str, merge: str, security: Security | None) -> int:
    """Return the smallest stable point among the servers that have the merge; -inf for a new merge."""
    points = []
    for server in servers.split(","):
        with contextlib.suppress(UnknownMerge, ServerGone):
            points.append(int(describe_merge(server, merge, security=security).summary.stable_point))
    return min(points, default=NEG_INF)


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    styles = "; ".join(f"{style.name}: {style.summary}" for style in STYLES.values())
    description = f"One replica of the flights of 2013. {styles}."
    options = options_parser("python -m lmerge_replicas.flights", description, "style", STYLES).parse_args(argv)
    options.replica = options.replica or options.style
    return options


if __name__ == "__main__":
    leave(main())
