"""What latency does the merge add, at 3 publishers of 1,000 to 50,000 elements/s each, on both engines?

100-byte payloads, loopback, 2 cores shared by all processes. Open loop: an element's clock starts when it is due, the
same moment on all three replicas, and stops when the subscriber has it; so waiting in the sender counts. Includes the
publisher's and the server's batching. Target at 5,000 elements/s: p50 below 5 ms, p99 below 20 ms.
"""

from __future__ import annotations

import json
import time

from bench.harness import Panel, begin, plot
from bench.load import server, start
from lmerge.core.engines import selection

RATES_PER_S = (1_000, 5_000, 20_000, 50_000)
TARGET_PER_S = 5_000
SECONDS = 10
WARM_S = 2
REPEATS = 3


def once(engine: str, per_s: int) -> dict[str, float]:
    """p50, p99 and the largest, in ms, after the first seconds."""
    with server("--engine", engine) as target:
        reader = start("subscribe", target, "latency", per_s * WARM_S)
        publishers = [start("paced", target, name, per_s * SECONDS, 100, per_s, 0.0) for name in "abc"]
        for process in (reader, *publishers):
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        began = time.time() + 0.3
        for process in publishers:
            assert process.stdin is not None
            process.stdin.write(f"{began}\n")
            process.stdin.flush()
        assert reader.stdout is not None
        told: dict[str, float] = json.loads(reader.stdout.readline())
        for process in (reader, *publishers):
            assert process.wait() == 0
    return told


def main() -> None:
    report = begin((__doc__ or "").splitlines()[0])
    panels = {word: Panel(f"{word} of the added latency", "elements/s of each publisher", "ms", log="x")
              for word in ("p50", "p99")}
    for engine in (selection.NATIVE, selection.PYTHON):
        if engine == selection.NATIVE and selection.native_problem():
            continue
        for per_s in RATES_PER_S:
            runs = [once(engine, per_s) for _ in range(REPEATS)]
            rows = {
                word: report.add(f"{engine}, 3 x {per_s:,}/s: {word}", [run[word] for run in runs], "ms")
                for word in ("p50", "p99", "largest")
            }
            for word, panel in panels.items():
                panel.add(f"{engine} engine", per_s, rows[word])
            if per_s == TARGET_PER_S:
                p50, p99 = rows["p50"].median, rows["p99"].median
                verdict = "reached" if p50 < 5 and p99 < 20 else "MISSED"
                report.note(f"{engine}: target p50 < 5 ms, p99 < 20 ms: {verdict} ({p50:.1f} ms, {p99:.1f} ms)")
    report.save("service_latency")
    plot("service_latency", "Latency that a merge of three adds, loopback, 2 cores", list(panels.values()))


if __name__ == "__main__":
    main()
