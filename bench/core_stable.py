"""Does the time of a stable, or of an insert, depend on the number of live events?

The same number of changes per stable (100 events begin, 100 end) at 1,000 to 1,000,000 live events of 16 bytes; R3,
one input, both engines. Targets for 1,000,000 against 1,000 live events: at most 1.5 times as long in Python, 1.3 times
native.

Each stable, and the 100 inserts before it, are timed alone. The sizes take turns, so that other load on the machine
hits all alike. The spread of single ones within a run (p10 to p90) is reported beside the medians.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from statistics import median, quantiles
from typing import Any

from bench.core_runs import NATIVE, PYTHON, CoreRun
from bench.harness import BenchReport, Panel, begin, bench_parser, plot
from lmerge._native import Columns
from lmerge.core.batch import Batch, BatchBuilder

SIZES = (1_000, 10_000, 100_000, 1_000_000)
TARGETS = {NATIVE: 1.3, PYTHON: 1.5}
CHANGES = 100
INSERTS = f"{CHANGES} inserts"
TIMED = ("stable", INSERTS)
STABLES = 400
WARM_UP = 40
REPEATS = 7


class Steady:
    """A merge with ``live`` live events. 100 events begin and 100 end at every stable."""

    def __init__(self, engine: str, live: int) -> None:
        self.live, self.at, self.engine = live, 0, engine
        self.run = CoreRun(engine, "r3", 1)
        while self.at < live:
            self.run.feed([(0, self._batch(self._inserts(min(10_000, live))))])
            self.run.feed([(0, self._batch(self._stable()))])
        self.times(WARM_UP)

    def times(self, count: int) -> dict[str, list[float]]:
        """Return the microseconds of each of ``count`` stables, and of the inserts before each."""
        times: dict[str, list[float]] = {what: [] for what in TIMED}
        for _ in range(count):
            for what, builder in ((INSERTS, self._inserts(CHANGES)), ("stable", self._stable())):
                order: Any = [(0, self._batch(builder))]
                began = time.perf_counter()
                self.run.feed(order)
                times[what].append((time.perf_counter() - began) * 1e6)
        return times

    def _inserts(self, count: int) -> BatchBuilder:
        builder = BatchBuilder()
        for _ in range(count):
            builder.insert(b"%016d" % self.at, self.at, self.at + self.live)
            self.at += 1
        return builder

    def _stable(self) -> BatchBuilder:
        builder = BatchBuilder()
        builder.stable(self.at)
        return builder

    def _batch(self, builder: BatchBuilder) -> Batch | Columns:
        return Columns.of(builder.build()) if self.engine == NATIVE else builder.build()


def measured(engine: str, stables: int) -> Iterator[dict[int, dict[str, list[float]]]]:
    """Yield the times by size and by what was timed, once per repeat."""
    steady = {live: Steady(engine, live) for live in SIZES}
    for _ in range(REPEATS):
        yield {live: merge.times(stables) for live, merge in steady.items()}


def report_one(
    report: BenchReport, panel: Panel, engine: str, what: str, repeats: list[dict[int, list[float]]]
) -> None:
    """Report the times of ``what`` by size, and their ratio. ``repeats``: the times of each repeat."""
    for live in SIZES:
        name = f"{engine}, {what} with {live:,} live events"
        panel.add(engine, live, report.add(name, [median(times[live]) for times in repeats], "us"))
        single = quantiles([t for times in repeats for t in times[live]], n=10)
        report.note(f"  of single ones: p10 {single[0]:.1f}, p90 {single[-1]:.1f} us")
    ratios = [median(times[SIZES[-1]]) / median(times[SIZES[0]]) for times in repeats]
    ratio = median(ratios)
    spread = f"{min(ratios):.2f} to {max(ratios):.2f} over {REPEATS} repeats"
    verdict = f"target {TARGETS[engine]}: {'reached' if ratio <= TARGETS[engine] else 'MISSED'}"
    report.note(f"{engine}, {what}: 1,000,000 / 1,000 = {ratio:.2f} ({spread}); {verdict}")


def main() -> None:
    parser = bench_parser(__doc__, "core_stable", "50 stables a repeat")
    quick = parser.parse_args().quick
    report = begin((__doc__ or "").splitlines()[0])
    panels = {what: Panel(f"{what}: 100 events begin, 100 end", "live events", "us", log="xy") for what in TIMED}
    for engine in (NATIVE, PYTHON):
        repeats = list(measured(engine, 50 if quick else STABLES))
        for what, panel in panels.items():
            report_one(report, panel, engine, what, [{live: t[what] for live, t in times.items()} for times in repeats])
    if not quick:
        plot("core_stable", report.question, list(panels.values()))
        report.save("core_stable")


if __name__ == "__main__":
    main()
