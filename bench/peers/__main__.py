"""How much faster than a stream processor does lmerge merge the same three recorded inputs?

Target: lmerge native at least 20 times the best peer. The measured time includes reading the recording from files. The
output of every system is compared with the reference before any run counts. Every system has two cores.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from statistics import median

from bench.harness import RESULTS, BenchReport, Measured, begin, bench_parser
from bench.peers.check import verdict
from bench.peers.environments import ENVIRONMENTS, HOME, install
from bench.peers.job import INPUTS
from bench.peers.lmerge_job import engines
from bench.peers.plot import draw
from bench.peers.recording import record
from bench.peers.runner import run

TARGET = 20
VARIANTS = {
    "bytewax": ("1 worker", "2 workers"),
    "flink": ("event time", "processing time"),
    "pathway": ("streaming", "one commit"),
    "spark": ("micro-batches", "one batch"),
}
UNBOUNDED = frozenset({("flink", "processing time"), ("pathway", "one commit"), ("spark", "one batch")})
"""Variants whose state does not expire with event time: easier than the job, to measure the most of the engine."""

SMALLER = {("pathway", "streaming"): 5}
"""Variants with an input that is so many times smaller, because they take so many times longer; the row names it."""


def title_of(name: str, variant: str, events: int) -> str:
    less = SMALLER.get((name, variant))
    return f"{name}, {variant} ({events // less:,} events)" if less else f"{name}, {variant}"


def measure(
    report: BenchReport, name: str, variant: str, python: Path | str, events: int, repeats: int
) -> Measured | None:
    """Run one job and add its row. Return None if its output is wrong or it failed."""
    data = record(HOME / "recordings", events // SMALLER.get((name, variant), 1))
    load = os.getloadavg()[0]
    ran = run(f"bench.peers.{name}_job", variant, python, data, repeats, verdict)
    title = title_of(name, variant, events)
    if ran.wrong:
        report.note(f"{title}: WRONG or failed, not timed: {ran.wrong}")
        return None
    elements = INPUTS * int(data.name)
    row = report.add(title, [elements / seconds for seconds in ran.seconds], "elements/s")
    versions = " ".join(f"{what} {which}" for what, which in ran.versions.items())
    report.note(
        f"{title}: {versions}; output equals the reference; {median(ran.seconds):.1f} s a run; apart from that "
        f"{ran.ready_s:.1f} s to be ready, and {ran.first_run_s:.1f} s for the first run, cold and writing its output; "
        f"load of the machine before it {load:.1f}"
    )
    return row


def conclude(report: BenchReport, ours: list[Measured], peers: list[Measured]) -> None:
    """Note the ratios of this run and whether the target is reached."""
    if not peers:
        report.note("no peer ran: there is nothing to compare with")
        return
    best = max(peers, key=lambda row: row.median)
    for row in ours:
        ratios = ", ".join(f"{peer.name} {row.median / peer.median:.1f}" for peer in peers)
        report.note(f"{row.name} / peer: {ratios}")
    native = max((row for row in ours if "native" in row.name), key=lambda row: row.median, default=None)
    target = f"target: lmerge native at least {TARGET} x the best peer ({best.name})"
    if native is None:
        report.note(f"{target}: not measured, the native engine did not run")
    else:
        ratio = native.median / best.median
        report.note(f"{target}: {'reached' if ratio >= TARGET else 'MISSED'}, {native.name} is {ratio:.1f} x")


def main() -> None:
    parser = bench_parser(__doc__, "peers", "20,000 events, once")
    parser.add_argument("--events", type=int, default=1_000_000, help="events of every input (%(default)s)")
    parser.add_argument("--repeats", type=int, default=3, help="timed runs of every job (%(default)s)")
    parser.add_argument("--only", choices=["lmerge", *VARIANTS], help="only this system; nothing is written")
    args = parser.parse_args()
    events, repeats = (20_000, 1) if args.quick else (args.events, args.repeats)
    report = begin((__doc__ or "").splitlines()[0])
    report.note(f"{events:,} events, which every input carries; one timed run is all rows of {INPUTS} inputs")
    ours, peers = [], []
    if args.only in (None, "lmerge"):
        ours = [measure(report, "lmerge", engine, sys.executable, events, repeats) for engine in engines()]
    for name, variants in VARIANTS.items():
        if args.only in (None, name):
            refused = install(ENVIRONMENTS[name])
            if refused:
                report.note(f"{name}: does not install here: {refused}")
                continue
            python = ENVIRONMENTS[name].python
            peers += [measure(report, name, variant, python, events, repeats) for variant in variants]
    conclude(report, [row for row in ours if row], [row for row in peers if row])
    if args.only is None and not args.quick and report.rows:
        report.save("peers")
        unbounded = frozenset(title_of(name, variant, events) for name, variant in UNBOUNDED)
        subtitle = f"{events:,} events each, 20 % disorder, two cores, from files"
        draw(report.rows, unbounded, "The same merge of three inputs", subtitle, RESULTS / "peers.png")


if __name__ == "__main__":
    main()
