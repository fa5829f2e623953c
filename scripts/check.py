"""``make check``: lint, types and the tests near a change, in about a minute. ``make test`` runs everything.

    python scripts/check.py [--base COMMIT] [--seconds N] [--list]

The change is what differs from COMMIT: the last commit, or the one before if the working tree is clean. Tests are
chosen in this order, and run in it until the seconds are over:

1. the tests that changed
2. tests named after a changed module
3. tests that import a changed module, directly or through a package that passes its names on
4. tests in the folder that mirrors the changed module's
5. the tidy tests and the list of seeded defects

Tests that reach the change only through other modules are left out, and counted. Tests of whole systems (Spark, the
simulation, the demo) come last of their kind, because they are slow.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from import_graph import Graph, graph_of, importers, module_of, modules_in

ROOT = Path(__file__).resolve().parent.parent
TESTS_S = 40.0  # lint and types run beside the tests and take less
ALWAYS = ("tests/tidy", "tests/test_defects.py")
SLOW = ("tests/spark/", "tests/sim/", "tests/e2e/")
OTHERS = (
    ("*.md", ("tests/test_docs_pages.py", "tests/cli/test_readme.py")),
    ("docs/*.md", ("tests/spark/test_docs.py",)),
    ("mkdocs.yml", ("tests/test_docs_pages.py",)),
    ("pyproject.toml", ("tests/test_packaging.py",)),
    ("setup.py", ("tests/test_packaging.py", "tests/test_native_build.py")),
    ("Makefile", ("tests/e2e/test_bare.py",)),
    ("scripts/bare.sh", ("tests/e2e/test_bare.py",)),
    ("monitoring/*", ("tests/monitoring/test_alert_files.py", "tests/monitoring/test_dashboards.py")),
    ("docs/runbooks/*", ("tests/monitoring/test_alert_files.py",)),
    ("proto/*", ("tests/wire/test_generated.py",)),
    ("scripts/defect_list/*", ("tests/test_defects.py",)),
)
"""Tests of files that are no modules."""


@dataclass(frozen=True)
class ChosenTests:
    """The test modules near a change, nearest first, and those that reach it only through other modules."""

    near: tuple[str, ...]
    far: tuple[str, ...]


def choose(changed: Iterable[str], graph: Graph, modules: Mapping[str, str]) -> ChosenTests:
    """Return the tests of changed files. ``modules``: the path of each module, from the root, as all paths here."""
    files = sorted(changed)
    tests = sorted(path for path in modules.values() if _is_test(path))
    sources = [path for path in files if path.endswith(".py") and not _is_test(path)]
    steps = importers(graph, [module_of(path) for path in files if path.endswith(".py")])
    reached = [sorted(modules[name] for name in step if _is_test(modules[name])) for step in steps]
    others = [test for file in files for pattern, names in OTHERS if fnmatch(file, pattern) for test in names]
    tiers = (
        [path for path in files if path in tests],
        [test for path in sources for test in tests if _is_named_after(test, path)],
        reached[0] if reached else [],
        others,
        [test for folder in _mirrors(sources, tests) for test in tests if _folder(test) == folder],
        [
            test
            for path in files
            if path.endswith("/conftest.py")
            for test in tests
            if test.startswith(f"{_folder(path)}/")
        ],
    )
    near = dict.fromkeys(test for tier in tiers for test in sorted(tier, key=_slowness))
    far = {test for step in reached[1:] for test in step} - near.keys()
    return ChosenTests((*near, *ALWAYS), tuple(sorted(far)))


def _is_test(path: str) -> bool:
    return path.startswith("tests/") and Path(path).name.startswith("test_")


def _is_named_after(test: str, path: str) -> bool:
    """Return whether a test module has the name of a module, alone or with more behind it."""
    name, stem = Path(test).stem, f"test_{Path(path).stem}"
    return name == stem or name.startswith(f"{stem}_")


def _mirrors(paths: Iterable[str], tests: Iterable[str]) -> list[str]:
    """Return the folders of tests that mirror the folders of modules, or the nearest ones above them.

    Tests of a part of ``lmerge.testing`` are in ``tests/testing``, or in ``tests`` under the name of the part.
    """
    folders = {_folder(test) for test in tests}
    found = []
    for path in paths:
        parts = path.removeprefix("lmerge/").removeprefix("lmerge_").split("/")[:-1]
        inner = parts[1:] if parts[:1] == ["testing"] else parts
        mirrors = ["/".join(("tests", *some[: len(some) - up])) for up in range(len(parts)) for some in (parts, inner)]
        found += [folder for folder in mirrors if folder in folders][:1]
    return found


def _folder(path: str) -> str:
    return path.rpartition("/")[0]


def _slowness(test: str) -> tuple[bool, str]:
    return test.startswith(SLOW), test


class Budget:
    """A plugin of pytest: runs no more tests when the seconds are over, and counts those by module."""

    def __init__(self, seconds: float) -> None:
        self.left: Counter[str] = Counter()
        self._until_s = time.monotonic() + seconds

    def pytest_runtest_protocol(self, item: Any) -> bool | None:
        """Take a test away if it is too late for it."""
        if time.monotonic() < self._until_s:
            return None
        self.left[item.nodeid.partition("::")[0]] += 1
        return True


def changed_since(base: str | None) -> list[str]:
    """Return the files that differ from a commit, with new ones; from the last two commits if there is none."""
    for commit in [base] if base is not None else ["HEAD", "HEAD~1"]:
        found = {*_git("diff", "--name-only", commit), *_git("ls-files", "--others", "--exclude-standard")}
        if found:
            return sorted(found)
    return []


def _git(*arguments: str) -> list[str]:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def lints() -> dict[str, list[str]]:
    """Return the commands that run beside the tests, by their names."""
    tools = Path(sys.executable).parent
    return {
        "ruff": [str(tools / "ruff"), "check", "."],
        "format": [str(tools / "ruff"), "format", "--check", "--quiet", "."],
        "imports": [str(tools / "lint-imports")],
        "commit subjects": [sys.executable, "scripts/commit_subjects.py"],
        "types": [str(tools / "mypy")],
    }


def run_tests(near: Iterable[str], seconds: float) -> bool:
    """Run test modules in this order until the seconds are over. Return whether none failed."""
    import pytest

    sys.path.insert(0, str(ROOT))  # as ``python -m pytest`` does
    budget = Budget(seconds)
    code = pytest.main(["-m", "not long", *near], plugins=[budget])
    if budget.left:
        print(f"==> {sum(budget.left.values())} tests not run in {seconds:.0f} s, of {', '.join(budget.left)}")
    return code in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)


def main() -> int:
    """Check the change. Return the exit code: 1 if something failed."""
    parser = argparse.ArgumentParser(description="lint, types and the tests near a change")
    parser.add_argument("--base", help="the commit to compare with (default: the last one with a difference)")
    parser.add_argument("--seconds", type=float, default=TESTS_S, help="run no more tests after so many seconds")
    parser.add_argument("--list", action="store_true", help="only show which tests would run")
    given = parser.parse_args()
    changed = changed_since(given.base or None)
    choice = choose(changed, graph_of(ROOT), modules_in(ROOT))
    print(f"==> {len(changed)} changed files; tests, nearest first, for {given.seconds:.0f} s:")
    print("\n".join(f"    {test}" for test in choice.near))
    print(f"==> left out: {len(choice.far)} test modules that reach the change through others (make test runs them)")
    if any(file.startswith("native/") for file in changed):
        print("==> left out: the native core's own tests (make native-check runs them)")
    if given.list:
        return 0
    beside = {
        name: subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for name, command in lints().items()
    }
    failed = [] if run_tests(choice.near, given.seconds) else ["tests"]
    for name, process in beside.items():
        output, _ = process.communicate()
        if process.returncode:
            failed.append(name)
            print(f"==> {name}\n{output}")
    print(f"==> check: {'FAILED: ' + ', '.join(failed) if failed else 'passed'}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
