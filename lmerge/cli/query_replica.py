"""``lmerge replica run query.py``: a plan of one's own as the replica of a merge. Called by ``cli.replica``.

Exit codes: 0 everything was published and merged; 130 it was stopped before; 1 it could not go on now; 2 the query, a
plan, a module or an option is not there or does not fit, or a row of a source does not.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from lmerge import terminal
from lmerge.cli.plan_options import PlanOptions, QueryPlace, ReplayOptions
from lmerge.client.metrics import asked_metrics
from lmerge.replica.driven import INTERRUPTED, LEAVE_S, report_to_parent, stop_on_signals, wait_for_start
from lmerge.replica.metrics import PlanMetrics
from lmerge.replica.pacing import ReplayPace
from lmerge.replica.plan_files import read_query_file
from lmerge.replica.replica_run import CHECKPOINT_EVERY_S, ReplicaOptions, ReplicaRun

US_PER_S: Final = 1_000_000


def run_query(
    path: Path, chosen: PlanOptions, place: QueryPlace, replay: ReplayOptions, checkpoint: Path | None
) -> int:
    """Run a plan until its sources end or the process is stopped; return the exit code."""
    runs: list[ReplicaRun] = []
    stop = stop_on_signals(limit_s=LEAVE_S, doing=lambda: runs[0].doing() if runs else "")
    query = read_query_file(path).located(chosen.places)
    query.sources_of(query.plan(chosen.plan)[1])
    start_s = replay.start_s
    if chosen.is_supervised:
        report_to_parent(event="loaded")
        start_s = wait_for_start(stop)
        if start_s is None:
            return INTERRUPTED
    options = ReplicaOptions(
        place.role,
        None if replay.speed is None else ReplayPace(replay.speed * US_PER_S, start_s),
        chosen.join_at,
        place.security,
        chosen.give_up_after_s,
        checkpoint,
        CHECKPOINT_EVERY_S if chosen.checkpoint_every_s is None else chosen.checkpoint_every_s,
        chosen.is_raw,
    )
    run = ReplicaRun(
        query, chosen.plan, servers=place.servers, merge=place.merge, replica=place.replica, options=options, stop=stop
    )
    runs.append(run)
    with run:
        _measure(run)
        if chosen.is_supervised and not stop.is_set():
            report_to_parent(event="joined", join_at=run.join_at)
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
    if run.is_merged_already:
        terminal.error(f"{run.replica}: merge {run.merge} is complete already: there is nothing to publish")
        return
    found = run.counted()
    taken, skipped = sum(source.items for source in found.sources), sum(one.skipped for one in found.operators)
    how = "everything was published" if is_complete else "stopped"
    left_out = f", {skipped:,} not evaluated after feedback" if skipped else ""
    dropped, moved = run.late()
    late = f", {dropped:,} late events dropped" if dropped else ""
    late += f", {moved:,} late events moved" if moved else ""
    terminal.error(f"{run.replica}: {how}: plan {run.plan}, {taken:,} items of its sources{left_out}{late}")
