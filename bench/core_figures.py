"""What do the share of stables, disorder and lagging inputs cost? (The paper's figures 6, 4 and 5.)

Figure 6: memory and throughput against StableFreq, 0.001 % to 1 %; three inputs in order, without adjusts, so that
every algorithm can merge them; 10,000 live events of 1,000 bytes. Figure 4: adjusts in the output against disorder,
beside those of one input; each input is a sub-query over a disordered stream (``subquery``). Figure 5: throughput
against the lag of two of three inputs; 20 % disorder, 0.1 % stables, lifetimes of 40 s at 250 events/s, which are
10,000 live events.

Throughput: CPU time of one core. The measure of the paper is output events a second, which is also shown for figure 5.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random

from bench.core_runs import CLEANSED, KINDS, NATIVE, PYTHON, CoreRun, Order, converted, elements, memory, prepare, rates
from bench.harness import BenchReport, Panel, begin, bench_parser, cpu_timed, plot
from lmerge.core.batch import Batch, BatchBuilder
from lmerge.core.elements import ADJUST, INSERT
from lmerge.core.merge import Merge
from lmerge.core.merge_config import MergeConfig
from lmerge.testing.streams.large_inputs import LARGE, STEP, LargeInputs

INPUTS = 3
MEGA = 2**20
STABLE_FREQS = (0.00001, 0.0001, 0.001, 0.01)
DISORDERS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5)
LAGS_S = (0, 1, 2, 3, 4, 5)
EVENTS_PER_S = 250
POLICIES = ("lazy", "eager", "half-frozen-only")
WINDOW = 10 * STEP


def stable_freq(report: BenchReport, quick: bool) -> list[Panel]:
    """Measure figure 6."""
    space = Panel("figure 6: memory", "stables, % of the elements", "MiB", log="xy")
    rate = Panel("figure 6: throughput", "stables, % of the elements", "elements/s", log="xy")
    for engine, kinds in ((NATIVE, KINDS), (PYTHON, ("r0", "r3", "r4"))):
        for freq in STABLE_FREQS:
            # The paper's generator makes 200,000 to 400,000 elements.
            events = 20_000 if quick else 100_000 if engine == NATIVE else 40_000
            spec = LargeInputs(replace(LARGE, events=events, displaced=0.0, stables=freq), payload_bytes=1_000)
            order, sampled = prepare(engine, replace(spec, batch_rows=4_096)), prepare(engine, spec)
            for kind in kinds:
                name = f"figure 6, {engine}, {kind}, {freq:.3%} stables"
                label = kind if engine == NATIVE else f"{kind}, Python"
                repeats = 1 if quick or kind == "r3-" else 3
                values = rates(engine, kind, order, INPUTS, repeats)
                rate.add(label, 100 * freq, report.add(f"{name}, rate", values, "elements/s"))
                if engine == NATIVE:
                    used = [max(size, 1) / MEGA for size, _ in memory(engine, kind, sampled, INPUTS)]
                    space.add(label, 100 * freq, report.add(f"{name}, memory", used, "MiB"))
    return [space, rate]


def subquery(batches: list[Batch]) -> Batch:
    """Return the output of a count over windows of 10 events with a lifetime modification.

    There is an event for each window. The count is added to its lifetime. A window is emitted when a later one begins.
    An event that comes afterwards extends it by an adjust.
    """
    counts: dict[int, int] = {}
    emitted: set[int] = set()
    out, newest = BatchBuilder(), -1
    for batch in batches:
        for kind, vs, _, _, _ in batch.rows():
            window = vs // WINDOW
            if kind == INSERT:
                count = counts[window] = counts.get(window, 0) + 1
                start, payload = window * WINDOW, b"window %d" % window
                if window in emitted:
                    out.adjust(payload, start, start + WINDOW + count - 1, start + WINDOW + count)
                if window > newest:
                    for ended in sorted(counts.keys() - emitted - {window}):
                        emitted.add(ended)
                        out.insert(b"window %d" % ended, ended * WINDOW, ended * WINDOW + WINDOW + counts[ended])
                    newest = window
                elif window < newest and window not in emitted:
                    emitted.add(window)
                    out.insert(payload, start, start + WINDOW + count)
            elif kind != ADJUST:
                out.stable(window * WINDOW)
    return out.build()


def disorder(report: BenchReport, quick: bool) -> list[Panel]:
    """Measure figure 4. The engines emit the same elements, so one is enough."""
    panel = Panel("figure 4: adjusts in the output", "disorder, % of the elements", "adjusts")
    events = 20_000 if quick else 100_000
    for share in DISORDERS:
        random = Random(4)
        streams = [
            subquery(batches)
            for batches in LargeInputs(replace(LARGE, events=events, alive=1_000, displaced=share)).batches()
        ]
        adjusts = [float(stream.counts(stream.count)[1]) for stream in streams]
        row = report.add(f"figure 4, inputs, {share:.0%} disorder", adjusts, "adjusts")
        panel.add("one input, without a merge", 100 * share, row)
        for policy in POLICIES:
            merge = Merge(MergeConfig("r3", policy, engine="native"))
            for at in range(INPUTS):
                merge.attach(str(at), ("key",))
            rest = [list(stream.elements()) for stream in streams]
            starts = [0] * INPUTS
            while any(start < len(stream) for start, stream in zip(starts, rest, strict=True)):
                at = random.choice([at for at in range(INPUTS) if starts[at] < len(rest[at])])
                stop = starts[at] + random.randint(1, 20)
                assert not merge.apply(str(at), Batch.of(rest[at][starts[at] : stop])).detached
                starts[at] = stop
            name = f"figure 4, merged {policy}, {share:.0%} disorder"
            row = report.add(name, [float(merge.emitted.adjusts)], "adjusts")
            panel.add(f"merged, {policy}", 100 * share, row)
    return [panel]


def lagging(batches: list[list[Batch]], lag: int) -> Order:
    """Return the batches of all inputs in order of arrival. All inputs but the first lag by ``lag`` units of time."""
    arrived = []
    for at, mine in enumerate(batches):
        for number, batch in enumerate(mine):
            arrived.append((max(batch.vs) + (lag if at else 0), number, at, batch))
    return [(at, batch) for _, _, at, batch in sorted(arrived, key=lambda item: item[:3])]


def lag(report: BenchReport, quick: bool) -> list[Panel]:
    """Measure figure 5."""
    taken = Panel("figure 5: elements taken", "lag of two of three inputs, s", "elements/s", log="y")
    given = Panel("figure 5: events emitted", "lag of two of three inputs, s", "output elements/s", log="y")
    for engine, kinds in ((NATIVE, ("r3", "r3-", "r4", CLEANSED)), (PYTHON, ("r3",))):
        events = 20_000 if quick or engine == PYTHON else 100_000
        inputs = LargeInputs(replace(LARGE, events=events, stables=0.001), payload_bytes=1_000, batch_rows=64).batches()
        for lag_s in LAGS_S:
            order = converted(engine, lagging(inputs, lag_s * EVENTS_PER_S * STEP))
            for kind in kinds:
                values, outputs = [], []
                for _ in range(1 if quick or kind == "r3-" else 5):
                    run = CoreRun(engine, kind, INPUTS)
                    seconds = cpu_timed(lambda run=run, order=order: run.feed(order))  # type: ignore[misc]
                    values.append(elements(order) / seconds)
                    outputs.append(run.out / seconds)
                label = kind if engine == NATIVE else f"{kind}, Python"
                name = f"figure 5, {engine}, {kind}, {lag_s} s"
                taken.add(label, lag_s, report.add(f"{name}, taken", values, "elements/s"))
                given.add(label, lag_s, report.add(f"{name}, emitted", outputs, "elements/s"))
    return [taken, given]


def main() -> None:
    parser = bench_parser(__doc__, "core_figures", "small")
    quick = parser.parse_args().quick
    report = begin((__doc__ or "").splitlines()[0])
    panels = stable_freq(report, quick) + disorder(report, quick) + lag(report, quick)
    if not quick:
        plot("core_figures", report.question, panels, columns=3)
        report.save("core_figures")


if __name__ == "__main__":
    main()
