"""Does an hour at 20,000 elements/s leave every process as large as it was, with nothing lost and nothing twice?

Real processes: 3 replicas of 6,667 elements/s each, 2 servers, one reader of both that checks every element. Once a
minute a replica is killed and started again, every ten minutes the second server; one process of each kind lives for
the whole run. The resident memory of all is read every 5 s.

Memory is flat if, after the warm-up, the line through it rises by less than 1 MB an hour, or if the 95 % confidence
interval of its slope holds 0. The line goes through the medians of 20 equal parts of the time: single samples are
correlated and would make the interval too narrow. The warm-up is a third of the run: by then the retained output and
input of a server are full, and the allocators have had most of the largest bursts.
"""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path
from random import Random
from statistics import fmean, median
from typing import NamedTuple

import psutil

from bench.harness import BenchReport, Measured, Panel, begin, bench_parser, plot
from bench.rig.fleet import READER, FleetSpec, RigFleet, import_all
from bench.rig.stream import ReferenceStream

EVENTS_PER_S = 5_334  # with adjusts and stables 6,667 elements/s of each replica
SAMPLE_S = 5.0
REPLICA_KILL_S, SERVER_KILL_S = 60.0, 600.0
KILLED_REPLICAS, KILLED_SERVER = ("a", "b"), "s2"
WARM_PART = 1 / 3
PARTS = 20
T_95 = 2.101  # Student's t for 18 degrees of freedom, two-sided 95 %
SLOPE_MB_PER_H_MAX = 1.0


class Slope(NamedTuple):
    """The slope in MB an hour, and half the width of its 95 % confidence interval."""

    mb_per_h: float
    half_width: float

    @property
    def is_flat(self) -> bool:
        """Whether memory is flat by the criterion of the module. Memory that shrinks is flat."""
        return self.mb_per_h < SLOPE_MB_PER_H_MAX or self.mb_per_h - self.half_width <= 0


def slope(samples: list[tuple[float, float]]) -> Slope:
    """Return the slope of the line through (seconds, MB), by the medians of PARTS equal parts."""
    size = len(samples) / PARTS
    parts = [samples[int(at * size) : int((at + 1) * size)] for at in range(PARTS)]
    x = [fmean(second for second, _ in part) / 3600 for part in parts]
    y = [median(mb for _, mb in part) for part in parts]
    x_mean, y_mean = fmean(x), fmean(y)
    spread = sum((a - x_mean) ** 2 for a in x)
    rise = sum((a - x_mean) * (b - y_mean) for a, b in zip(x, y)) / spread
    rest = sum((b - y_mean - rise * (a - x_mean)) ** 2 for a, b in zip(x, y))
    return Slope(rise, T_95 * (rest / (PARTS - 2) / spread) ** 0.5)


