"""Does a merge of four bursty streams flow more evenly than each of them? (Figure 8 of the paper, VI.E.1.)

Four streams of 5,000 elements/s with 20 % disorder, through a real server, all processes on one machine. An element is
delayed with a probability of 0.3 to 0.5 %, which differs by stream, by a truncated normal distribution of mean 20 and
standard deviation 5 ms. The elements that were due meanwhile leave at once. Counted: inserts, as sent by each stream
and as received by the subscriber. Compared in one run: the coefficient of variation of the rate in bins of 100 ms and
of 1 s, and the times without an insert.
"""

from __future__ import annotations

import os
from random import Random

from bench.harness import BenchReport, Measured, Panel, begin, bench_parser, plot
from bench.rig.fleet import import_all
from bench.rig.shaped import WARM_S, Delay, InsertFlow, add_rates, run
from bench.rig.stalls import percentile

SECONDS = 30.0
PROBABILITIES = (0.0030, 0.0037, 0.0043, 0.0050)
MEAN_MS, DEVIATION_MS = 20.0, 5.0
BINS_S = (0.1, 1.0)
REPEATS = 3


def delay_ms(random: Random) -> float:
    """Return a delay: normal, truncated to [0, twice the mean]."""
    while not 0.0 <= (value := random.gauss(MEAN_MS, DEVIATION_MS)) <= 2 * MEAN_MS:
        pass
    return value


def bursts(probability: float, seed: int) -> Delay:
    """Return the delays of one bursty stream."""
    random = Random(seed)
    return lambda _now_s: delay_ms(random) / 1e3 if random.random() < probability else 0.0


def compare(report: BenchReport, runs: list[tuple[list[InsertFlow], InsertFlow]], seconds: float) -> None:
    """Add rows of the variation and of the pauses of inputs and output, and the ratio of their medians."""
    for bin_s in BINS_S:
        inside = [flow.variation(bin_s, seconds) for inputs, _ in runs for flow in inputs]
        outside = [out.variation(bin_s, seconds) for _, out in runs]
        before = report.add(f"variation of the rate in {bin_s:g} s, inputs", inside, "sd/mean")
        after = report.add(f"variation of the rate in {bin_s:g} s, output", outside, "sd/mean")
        report.note(f"in bins of {bin_s:g} s the output varies {before.median / after.median:.1f} times less")
    every_input = [flow for inputs, _ in runs for flow in inputs]
    for part, label in ((0.99, "p99"), (1.0, "longest")):
        for name, flows in (("inputs", every_input), ("output", [out for _, out in runs])):
            pauses = [percentile(flow.pauses_ms(seconds), part) for flow in flows]
            report.add(f"time without an insert, {label}, {name}", pauses, "ms")


def main() -> None:
    parser = bench_parser(__doc__, "bursty", "one run of 6 s")
    options = parser.parse_args()
    import_all()
    report = begin((__doc__ or "").splitlines()[0])
    seconds = 6.0 if options.quick else SECONDS
    runs = []
    for repeat in range(1 if options.quick else REPEATS):
        delays = [bursts(probability, 10 * repeat + at) for at, probability in enumerate(PROBABILITIES)]
        inputs, out, verdict = run(seconds, delays)
        report.note(f"run {repeat + 1}: {verdict.summary()}; load {os.getloadavg()[0]:.1f}")
        runs.append((inputs, out))
    compare(report, runs, seconds)
    inputs, out = runs[0]
    over_time = Panel("one of four inputs, and the output", "s", "inserts/s, in bins of 100 ms", is_plain=True)
    add_rates(over_time, "input 4", inputs[3], 0.1, seconds)
    add_rates(over_time, "output", out, 0.1, seconds)
    variation = Panel("coefficient of variation", "width of a bin, s", "sd / mean", log="x")
    for bin_s in (0.02, 0.05, 0.1, 0.2, 0.5, 1.0):
        for at, flow in enumerate(inputs, 1):
            variation.add(f"input {at}", bin_s, Measured("input", [flow.variation(bin_s, seconds)], ""))
        variation.add("output", bin_s, Measured("output", [out.variation(bin_s, seconds)], ""))
    if not options.quick:
        report.save("bursty")
        title = f"Four bursty streams of 5,000 elements/s, and their merge (from second {WARM_S:g} on)"
        plot("bursty", title, [over_time, variation])


if __name__ == "__main__":
    main()
