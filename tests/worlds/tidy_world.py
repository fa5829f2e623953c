"""The files of the project for the tidy tests, and what a check finds in them.

A check is a function of a text that returns what it objects to. Each has a bad example beside it.
"""

from __future__ import annotations

import ast
import subprocess
from collections.abc import Callable, Iterable
from fnmatch import fnmatch
from functools import cache
from pathlib import Path

from import_graph import FOLDERS

ROOT = Path(__file__).resolve().parents[2]


@cache
def text_of(name: str) -> str:
    """Return the text of a file, a path from the root."""
    return (ROOT / name).read_text()


@cache
def parsed(text: str) -> ast.Module:
    """Return the syntax tree of a module. Several checks share it, so none changes it."""
    return ast.parse(text)


def found_in(names: Iterable[str], check: Callable[[str], list[str]]) -> dict[str, list[str]]:
    """Return what a check finds, by file."""
    return {name: found for name in names if (found := check(text_of(name)))}


def _kept() -> list[str]:
    """Return every file that git keeps or would keep."""
    listed = subprocess.run(
        ["git", "-c", "safe.directory=*", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    return sorted({name for name in listed.split("\0") if name and (ROOT / name).is_file()})


KEPT = _kept()
DOCUMENTS = [
    name
    for name in KEPT
    if name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "tests/README.md") or fnmatch(name, "docs/*.md")
]
SOURCES = [
    name for name in KEPT if name.endswith(".py") and name.split("/")[0] in FOLDERS and "/generated/" not in name
]
LIBRARY = [name for name in SOURCES if name.startswith("lmerge/")]
TESTS = [name for name in SOURCES if name.startswith("tests/")]
