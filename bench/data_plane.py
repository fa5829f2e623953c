"""What would a data plane in Rust give: a server whose publish, merge and fan-out run without Python?

A prototype (``bench/plane``: tonic, the native core, the messages of lmerge's own clients) beside ``lmerge serve`` and
a raw gRPC stream of the same bytes, in turns, on one machine: 3 publisher processes and 1 subscriber as in
``service_throughput``, and latencies at 3 x 5,000 and 3 x 50,000 elements/s as in ``service_latency``. The prototype
has no comparison of inputs, store, TLS, administration and errors. ``cargo`` builds it first, which takes minutes.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench import service_latency, service_throughput
from bench.harness import Panel, begin, bench_parser, plot
from bench.load import running, server
from lmerge.core.engines.selection import NATIVE

CRATE = Path(__file__).parent / "plane"
RATES_PER_S = (5_000, 50_000)
REPEATS = 5


@contextmanager
def prototype(*_arguments: str) -> Iterator[str]:
    """Run the prototype, which takes no options, and yield its address."""
    with running(str(CRATE / "target" / "release" / "plane")) as target:
        yield target


def main() -> None:
    quick = bench_parser(__doc__, "data_plane", "once, at 5,000 elements/s only").parse_args().quick
    if shutil.which("cargo") is None:
        sys.exit("the prototype is built by cargo, which is not here")
    subprocess.run(["cargo", "build", "--release", "--quiet", "--locked"], cwd=CRATE, check=True)
    repeats = 1 if quick else REPEATS
    report = begin((__doc__ or "").splitlines()[0])
    servers = {"lmerge serve": server, "prototype": prototype}
    rates: dict[str, list[float]] = {name: [] for name in ("raw gRPC", *servers)}
    for _ in range(repeats):
        rates["raw gRPC"].append(service_throughput.raw())
        for name, serve in servers.items():
            rates[name].append(service_throughput.merged(NATIVE, serve))
    throughput = Panel("3 publishers, 1 subscriber, 100-byte payloads", "repeat", "elements/s")
    for name, values in rates.items():
        throughput.add_repeats(name, report.add(f"{name}, throughput", values, "elements/s"))
        ratios = [value / raw for value, raw in zip(values, rates["raw gRPC"], strict=True)]
        report.add(f"{name} / raw gRPC", ratios, "times")
    latency = Panel("p99 of the added latency", "elements/s of each publisher", "ms", log="x")
    for per_s in RATES_PER_S[:1] if quick else RATES_PER_S:
        runs: dict[str, list[dict[str, float]]] = {name: [] for name in servers}
        for _ in range(1 if quick else service_latency.REPEATS):
            for name, serve in servers.items():
                runs[name].append(service_latency.once(NATIVE, per_s, serve))
        for name, found in runs.items():
            for part in ("p50", "p99"):
                row = report.add(f"{name}, 3 x {per_s:,}/s: {part}", [run[part] for run in found], "ms")
                if part == "p99":
                    latency.add(name, per_s, row)
    if not quick:
        report.save("data_plane")
        plot("data_plane", "A data plane without Python, loopback, 2 cores", [throughput, latency])


if __name__ == "__main__":
    main()
