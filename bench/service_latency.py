"""What latency does the merge add, at 3 publishers of 5,000 elements/s each?

100-byte payloads, loopback, 2 cores shared by all processes. Open loop: an element's clock starts when it is due, the
same moment on all three replicas, and stops when the subscriber has it; so waiting in the sender counts. Includes the
publisher's and the server's batching. Target: p50 below 5 ms, p99 below 20 ms.
"""

from __future__ import annotations

import json
import time

from bench.harness import begin
from bench.load import server, start

PER_S = 5_000
SECONDS = 20
WARM_S = 2
REPEATS = 3


def once() -> tuple[float, float, float]:
    """p50, p99 and the largest, in ms, after the first seconds."""
    with server() as target:
        reader = start("subscribe", target, "latency")
        publishers = [start("paced", target, name, PER_S * SECONDS, 100, PER_S, 0.0) for name in "abc"]
        for process in (reader, *publishers):
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        began = time.time() + 0.3
        for process in publishers:
            assert process.stdin is not None
            process.stdin.write(f"{began}\n")
            process.stdin.flush()
        assert reader.stdout is not None
        latencies = json.loads(reader.stdout.readline())["latencies_ms"][PER_S * WARM_S :]
        for process in (reader, *publishers):
            assert process.wait() == 0
    latencies.sort()
    return latencies[len(latencies) // 2], latencies[int(len(latencies) * 0.99)], latencies[-1]


def main() -> None:
    report = begin((__doc__ or "").splitlines()[0])
    runs = [once() for _ in range(REPEATS)]
    p50 = report.add("added latency, p50", [run[0] for run in runs], "ms").median
    p99 = report.add("added latency, p99", [run[1] for run in runs], "ms").median
    report.add("added latency, largest", [run[2] for run in runs], "ms")
    verdict = "reached" if p50 < 5 and p99 < 20 else "MISSED"
    report.note(f"target p50 < 5 ms, p99 < 20 ms: {verdict} ({p50:.1f} ms, {p99:.1f} ms)")
    report.save("service_latency")


if __name__ == "__main__":
    main()
