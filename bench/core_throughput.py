"""How many elements a second does the core merge, by algorithm, engine and payload, and how far is that from the limit?

Three inputs, 10,000 live events, 1 % stables, 20 % disorder (R0-R2 need order: the same events in order); CPU time of
one core; batches of 4,096 elements, in columns before the clock starts. Targets: R0 and R1 with the live output at
least 40 M elements/s at 16 bytes; R3 within 2x of one hash-table probe per element over the same data at 16 bytes
(native/core/src/limit.rs describes that limit), and 1.8x at 100 and 1,000; R4 within 1.2x of R3. The three are measured
in turns.

"50 % revised": half of the events first come with a wrong end, and are adjusted later, so a third of the elements are
adjusts. All other rows have none.

The index of R3, R3- and R4 is the live output. R0-R2 need none. Rows with "live" track it for late subscribers and
switches, as the service does.
"""

from __future__ import annotations

from dataclasses import replace

from bench.core_runs import CLEANSED, KINDS, LIMIT, NATIVE, ORDERED, PYTHON, Order, merge_rates, prepare, rates
from bench.harness import BenchReport, Measured, Panel, begin, bench_parser, plot
from lmerge.testing.streams.large_inputs import LARGE, LargeInputs

INPUTS = 3
PAYLOADS = (16, 100, 1_000)
BATCH_ROWS = 4_096
TARGETS = {("r0", 16): 40e6, ("r1", 16): 40e6}
LIMIT_TARGETS = {16: 2.0, 100: 1.8, 1_000: 1.8}
R4_TARGET = 1.2
REVISED = 0.5
SLOW = ("r3-", CLEANSED)
INDEXED = ("r3", "r4")


def stream(engine: str, kind: str, payload_bytes: int, quick: bool, revised: float = 0.0) -> Order:
    events = 20_000 if quick or engine == PYTHON else 200_000 if payload_bytes < 1_000 else 60_000
    if kind in SLOW:
        events = min(events, 60_000)
    disorder = 0.0 if kind in ORDERED else 0.2
    spec = LargeInputs(
        replace(LARGE, events=events, displaced=disorder, revised=revised),
        payload_bytes=payload_bytes,
        inputs=INPUTS,
        batch_rows=BATCH_ROWS,
    )
    return prepare(engine, spec)


def measure(report: BenchReport, quick: bool) -> dict[tuple[str, str, int, bool], Measured]:
    """Return rates by engine, algorithm, payload size and whether the live output is tracked."""
    found: dict[tuple[str, str, int, bool], Measured] = {}
    for engine in (NATIVE, PYTHON):
        for payload_bytes in PAYLOADS:
            orders: dict[tuple[bool, bool], Order] = {}
            for kind in KINDS:
                shape = (kind in ORDERED, kind in SLOW)
                if shape not in orders:
                    orders[shape] = stream(engine, kind, payload_bytes, quick)
                if engine == NATIVE and kind in INDEXED:
                    if kind == INDEXED[0]:
                        found |= beside_limit(report, orders[shape], payload_bytes, 3 if quick else 15)
                    continue
                for live in (False, True) if kind in (*ORDERED, CLEANSED) else (False,):
                    repeats = 3 if quick or engine == PYTHON else 5 if kind in SLOW else 11
                    values = rates(engine, kind, orders[shape], INPUTS, repeats, live=live)
                    name = f"{engine}, {kind}{', live' if live else ''}, {payload_bytes:,} bytes"
                    found[engine, kind, payload_bytes, live] = report.add(name, values, "elements/s")
            if engine == NATIVE and payload_bytes == PAYLOADS[0]:
                for kind in ("r0", "r3"):
                    values = merge_rates(kind, orders[kind in ORDERED, False], INPUTS, 3 if quick else 11)
                    report.add(f"native, {kind} through Merge, live, {payload_bytes} bytes", values, "elements/s")
                order = stream(engine, "r3", payload_bytes, quick, REVISED)
                for kind in INDEXED:
                    values = rates(engine, kind, order, INPUTS, 3 if quick else 11)
                    report.add(f"native, {kind}, {payload_bytes} bytes, 50 % revised", values, "elements/s")
    return found


def beside_limit(
    report: BenchReport, order: Order, payload_bytes: int, repeats: int
) -> dict[tuple[str, str, int, bool], Measured]:
    """Measure R3, R4 and the limit in turns, so that other load on the machine hits all."""
    values: dict[str, list[float]] = {**{kind: [] for kind in INDEXED}, LIMIT: []}
    for _ in range(repeats):
        for kind, measured in values.items():
            measured += rates(NATIVE, kind, order, INPUTS, 1)
    ratios = [limit / r3 for r3, limit in zip(values["r3"], values[LIMIT], strict=True)]
    report.add(f"limit / native r3, {payload_bytes:,} bytes", ratios, "times")
    ratios = [r3 / r4 for r3, r4 in zip(values["r3"], values["r4"], strict=True)]
    report.add(f"native r3 / native r4, {payload_bytes:,} bytes", ratios, "times")
    return {
        (NATIVE, kind, payload_bytes, False): report.add(f"native, {kind}, {payload_bytes:,} bytes", rows, "elements/s")
        for kind, rows in values.items()
    }


def judge(report: BenchReport, found: dict[tuple[str, str, int, bool], Measured]) -> None:
    for (kind, payload_bytes), target in TARGETS.items():
        for live in (False, True):
            rate = found.get((NATIVE, kind, payload_bytes, live))
            if rate is not None:
                verdict = "reached" if rate.median >= target else "MISSED"
                name = f"native {kind}{' with the live output' if live else ''} at {payload_bytes:,} bytes"
                report.note(f"{name}: {rate.median / 1e6:.1f} M elements/s; target {target / 1e6:.1f} M: {verdict}")
    medians = {row.name: row.median for row in report.rows}
    for payload_bytes, target in LIMIT_TARGETS.items():
        for what, most in (("limit / native r3", target), ("native r3 / native r4", R4_TARGET)):
            ratio = medians[f"{what}, {payload_bytes:,} bytes"]
            verdict = "reached" if ratio <= most else "MISSED"
            report.note(f"{what} at {payload_bytes:,} bytes = {ratio:.2f}; target {most:g}: {verdict}")
    for kind in KINDS:
        ratio = found[NATIVE, kind, 16, False].median / found[PYTHON, kind, 16, False].median
        report.note(f"native / Python, {kind} at 16 bytes = {ratio:.1f}")


def main() -> None:
    parser = bench_parser(__doc__, "core_throughput", "small")
    quick = parser.parse_args().quick
    report = begin((__doc__ or "").splitlines()[0])
    found = measure(report, quick)
    judge(report, found)
    panels = []
    for engine in (NATIVE, PYTHON):
        panel = Panel(f"{engine}: 3 inputs, 10,000 live events", "payload, bytes", "elements/s", log="xy")
        for (of, kind, payload_bytes, live), measured in found.items():
            if of == engine and not live:
                panel.add(kind, payload_bytes, measured)
        panels.append(panel)
    if not quick:
        plot("core_throughput", report.question, panels)
        report.save("core_throughput")


if __name__ == "__main__":
    main()
