"""What do a server and its clients gain whose gRPC runs in the native core: the same load on both transports?

Beside a raw gRPC stream of the same bytes, in turns, on one machine: 3 publisher processes and 1 subscriber as in
``service_throughput``, and latencies at 3 x 5,000 and 3 x 50,000 elements/s as in ``service_latency``, those also while
two other processes keep both cores busy. Targets: 0.6 of the raw stream, 4,000,000 elements/s; at 3 x 50,000 elements/s
p50 below 2 ms, p99 below 10 ms, and below 30 ms on busy cores.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from bench import service_latency, service_throughput
from bench.harness import Panel, begin, bench_parser, plot
from bench.load import Serve, server
from lmerge.client.connection.channels import VARIABLE
from lmerge.core.engines.selection import NATIVE
from lmerge.service.choices import TransportChoice

RATES_PER_S = (5_000, 50_000)
REPEATS = 5
BUSY_CORES = 2
RAW = "raw gRPC"


@contextmanager
def serving(transport: str, *arguments: str) -> Iterator[str]:
    """Run a server on this transport. The clients that are started beside it use it, too."""
    os.environ[VARIABLE] = transport
    try:
        with server("--transport", transport, *arguments) as target:
            yield target
    finally:
        del os.environ[VARIABLE]


SERVERS: dict[str, Serve] = {name: partial(serving, name) for name in (TransportChoice.GRPC, TransportChoice.NATIVE)}


@contextmanager
def busy(cores: int) -> Iterator[None]:
    """Keep so many cores busy with other processes."""
    others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(cores)]
    try:
        yield
    finally:
        for other in others:
            other.kill()
            other.wait()


def latencies(per_s: int, cores: int, repeats: int) -> dict[str, list[dict[str, float]]]:
    """Return the latencies of the raw stream and of each server at this rate, in turns, beside busy processes."""
    runs: dict[str, list[dict[str, float]]] = {name: [] for name in (RAW, *SERVERS)}
    with busy(cores):
        for _ in range(repeats):
            runs[RAW].append(service_latency.raw(per_s))
            for name, serve in SERVERS.items():
                runs[name].append(service_latency.once(NATIVE, per_s, serve))
    return runs


def main() -> None:
    quick = bench_parser(__doc__, "transports", "once, at 5,000 elements/s only").parse_args().quick
    report = begin((__doc__ or "").splitlines()[0])
    rates: dict[str, list[float]] = {name: [] for name in (RAW, *SERVERS)}
    for _ in range(1 if quick else REPEATS):
        rates[RAW].append(service_throughput.raw())
        for name, serve in SERVERS.items():
            rates[name].append(service_throughput.merged(NATIVE, serve))
    throughput = Panel("3 publishers, 1 subscriber, 100-byte payloads", "repeat", "elements/s")
    for name, values in rates.items():
        throughput.add_repeats(name, report.add(f"{name}, throughput", values, "elements/s"))
        ratios = [value / raw for value, raw in zip(values, rates[RAW], strict=True)]
        report.add(f"{name} / raw gRPC", ratios, "times")
    latency = Panel("p99 of the added latency", "elements/s of each publisher", "ms", log="x")
    cases = [(per_s, 0) for per_s in (RATES_PER_S[:1] if quick else RATES_PER_S)]
    for per_s, cores in cases if quick else [*cases, (RATES_PER_S[-1], BUSY_CORES)]:
        for name, found in latencies(per_s, cores, 1 if quick else service_latency.REPEATS).items():
            for part in ("p50", "p99"):
                where = ", busy cores" if cores else ""
                row = report.add(f"{name}, 3 x {per_s:,}/s{where}: {part}", [run[part] for run in found], "ms")
                if part == "p99" and not cores:
                    latency.add(name, per_s, row)
    if not quick:
        report.save("transports")
        plot("transports", "The two transports of a server and its clients, loopback, 2 cores", [throughput, latency])


if __name__ == "__main__":
    main()
