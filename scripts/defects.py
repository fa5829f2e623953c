"""Seeded defects: each check must be able to fail. See scripts/native_defects.py for the native core.

A defect is a small change of the package and the test that must fail because of it. Defects are listed in
scripts/defect_list, one module for each area. Each is applied to a copy of the package in a temporary folder, never to
the working tree, and only the named test runs on it. The script fails if a defect survives, or if the text that it
changes is gone (then the defect must be written anew).

    python scripts/defects.py [--list] [--only TEXT] [--jobs N]
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from defect_list import defects_below
from seeded import NEEDS_NATIVE, ROOT, Defect, main, seeded

TEST_S_MAX = 180.0
# Hypothesis begins at the same seed each time: a test that fails once always fails.
SEED = "--hypothesis-seed=0"
# A defect can make its test wait for ever, which also counts as a failure. Without the defect it ends: see below.
HANG_S = 60.0
SPARK_HANG_S = 300.0  # a session of Spark takes ten seconds to start, and longer beside others
PACKAGES = ("lmerge", "lmerge_replicas", "lmerge_controller")
COPIED = (*PACKAGES, "bench", "monitoring", "charts", "deploy", "docs", "examples", "proto", "scripts", "tests")
REQUIRE_NATIVE = ("CI", "LMERGE_REQUIRE_NATIVE")  # what makes a missing native core a failure


def run_all(defects: list[Defect], jobs: int) -> Iterable[str | None]:
    _must_be_green(defects)
    with ThreadPoolExecutor(jobs) as pool:
        yield from pool.map(run, defects)


def run(defect: Defect) -> str | None:
    """Apply a defect and run its test. Return None if the test failed or did not end, else the problem."""
    with copied(with_native=not _is_of_the_python_core(defect)) as copy, seeded(defect, copy) as problem:
        if problem is not None:
            return problem
        try:
            hang_s = SPARK_HANG_S if defect.test.startswith("tests/spark/") else HANG_S
            result = _pytest(copy, [defect.test], hang_s)
        except subprocess.TimeoutExpired:
            return None
    if result.returncode == 1:
        return None
    last = (result.stdout.strip().splitlines() or ["nothing printed"])[-1]
    if result.returncode:
        return f"pytest ended with code {result.returncode}: {last}"
    return NEEDS_NATIVE if re.match(r"\d+ skipped", last) else "survived"


def _must_be_green(defects: list[Defect]) -> None:
    """Exit if a test fails without its defect: it would seem to catch the defect."""
    for with_native in (False, True):
        tests = sorted({defect.test for defect in defects if _is_of_the_python_core(defect) is not with_native})
        if not tests:
            continue
        print(f"==> {len(tests)} tests, which must pass without a defect", flush=True)
        with copied(with_native=with_native) as copy:
            result = _pytest(copy, tests, TEST_S_MAX * len(tests))
        if result.returncode:
            sys.exit(f"without any defect these tests must be green:\n{result.stdout}{result.stderr}")


def _pytest(copy: Path, tests: list[str], limit_s: float) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", SEED, *tests],
        cwd=copy,
        env={name: value for name, value in os.environ.items() if name not in REQUIRE_NATIVE}
        | {"PYTHONPATH": str(copy)},
        capture_output=True,
        text=True,
        timeout=limit_s,
        check=False,
    )


def _is_of_the_python_core(defect: Defect) -> bool:
    """Return whether a defect is in what the native core does too. The copy then has none, which would hide it."""
    is_definition = defect.file.startswith(("lmerge/core/", "lmerge/temporal/")) and "native" not in defect.file
    return is_definition and not defect.test.startswith("tests/temporal/native/")


@contextmanager
def copied(*, with_native: bool) -> Iterator[Path]:
    """Yield a folder with a copy of the package and its tests."""
    left_out = ["__pycache__"] if with_native else ["__pycache__", "_native*"]
    with tempfile.TemporaryDirectory(prefix="lmerge-defect-") as folder:
        copy = Path(folder)
        for name in COPIED:
            shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns(*left_out))
        shutil.copy(ROOT / "pyproject.toml", copy)
        if not any((copy / "lmerge").glob("_native*.so")):
            # Without this, an editable installation would find the native core of the working tree.
            (copy / "lmerge" / "_native.py").write_text("raise ImportError('a copy without the native core')\n")
        yield copy


if __name__ == "__main__":
    folders = (*(f"{name}/" for name in PACKAGES), "bench/", "monitoring/", "charts/", "deploy/", "docs/", "scripts/")
    defects = [defect for folder in folders for defect in defects_below(folder)]
    sys.exit(main(__doc__, defects, run_all))
