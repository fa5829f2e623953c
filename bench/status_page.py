"""What does the status page cost a server, with 10 viewers against none?

The work of ``service_throughput`` with no viewer and with 10 viewers of the merge, in turns: elements/s, and the
server's CPU time for each element, which other load changes less. The viewers are one process on the same machine, so
their own work is in the throughput too. The ratio is taken of neighbouring runs, since a machine drifts. Target: at
most 1 % of the throughput.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.harness import PERCENT, Panel, begin, bench_parser, percent_less, percent_more, plot
from bench.load import start
from bench.service_throughput import PAYLOAD_BYTES, go
from lmerge.core.engines import selection

EVENTS = 3_000_000  # of each publisher: some seconds, each with its samples and messages
REPEATS = 7
VIEWERS = 10
COST_MAX = 1.0  # per cent


@contextmanager
def viewers(port: int, count: int) -> Iterator[None]:
    """Keep pages open meanwhile."""
    if not count:
        yield
        return
    command = [sys.executable, "-m", "bench.status_viewers", str(port), str(count)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "ready\n"
        yield
    finally:
        process.terminate()
        came = process.communicate()[0]
    assert int(came) > 0, "the viewers got nothing"


def merged(viewer_count: int, events: int) -> tuple[float, float]:
    """Return elements/s, and CPU microseconds of the server for each element."""
    with tempfile.TemporaryDirectory() as folder:
        ready = Path(folder) / "ready.json"
        command = ["serve", "--port", "0", "--http-port", "0", "--engine", selection.best()]
        process = subprocess.Popen(
            [sys.executable, "-m", "bench.cpu_of", str(ready), *command],
            stderr=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            while not ready.exists():
                time.sleep(0.02)
            ports = json.loads(ready.read_text())
            with viewers(ports["http_port"], viewer_count):
                target = f"127.0.0.1:{ports['port']}"
                reader = start("subscribe", target, "count", 0)
                seconds, _ = go(reader, [start("flat-out", target, name, events, PAYLOAD_BYTES) for name in "abc"])
        finally:
            process.terminate()
            output, _ = process.communicate()
    count = 3 * (events + events // 100 + 1)
    return count / seconds, 1e6 * float(output.split()[-1]) / count


def main() -> None:
    parser = bench_parser(__doc__, "status_page", "100,000 events, twice")
    parser.add_argument("--events", type=int, default=EVENTS, help="events of each publisher (%(default)s)")
    parser.add_argument("--repeats", type=int, default=REPEATS, help="(%(default)s)")
    options = parser.parse_args()
    events, repeats = (100_000, 2) if options.quick else (options.events, options.repeats)
    report = begin((__doc__ or "").splitlines()[0])
    ways = {"no viewer": 0, f"{VIEWERS} viewers": VIEWERS}
    rates: dict[str, list[float]] = {way: [] for way in ways}
    costs: dict[str, list[float]] = {way: [] for way in ways}
    for at in range(repeats):
        for way in list(ways)[:: 1 if at % 2 else -1]:
            rate, cost = merged(ways[way], events)
            rates[way].append(rate)
            costs[way].append(cost)
    panel = Panel("3 publishers, 1 subscriber, 100-byte payloads", "repeat", "elements/s")
    for way in ways:
        panel.add_repeats(way, report.add(way, rates[way], "elements/s"))
        report.add(f"server CPU, {way}", costs[way], "us/element")
    none, some = ways
    less = report.add(f"{some}: throughput lost", percent_less(rates[some], rates[none]), PERCENT).median
    report.add(f"{some}: server CPU added", percent_more(costs[some], costs[none]), PERCENT)
    report.note(f"target {COST_MAX:g} %: {'reached' if less <= COST_MAX else 'MISSED'} ({less:.1f} %)")
    if not options.quick:
        report.save("status_page")
        plot("status_page", "The status page: what it costs a server", [panel], columns=1)


if __name__ == "__main__":
    main()
