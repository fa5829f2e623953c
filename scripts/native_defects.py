"""Seeded defects of the native core: each check of it must be able to fail. See scripts/defects.py for Python.

A defect is a small change of a crate below native/ and the test of its suite that must fail because of it. Defects are
listed in scripts/defect_list. They are applied one after another to one copy of native/ in a temporary folder, never to
the working tree. All share one target folder, so that only the crate itself is built again. The script fails if a
defect survives, if it does not compile, or if the text that it changes is gone (then the defect must be written anew).
With ``CARGO_TARGET_DIR`` set to a folder that stays, the next run does not build the dependencies again.

    python scripts/native_defects.py [--list] [--only TEXT]
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

from defect_list import defects_below
from seeded import ROOT, Defect, main, seeded

BUILD_S_MAX = 900.0
TEST_S_MAX = 180.0
# Each build runs once, so a fast build is worth more than a fast test.
PROFILE = {
    "CARGO_PROFILE_RELEASE_LTO": "off",
    "CARGO_PROFILE_RELEASE_OPT_LEVEL": "1",
    "CARGO_PROFILE_RELEASE_CODEGEN_UNITS": "16",
    "CARGO_PROFILE_RELEASE_INCREMENTAL": "true",
}


def run_all(defects: list[Defect], _jobs: int) -> Iterable[str | None]:
    """Run all defects, one after another, because they share one target folder."""
    with tempfile.TemporaryDirectory(prefix="lmerge-native-defects-") as folder:
        copy = Path(folder)
        shutil.copytree(ROOT / "native", copy / "native", ignore=shutil.ignore_patterns("target", "fuzz"))
        env = {"CARGO_TARGET_DIR": str(copy / "target"), "RUST_BACKTRACE": "0"} | os.environ | PROFILE
        for defect in defects:
            yield run(defect, copy, env)


def run(defect: Defect, copy: Path, env: dict[str, str]) -> str | None:
    """Apply a defect, run its test and revert it. Return None if the test failed, else the problem."""
    with seeded(defect, copy) as problem:
        try:
            return problem or _tested(defect, copy / "native", env)
        except subprocess.TimeoutExpired:
            return "the test did not end"


def _tested(defect: Defect, crate: Path, env: dict[str, str]) -> str | None:
    package = f"lmerge-{Path(defect.file).parts[1]}"
    # A crate has its suite below tests/, or unit tests only.
    tests = ["--test", "suite"] if (crate / Path(defect.file).parts[1] / "tests").exists() else ["--lib"]
    cargo = ["cargo", "test", "--release", "--quiet", "--package", package, *tests]

    def call(arguments: list[str], limit_s: float) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            arguments, cwd=crate, env=env, capture_output=True, text=True, timeout=limit_s, check=False
        )

    built = call([*cargo, "--no-run"], BUILD_S_MAX)
    if built.returncode:
        errors = [line for line in built.stderr.splitlines() if line.startswith("error")]
        return f"it does not compile: {(errors or ['no error printed'])[0]}"
    result = call([*cargo, "--", "--exact", defect.test], TEST_S_MAX)
    if "test result: FAILED. 0 passed; 1 failed" in result.stdout:
        return None
    if "1 passed" in result.stdout:
        return "survived"
    last = (result.stdout.strip().splitlines() or ["nothing printed"])[-1]
    return f"the test did not run: {last}"


if __name__ == "__main__":
    sys.exit(main(__doc__, defects_below("native/"), run_all))
