"""What latency does the merge add, at 3 publishers of 1,000 to 50,000 elements/s each, on both engines?

100-byte payloads, loopback, 2 cores shared by all processes. Open loop: the latency of an element is the time from when
it is due, which is the same on all three replicas, until the subscriber has it. So waiting in the sender counts. It
includes the batching of publisher and server. Target at 5,000 elements/s: p50 below 5 ms, p99 below 20 ms.
"""

from __future__ import annotations

import subprocess
import time

from bench.harness import Panel, begin, bench_parser, plot
from bench.load import Serve, let_begin, result_of, server, start, started, wait_until_ready
from lmerge.core.engines import selection

RATES_PER_S = (1_000, 5_000, 20_000, 50_000)
TARGET_PER_S = 5_000
SECONDS = 10
WARM_S = 2
REPEATS = 3


def once(engine: str, per_s: int, serve: Serve = server) -> dict[str, float]:
    """Return p50, p99 and the largest latency in ms, without the first seconds. ``serve``: runs the server."""
    with serve("--engine", engine) as target:
        reader = start("subscribe", target, "latency", per_s * WARM_S)
        return _measured(reader, [start("paced", target, name, per_s * SECONDS, 100, per_s, 0.0) for name in "abc"])


def raw(per_s: int) -> dict[str, float]:
    """Return the same for a stream of the same messages that are only passed on: of the first publisher."""
    module = "bench.raw_grpc"
    with started(module, "serve") as target:
        reader = start("latency", target, per_s * WARM_S, module=module)
        return _measured(reader, [start("paced", target, per_s * SECONDS, 100, per_s, module=module) for _ in "abc"])


def _measured(reader: subprocess.Popen[str], publishers: list[subprocess.Popen[str]]) -> dict[str, float]:
    wait_until_ready((reader, *publishers))
    let_begin(publishers, str(time.time() + 0.3))
    result = result_of(reader)
    for process in (reader, *publishers):
        assert process.wait() == 0
    return result


def main() -> None:
    quick = bench_parser(__doc__, "service_latency", "at 1,000 and 5,000 elements/s, once").parse_args().quick
    report = begin((__doc__ or "").splitlines()[0])
    panels = {
        part: Panel(f"{part} of the added latency", "elements/s of each publisher", "ms", log="x")
        for part in ("p50", "p99")
    }
    for engine in (selection.NATIVE, selection.PYTHON):
        if engine == selection.NATIVE and selection.native_problem():
            continue
        for per_s in RATES_PER_S[:2] if quick else RATES_PER_S:
            runs = [once(engine, per_s) for _ in range(1 if quick else REPEATS)]
            rows = {
                part: report.add(f"{engine}, 3 x {per_s:,}/s: {part}", [run[part] for run in runs], "ms")
                for part in ("p50", "p99", "largest")
            }
            for part, panel in panels.items():
                panel.add(f"{engine} engine", per_s, rows[part])
            if per_s == TARGET_PER_S:
                p50, p99 = rows["p50"].median, rows["p99"].median
                verdict = "reached" if p50 < 5 and p99 < 20 else "MISSED"
                report.note(f"{engine}: target p50 < 5 ms, p99 < 20 ms: {verdict} ({p50:.1f} ms, {p99:.1f} ms)")
    if quick:
        return
    report.save("service_latency")
    plot("service_latency", "Latency that a merge of three adds, loopback, 2 cores", list(panels.values()))


if __name__ == "__main__":
    main()
