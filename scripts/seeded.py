"""Seeded defects: their type, and the command line of the two scripts that apply them."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
NEEDS_NATIVE = "needs the native core, which is not built here"


class Defect(NamedTuple):
    """A defect: ``old``, which occurs once in ``file``, becomes ``new``. Then ``test`` must fail.

    ``file``: from the project's root. ``test``: a pytest id for Python, ``module::name`` of the suite for Rust.
    """

    name: str
    file: str
    old: str
    new: str
    test: str


# Takes defects and the number of parallel runs. Gives for each, in order, None if its test failed, else the problem.
Runner = Callable[[list[Defect], int], Iterable[str | None]]


@contextmanager
def seeded(defect: Defect, root: Path) -> Iterator[str | None]:
    """Seed a defect in the copy of the project in ``root``. Yields None, or why it cannot be seeded. Reverts it."""
    path = root / defect.file
    if not path.is_file():
        yield f"there is no file {defect.file}"
        return
    text = path.read_text()
    if text.count(defect.old) != 1:
        yield f"the text to change occurs {text.count(defect.old)} times in {defect.file}"
        return
    path.write_text(text.replace(defect.old, defect.new))
    try:
        yield None
    finally:
        path.write_text(text)


def main(document: str | None, defects: list[Defect], run: Runner) -> int:
    """Run the command line and return the exit status."""
    parser = argparse.ArgumentParser(description=(document or "").splitlines()[0])
    parser.add_argument("--list", action="store_true", help="list the defects")
    parser.add_argument("--only", metavar="TEXT", help="defects whose name or file contains TEXT")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="parallel runs, for Python (%(default)s)")
    options = parser.parse_args()
    chosen = [defect for defect in defects if not options.only or options.only in defect.name + "\n" + defect.file]
    if options.list:
        print("\n".join(f"{defect.name}\n    {defect.test}" for defect in chosen))
        return 0
    repeated = {defect.name for defect in chosen if sum(other.name == defect.name for other in chosen) > 1}
    if repeated:
        sys.exit(f"two defects have one name: {', '.join(sorted(repeated))}")
    caught = skipped = 0
    for defect, problem in zip(chosen, run(chosen, options.jobs)):
        caught += problem is None
        skipped += problem == NEEDS_NATIVE
        result = "red " if problem is None else "skip" if problem == NEEDS_NATIVE else "FAIL"
        print(f"{result} {defect.name}: {problem or defect.test}", flush=True)
    missed = len(chosen) - caught - skipped
    print(f"{caught} defects caught, {missed} not" + (f", {skipped} need the native core" if skipped else ""))
    return 1 if missed or not chosen else 0
