"""What do latency, stables, memory and snapshots of a temporal plan cost, and do they stay flat as state grows?

One core, native operators where they are built. Targets: one event through five operators p99 at most 0.5 ms; a stable
over 1,000,000 groups at most 1.3 times as long as over 1,000, with the same changes; memory flat over 100 M events of
bounded lifetimes; snapshot and restore of 1,000,000 live events at most 2 s each.
"""

from __future__ import annotations

import gc
import resource
import time
from statistics import median, quantiles
from typing import Any

import lmerge.temporal as lt
from bench.harness import BenchReport, begin, bench_parser
from bench.temporal_streams import READINGS, StreamSpec, native_batches
from lmerge.core.elements import INF
from lmerge.temporal.changes import Change
from lmerge.temporal.plan.compiling import compile_plan
from lmerge.temporal.running import QueryRun

CHANGES = 100
STABLES = 200


def latency(report: BenchReport, events: int) -> None:
    """Time one event at a time, with a stable behind it, through five operators that are not fused."""
    readings = lt.source("readings", READINGS)
    plan = readings.where(lt.col.a > 15).union(readings.where(lt.col.a < 10)).coalesce()
    plan = plan.group_by("key").tumbling(1_000).agg(n=lt.count(), form="eager").where(lt.col.n > 0)
    run = QueryRun({"result": plan.node})
    times = []
    for at in range(events):
        items: list[Any] = [Change((at % 100, at % 100, at % 7, 0.5), at, at, at + 1), at]
        began = time.perf_counter()
        run.take("readings", items)
        times.append((time.perf_counter() - began) * 1e3)
    warm = times[events // 10 :]
    p99 = quantiles(warm, n=100)[98]
    report.add("one event through five operators, p50", [median(warm)], "ms")
    report.add("one event through five operators, p99", [p99], "ms")
    report.note(f"p99 of one event {p99:.3f} ms; target 0.5: {'reached' if p99 <= 0.5 else 'MISSED'}")


def stable_ms(groups: int) -> list[float]:
    """Return the milliseconds of each stable of a grouped count with so many open groups, 100 of which change."""
    readings = lt.source("readings", READINGS)
    counted = readings.group_by("key").tumbling(1_000_000_000).agg(n=lt.count(), form="eager")
    run = QueryRun({"result": counted.node})
    for first in range(0, groups, 50_000):
        run.take("readings", [Change((key, 1, 1, 0.5), 1, 1, 2) for key in range(first, min(groups, first + 50_000))])
    times = []
    for at in range(2, STABLES + 2):
        run.take("readings", [Change((key, at, 1, 0.5), at, at, at + 1) for key in range(CHANGES)])
        began = time.perf_counter()
        run.take("readings", [at])
        times.append((time.perf_counter() - began) * 1e3)
    return times


def stables(report: BenchReport, sizes: tuple[int, ...]) -> None:
    found = {size: report.add(f"stable over {size:,} groups", stable_ms(size), "ms").median for size in sizes}
    ratio = found[sizes[-1]] / found[sizes[0]]
    verdict = "reached" if ratio <= 1.3 else "MISSED"
    report.note(f"stable over {sizes[-1]:,} / {sizes[0]:,} groups = {ratio:.2f}; target 1.3: {verdict}")


def memory(report: BenchReport, events: int) -> None:
    """Run events of bounded lifetimes through a window, and look at the memory of this process."""
    readings = lt.source("readings", READINGS)
    graph = compile_plan([readings.group_by("key").hopping(10_000, 1_000).agg(n=lt.count()).node]).graph("auto")
    spec = StreamSpec(1_000_000, duration=100, disorder=0.2)
    sizes = []
    for turn in range(events // spec.events):
        for batch in native_batches(spec)[:-1]:
            graph.advance_columns([_moved(batch, turn * spec.events)])
        gc.collect()
        sizes.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
    report.add("memory", sizes, "MB")
    rise = sizes[-1] - sizes[len(sizes) // 5]
    report.note(
        f"memory rises by {rise:.1f} MB from the first fifth to the end of {events:,} events; live: {graph.live():,}"
    )


def _moved(batch: Any, by: int) -> Any:
    """Return a batch later by some time."""
    import pyarrow as pa
    import pyarrow.compute as pc

    from lmerge.temporal.native.step import column_form
    from lmerge.wire.schema import parse_schema

    times = pa.record_batch(batch.times())
    moved = pa.record_batch({"start": pc.add(times["vs"], by), "end": pc.add(times["new"], by)})
    stable = None if batch.stable is None else batch.stable + by
    rows = pa.record_batch(batch.rows())
    return column_form(parse_schema(READINGS)).inserts(
        rows, moved, stable, None if batch.mark is None else batch.mark + by
    )


def snapshots(report: BenchReport, live: int, repeats: int) -> None:
    """Snapshot and restore a join with so many live events."""
    readings, others = lt.source("readings", READINGS), lt.source("others", READINGS)
    joined = readings.join(others, on="a").node
    run = QueryRun({"result": joined})
    for first in range(0, live, 50_000):
        run.take(
            "readings", [Change((at, at, at % 7, 0.5), at, at, INF) for at in range(first, min(live, first + 50_000))]
        )
    saved, restored = [], []
    for _ in range(repeats):
        began = time.perf_counter()
        data = run.dump()
        saved.append(time.perf_counter() - began)
        began = time.perf_counter()
        again = QueryRun.load(data, {"result": joined})
        restored.append(time.perf_counter() - began)
        assert len(again.entrances["readings"].live) == live
    for what, values in (("snapshot", saved), ("restore", restored)):
        row = report.add(f"{what} of {live:,} live events", values, "s")
        report.note(f"{what} {row.median:.2f} s; target 2: {'reached' if row.median <= 2 else 'MISSED'}")


def main() -> None:
    parser = bench_parser(__doc__, "temporal_costs", "smaller")
    quick = parser.parse_args().quick
    report = begin((__doc__ or "").splitlines()[0])
    latency(report, 2_000 if quick else 20_000)
    stables(report, (1_000, 20_000) if quick else (1_000, 100_000, 1_000_000))
    memory(report, 2_000_000 if quick else 100_000_000)
    snapshots(report, 50_000 if quick else 1_000_000, 1 if quick else 3)
    if not quick:
        report.save("temporal_costs")


if __name__ == "__main__":
    main()
