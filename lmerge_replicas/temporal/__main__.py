"""The process of one replica in a temporal plan: ``python -m lmerge_replicas.temporal PLAN --server HOST:PORT``.

It reads the raw table, asks the servers how far the merge has come, and runs the plan as a new incarnation that joins
there, at the pace of the replay clock. `lmerge.replica.driven` describes how a parent drives it (``--supervised``).
Exit code: 0 everything was published; 130 it was stopped before; 1 it failed; 2 it could not begin.
"""

from __future__ import annotations

import argparse
import os
import sys
import threading
import time
from collections.abc import Sequence
from typing import Final

from lmerge.client import Security
from lmerge.client.metrics import asked_metrics
from lmerge.core.elements import NEG_INF
from lmerge.errors import LmergeError, UsageError
from lmerge.replica import Query, ReplicaOptions, ReplicaRun
from lmerge.replica.driven import INTERRUPTED, LEAVE_S, report_to_parent, stop_on_signals, wait_for_start
from lmerge.replica.joining import merged_to
from lmerge.replica.metrics import PlanMetrics
from lmerge.replica_programs import leave
from lmerge_replicas.flights.replay import FileClock, ReplayClock, first_instant
from lmerge_replicas.flights.source import Days
from lmerge_replicas.flights.timetable import Timetable
from lmerge_replicas.process import options_parser, security_of
from lmerge_replicas.temporal.plans import PLANS, SOURCE
from lmerge_replicas.temporal.source import FlightNewsSource

FAILED: Final = 1
USAGE: Final = 2


def main(argv: Sequence[str] | None = None) -> int:
    """Run one replica and return the exit code."""
    options = _parse(argv)
    stop = stop_on_signals(limit_s=LEAVE_S)
    try:
        return _run(options, stop)
    except LmergeError as error:
        print(f"replica {options.replica}: {error}", file=sys.stderr)
        return USAGE if isinstance(error, UsageError) else FAILED


def _run(options: argparse.Namespace, stop: threading.Event) -> int:
    days = Days(options.first, options.last)
    timetable = Timetable(days)
    start = time.time() if options.start is None else options.start
    if options.supervised:
        report_to_parent(event="loaded", flights=timetable.count)
        start_s = wait_for_start(stop)
        if start_s is None:
            return FAILED
        start = start_s
    clock = (
        FileClock(options.clock)
        if options.clock is not None
        else ReplayClock(start, first_instant(days), options.speed * 86_400)
    )
    return _publish(options, timetable, clock, stop)


def _publish(
    options: argparse.Namespace, timetable: Timetable, clock: ReplayClock | FileClock, stop: threading.Event
) -> int:
    security = Security.from_environment(**security_of(options))
    merged = merged_to(options.server, options.merge, security)
    source = FlightNewsSource(timetable=timetable).joined(None if merged == NEG_INF else merged, clock.now())
    plan = PLANS[options.plan]
    run = ReplicaRun(
        Query({plan.name: plan.stream}, {SOURCE: source}),
        plan.name,
        servers=options.server,
        merge=options.merge,
        replica=options.replica,
        options=ReplicaOptions(options.role, clock, security=security, is_raw=True),
        stop=stop,
    )
    with run:
        metrics = asked_metrics(os.environ)
        if metrics is not None:
            PlanMetrics(metrics.registry, run)
            if run.publisher is not None:
                metrics.watch(run.publisher)
        if options.supervised:
            report_to_parent(event="joined", join_at=run.join_at)
        if not run.run():
            return INTERRUPTED
        if options.supervised:
            report_to_parent(event="done")
            stop.wait()  # attached until the parent has read the last counters
    return 0


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    plans = "; ".join(f"{plan.name}: {plan.summary}" for plan in PLANS.values())
    description = f"The flights of 2013 as a temporal plan. {plans}."
    options = options_parser("python -m lmerge_replicas.temporal", description, "plan", PLANS).parse_args(argv)
    options.replica = options.replica or f"temporal-{options.plan}"
    return options


if __name__ == "__main__":
    leave(main())
