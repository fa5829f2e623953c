"""Is this tree slower than another commit? ``make bench-against BASE=<commit>``.

BASE is built in a worktree under ``build/``, with its own virtual environment and native core. The worktree is removed
at the end. Both are measured in turns, BASE first, ``--rounds`` times each, by the bench of this tree (``probe``). If
a figure is worse by more than the spread of both (``verdict``), the exit code is 1. A figure that cannot be measured on
a side is *missing* there, with the reason. A figure that is missing in BASE decides nothing. One that is missing in
this tree is an error.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from bench.harness import RESULTS, bench_parser, machine
from bench.probe import PROBES
from bench.verdict import MISSING, WORSE, FigureVerdict, judge
from lmerge.core.engines import selection

ROOT: Final = Path(__file__).parent.parent
LIMIT: Final = "raw"
"""The probe of the limit, which is no figure of either commit."""
# A probe takes 15 s on a quiet machine.
PROBE_S: Final = 300.0

Samples = dict[str, list[float]]


class Side:
    """One of the two commits. ``samples``: by figure; ``problems``: the reason of a missing figure, by probe."""

    def __init__(self, python: Path, tree: Path) -> None:
        self.samples: Samples = {}
        self.problems: dict[str, str] = {}
        self._python = python
        self._tree = tree

    def measure(self, bench: Path, probe: str) -> None:
        """Run a probe once, with the bench in the folder ``bench``. A probe that has failed before is skipped."""
        if probe in self.problems:
            return
        environment = os.environ | {"PYTHONPATH": f"{bench}{os.pathsep}{self._tree}"}
        command = [str(self._python), "-m", "bench.probe", probe]
        try:
            done = subprocess.run(
                command, cwd=bench, env=environment, capture_output=True, text=True, timeout=PROBE_S, check=True
            )
        except subprocess.TimeoutExpired:
            self.problems[probe] = f"no end within {PROBE_S:g} s"
        except subprocess.CalledProcessError as failed:
            self.problems[probe] = (failed.stderr.strip().splitlines() or [f"exit code {failed.returncode}"])[-1]
        else:
            for figure, value in json.loads(done.stdout).items():
                self.samples.setdefault(figure, []).append(value)


def verdicts(before: Samples, now: Samples) -> dict[str, FigureVerdict]:
    """Compare every figure of either side. A rate is better if it is higher, a latency if it is lower."""
    return {
        figure: judge(before.get(figure, []), now.get(figure, []), more_is_better=figure.endswith("/s"))
        for figure in (*now, *(figure for figure in before if figure not in now))
    }


def exit_code(found: dict[str, FigureVerdict], now: Samples, is_whole: bool) -> int:
    """Return 1 if a figure is worse or missing in this tree, or if there are none, or if not ``is_whole``: a probe
    failed in this tree.
    """
    is_worse = any(verdict.outcome == WORSE for verdict in found.values())
    lost = any(verdict.outcome == MISSING and figure not in now for figure, verdict in found.items())
    return int(is_worse or lost or not found or not is_whole)


@contextmanager
def built(commit: str) -> Iterator[tuple[Path, Path]]:
    """Yield the interpreter and the folder of a worktree of ``commit`` with an environment of its own."""
    tree = ROOT / "build" / f"against-{commit}"
    if tree.exists():  # left by a run that was killed
        _git("worktree", "remove", "--force", str(tree))
    _git("worktree", "add", "--detach", "--force", str(tree), commit)
    try:
        print(f"building {commit} in {tree}", flush=True)
        subprocess.run([sys.executable, "-m", "venv", str(tree / ".venv")], check=True)
        python = tree / ".venv" / "bin" / "python"
        needs_native = {} if selection.native_problem() else {"LMERGE_REQUIRE_NATIVE": "1"}
        environment = {name: value for name, value in os.environ.items() if name != "PYO3_PYTHON"} | needs_native
        subprocess.run(
            [str(python), "-m", "pip", "install", "--quiet", "--editable", str(tree)],
            check=True,
            env=environment,
            cwd=tree,
        )
        yield python, tree
    finally:
        _git("worktree", "remove", "--force", str(tree))


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"git {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout.strip()


def _show(found: dict[str, FigureVerdict], before: Samples, now: Samples, sides: tuple[Side, Side]) -> None:
    for figure, verdict in found.items():
        old, new = (
            f"{sorted(side[figure])[len(side[figure]) // 2]:>12,.5g}" if side.get(figure) else f"{'-':>12}"
            for side in (before, now)
        )
        print(f"  {figure:<52}{old}{new}  {verdict.ratio:6.2f}  spread {verdict.spread:4.0%}  {verdict.outcome}")
    for name, side in zip(("BASE", "this tree"), sides, strict=True):
        for probe, problem in side.problems.items():
            print(f"  {probe} is missing in {name}: {problem}")


def main() -> int:
    parser = bench_parser(__doc__, "against")
    parser.add_argument("base", help="the commit to compare with")
    parser.add_argument("--rounds", type=int, default=5, help="measurements of each side (%(default)s)")
    parser.add_argument("--only", default="", help="only probes whose name contains this")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # so that the worktree is removed
    commit = _git("rev-parse", "--short", f"{options.base}^{{commit}}")
    probes = [probe for probe in PROBES if options.only in probe and probe != LIMIT]
    if selection.native_problem():
        probes = [probe for probe in probes if "native" not in probe]
    document: dict[str, Any] = {"base": commit, "rounds": options.rounds, "machine": machine()}
    with built(commit) as (python, tree), tempfile.TemporaryDirectory() as folder:
        bench = Path(folder)
        shutil.copytree(ROOT / "bench", bench / "bench", ignore=shutil.ignore_patterns("results", "__pycache__"))
        base, here, limit = Side(python, tree), Side(Path(sys.executable), ROOT), Side(Path(sys.executable), ROOT)
        for number in range(options.rounds):
            print(f"round {number + 1} of {options.rounds}", flush=True)
            limit.measure(bench, LIMIT)
            for probe in probes:
                base.measure(bench, probe)
                here.measure(bench, probe)
    found = verdicts(base.samples, here.samples)
    print(f"{', '.join(f'{key} {value}' for key, value in machine().items())}; medians: {commit}, this tree, ratio")
    _show(found, base.samples, here.samples, (base, here))
    _show(verdicts(limit.samples, limit.samples), limit.samples, limit.samples, (limit, limit))
    document["figures"] = {
        figure: {
            "before": base.samples.get(figure, []),
            "now": here.samples.get(figure, []),
            "word": verdict.outcome,
            "ratio": verdict.ratio,
            "spread": verdict.spread,
        }
        for figure, verdict in found.items()
    }
    document |= {"limit": limit.samples, "missing": {"base": base.problems, "now": here.problems}}
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "against.json").write_text(json.dumps(document, indent=1) + "\n")
    return exit_code(found, here.samples, not here.problems)


if __name__ == "__main__":
    sys.exit(main())
