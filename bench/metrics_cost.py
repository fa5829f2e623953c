"""How much throughput do the metrics of a server cost: what it counts all the time, and being scraped each second?

The load of ``service_throughput``: 3 publisher processes flat out, 1 subscriber, 100-byte payloads, 1 % stables, R3, on
loopback. In each round three servers take it, one after another:

    uncounted   a server in which this bench has removed what is counted for metrics alone: stamps of arrival, added
                latency, bytes delivered, the history of stable points
    counted     the server as it is, without an HTTP port
    scraped     the same with a scrape of the whole page each second, ten times as often as Prometheus usually does

The order changes from round to round. A cost is the median of the rounds' own ratios to ``uncounted``, so a machine
that slows down for some rounds moves all three. Target: at most 1 %.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.harness import PERCENT, Panel, begin, bench_parser, percent_less, plot
from bench.load import start
from bench.service_throughput import PAYLOAD_BYTES, go

EVENTS = 1_000_000
ROUNDS = 9
SCRAPE_S = 1.0
TARGET = 1.0  # per cent
UNCOUNTED, COUNTED, SCRAPED = "uncounted", "counted", "scraped each second"
KINDS = (UNCOUNTED, COUNTED, SCRAPED)


def remove_counting() -> None:
    """Remove from this process what a server counts for metrics alone."""
    from lmerge.service.merge.stable_history import StableHistory
    from lmerge.service.output.fanout import Fanout
    from lmerge.service.output.pipeline import MergeOutput

    def nothing(*_: object) -> None:
        return None

    for kind, method in ((Fanout, "written"), (MergeOutput, "note_received"), (StableHistory, "note")):
        if not callable(vars(kind).get(method)):
            raise AttributeError(f"{kind.__name__} has no {method}: this bench would compare equal servers")
        setattr(kind, method, nothing)


@contextmanager
def serving(kind: str) -> Iterator[tuple[str, int | None]]:
    """Run a server process of this kind; yield its address and its HTTP port, if it has one."""
    module = "bench.metrics_cost" if kind == UNCOUNTED else "lmerge"
    http_port = "0" if kind == SCRAPED else "-1"
    with tempfile.TemporaryDirectory() as folder:
        ready = Path(folder) / "ready.json"
        options = ["serve", "--port", "0", "--http-port", http_port, "--ready-file", str(ready)]
        process = subprocess.Popen([sys.executable, "-m", module, *options], stderr=subprocess.DEVNULL)
        try:
            while not ready.exists():
                if process.poll() is not None:
                    raise RuntimeError(f"the {kind} server ended with {process.returncode}")
                time.sleep(0.02)
            ports = json.loads(ready.read_text())
            yield f"127.0.0.1:{ports['port']}", ports.get("http_port")
        finally:
            process.terminate()
            process.wait()


@contextmanager
def scraping(port: int | None) -> Iterator[list[float]]:
    """Scrape each second; yield the list of the seconds that each scrape took."""
    took: list[float] = []
    ended = threading.Event()

    def scrape() -> None:
        while not ended.is_set():
            began = time.perf_counter()
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as page:
                page.read()
            took.append(time.perf_counter() - began)
            ended.wait(SCRAPE_S)

    thread = threading.Thread(target=scrape, daemon=True)
    if port is not None:
        thread.start()
    try:
        yield took
    finally:
        ended.set()
        if port is not None:
            thread.join()


def rate(kind: str, events: int) -> tuple[float, list[float]]:
    """Return the elements/s through a server of this kind, and the seconds of its scrapes."""
    with serving(kind) as (target, http_port), scraping(http_port) as took:
        reader = start("subscribe", target, "count", 0)
        seconds, result = go(reader, [start("flat-out", target, name, events, PAYLOAD_BYTES) for name in "abc"])
    count = events + events // 100 + 1
    assert result["elements"] >= count, result["elements"]
    return 3 * count / seconds, took


def main() -> None:
    parser = bench_parser(__doc__, "metrics_cost", "100,000 events, one round")
    parser.add_argument("--events", type=int, default=EVENTS, help="of each publisher (%(default)s)")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="(%(default)s)")
    options = parser.parse_args()
    events, rounds = (100_000, 1) if options.quick else (options.events, options.rounds)
    report = begin((__doc__ or "").splitlines()[0])
    rates: dict[str, list[float]] = {kind: [] for kind in KINDS}
    scrapes: list[float] = []
    for number in range(rounds):
        at = number % len(KINDS)
        for kind in (*KINDS[at:], *KINDS[:at]):
            measured, took = rate(kind, events)
            rates[kind].append(measured)
            scrapes += took
    panel = Panel("3 publishers, 1 subscriber, 100-byte payloads", "round", "elements/s")
    for kind in KINDS:
        panel.add_repeats(kind, report.add(kind, rates[kind], "elements/s"))
    report.add("one scrape", [took * 1e3 for took in scrapes], "ms")
    for kind in KINDS[1:]:
        lost = report.add(f"{kind}: throughput lost", percent_less(rates[kind], rates[UNCOUNTED]), PERCENT).median
        report.note(f"target {TARGET:g} %, {kind}: {'reached' if lost <= TARGET else 'MISSED'} ({lost:.1f} %)")
    if not options.quick:
        report.save("metrics_cost")
        plot("metrics_cost", "What metrics cost a server", [panel], columns=1)


if __name__ == "__main__":
    if sys.argv[1:2] == ["serve"]:
        from lmerge.cli.main import main as command

        remove_counting()
        command()
    else:
        main()