class Soak:
    """One run with kills and samples at fixed intervals."""

    def __init__(self, fleet: RigFleet, seconds: float, seed: int) -> None:
        self.fleet, self.seconds = fleet, seconds
        self.memory: dict[str, list[tuple[float, float]]] = {name: [] for name in fleet.processes}
        self.cpu: dict[str, list[float]] = {name: [] for name in fleet.processes}
        self.gaps_ms: list[float] = []
        self.kills = 0
        self._random = Random(seed)

    def run(self) -> None:
        """Run until the time is over."""
        began_s = time.monotonic()
        next_sample, next_kill, next_server = SAMPLE_S, REPLICA_KILL_S, SERVER_KILL_S
        while (now := time.monotonic() - began_s) < self.seconds:
            self.fleet.read_messages(min(0.5, max(0.01, next_sample - now)))
            if now >= next_sample:
                next_sample += SAMPLE_S
                self._sample(now)
            if now >= next_kill:
                next_kill += REPLICA_KILL_S
                self._kill(self._random.choice(KILLED_REPLICAS))
            if now >= next_server:
                next_server += SERVER_KILL_S
                self._kill(KILLED_SERVER)

    def _sample(self, now: float) -> None:
        for name, process in self.fleet.processes.items():
            watched = psutil.Process(process.pid)
            self.memory[name].append((now, watched.memory_info().rss / 1e6))
            if name in self.long_lived:
                self.cpu[name].append(sum(watched.cpu_times()[:2]))
        self.gaps_ms.append(self.fleet.output.gap_s * 1e3)
        self.fleet.ask_output()
        if len(self.gaps_ms) % 60 == 0:
            sizes = ", ".join(f"{name} {samples[-1][1]:.0f}" for name, samples in self.memory.items())
            print(f"    {now / 60:4.0f} min: {self.fleet.output.elements:,} elements out; MB: {sizes}", flush=True)

    def _kill(self, name: str) -> None:
        self.fleet.await_whole()
        self.fleet.processes[name].kill()
        self.kills += 1
        if name in self.fleet.spec.servers:
            self.fleet.start_server(name)
        else:
            self.fleet.start_replica(name)

    @property
    def long_lived(self) -> list[str]:
        """The processes that are not killed."""
        return [name for name in self.memory if name not in (*KILLED_REPLICAS, KILLED_SERVER)]


def judge_memory(report: BenchReport, soak: Soak) -> bool:
    """Add a row for each process that has run all the time. Return whether all are flat."""
    warm_s, all_flat = soak.seconds * WARM_PART, True
    for name in soak.long_lived:
        samples = [sample for sample in soak.memory[name] if sample[0] >= warm_s]
        found = slope(samples)
        all_flat = all_flat and found.is_flat
        report.add(f"{name}: resident memory", [mb for _, mb in samples], "MB")
        report.note(
            f"{name}: {found.mb_per_h:+.2f} +- {found.half_width:.2f} MB/h: {'flat' if found.is_flat else 'GROWS'}; "
            f"{(soak.cpu[name][-1] - soak.cpu[name][0]) / (soak.seconds - SAMPLE_S):.2f} cores"
        )
    return all_flat


def main() -> None:
    parser = bench_parser(__doc__, "soak", "three minutes")
    parser.add_argument("--minutes", type=float, default=60.0, help="length of the run (%(default)s)")
    parser.add_argument("--seed", type=int, default=4, help="from which the victims are drawn (%(default)s)")
    options = parser.parse_args()
    import_all()
    report = begin((__doc__ or "").splitlines()[0])
    seconds = 180.0 if options.quick else options.minutes * 60
    reference = ReferenceStream(events_per_s=EVENTS_PER_S)
    spec = FleetSpec(reference, events_max=int((seconds + 120) * EVENTS_PER_S))
    with (
        tempfile.TemporaryDirectory(prefix="lmerge-soak-", ignore_cleanup_errors=True) as folder,
        RigFleet(spec, Path(folder)) as fleet,
    ):
        fleet.await_whole()
        soak = Soak(fleet, seconds, options.seed)
        soak.run()
        fleet.await_whole()
        seen = fleet.finish()
    report.note(f"{seconds / 60:g} minutes, {seen.elements:,} elements out, {soak.kills} kills: {seen.summary()}")
    report.add("longest time without output in 5 s", soak.gaps_ms[1:], "ms")
    all_flat = judge_memory(report, soak)
    report.note(
        f"target memory flat, nothing lost, nothing twice: {'reached' if all_flat and seen.is_good else 'MISSED'}; "
        f"load {os.getloadavg()[2]:.1f}"
    )
    if not options.quick:
        panel = Panel("resident memory of each process", "minutes", "MB", is_plain=True)
        for name, samples in soak.memory.items():
            label = f"reader ({name})" if name == READER else name
            for second, mb in samples[::6]:
                panel.add(label, second / 60, Measured(name, [mb], "MB"))
        report.save("soak")
        plot("soak", "An hour at 20,000 elements/s, with a kill a minute", [panel], columns=1)


if __name__ == "__main__":
    main()
