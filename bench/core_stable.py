"""Does the time of a stable depend on how many events are alive?

The same number of changes per stable (100 events begin, 100 end) at 1,000 to 1,000,000 live events of 16 bytes; R3,
one input, both engines. Targets, 1,000,000 beside 1,000 live events: at most 1.5 times as long in Python, 1.3 times
native.

Each stable is timed for itself. The sizes take turns, so that what else the machine does hits them alike; the spread
within a run is that of single stables (p10 to p90), and is reported beside the medians.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from statistics import median, quantiles
from typing import Any

from bench.core_runs import NATIVE, PYTHON, CoreRun
from bench.harness import Panel, begin, plot
from lmerge._native import Columns
from lmerge.core.batch import Batch, BatchBuilder

SIZES = (1_000, 10_000, 100_000, 1_000_000)
TARGETS = {NATIVE: 1.3, PYTHON: 1.5}
CHANGES = 100
STABLES = 400
WARM_UP = 40
REPEATS = 7


class Steady:
    """A merge with ``live`` events alive, in which 100 begin and 100 end at every stable."""

    def __init__(self, engine: str, live: int) -> None:
        self.live, self.at, self.engine = live, 0, engine
        self.run = CoreRun(engine, "r3", 1)
        while self.at < live:
            self.run.feed([(0, self._batch(self._inserts(min(10_000, live))))])
            self.run.feed([(0, self._batch(self._stable()))])
        self.times(WARM_UP)

    def times(self, count: int) -> list[float]:
        """Microseconds of each of ``count`` stables."""
        times = []
        for _ in range(count):
            self.run.feed([(0, self._batch(self._inserts(CHANGES)))])
            order: Any = [(0, self._batch(self._stable()))]
            began = time.perf_counter()
            self.run.feed(order)
            times.append((time.perf_counter() - began) * 1e6)
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


def measured(engine: str, stables: int) -> Iterator[dict[int, list[float]]]:
    """Times by size, once per repeat."""
    steady = {live: Steady(engine, live) for live in SIZES}
    for _ in range(REPEATS):
        yield {live: merge.times(stables) for live, merge in steady.items()}


def main() -> None:
    report = begin((__doc__ or "").splitlines()[0])
    panel = Panel("100 events begin, 100 end", "live events", "us a stable", log="xy")
    for engine in (NATIVE, PYTHON):
        repeats = list(measured(engine, 50 if "--quick" in sys.argv else STABLES))
        for live in SIZES:
            name = f"{engine}, stable with {live:,} live events"
            panel.add(engine, live, report.add(name, [median(times[live]) for times in repeats], "us"))
            single = quantiles([t for times in repeats for t in times[live]], n=10)
            report.note(f"  of single stables: p10 {single[0]:.1f}, p90 {single[-1]:.1f} us")
        ratios = [median(times[SIZES[-1]]) / median(times[SIZES[0]]) for times in repeats]
        ratio = median(ratios)
        spread = f"{min(ratios):.2f} to {max(ratios):.2f} over {REPEATS} repeats"
        verdict = f"target {TARGETS[engine]}: {'reached' if ratio <= TARGETS[engine] else 'MISSED'}"
        report.note(f"{engine}: 1,000,000 / 1,000 = {ratio:.2f} ({spread}); {verdict}")
    plot("core_stable", report.question, [panel], columns=1)
    report.save("core_stable")


if __name__ == "__main__":
    main()
