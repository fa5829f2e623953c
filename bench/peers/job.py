"""The protocol between a job and the benchmark: a line per report on standard output.

Only the standard library, because every peer runs it. The order: the job reports that it is ready; runs once and writes
its output; waits until the benchmark has checked that output and sends "go"; runs once more to warm up and then
``repeats`` times, with a sink that drops every row.
"""

from __future__ import annotations

import json
import sys
import time
from argparse import ArgumentParser
from collections.abc import Callable
from pathlib import Path
from typing import Any

INPUTS = 3
DELAY_MS = 4_000
"""How far a row may be behind the newest one of its input: twice the disorder of the recording."""
MARK = "bench: "

JobRun = Callable[[Path, str, "Path | None"], float]
"""``run(data, variant, output)``: does the job once; returns the seconds from the first row read to the last row out.
``output`` None: drop the rows."""


def report(**facts: Any) -> None:
    print(MARK + json.dumps(facts), flush=True)


def serve(run: JobRun, versions: dict[str, str]) -> None:
    """Run a job's process. Call it when the system is ready to take a query."""
    parser = ArgumentParser()
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--variant", required=True)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--repeats", type=int, required=True)
    parser.add_argument("--began", type=float, required=True, help="time.time() when the process was started")
    args = parser.parse_args()
    report(ready_s=time.time() - args.began, versions=versions)
    report(first_run_s=run(args.data, args.variant, args.output))
    if sys.stdin.readline().strip() == "go":
        run(args.data, args.variant, None)
        for _ in range(args.repeats):
            report(seconds=run(args.data, args.variant, None))
