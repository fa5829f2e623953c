"""How do throughput and memory depend on the number of inputs, by algorithm? (The paper's figures 2, 3 and 7.)

Figures 2 and 3: streams in order without adjusts, so that every algorithm can merge them; 1,000-byte payloads, 10,000
live events, 1 % stables. Figure 7: 50 % disorder, 36 % of the elements are adjusts, 0.1 % stables: R3 beside an index
per input (R3-) and beside making the streams ordered first (Cleanse + R1).

Throughput: elements/s of CPU time of one core. Memory: bytes in use by the operator, sampled nine times between the
middle and nine tenths of the run, when the inputs differ.
"""

from __future__ import annotations

from dataclasses import replace

from bench.core_runs import CLEANSED, KINDS, NATIVE, PYTHON, Order, memory, prepare, rates
from bench.harness import BenchReport, Panel, begin, bench_parser, plot
from lmerge.testing.streams.large_inputs import LARGE, LargeInputs

INPUTS = (1, 2, 4, 6, 8, 10)
MEGA = 2**20
ORDERED = LargeInputs(replace(LARGE, events=30_000, displaced=0.0), payload_bytes=1_000)
# 0.5625 of the events are revised: 36 % of the elements are adjusts.
REVISED = LargeInputs(replace(LARGE, events=30_000, displaced=0.5, revised=0.5625, stables=0.001), payload_bytes=1_000)


def measure(
    report: BenchReport,
    figure: str,
    engine: str,
    kinds: tuple[str, ...],
    spec: LargeInputs,
    rate: Panel,
    space: Panel,
    quick: bool,
) -> None:
    """Add these algorithms to both panels, over the number of inputs."""
    for inputs in (1, 10) if quick else INPUTS:
        small = replace(spec, inputs=inputs)
        order = prepare(engine, replace(small, batch_rows=4_096))
        sampled_order: Order = prepare(engine, small)
        for kind in kinds:
            repeats = 1 if quick else 3 if engine == PYTHON or kind == "r3-" else 5
            name = f"{figure}, {engine}, {kind}, {inputs} inputs"
            label = kind if engine == NATIVE else f"{kind}, Python"
            values = rates(engine, kind, order, inputs, repeats)
            rate.add(label, inputs, report.add(f"{name}, rate", values, "elements/s"))
            used = [size / MEGA for size, _ in memory(engine, kind, sampled_order, inputs)]
            space.add(label, inputs, report.add(f"{name}, memory", used, "MiB"))


def main() -> None:
    parser = bench_parser(__doc__, "core_inputs", "1 and 10 inputs, once")
    quick = parser.parse_args().quick
    report = begin((__doc__ or "").splitlines()[0])
    panels = []
    for figure, kinds, spec in (("figures 2, 3", KINDS, ORDERED), ("figure 7", ("r3", "r3-", CLEANSED), REVISED)):
        what = "in order" if spec is ORDERED else "50 % disorder, 36 % adjusts"
        space = Panel(f"{figure}: memory, {what}", "inputs", "MiB", log="y" if spec is ORDERED else "")
        rate = Panel(f"{figure}: throughput, {what}", "inputs", "elements/s", log="y")
        measure(report, figure, NATIVE, kinds, spec, rate, space, quick)
        if figure == "figure 7":
            fewer = replace(spec, facets=replace(spec.facets, events=20_000))
            measure(report, figure, PYTHON, ("r3", CLEANSED), fewer, rate, space, quick)
            for label in ("r3", CLEANSED, "r3-"):
                ratio = space.lines[label][10].median / space.lines["r3"][10].median
                report.note(f"figure 7, native, 10 inputs, memory: {label} / r3 = {ratio:.2f}")
                ratio = rate.lines["r3"][10].median / rate.lines[label][10].median
                report.note(f"figure 7, native, 10 inputs, throughput: r3 / {label} = {ratio:.2f}")
        panels += [space, rate]
    if not quick:
        plot("core_inputs", report.question, panels)
        report.save("core_inputs")


if __name__ == "__main__":
    main()
