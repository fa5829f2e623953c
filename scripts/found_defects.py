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
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any, Final, NamedTuple

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
FINDERS: Final = Path(__file__).with_name("finders.py")
BOUNDARIES: Final = {"liveliness": ("tight",), "contact": ("one-tick", "back-to-back")}


class Found(NamedTuple):
    """What became of a defect. ``took``: how many trees or sessions it took; None: it was not found.

    ``case``: elements and operators of the smallest case, and the seconds that it took to get there.
    """

    defect: Defect
    took: int | None
    what: str = ""
    case: tuple[int, int, float] | None = None


def run_finder(root: Path, kind: str, options: Mapping[str, Any]) -> subprocess.CompletedProcess[str]:
    """Run a finder on the package in ``root``. Raises TimeoutExpired."""
    return subprocess.run(
        [sys.executable, str(FINDERS), kind, json.dumps(options)],
        cwd=root,
        env=os.environ | {"PYTHONPATH": str(root), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )


def find(defect: Defect, kind: str, options: Mapping[str, Any]) -> Found:
    """Seed a defect in a copy of the package, and run a finder there."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        shutil.copytree(ROOT / "lmerge", root / "lmerge", ignore=shutil.ignore_patterns("__pycache__"))
        with seeded(defect, root) as problem:
            if problem is not None:
                return Found(defect, None, problem)
            try:
                done = run_finder(root, kind, options)
            except subprocess.TimeoutExpired:
                return Found(defect, 1, "the run did not end")
    if done.returncode:
        return Found(defect, 1, f"it cannot be imported: {done.stderr.strip().splitlines()[-1][:100]}")
    found = json.loads(done.stdout)
    case = (found["elements"], found["operators"], found["seconds"]) if "elements" in found else None
    return Found(defect, found["count"], found.get("found", ""), case)


def shown(found: Found, unit: str) -> str:
    """Return a line of the table."""
    took = "not found" if found.took is None else f"{found.took} {unit}"
    case = (
        "" if found.case is None else f" [{found.case[0]} elements, {found.case[1]} operators, {found.case[2]:.1f} s]"
    )
    return f"{took:14} {found.defect.name}{case}"


def summary(found: Sequence[Found], unit: str) -> Iterator[str]:
    """Yield the shares and medians."""
    counts = [one.took for one in found if one.took is not None]
    yield f"{len(counts)} of {len(found)} defects found ({len(counts) / max(1, len(found)):.0%})"
    if counts:
        yield f"{unit} until found: median {statistics.median(counts):g}, worst {max(counts)}"
    cases = [one.case for one in found if one.case is not None]
    if cases:
        elements, operators, seconds = (sorted(case[at] for case in cases) for at in range(3))
        yield (
            f"smallest cases of {len(cases)}: elements median {statistics.median(elements):g}, worst {elements[-1]}; "
            f"operators median {statistics.median(operators):g}, worst {operators[-1]}; "
            f"seconds median {statistics.median(seconds):.1f}, worst {seconds[-1]:.1f}"
        )


LINE: Final = re.compile(
    r" *\d+ (?P<took>\d+ \w+|not found) +(?P<name>.*?)"
    r"(?: \[(?P<elements>\d+) elements, (?P<operators>\d+) operators, (?P<seconds>[\d.]+) s\])?"
)
_CASE: Final = ("elements", "operators", "seconds")


def table(logs: Sequence[str]) -> Iterator[str]:
    """Yield the Markdown table of what runs have printed: each defect once, the last run of it counts."""
    found = {line["name"]: line for text in logs for row in text.splitlines() if (line := LINE.fullmatch(row))}
    shown_case = _CASE if any(line["elements"] for line in found.values()) else ()
    header = ("defect", "found by", *(f"smallest case: {part}" for part in shown_case))
    yield f"| {' | '.join(header)} |"
    yield f"|{'---|' * len(header)}"
    for name, line in found.items():
        cells = (name, line["took"], *(line[part] or "" for part in shown_case))
        yield f"| {' | '.join(cells)} |"


def part_of(text: str) -> tuple[int, int]:
    """Read ``N/M``: the N-th of M parts. Raises ArgumentTypeError."""
    found = re.fullmatch(r"(\d+)/(\d+)", text)
    if found is None or not 1 <= int(found[1]) <= int(found[2]):
        raise argparse.ArgumentTypeError(f"{text!r} is no part such as 2/3: the second of three")
    return int(found[1]), int(found[2])


def main() -> None:
    """Print for each defect how many trees it took, then the shares."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, default=3, help="seeds of the covering array (%(default)s)")
    parser.add_argument("--only", metavar="TEXT", default="", help="defects whose name or file contains TEXT")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="every N-th defect (%(default)s)")
    parser.add_argument("--part", type=part_of, default="1/1", metavar="N/M", help="the N-th of M parts (%(default)s)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="parallel runs (%(default)s)")
    parser.add_argument("--shrink", action="store_true", help="make each case smaller, as lmerge test does")
    parser.add_argument("--without-boundaries", action="store_true", help="leave out tight stables and touching ends")
    parser.add_argument("--merge", action="store_true", help="defects of the merge's core, by drawn merges")
    parser.add_argument("--table", nargs="+", type=Path, metavar="LOG", help="print the table of what runs printed")
    options = parser.parse_args()
    if options.table:
        print("\n".join(table([log.read_text() for log in options.table])))
        return
    kind, unit, lists, places = "trees", "trees", LISTS, ENGINE_FILES
    given: dict[str, Any] = {"seeds": list(range(options.seeds))}
    if options.merge:
        kind, unit, lists, places = "merges", "sessions", MERGE_LISTS, MERGE_FILES
    else:
        left_out = BOUNDARIES if options.without_boundaries else {}
        given |= {"left_out": left_out, "shrinks": options.shrink}
    defects = [one for part in lists for one in part.DEFECTS if options.only in f"{one.name}\n{one.file}"]
    part, parts = options.part
    chosen = [one for one in defects if one.file.startswith(places)][:: options.every]
    chosen = chosen[len(chosen) * (part - 1) // parts : len(chosen) * part // parts]
    print(f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}, {options.jobs} at once")
    # Without this, a false alarm would count as each defect's discovery.
    sound = run_finder(ROOT, kind, given)
    if sound.returncode or json.loads(sound.stdout)["count"] is not None:
        sys.exit(f"without a defect, something is wrong: {sound.stdout[-500:]}{sound.stderr[-500:]}")
    print(f"without a defect {json.loads(sound.stdout)['tried']} {unit} are right", flush=True)
    found = []
    with ThreadPoolExecutor(options.jobs) as pool:
        for number, one in enumerate(pool.map(lambda defect: find(defect, kind, given), chosen), 1):
            found.append(one)
            print(f"{number:4} {shown(one, unit)}", flush=True)
    for line in summary(found, unit):
        print(line)


if __name__ == "__main__":
    main()
