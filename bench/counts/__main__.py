"""How much faster than a stream processor does lmerge count rows by key and window, and how near is it to a database?

The same rows, 20 % of them late, from files; the output of every system is checked before any run counts. Every system
has two cores. Targets: lmerge's native implementation at least 10 times the best peer that is a stream processor's own
operator, and within 4 times of DuckDB and Polars, which compute one batch over the same Arrow data. Bytewax's count
"by hand" is a Counter in Python, without an operator of windows: it stands beside them for comparison.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from statistics import median
from typing import Final

from bench.counts.lmerge_job import variants
from bench.counts.recording import record, verdict
from bench.harness import RESULTS, BenchReport, Measured, begin, bench_parser
from bench.peers.environments import ENVIRONMENTS, HOME, install
from bench.peers.plot import draw
from bench.peers.runner import run

STREAMS: Final = {
    "bytewax": ("count_window", "by hand, 1 worker", "by hand, 2 workers"),
    "flink": ("event time",),
    "pathway": ("streaming",),
    "spark": ("micro-batches",),
}
BATCHES: Final = {
    "duckdb": ("1 thread", "2 threads"),
    "polars": ("1 thread", "2 threads"),
    "pathway": ("one commit",),
    "spark": ("one batch",),
}
SMALLER: Final = {("pathway", "streaming"): 20, ("bytewax", "count_window"): 10, ("lmerge", "python, final"): 10}
"""Variants with an input that is so many times smaller, because they take so many times longer; the row names it."""


def title_of(name: str, variant: str, events: int) -> str:
    less = SMALLER.get((name, variant))
    return f"{name}, {variant} ({events // less:,} rows)" if less else f"{name}, {variant}"


def measure(report: BenchReport, name: str, variant: str, events: int, repeats: int) -> Measured | None:
    """Run one job and add its row. Return None if its output is wrong or it failed."""
    python: Path | str = ENVIRONMENTS[name].python if name in ENVIRONMENTS else sys.executable
    rows = events // SMALLER.get((name, variant), 1)
    data = record((HOME / "recordings").absolute(), rows)
    load = os.getloadavg()[0]
    ran = run(f"bench.counts.{name}_job", variant, python, data, repeats, verdict)
    title = title_of(name, variant, events)
    if ran.wrong:
        report.note(f"{title}: WRONG or failed, not timed: {ran.wrong}")
        return None
    row = report.add(title, [rows / seconds for seconds in ran.seconds], "rows/s")
    versions = " ".join(f"{what} {which}" for what, which in ran.versions.items())
    report.note(
        f"{title}: {versions}; output right; {median(ran.seconds):.2f} s a run; apart from that {ran.ready_s:.1f} s to "
        f"be ready, {ran.first_run_s:.1f} s for the first run with output; load of the machine before it {load:.1f}"
    )
    return row


def conclude(report: BenchReport, ours: list[Measured], streams: list[Measured], batches: list[Measured]) -> None:
    """Note the ratios of this run and whether the targets are reached."""
    native = max((row for row in ours if "native" in row.name), key=lambda row: row.median, default=None)
    if native is None:
        report.note("no native implementation ran: the targets were not measured")
        return
    own = [row for row in streams if "by hand" not in row.name]
    for what, rows in (("stream", streams), ("batch", batches)):
        for row in rows:
            report.note(f"{native.name} / {what} {row.name} = {native.median / row.median:.2f}")
    if own:
        best = max(own, key=lambda row: row.median)
        ratio = native.median / best.median
        report.note(f"target 10 x {best.name}: {'reached' if ratio >= 10 else 'MISSED'}, {ratio:.1f}")
    if batches:
        best = max(batches, key=lambda row: row.median)
        ratio = best.median / native.median
        report.note(f"target within 4 x of {best.name}: {'reached' if ratio <= 4 else 'MISSED'}, {ratio:.1f}")


def main() -> None:
    parser = bench_parser(__doc__, "counts", "100,000 rows, once")
    parser.add_argument("--events", type=int, default=4_000_000, help="rows (%(default)s)")
    parser.add_argument("--repeats", type=int, default=5, help="timed runs of every job (%(default)s)")
    parser.add_argument("--only", choices=["lmerge", *STREAMS, *BATCHES], help="only this system; nothing is written")
    args = parser.parse_args()
    events, repeats = (100_000, 1) if args.quick else (args.events, args.repeats)
    report = begin((__doc__ or "").splitlines()[0])
    report.note(f"{events:,} rows, 1,000 keys, windows of 10,000 starts; one timed run is all rows")
    found: dict[str, list[Measured]] = {"ours": [], "streams": [], "batches": []}
    jobs = [("ours", "lmerge", variant) for variant in variants()]
    jobs += [("streams", name, variant) for name, names in STREAMS.items() for variant in names]
    jobs += [("batches", name, variant) for name, names in BATCHES.items() for variant in names]
    for kind, name, variant in jobs:
        if args.only not in (None, name):
            continue
        refused = install(ENVIRONMENTS[name]) if name in ENVIRONMENTS else ""
        if refused:
            report.note(f"{name}: does not install here: {refused}")
        elif (row := measure(report, name, variant, events, repeats)) is not None:
            found[kind].append(row)
    conclude(report, found["ours"], found["streams"], found["batches"])
    if args.only is None and not args.quick and report.rows:
        report.save("counts")
        unbounded = frozenset(row.name for row in found["batches"])
        subtitle = f"{events:,} rows, 20 % of them late, two cores, from files"
        draw(report.rows, unbounded, "The same count by key and window", subtitle, RESULTS / "counts.png")


if __name__ == "__main__":
    main()
