"""Which results are older than the code that they measure? ``make bench-stale``; exit code 1 if any is.

A result in ``bench/results`` names the commit that it was measured at. It is stale if a path that its bench measures
(``MEASURES``, and the bench itself) differs from that commit, committed or not. A plot is stale if its result is newer.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Final

from bench.harness import bench_parser

ROOT: Final = Path(__file__).parent.parent

_CORE: Final = ("lmerge/core", "native/core/src", "native/python/src")
_SERVICE: Final = (*_CORE, "lmerge/service", "lmerge/wire", "lmerge/client", "native/transport/src")
_KILLS: Final = (*_SERVICE, "bench/rig")
_TEMPORAL: Final = ("lmerge/temporal", "native/temporal/src", "native/python/src")
_SPARK: Final = (*_SERVICE, "lmerge/spark", "native/rows/src")

MEASURES: Final[dict[str, tuple[str, ...]]] = {
    "arrow_rows": ("lmerge/wire/arrow.py", "lmerge/wire/rows.py", "lmerge/wire/native_rows.py", "native/rows/src"),
    "bursty": _KILLS,
    "cluster_faults": (*_KILLS, "lmerge_controller", "charts/lmerge"),
    "congestion": _KILLS,
    "counts": (*_TEMPORAL, "bench/counts", "bench/peers"),
    "controller": ("lmerge_controller/kubernetes", "lmerge_controller/plan", "lmerge_controller/loop.py"),
    "core_figures": _CORE,
    "core_inputs": _CORE,
    "core_memory": _CORE,
    "core_r3": _CORE,
    "core_shards": _CORE,
    "core_stable": _CORE,
    "core_throughput": _CORE,
    "divergence": _SERVICE,
    "drills": (*_SERVICE, "lmerge_controller"),
    "durability": _SERVICE,
    "feedback": _KILLS,
    "kills": _KILLS,
    "metrics_cost": _SERVICE,
    "peers": (*_CORE, "bench/peers"),
    "relay_tree": _SERVICE,
    "scenarios": (*_TEMPORAL, "lmerge/testing"),
    "service_latency": _SERVICE,
    "service_throughput": _SERVICE,
    "snapshot": _SERVICE,
    "soak": _KILLS,
    "spark_feedback": (*_SPARK, "bench/rig"),
    "spark_kills": (*_SPARK, "bench/rig"),
    "spark_merge": (*_CORE, "lmerge/spark"),
    "spark_sink": _SPARK,
    "spark_source": _SPARK,
    "status_page": _SERVICE,
    "subscribers": _SERVICE,
    "temporal_costs": _TEMPORAL,
    "temporal_end_to_end": (*_SERVICE, *_TEMPORAL, "lmerge/replica", "native/rows/src"),
    "temporal_feedback": (*_KILLS, *_TEMPORAL, "lmerge/replica", "bench/feedback.py"),
    "temporal_functions": (*_TEMPORAL, "bench/temporal_streams.py"),
    "temporal_operators": _TEMPORAL,
    "transports": _SERVICE,
    "up": (*_SERVICE, "lmerge_controller", "lmerge_replicas", "examples/flights.yaml"),
    "verify": ("lmerge/testing/validation", "lmerge/core/session.py"),
}
# A comparison of two commits is no figure of the present one.
NO_FIGURES: Final = ("against",)
_SHOWN: Final = 3


def stale(root: Path, measures: dict[str, tuple[str, ...]]) -> dict[str, str]:
    """Return the file name of each stale result or plot of ``root`` -> the reason."""
    found: dict[str, str] = {}
    results = root / "bench" / "results"
    for path in sorted(results.glob("*.json")):
        if path.stem not in NO_FIGURES:
            why = _why(root, path, measures)
            if why:
                found[path.name] = why
    for plot in sorted(results.glob("*.png")):
        why = _why_plot(root, plot)
        if why:
            found[plot.name] = why
    return found


def commit_of(result: Path) -> str:
    """Return the commit that a result was measured at; empty if it names none."""
    machine = json.loads(result.read_text()).get("machine", {})
    return str(machine.get("commit", ""))


def _why(root: Path, result: Path, measures: dict[str, tuple[str, ...]]) -> str:
    if result.stem not in measures:
        return "its measured paths are not declared: give it a line in bench/stale.py"
    commit = commit_of(result)
    if not commit or _git(root, "cat-file", "-e", f"{commit}^{{commit}}") is None:
        return f"its commit {commit or 'none'!r} is not in this repository"
    changed = _git(root, "diff", "--name-only", commit, "--", *measures[result.stem], f"bench/{result.stem}.py")
    files = (changed or "").split()
    if not files:
        return ""
    more = f" and {len(files) - _SHOWN} more" if len(files) > _SHOWN else ""
    return f"measured at {commit}; since then changed: {', '.join(files[:_SHOWN])}{more}"


def _why_plot(root: Path, plot: Path) -> str:
    result = plot.with_suffix(".json")
    if not result.exists():
        return "there is no result that it shows"
    drawn, measured = (_git(root, "log", "-1", "--format=%H", "--", str(path)) for path in (plot, result))
    if not drawn or not measured or drawn == measured:
        return ""
    newer = _git(root, "rev-list", f"{drawn}..{measured}", "--", str(result))
    return f"{result.name} has been measured again since it was drawn" if newer else ""


def _git(root: Path, *arguments: str) -> str | None:
    """Return the output of git; None if it fails."""
    done = subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else None


def main() -> int:
    bench_parser(__doc__, "stale").parse_args()
    found = stale(ROOT, MEASURES)
    for name, why in found.items():
        print(f"{name}: {why}")
    print(f"{len(found)} stale" if found else "every result is as new as the code that it measures")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
