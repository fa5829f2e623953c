"""Does the time of a stable depend on how many events are alive?

The same number of changes per stable (100 events begin, 100 end) at 1,000 to 1,000,000 live events; R3, one input.
Target: at 1,000,000 at most 1.5 times as long as at 1,000.
"""

from __future__ import annotations

import time
from statistics import median

from bench.harness import begin
from lmerge.core.batch import Batch, BatchBuilder
from lmerge.core.merge import Merge

CHANGES = 100
STABLES = 400
REPEATS = 5


def stables(live: int) -> float:
    """Median microseconds of one stable with ``live`` events alive."""
    merge = Merge("r3")
    merge.attach("a", ("key",))
    at = 0
    while at < live:
        builder = BatchBuilder()
        for _ in range(min(10_000, live)):
            builder.insert(b"%016d" % at, at, at + live)
            at += 1
        builder.stable(at)
        merge.apply("a", builder.build())
    times = []
    for _ in range(STABLES):
        builder = BatchBuilder()
        for _ in range(CHANGES):
            builder.insert(b"%016d" % at, at, at + live)
            at += 1
        merge.apply("a", builder.build())
        stable = Batch.of([])
        builder = BatchBuilder()
        builder.stable(at)
        stable = builder.build()
        began = time.perf_counter()
        merge.apply("a", stable)
        times.append(time.perf_counter() - began)
    return median(times) * 1e6


def main() -> None:
    report = begin((__doc__ or "").splitlines()[0])
    rows = {}
    for live in (1_000, 10_000, 100_000, 1_000_000):
        rows[live] = report.add(f"stable with {live:,} live events", [stables(live) for _ in range(REPEATS)], "us")
    ratio = rows[1_000_000].median / rows[1_000].median
    report.note(f"1,000,000 / 1,000 = {ratio:.2f}; target 1.5: {'reached' if ratio <= 1.5 else 'MISSED'}")
    report.save("core_stable")


if __name__ == "__main__":
    main()
