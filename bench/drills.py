"""How long does the output pause, and how soon is the redundancy back, in each drill of `lmerge drill`?

Every scenario that runs in a sandbox, for some rounds, each in a process of its own. A fault's pause is the longest
silence that the reader of two servers met around it. Targets: p99 at most 50 ms where a replica is killed, 100 ms where
a server is, 200 ms where servers are upgraded one by one; nothing lost, twice or contradicted in all faults.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import defaultdict
from statistics import median
from typing import Any

from bench.harness import BenchReport, Panel, begin, bench_parser, plot
from bench.rig.stalls import add_distribution, percentile
from lmerge_controller.drill.run import SANDBOX_ABILITIES
from lmerge_controller.drill.scenario_file import builtin_scenarios

ROUNDS = 10
TARGETS_MS = {"kill-winner": 50.0, "kill-all-but-one": 50.0, "kill-server": 100.0, "rolling-upgrade": 200.0}
WRONG = ("lost", "duplicated", "contradictions", "invented", "wrong_end", "gaps")


def names_of_sandbox() -> list[str]:
    """Return the scenarios that need nothing but a sandbox."""
    return [name for name, found in builtin_scenarios().items() if SANDBOX_ABILITIES.issuperset(found.abilities)]


def drilled(name: str) -> dict[str, Any]:
    """Return the report of one run of a drill."""
    done = subprocess.run(
        [sys.executable, "-m", "lmerge", "drill", "run", name, "--json"], capture_output=True, text=True, check=False
    )
    if not done.stdout:
        raise SystemExit(f"drill {name} has no report: {done.stderr}")
    report: dict[str, Any] = json.loads(done.stdout)["drills"][0]
    return report


def add_scenario(report: BenchReport, name: str, runs: list[dict[str, Any]]) -> list[float]:
    """Add the rows of one scenario. Return its pauses in milliseconds."""
    faults = [fault for run in runs for fault in run.get("faults", ())]
    pauses = [float(fault["pause_ms"]) for fault in faults]
    back = [float(fault["recovery_seconds"]) for fault in faults if fault["recovery_seconds"] is not None]
    if pauses:
        report.add(f"{name} ({len(pauses)} faults): pause p50", [median(pauses)], "ms")
        report.add(f"{name}: pause p99", [percentile(pauses, 0.99)], "ms")
        report.add(f"{name}: redundancy back", back or [float("inf")], "s")
    if name in TARGETS_MS and pauses:
        reached = percentile(pauses, 0.99)
        verdict = "reached" if reached <= TARGETS_MS[name] else "MISSED"
        report.note(f"target {name}: p99 <= {TARGETS_MS[name]:g} ms: {verdict} ({reached:.1f} ms)")
    failed = [reason for run in runs if run["status"] != "passed" for reason in run["reasons"]]
    for reason in failed:
        report.note(f"{name}: {reason}")
    return pauses


def main() -> None:
    """Run the rounds, and write rows and plot."""
    parser = bench_parser(__doc__, "drills", "each drill once")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="runs of each drill")
    parser.add_argument("--only", nargs="*", default=[], help="these drills alone; nothing is written")
    options = parser.parse_args()
    report = begin((__doc__ or "").splitlines()[0])
    panel = Panel(
        "pause of the output around a fault", "ms", "part of the faults that pause longer", log="xy", is_plain=True
    )
    wrong: dict[str, int] = defaultdict(int)
    count = 0
    for name in options.only or names_of_sandbox():
        runs = [drilled(name) for _ in range(1 if options.quick else options.rounds)]
        pauses = add_scenario(report, name, runs)
        count += len(pauses)
        for run in runs:
            for kind in WRONG:
                wrong[kind] += run.get("events", {}).get(kind, 0)
        if pauses:
            add_distribution(panel, name, pauses)
    report.note(f"{count} faults: " + ", ".join(f"{wrong[kind]} {kind}" for kind in WRONG))
    if not (options.quick or options.only):
        report.save("drills")
        plot("drills", "lmerge drill, in a sandbox", [panel], columns=1)


if __name__ == "__main__":
    main()
