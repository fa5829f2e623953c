"""The README is one page whose quick start runs and whose figures are those of the benchmarks; sessions in docs run."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
from cli_world import LMERGE, Served

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()
README_BYTES_MAX = 6_000  # one page
SESSIONS = ("docs/session-format.md", "docs/policies.md")


class Block(NamedTuple):
    """A fenced block. ``title``: of the file that it shows, empty if it shows none."""

    language: str
    title: str
    text: str


def blocks(page: str) -> list[Block]:
    found = re.findall(r'^```(\w+)(?: title="([^"]+)")?\n(.*?)^```$', page, re.MULTILINE | re.DOTALL)
    return [Block(*block) for block in found]


def commands(text: str) -> list[tuple[str, str]]:
    """The commands of a console block, each with what it prints."""
    parts = re.split(r"^\$ (.*)\n", text, flags=re.MULTILINE)[1:]
    return list(zip(parts[::2], parts[1::2], strict=True))


def shown(expected: str, printed: str) -> bool:
    """Whether this is printed; ``...`` stands for any text of one line."""
    pattern = ".*".join(re.escape(part) for part in expected.split("..."))
    return re.fullmatch(pattern, printed) is not None


# The README.


def test_the_readme_is_one_page() -> None:
    assert len(README.encode()) <= README_BYTES_MAX


def test_the_quick_start_runs(tmp_path: Path) -> None:
    shell, program = (block.text for block in blocks(README) if block.language in ("sh", "python"))
    assert "lmerge serve" in shell
    assert program.count("\n") <= 22
    server = Served(tmp_path)
    try:
        here = re.sub(r"127\.0\.0\.1:\d+", server.target, program)
        assert here != program
        done = subprocess.run([sys.executable, "-c", here], capture_output=True, text=True, check=False, timeout=60)
    finally:
        server.stop()
    assert (done.stdout.splitlines(), done.stderr, done.returncode) == (["DL 461 6 7", "UA 1545 5 9"], "", 0)


def test_each_number_of_the_readme_stands_in_the_benchmarks() -> None:
    points = README.partition("## Why, and when not\n")[2].partition("\n## ")[0]
    numbers = re.findall(r"\*\*(\d[^*]*)\*\*", points)
    assert len(numbers) >= 6
    page = (ROOT / "docs" / "benchmarks.md").read_text()
    assert [number for number in numbers if not re.search(rf"(?<![\d.,]){re.escape(number)}(?![\d.,]*\d)", page)] == []


# Recorded sessions.


@pytest.mark.skipif(os.name != "posix", reason="the commands are those of a shell")
@pytest.mark.parametrize("page", SESSIONS)
def test_every_recorded_session_of_a_page_runs(page: str, tmp_path: Path) -> None:
    ran = 0
    for block in blocks((ROOT / page).read_text()):
        if block.title:
            (tmp_path / block.title).write_text(block.text)
            continue
        assert block.language == "console"
        for command, expected in commands(block.text):
            here = re.sub(r"\blmerge\b", " ".join(LMERGE), command)
            done = subprocess.run(
                ["bash", "-euo", "pipefail", "-c", here],
                cwd=tmp_path,
                capture_output=True,
                text=True,
                check=False,
                env=os.environ | {"PYTHONPATH": str(ROOT)},
                timeout=60,
            )
            assert shown(expected, done.stdout + done.stderr), f"{command}\n{done.stdout}{done.stderr}"
            ran += 1
    assert ran >= 3


def test_a_line_that_is_not_printed_is_found() -> None:
    assert commands("$ one | two\na\nb\n$ three\n") == [("one | two", "a\nb\n"), ("three", "")]
    assert shown("a ... (x)\nb\n", "a 1 (x)\nb\n")
    assert not shown("a ... (x)\nb\n", "a 1 (x)\nc\n")
    assert not shown("a ...\n", "a\nb\n")
