"""What does the comparison of the inputs cost a server, with 3 publisher processes and 1 subscriber on loopback?

The work of ``service_throughput`` with ``--on-divergence none`` and ``alarm`` in turns, native engine: elements/s, and
the server's CPU time for each element, which other load changes less. Target: at most 10 % of the throughput.
Intervals of a second, so that many are compared, and of a minute, the default.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from bench.harness import PERCENT, Panel, begin, bench_parser, percent_less, percent_more, plot
from bench.load import start
from bench.service_throughput import PAYLOAD_BYTES, go
from lmerge.core.engines import selection

EVENTS = 1_000_000
REPEATS = 5
WAYS = {
    "none": ("--on-divergence", "none"),
    "alarm, intervals of 60 s": ("--on-divergence", "alarm"),
    "alarm, intervals of 1 s": ("--on-divergence", "alarm", "--certify-interval", "1000000"),
}


def merged(arguments: tuple[str, ...], events: int) -> tuple[float, float]:
    """Return elements/s, and CPU microseconds of the server for each element."""
    with tempfile.TemporaryDirectory() as folder:
        ready = Path(folder) / "ready.json"
        command = ["serve", "--port", "0", "--http-port", "-1", "--engine", selection.best(), *arguments]
        process = subprocess.Popen(
            [sys.executable, "-m", "bench.cpu_of", str(ready), *command],
            stderr=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            target = _target(ready)
            reader = start("subscribe", target, "count", 0)
            seconds, _ = go(reader, [start("flat-out", target, name, events, PAYLOAD_BYTES) for name in "abc"])
        finally:
            process.terminate()
        output, _ = process.communicate()
    count = 3 * (events + events // 100 + 1)
    return count / seconds, 1e6 * float(output.split()[-1]) / count


def _target(ready: Path) -> str:
    import json
    import time

    while not ready.exists():
        time.sleep(0.02)
    return f"127.0.0.1:{json.loads(ready.read_text())['port']}"


def main() -> None:
    quick = bench_parser(__doc__, "divergence", "100,000 events of each publisher, once").parse_args().quick
    events, repeats = (100_000, 1) if quick else (EVENTS, REPEATS)
    report = begin((__doc__ or "").splitlines()[0])
    rates: dict[str, list[float]] = {way: [] for way in WAYS}
    costs: dict[str, list[float]] = {way: [] for way in WAYS}
    for _ in range(repeats):
        for way, arguments in WAYS.items():
            rate, cost = merged(arguments, events)
            rates[way].append(rate)
            costs[way].append(cost)
    panel = Panel("3 publishers, 1 subscriber, 100-byte payloads", "repeat", "elements/s")
    for way in WAYS:
        panel.add_repeats(way, report.add(way, rates[way], "elements/s"))
        report.add(f"server CPU, {way}", costs[way], "us/element")
    for way in list(WAYS)[1:]:
        less = report.add(f"{way}: throughput lost", percent_less(rates[way], rates["none"]), PERCENT)
        report.add(f"{way}: server CPU added", percent_more(costs[way], costs["none"]), PERCENT)
        report.note(f"target 10 %, {way}: {'reached' if less.median <= 10 else 'MISSED'} ({less.median:.1f} %)")
    if not quick:
        report.save("divergence")
        plot("divergence", "Comparing inputs: what it costs a server", [panel], columns=1)


if __name__ == "__main__":
    main()
