"""How many events a second does each operator of a temporal plan take, native and in Python, and what is the limit?

One core; batches of 8,192 events, in columns before the clock starts (rows for Python). The limit is one hash-table
probe and one addition for each event over the same keys, in the same run. Python takes 50,000 events, or 2,000 of the
snapshot sum: an event enters all snapshots that it overlaps there. Targets, native: filter and projection 30 M;
tumbling count of 1,000 groups with 20 % disorder 10 M final, 5 M by watermark, 2 M eager, at most 4 times the limit;
hopping with 60 windows an event within 2 times of tumbling; snapshot sum, equi-join and top 10: 2 M. In Python 100,000
events/s of the tumbling count.
"""

from __future__ import annotations

import time
from statistics import median

import numpy as np

from bench.harness import BenchReport, Panel, begin, bench_parser, plot
from bench.temporal_streams import BenchCase, cases, native_batches, row_batches, stepped
from lmerge.temporal.columns import AnyDelta

TUMBLING, HOPPING = "tumbling count, final", "hopping count, S/H = 60, final"
PYTHON_TARGET = 100_000
LIMIT = "limit: a probe and an addition"


def rate(case: BenchCase, implementation: str, streams: list[list[AnyDelta]]) -> float:
    """Return the events a second of one run over all sources."""
    began = time.process_time()
    emitted = stepped(case, implementation, streams)
    seconds = time.process_time() - began
    assert emitted, "the query has no result"
    return case.inputs * case.spec.events / seconds


def limit_rate(keys: list[bytes]) -> float:
    """Return the keys a second that are counted in a hash table of the core."""
    from lmerge._native import CountLimit

    limit = CountLimit()
    began = time.process_time()
    for batch in keys:
        limit.apply(batch)
    return sum(len(batch) for batch in keys) / 8 / (time.process_time() - began)


def measure(report: BenchReport, case: BenchCase, repeats: int) -> dict[str, float]:
    """Measure a case in both implementations; return the medians."""
    found: dict[str, float] = {}
    for implementation in ("native", "python"):
        chosen = case if implementation == "native" else case.smaller(case.python_events)
        streams: list[list[AnyDelta]] = [
            native_batches(chosen.spec) if implementation == "native" else list(row_batches(chosen.spec))
        ] * chosen.inputs
        rates = [rate(chosen, implementation, streams) for _ in range(repeats)]
        found[implementation] = report.add(f"{implementation}, {case.name}", rates, "events/s").median
    return found


def judge(report: BenchReport, all_cases: list[BenchCase], found: dict[str, dict[str, float]], limit: float) -> None:
    for case in all_cases:
        native, python = found[case.name]["native"], found[case.name]["python"]
        verdict = "" if not case.target else f"; target {case.target / 1e6:g} M: "
        verdict += "" if not case.target else "reached" if native >= case.target else "MISSED"
        report.note(f"{case.name}: {native / 1e6:.2f} M events/s native, {native / python:.0f} times Python{verdict}")
    tumbling, hopping = found[TUMBLING]["native"], found[HOPPING]["native"]
    ratio = limit / tumbling
    report.note(f"limit / {TUMBLING} = {ratio:.1f}; target 4: {'reached' if ratio <= 4 else 'MISSED'}")
    ratio = tumbling / hopping
    report.note(f"{TUMBLING} / {HOPPING} = {ratio:.1f}; target 2: {'reached' if ratio <= 2 else 'MISSED'}")
    python = found[TUMBLING]["python"]
    verdict = "reached" if python >= PYTHON_TARGET else "MISSED"
    report.note(f"{TUMBLING} in Python: {python:,.0f} events/s; target {PYTHON_TARGET:,}: {verdict}")


def main() -> None:
    parser = bench_parser(__doc__, "temporal_operators", "fewer events")
    quick = parser.parse_args().quick
    report = begin((__doc__ or "").splitlines()[0])
    repeats = 3 if quick else 7
    all_cases = [case.smaller(200_000) if quick else case for case in cases()]
    random = np.random.default_rng(15)
    keys = [random.integers(0, 1_000, 8_192).astype(np.int64).tobytes() for _ in range(250)]
    limit = median(report.add(LIMIT, [limit_rate(keys) for _ in range(repeats)], "events/s").values)
    found = {case.name: measure(report, case, repeats) for case in all_cases}
    judge(report, all_cases, found, limit)
    if quick:
        return
    panel = Panel("one core, batches of 8,192", "operator", "events/s", log="y")
    for at, case in enumerate(all_cases, 1):
        for implementation in ("native", "python"):
            row = next(row for row in report.rows if row.name == f"{implementation}, {case.name}")
            panel.add(implementation, at, row)
    plot("temporal_operators", report.question, [panel], columns=1)
    report.save("temporal_operators")


if __name__ == "__main__":
    main()
