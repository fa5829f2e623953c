"""How much memory does a live event take in a merge, and how does that grow with the number of inputs?

R3 on in2t stores a payload once; R3- once per input; Cleanse + R1 buffers every input. 10,000 live events of 16 and
1,000 bytes. Two cases: inputs with the same events in another order (20 % disorder), and inputs in which 20 % of the
events are first published with a wrong end, so that inputs differ until all have revised them. Sampled nine times
between the middle and nine tenths of the run. Per live event: bytes in use over the nodes of R3's index at that point.

Targets, native R3: 10 inputs at most 1.25 times 2 inputs; at most payload + 80 bytes with 3 inputs; Cleanse + R1 at 10
inputs at least 5 times R3 at 10. Python R3: 10 inputs at most 1.4 times 2. ``Core.memory`` is reported beside the bytes
that malloc has given out and beside the resident set of a process of its own.
"""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

from bench.core_runs import CLEANSED, NATIVE, PYTHON, CoreRun, malloc_bytes, memory, prepare, trim
from bench.harness import BenchReport, Measured, Panel, begin, bench_parser, plot
from lmerge.testing.streams.large_inputs import LARGE, LargeInputs

LIVE = 10_000
INPUTS = (1, 2, 3, 5, 10)
PAYLOADS = (16, 1_000)
CASES = {"same": 0.0, "20 % revised": 0.2}
BYTES_PER_EVENT_MAX = 80
# A live event is in memory equally long on both engines, so a longer run changes nothing.
EVENTS = {NATIVE: 40_000, PYTHON: 24_000}


def per_event(engine: str, kinds: tuple[str, ...], spec: LargeInputs) -> dict[str, list[float]]:
    """Return the bytes per live event at each sampled point, by algorithm."""
    order = prepare(engine, spec)
    nodes = [count for _, count in memory(NATIVE, "r3", prepare(NATIVE, spec), spec.inputs)]
    found = {}
    for kind in kinds:
        sampled = memory(engine, kind, order, spec.inputs)
        found[kind] = [size / live for (size, _), live in zip(sampled, nodes, strict=True)]
    return found


MemoryByCase = dict[tuple[str, str, str, int, int], Measured]


def measure(report: BenchReport, quick: bool) -> tuple[MemoryByCase, list[Panel]]:
    """Measure every case. Return the rows by engine, algorithm, case, payload size and inputs, and the panels."""
    found: MemoryByCase = {}
    panels = []
    for payload_bytes in PAYLOADS:
        for case, adjusts in CASES.items():
            panel = Panel(f"{payload_bytes:,}-byte payloads, inputs: {case}", "inputs", "bytes per live event", log="y")
            panels.append(panel)
            for engine, kinds in ((NATIVE, ("r3", "r4", "r3-", CLEANSED)), (PYTHON, ("r3", CLEANSED))):
                events = EVENTS[engine] // (2 if quick else 1)
                spec = LargeInputs(
                    replace(LARGE, events=events, alive=LIVE, revised=adjusts), payload_bytes=payload_bytes
                )
                for inputs in (2, 3, 10) if quick else INPUTS if engine == NATIVE else (2, 10):
                    for kind, values in per_event(engine, kinds, replace(spec, inputs=inputs)).items():
                        name = f"{engine}, {kind}, {case}, {payload_bytes:,} bytes, {inputs} inputs"
                        measured = report.add(name, values, "B/live event")
                        found[engine, kind, case, payload_bytes, inputs] = measured
                        panel.add(kind if engine == NATIVE else f"{kind}, Python", inputs, measured)
    return found, panels


def judge(report: BenchReport, found: MemoryByCase) -> None:
    def note(text: str, value: float, target: float, *, at_least: bool = False) -> None:
        reached = value >= target if at_least else value <= target
        report.note(f"{text} = {value:.2f}; target {target:g}: {'reached' if reached else 'MISSED'}")

    for payload_bytes in PAYLOADS:
        for case in CASES:
            where = f"{case}, {payload_bytes:,} bytes"
            for engine, target in ((NATIVE, 1.25), (PYTHON, 1.4)):
                ten, two = (found[engine, "r3", case, payload_bytes, inputs].median for inputs in (10, 2))
                note(f"{engine}, r3, {where}: 10 inputs / 2 inputs", ten / two, target)
            three = found[NATIVE, "r3", case, payload_bytes, 3]
            above = three.median - payload_bytes
            note(f"native, r3, {where}, 3 inputs: bytes above the payload per live event", above, BYTES_PER_EVENT_MAX)
            report.note(f"  the largest of the samples: {max(three.values) - payload_bytes:.1f}")
            cleansed = found[NATIVE, CLEANSED, case, payload_bytes, 10].median
            ten = found[NATIVE, "r3", case, payload_bytes, 10].median
            note(f"native, {where}, 10 inputs: cleanse + r1 / r3", cleansed / ten, 5, at_least=True)


CHILD = "--resident"


def resident_bytes() -> int:
    """Return the resident set of this process in bytes."""
    with open("/proc/self/smaps_rollup") as rollup:
        return next(int(line.split()[1]) * 1024 for line in rollup if line.startswith("Rss:"))


def child(payload_bytes: int) -> None:
    """Print the growth of this process over a merge of 200,000 live events of three inputs, by all three measures."""
    order = prepare(
        NATIVE,
        LargeInputs(replace(LARGE, events=400_000, alive=200_000), payload_bytes=payload_bytes, batch_rows=4_096),
    )
    order = order[: len(order) * 3 // 4]
    trim()  # so that memory left by the preparation does not count
    malloc, resident = malloc_bytes(), resident_bytes()
    run = CoreRun(NATIVE, "r3", 3)
    run.feed(order)
    core = run.core
    assert core is not None
    sizes = (resident_bytes() - resident, malloc_bytes() - malloc, core.memory[0])
    print(*(size / core.node_count for size in sizes))


def cross_check(report: BenchReport) -> None:
    """Compare the three measures, each run in a process of its own."""
    for payload_bytes in PAYLOADS:
        command = [sys.executable, "-m", "bench.core_memory", CHILD, str(payload_bytes)]
        runs = [subprocess.run(command, capture_output=True, text=True, check=True).stdout.split() for _ in range(3)]
        for at, name in enumerate(("resident set", "malloc", "Core.memory")):
            values = [float(sizes[at]) for sizes in runs]
            report.add(f"native, r3, 200,000 live events of {payload_bytes:,} bytes: {name}", values, "B/live event")


def main() -> None:
    if CHILD in sys.argv:
        child(int(sys.argv[-1]))
        return
    parser = bench_parser(__doc__, "core_memory", "smaller")
    quick = parser.parse_args().quick
    report = begin((__doc__ or "").splitlines()[0])
    found, panels = measure(report, quick)
    judge(report, found)
    cross_check(report)
    if not quick:
        plot("core_memory", report.question, panels)
        report.save("core_memory")


if __name__ == "__main__":
    main()
