"""Is this tree slower than another commit? ``make bench-against BASE=<commit>``.

BASE is built in a worktree of its own under ``build/``, with its own virtual environment and native core, and taken
away again. Then both are measured by turns, BASE first, ``--rounds`` times each, by the bench of this tree (``probe``).
A figure that is worse by more than the spread of both (``verdict``) makes the exit code 1. One that cannot be measured
on a side is *missing* there, with the reason: it decides nothing if it is missing in BASE, and is an error here.
"""

from __future__ import annotations

import argparse
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

from bench.harness import RESULTS, machine
from bench.probe import PROBES
from bench.verdict import MISSING, WORSE, FigureVerdict, judge
from lmerge.core.engines import selection

ROOT: Final = Path(__file__).parent.parent
LIMIT: Final = "raw"
"""No figure of either commit: what both are compared with."""
# A probe takes 15 s on a quiet machine.
PROBE_S: Final = 300.0

Samples = dict[str, list[float]]


class Side:
    """One of the two commits. ``samples``: by figure; ``problems``: by probe, why it gave none."""

    def __init__(self, python: Path, tree: Path) -> None:
        self.samples: Samples = {}
        self.problems: dict[str, str] = {}
        self._python = python
        self._tree = tree

    def measure(self, bench: Path, probe: str) -> None:
        """Run a probe once, with the bench in the folder ``bench``. One that has failed before is left out."""
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
    """Every figure of either side. Latencies are better when they are less, rates when they are more."""
    return {
        figure: judge(before.get(figure, []), now.get(figure, []), more_is_better=figure.endswith("/s"))
        for figure in (*now, *(figure for figure in before if figure not in now))
    }


def exit_code(found: dict[str, FigureVerdict], now: Samples, is_whole: bool) -> int:
    """1: a figure is worse, or there is none of this side, or a probe of this side failed (``is_whole``: none did)."""
    is_worse = any(verdict.word == WORSE for verdict in found.values())
    lost = any(verdict.word == MISSING and figure not in now for figure, verdict in found.items())
    return int(is_worse or lost or not found or not is_whole)


@contextmanager
def built(commit: str) -> Iterator[tuple[Path, Path]]:
    """A worktree of ``commit`` with its own environment: its interpreter, and the folder."""
    tree = ROOT / "build" / f"against-{commit}"
    if tree.exists():  # of a run that was killed
        _git("worktree", "remove", "--force", str(tree))
    _git("worktree", "add", "--detach", "--force", str(tree), commit)
    try:
        print(f"building {commit} in {tree}", flush=True)
        subprocess.run([sys.executable, "-m", "venv", str(tree / ".venv")], check=True)
        python = tree / ".venv" / "bin" / "python"
        needs_native = {} if selection.native_problem() else {"LMERGE_REQUIRE_NATIVE": "1"}
        environment = {name: value for name, value in os.environ.items() if name != "PYO3_PYTHON"} | needs_native
        subprocess.run([str(python), "-m", "pip", "install", "--quiet", "--editable", str(tree)], check=True,
                       env=environment, cwd=tree)
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
        old, new = (f"{sorted(side[figure])[len(side[figure]) // 2]:>12,.5g}" if side.get(figure) else f"{'-':>12}"
                    for side in (before, now))
        print(f"  {figure:<52}{old}{new}  {verdict.ratio:6.2f}  spread {verdict.spread:4.0%}  {verdict.word}")
    for name, side in zip(("BASE", "this tree"), sides, strict=True):
        for probe, problem in side.problems.items():
            print(f"  {probe} is missing in {name}: {problem}")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("base", help="the commit to compare with")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default="", help="probes whose name contains this")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # so that the worktree is taken away
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
        figure: {"before": base.samples.get(figure, []), "now": here.samples.get(figure, []), **verdict._asdict()}
        for figure, verdict in found.items()
    }
    document |= {"limit": limit.samples, "missing": {"base": base.problems, "now": here.problems}}
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "against.json").write_text(json.dumps(document, indent=1) + "\n")
    return exit_code(found, here.samples, not here.problems)


if __name__ == "__main__":
    sys.exit(main())
