"""``lmerge replica run query.py``: a plan of one's own as the replica of a merge. Called by ``cli.replica``.

Exit codes: 0 everything was published and merged; 130 it was stopped before; 1 it could not go on now; 2 the query, a
plan, a module or an option is not there or does not fit, or a row of a source does not.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from lmerge import terminal
from lmerge.cli.plan_options import PlanOptions, QueryPlace
from lmerge.client.metrics import asked_metrics
from lmerge.replica.driven import INTERRUPTED, LEAVE_S, report_to_parent, stop_on_signals, wait_for_start
from lmerge.replica.metrics import PlanMetrics
from lmerge.replica.pacing import ReplayPace
from lmerge.replica.plan_files import read_query_file
from lmerge.replica.replica_run import ReplicaOptions, ReplicaRun

US_PER_S: Final = 1_000_000


def run_query(
    path: Path,
    chosen: PlanOptions,
    place: QueryPlace,
    *,
    speed: float | None,
    start_s: float | None,
    checkpoint: Path | None,
) -> int:
    """Run a plan until its sources end or the process is stopped; return the exit code."""
    stop = stop_on_signals(limit_s=LEAVE_S)
    query = read_query_file(path).located(chosen.places)
    query.sources_of(query.plan(chosen.plan)[1])
    if chosen.is_supervised:
        report_to_parent(event="loaded")
        start_s = wait_for_start(stop)
        if start_s is None:
            return INTERRUPTED
    pace = None if speed is None else ReplayPace(speed * US_PER_S, start_s)
    options = ReplicaOptions(
        place.role, pace, chosen.join_at, place.security, None, checkpoint, chosen.checkpoint_every_s
    )
    run = ReplicaRun(
        query, chosen.plan, servers=place.servers, merge=place.merge, replica=place.replica, options=options, stop=stop
    )
    with run:
        _measure(run)
        if chosen.is_supervised:
            report_to_parent(event="joined", join_at=run.joined_at)
        is_complete = run.run()
        if chosen.is_supervised and is_complete:
            report_to_parent(event="done")
            stop.wait()  # attached until the parent has read the last counters
    if not chosen.is_supervised:
        _report(run, is_complete)
    return 0 if is_complete else INTERRUPTED


def _measure(run: ReplicaRun) -> None:
    metrics = asked_metrics(os.environ)
    if metrics is not None:
        PlanMetrics(metrics.registry, run)
        if run.publisher is not None:
            metrics.watch(run.publisher)


def _report(run: ReplicaRun, is_complete: bool) -> None:
    found = run.counted()
    taken, skipped = sum(source.items for source in found.sources), sum(one.skipped for one in found.operators)
    how = "everything was published" if is_complete else "stopped"
    left_out = f", {skipped:,} not evaluated after feedback" if skipped else ""
    terminal.error(f"{run.replica}: {how}: plan {run.plan}, {taken:,} items of its sources{left_out}")
