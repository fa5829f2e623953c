"""How many elements a second does a server merge, with 3 publisher processes and 1 subscriber on loopback?

100-byte payloads, 1 % stables, R3, everything on one machine of 2 cores: 5 processes share them. Counted: elements
merged, from the start of the publishers until the subscriber has the last one. Beside it, in the same run, the limit: a
raw gRPC stream of the same bytes through the same number of processes (``raw_grpc``). Targets: 1,000,000 elements/s in
total on the native engine, and 0.6 of the limit.
"""

from __future__ import annotations

import subprocess
import time

from bench.harness import Panel, begin, bench_parser, plot
from bench.load import Serve, let_begin, result_of, server, start, started, wait_until_ready
from lmerge.core.engines import selection

EVENTS = {selection.NATIVE: 1_000_000, selection.PYTHON: 200_000}
PAYLOAD_BYTES = 100
ELEMENT_BYTES = 29 + PAYLOAD_BYTES
MESSAGE_ELEMENTS = 8_192  # what a busy publisher puts into a message
REPEATS = 5


def go(reader: subprocess.Popen[str], publishers: list[subprocess.Popen[str]]) -> tuple[float, dict[str, float]]:
    """Start all together. Return the seconds until the reader has the last element, and the reader's result."""
    wait_until_ready((reader, *publishers))
    began = time.time()
    let_begin(publishers, "go")
    result = result_of(reader)
    for process in (reader, *publishers):
        assert process.wait() == 0
    return result["ended"] - began, result


def merged(engine: str, serve: Serve = server) -> float:
    """Return elements/s through a server of lmerge, or one that ``serve`` runs."""
    events = EVENTS[engine]
    with serve("--engine", engine) as target:
        reader = start("subscribe", target, "count", 0)
        seconds, result = go(reader, [start("flat-out", target, name, events, PAYLOAD_BYTES) for name in "abc"])
    count = events + events // 100 + 1
    assert result["elements"] >= count, result["elements"]
    return 3 * count / seconds


def raw() -> float:
    """Return elements/s if the same bytes only pass through."""
    messages = EVENTS[selection.NATIVE] // MESSAGE_ELEMENTS
    size = MESSAGE_ELEMENTS * ELEMENT_BYTES
    with started("bench.raw_grpc", "serve") as target:
        reader = start("subscribe", target, module="bench.raw_grpc")
        publishers = [start("publish", target, messages, size, module="bench.raw_grpc") for _ in "abc"]
        seconds, result = go(reader, publishers)
    assert result["bytes"] == messages * size
    return 3 * messages * MESSAGE_ELEMENTS / seconds


def main() -> None:
    quick = bench_parser(__doc__, "service_throughput", "once").parse_args().quick
    repeats = 1 if quick else REPEATS
    report = begin((__doc__ or "").splitlines()[0])
    limit = report.add("limit: raw gRPC, the same bytes", [raw() for _ in range(repeats)], "elements/s")
    rates_panel = Panel("3 publishers, 1 subscriber, 100-byte payloads", "repeat", "elements/s")
    rates_panel.add_repeats("raw gRPC, the same bytes", limit)
    rows = {}
    for engine in EVENTS:
        if engine == selection.PYTHON or selection.native_problem() is None:
            rates = [merged(engine) for _ in range(repeats)]
            rows[engine] = report.add(f"lmerge, {engine} engine", rates, "elements/s")
            rates_panel.add_repeats(f"lmerge, {engine} engine", rows[engine])
            rate = rows[engine].median * ELEMENT_BYTES / 1e6
            report.note(f"{engine}: {rate:,.0f} MB/s, {rows[engine].median / limit.median:.2f} of the limit")
    best = rows.get(selection.NATIVE)
    if best is not None:
        ratio = best.median / limit.median
        report.note(f"target 1,000,000: {'reached' if best.median >= 1e6 else 'MISSED'} ({best.median:,.0f})")
        report.note(f"target 0.6 of the limit: {'reached' if ratio >= 0.6 else 'MISSED'} ({ratio:.2f})")
    if not quick:
        report.save("service_throughput")
        plot("service_throughput", "A server on loopback, 5 processes on 2 cores", [rates_panel], columns=1)


if __name__ == "__main__":
    main()
