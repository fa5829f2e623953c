"""Defects of the engine found by scenarios alone: how many trees it takes until each seeded defect is found.

Each defect of the engine's lists (``scripts/defect_list``) is seeded in a copy of the package, and the trees of the
scenario that leaves all open run there until one is bad: those of the covering array of pairs, for one seed after the
other. No test that was made by hand runs. With ``--without-boundaries`` stables never meet the next change, and no
lifetimes touch: what the boundary facets earn is the difference. With ``--merge`` the defects are those of the merge's
core, and sessions of drawn merges are played until something is wrong.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from types import ModuleType
from typing import Final, NamedTuple

from defect_list import (
    core,
    insert_only,
    policies,
    temporal_listed,
    temporal_operators,
    temporal_panes,
    temporal_windows,
)
from seeded import ROOT, Defect, seeded

LISTS: Final[tuple[ModuleType, ...]] = (temporal_operators, temporal_windows, temporal_listed, temporal_panes)
ENGINE_FILES: Final[tuple[str, ...]] = ("lmerge/temporal/",)
MERGE_LISTS: Final[tuple[ModuleType, ...]] = (core, insert_only, policies)
MERGE_FILES: Final[tuple[str, ...]] = tuple(
    f"lmerge/core/{name}.py"
    for name in ("insert_only", "r3", "r4", "index", "tdb", "merge", "algorithm", "consistent", "compatible", "inputs")
)
"""Where what a merge of replicas shows is computed: not its policies, snapshots and switches of algorithms."""
TIMEOUT_S: Final = 900.0
BOUNDARIES: Final = {"liveliness": ("tight",), "contact": ("one-tick", "back-to-back")}

# Runs in the copy: prints the number of trees until a bad one, or null.
FINDER: Final = """
import json, sys
from lmerge.testing.checking.session import every_operator
from lmerge.testing.checking.full_checks import check_fully
from lmerge.testing.judging.verdict import Judge
from lmerge.testing.systems.engine import EngineSystem
from lmerge.testing.transforming.covering import covering_rows
from lmerge.testing.transforming.transformer import Transformer

seeds, left_out = json.loads(sys.argv[1])
count = 0
with Judge() as judge:
    for seed in seeds:
        transformer = Transformer(every_operator(), seed)
        for number, cell in enumerate(covering_rows(transformer.space, 2, seed)):
            if any(cell[name] in levels for name, levels in left_out.items()):
                continue
            count += 1
            try:
                tree = transformer.tree(cell, number)
                bad = check_fully(tree, EngineSystem(), judge).is_bad
            except Exception:
                bad = True
            if bad:
                print(json.dumps(count))
                sys.exit()
print("null")
"""


# Runs in the copy as well: sessions of drawn merges, of every kind in turn.
MERGE_FINDER: Final = """
import json, sys
from lmerge.testing.merges.declared import JUDGED_POLICIES, PROMISES
from lmerge.testing.merges.judged import broken_session
from lmerge.testing.merges.policies import policy_session
from lmerge.testing.merges.sessions import restored_session, twin_session

seeds, _ = json.loads(sys.argv[1])
count = 0
for number in range(100 * len(seeds)):
    policy = JUDGED_POLICIES[number % len(JUDGED_POLICIES)]
    kinds = [
        *(lambda algorithm=algorithm: policy_session(algorithm, policy, number) for algorithm in ("r3", "r4")),
        lambda: broken_session(number),
        lambda: restored_session(number),
        *(lambda algorithm=algorithm: twin_session(number, algorithm) for algorithm in PROMISES),
    ]
    for play in kinds:
        count += 1
        try:
            play()
        except Exception:
            print(json.dumps(count))
            sys.exit()
print("null")
"""


class Found(NamedTuple):
    """How many trees, or merges, it took to find a defect; None: it was not found."""

    defect: Defect
    trees: int | None
    problem: str = ""


def run_trees(
    root: Path, seeds: Sequence[int], left_out: dict[str, Sequence[str]], finder: str = FINDER
) -> subprocess.CompletedProcess[str]:
    """Run trees on the package in ``root`` until one is bad. Raises TimeoutExpired."""
    return subprocess.run(
        [sys.executable, "-c", finder, json.dumps([list(seeds), left_out])],
        cwd=root,
        env=os.environ | {"PYTHONPATH": str(root), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )


def find(defect: Defect, seeds: Sequence[int], left_out: dict[str, Sequence[str]], finder: str = FINDER) -> Found:
    """Seed a defect in a copy of the package, and run trees there until one is bad."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        shutil.copytree(ROOT / "lmerge", root / "lmerge", ignore=shutil.ignore_patterns("__pycache__"))
        with seeded(defect, root) as problem:
            if problem is not None:
                return Found(defect, None, problem)
            try:
                done = run_trees(root, seeds, left_out, finder)
            except subprocess.TimeoutExpired:
                return Found(defect, 1, "the run did not end")
    if done.returncode:
        return Found(defect, 1, f"it cannot be imported: {done.stderr.strip().splitlines()[-1][:100]}")
    return Found(defect, json.loads(done.stdout))


def main() -> None:
    """Print for each defect how many trees it took, then the shares."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, default=3, help="seeds of the covering array (%(default)s)")
    parser.add_argument("--only", metavar="TEXT", default="", help="defects whose name or file contains TEXT")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="every N-th defect (%(default)s)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="parallel runs (%(default)s)")
    parser.add_argument("--without-boundaries", action="store_true", help="leave out tight stables and touching ends")
    parser.add_argument("--merge", action="store_true", help="defects of the merge's core, by merges of replicas")
    options = parser.parse_args()
    lists, places, finder, unit = LISTS, ENGINE_FILES, FINDER, "trees"
    if options.merge:
        lists, places, finder, unit = MERGE_LISTS, MERGE_FILES, MERGE_FINDER, "sessions"
    defects = [one for part in lists for one in part.DEFECTS if options.only in f"{one.name}\n{one.file}"]
    chosen = [one for one in defects if one.file.startswith(places)][:: options.every]
    left_out: dict[str, Sequence[str]] = dict(BOUNDARIES) if options.without_boundaries else {}
    print(f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}, {options.jobs} at once")
    # Without this, a false alarm would count as each defect's discovery.
    sound = run_trees(ROOT, range(options.seeds), left_out, finder)
    if sound.stdout.strip() != "null":
        sys.exit(f"without a defect, number {sound.stdout.strip() or '?'} is bad: {sound.stderr[-500:]}")
    number = count(1)
    found = []
    with ThreadPoolExecutor(options.jobs) as pool:
        for one in pool.map(lambda defect: find(defect, range(options.seeds), left_out, finder), chosen):
            found.append(one)
            shown = "not found" if one.trees is None else f"{one.trees} {unit}"
            print(f"{next(number):4} {shown:12} {one.defect.name}{f' ({one.problem})' * bool(one.problem)}", flush=True)
    trees = [one.trees for one in found if one.trees is not None]
    share = len(trees) / max(1, len(found))
    print(f"{len(trees)} of {len(found)} defects found ({share:.0%}), with {options.seeds} seeds")
    if trees:
        print(f"{unit} until found: median {statistics.median(trees):g}, worst {max(trees)}")


if __name__ == "__main__":
    main()
