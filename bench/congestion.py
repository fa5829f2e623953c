"""Does congestion of single streams show in the output of their merge? (Figure 9 of the paper, VI.E.2.)

The four bursty streams of ``bursty``. Three of them have periods of congestion, in which each element is delayed by
about a millisecond (normally distributed): a fifth of the rate gets through. At the end of a period the queued elements
leave at once. Around second 18 two of them are congested. Counted as in ``bursty``: inserts, as sent by each stream and
as received by the subscriber.
"""

from __future__ import annotations

import os
from random import Random

from bench.bursty import PROBABILITIES, REPEATS, bursts, compare
from bench.harness import Panel, begin, bench_parser, plot
from bench.rig.fleet import import_all
from bench.rig.shaped import Delay, add_rates, run

SECONDS = 30.0
# Seconds of the run in which a stream is congested; the fourth never is.
CONGESTED = (((4.0, 7.0), (21.0, 23.0)), ((10.0, 13.0), (17.0, 19.5)), ((16.0, 19.0),), ())
MEAN_S, DEVIATION_S = 0.0010, 0.0003
BIN_S = 0.25


def congested(periods: tuple[tuple[float, float], ...], otherwise: Delay, seed: int) -> Delay:
    """Return the delays of one stream."""
    random = Random(seed)

    def delay(now_s: float) -> float:
        if any(start <= now_s < end for start, end in periods):
            return max(0.0, random.gauss(MEAN_S, DEVIATION_S))
        return otherwise(now_s)

    return delay


def main() -> None:
    parser = bench_parser(__doc__, "congestion", "one run of 8 s")
    options = parser.parse_args()
    import_all()
    report = begin((__doc__ or "").splitlines()[0])
    seconds = 8.0 if options.quick else SECONDS
    runs = []
    for repeat in range(1 if options.quick else REPEATS):
        delays = [
            congested(CONGESTED[at], bursts(probability, 10 * repeat + at), 10 * repeat + at + 100)
            for at, probability in enumerate(PROBABILITIES)
        ]
        inputs, out, verdict = run(seconds, delays)
        report.note(f"run {repeat + 1}: {verdict.summary()}; load {os.getloadavg()[0]:.1f}")
        runs.append((inputs, out))
    compare(report, runs, seconds)
    inputs, out = runs[0]
    panels = []
    for at, flow in enumerate(inputs):
        periods = " and ".join(f"{start:g} to {end:g} s" for start, end in CONGESTED[at]) or "never"
        title, y = f"input {at + 1}, congested: {periods}", f"inserts/s, in bins of {BIN_S * 1e3:g} ms"
        panel = Panel(title, "s", y, is_plain=True)
        add_rates(panel, "input", flow, BIN_S, seconds)
        add_rates(panel, "output of the merge", out, BIN_S, seconds)
        panels.append(panel)
    if not options.quick:
        report.save("congestion")
        plot("congestion", "Streams with periods of congestion, and their merge", panels)


if __name__ == "__main__":
    main()
