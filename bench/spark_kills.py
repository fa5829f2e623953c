"""How long does the output stop when one of two Spark replicas is killed, and is anything lost or doubled?

Two drivers with a JVM each publish the same table (``lmerge.spark.publish``, mode append, 500 rows/s, a micro-batch
each second) to one ``lmerge serve``. A reader checks every element against the table. One replica at a time is killed,
drawn from a seed: at a random moment, before its tasks write, between write and commit, between commit and checkpoint.
Either all its processes are killed, as a machine would fail, or its driver only. A supervisor starts it again at once
from its checkpoint, and the next kill comes when both have joined. ``nothing (control)`` is a fault that breaks
nothing.

Counted: the longest time between two batches of new rows at the reader, from the kill to the next one or for three
micro-batches. A replica that starts again has a low priority, because both are on one machine of 2 cores here. The
longest time until it has joined again is reported as well.

Beside it, in the same run: one such job alone, killed in the same ways and started again from its checkpoint by its
supervisor: the time without output.
Targets: nothing lost, doubled or contradicted; the longest time without output <= one micro-batch + 50 ms.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from random import Random

import pyspark

from bench.harness import BenchReport, Panel, begin, bench_parser, plot
from bench.rig.judge import StreamVerdict
from bench.rig.spark_fleet import SparkFleet
from bench.rig.spark_gates import PLACES
from bench.rig.stalls import CONTROL, InjectedFault, add_distribution, add_rows, percentile, stall_ms, stalls_of

EVENTS_PER_S = 500
EVERY_MS = 1_000
ADDED_MS = 50.0
MOMENT = "at a random moment"
KINDS = (MOMENT, *PLACES)
PAUSE_S = (0.5, 1.5)  # from when all have joined to the next kill
WINDOW_S = 3 * EVERY_MS / 1e3  # the window of a stall
ALONE = "one job alone, until its output goes on"


class Killer:
    """Draws kills from a seed and does them on a fleet."""

    def __init__(self, fleet: SparkFleet, random: Random) -> None:
        self.fleet, self.random = fleet, random
        self.faults: list[InjectedFault] = []

    def run(self, kills: int) -> None:
        """Do ``kills`` kills, of each kind in turn, with a control before each.

        Raises RuntimeError if a replica does not come back.
        """
        for at in range(kills):
            self.fleet.read_messages(self.random.uniform(*PAUSE_S))
            self.faults.append(InjectedFault(CONTROL, "", time.monotonic()))
            self.fleet.read_messages(WINDOW_S)
            self.fleet.read_messages(self.random.uniform(*PAUSE_S))
            self.kill(KINDS[at % len(KINDS)])
            fault = self.faults[-1]
            print(
                f"    {time.strftime('%H:%M:%S')} kill {at + 1} of {kills}: {fault.victim}, {fault.kind}; joined "
                f"again after {fault.whole_s:.1f} s",
                flush=True,
            )

    def kill(self, kind: str) -> None:
        """Kill a replica, and wait until it has joined again."""
        fleet, random = self.fleet, self.random
        victim = random.choice(fleet.replicas)
        driver_only = random.random() < 0.5
        if kind != MOMENT:
            fleet.close_gate(victim, kind)
            fleet.await_gate(victim, kind)
        at_s = fleet.kill(victim, driver_only=driver_only)
        if kind != MOMENT:
            fleet.open_gate(victim, kind)
        fleet.start(victim, low=len(fleet.replicas) > 1)
        what = f"{victim}'s driver" if driver_only else f"all of {victim}"
        self.faults.append(InjectedFault(kind, what, at_s, fleet.await_joined(victim)))


def broken(
    folder: Path, replicas: tuple[str, ...], kills: int, seed: int
) -> tuple[SparkFleet, list[InjectedFault], StreamVerdict]:
    """Run a fleet with so many kills."""
    folder.mkdir()
    with SparkFleet(folder, replicas, EVENTS_PER_S, EVERY_MS) as fleet:
        killer = Killer(fleet, Random(seed))
        killer.run(kills)
        return fleet, killer.faults, fleet.verdict()


def moments_of_rows(verdict: StreamVerdict) -> list[float]:
    """Return the times at which new rows arrived."""
    return [at_s for at_s, inserts in zip(verdict.arrivals, verdict.inserts) if inserts]


def merged(report: BenchReport, panel: Panel, folder: Path, kills: int, seed: int) -> bool:
    """Two replicas. Whether the output was right."""
    fleet, faults, seen = broken(folder / "merged", ("a", "b"), kills, seed)
    arrivals = moments_of_rows(seen)
    killed = [fault for fault in faults if fault.kind != CONTROL]
    report.note(f"{len(killed)} kills of one of two replicas from seed {seed}: {seen.summary()}")
    stalls = stalls_of(arrivals, faults, WINDOW_S)
    everything = [value for kind in KINDS for value in stalls.get(kind, [])]
    add_rows(report, CONTROL, stalls[CONTROL])
    add_distribution(panel, CONTROL, stalls[CONTROL])
    for kind in (kind for kind in KINDS if kind in stalls):
        add_rows(report, f"one of two killed {kind}", stalls[kind])
    add_rows(report, "one of two killed", everything)
    add_distribution(panel, "one of two killed", everything)
    starting = [stall_ms(arrivals, fault.at_s, fault.at_s + fault.whole_s) for fault in killed]
    add_rows(report, "the longest until it had joined again", starting)
    add_distribution(panel, "the same, until it had joined again", starting)
    add_rows(report, "joined again, after", [fault.whole_s * 1e3 for fault in killed])
    add_rows(report, "a micro-batch", fleet.batch_ms)
    judged(report, everything, stalls[CONTROL], fleet.batch_ms)
    return seen.is_good


def judged(report: BenchReport, stalls: Sequence[float], control: Sequence[float], batch_ms: Sequence[float]) -> None:
    """Note whether the target is reached, beside the same run with nothing broken.

    The length of a micro-batch is the interval of the trigger, or the time that a batch takes if that is more.
    """
    largest, usual = max(stalls), percentile(control, 0.5)
    limit = max(float(EVERY_MS), percentile(batch_ms, 0.5)) + ADDED_MS
    verdict = "reached" if largest <= limit else "MISSED"
    report.note(
        f"target: longest <= one micro-batch + {ADDED_MS:g} ms = {limit:.0f} ms: {verdict} ({largest:.0f} ms; p50 "
        f"{percentile(stalls, 0.5):.0f} ms; with nothing broken p50 {usual:.0f}, longest {max(control):.0f} ms)"
    )


def alone(report: BenchReport, panel: Panel, folder: Path, kills: int, seed: int) -> bool:
    """Run one job without a merge. Return whether the output was right."""
    _, faults, seen = broken(folder / "alone", ("a",), kills, seed)
    arrivals = moments_of_rows(seen)
    killed = [fault for fault in faults if fault.kind != CONTROL]
    report.note(f"one job alone, {len(killed)} kills: {seen.summary()}")
    stalls = [stall_ms(arrivals, fault.at_s, fault.at_s + fault.whole_s) for fault in killed]
    add_rows(report, ALONE, stalls)
    add_distribution(panel, ALONE, stalls)
    return seen.is_good


PARTS = {"merged": merged, "alone": alone}


def main() -> int:
    """Run the parts. Return 0 if every output was right, whatever the times."""
    parser = bench_parser(__doc__, "spark_kills", "one kill in each part")
    parser.add_argument(
        "--kills", type=int, default=52, help="kills of one of two replicas; a fifth as many of a job alone"
    )
    parser.add_argument("--seed", type=int, default=4, help="from which the kills are drawn (%(default)s)")
    parser.add_argument("--part", choices=PARTS, help="run only this part; nothing is written")
    options = parser.parse_args()
    report = begin((__doc__ or "").splitlines()[0])
    report.note(f"pyspark {pyspark.__version__}; {EVENTS_PER_S} rows/s, a micro-batch each {EVERY_MS} ms")
    panel = Panel("a kill", "longest time without new rows, ms", "part of the kills beyond", log="xy")
    right = True
    with tempfile.TemporaryDirectory(prefix="lmerge-spark-kills-", ignore_cleanup_errors=True) as scratch:
        for name in (options.part,) if options.part else PARTS:
            kills = 1 if options.quick else options.kills if name == "merged" else max(1, options.kills // 5)
            right = PARTS[name](report, panel, Path(scratch), kills, options.seed) and right
    report.note(f"load at the end {os.getloadavg()[1]:.1f}")
    if not (options.quick or options.part or options.kills < 50):
        report.save("spark_kills")
        plot("spark_kills", "Stall of the output when a Spark replica is killed", [panel], columns=1)
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
