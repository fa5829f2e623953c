"""Measures one figure of ``against`` once: ``python -m bench.probe NAME``. Prints a JSON object: figure -> value.

The bench is always that of the present commit. ``lmerge`` is that of the interpreter, of either commit. So both commits
get the same load, and only public names of lmerge can be missing in one of them.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from functools import partial
from typing import Final

from bench.harness import exit_on_help

Figures = dict[str, float]


def _throughput(engine: str) -> Figures:
    from bench.service_throughput import merged

    return {f"service throughput, {engine}, elements/s": merged(engine)}


def _raw() -> Figures:
    from bench.service_throughput import raw

    return {"raw gRPC, elements/s": raw()}


def _latency(engine: str, per_s: int) -> Figures:
    from bench.service_latency import once

    found = once(engine, per_s)
    return {f"latency at 3 x {per_s:,}/s, {engine}, {part}, ms": found[part] for part in ("p50", "p99")}


def _core(engine: str, kind: str, payload_bytes: int) -> Figures:
    from bench.core_runs import rates
    from bench.core_throughput import INPUTS, stream

    order = stream(engine, kind, payload_bytes, quick=False)
    return {f"core, {engine}, {kind} at {payload_bytes} bytes, elements/s": rates(engine, kind, order, INPUTS, 1)[0]}


PROBES: Final[dict[str, Callable[[], Figures]]] = {
    "raw": _raw,
    **{f"throughput-{engine}": partial(_throughput, engine) for engine in ("native", "python")},
    "latency-native-5000": partial(_latency, "native", 5_000),
    "latency-native-50000": partial(_latency, "native", 50_000),
    "latency-python-5000": partial(_latency, "python", 5_000),
    **{f"core-native-{kind}": partial(_core, "native", kind, 16) for kind in ("r0", "r1", "r2", "r3", "r4")},
    "core-native-r3-1000": partial(_core, "native", "r3", 1_000),
    **{f"core-python-{kind}": partial(_core, "Python", kind, 16) for kind in ("r1", "r3", "r4")},
}


if __name__ == "__main__":
    exit_on_help(__doc__)
    print(json.dumps(PROBES[sys.argv[1]]()), flush=True)
