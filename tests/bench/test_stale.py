"""``make bench-stale`` in a small repository: what makes a result older than the code that it measures."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

from bench.stale import MEASURES, NO_FIGURES, ROOT, commit_of, stale

PATHS: dict[str, tuple[str, ...]] = {"speed": ("lib", "other.py")}


def git(repository: Path, *arguments: str) -> str:
    command = ["git", "-C", str(repository), "-c", "user.name=t", "-c", "user.email=t@t", *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def write(repository: Path, name: str, text: str) -> None:
    path = repository / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def commit(repository: Path) -> str:
    git(repository, "add", "-A")
    git(repository, "commit", "-q", "--allow-empty", "-m", "a step")
    return git(repository, "rev-parse", "--short", "HEAD")


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Code, its bench, and a result and a plot of the first commit."""
    git(tmp_path, "init", "-q")
    for name in ("lib/a.py", "other.py", "unrelated.py", "bench/speed.py"):
        write(tmp_path, name, "first\n")
    measure(tmp_path, commit(tmp_path))
    return tmp_path


def measure(repository: Path, at: str) -> None:
    write(repository, "bench/results/speed.json", json.dumps({"machine": {"commit": at}}))
    write(repository, "bench/results/speed.png", f"drawn at {at}")
    commit(repository)


def test_a_result_of_the_present_code_is_not_stale(repository: Path) -> None:
    assert stale(repository, PATHS) == {}


def test_what_a_bench_does_not_measure_makes_nothing_stale(repository: Path) -> None:
    write(repository, "unrelated.py", "second\n")
    write(repository, "library.py", "a neighbour whose name begins alike\n")
    commit(repository)
    assert stale(repository, PATHS) == {}


@pytest.mark.parametrize("name", ["lib/a.py", "lib/deep/new.py", "other.py", "bench/speed.py"])
@pytest.mark.parametrize("is_committed", [True, False])
def test_a_change_of_what_is_measured_or_of_the_bench_makes_it_stale(
    repository: Path, name: str, is_committed: bool
) -> None:
    write(repository, name, "second\n")
    git(repository, "add", "-A")
    if is_committed:
        commit(repository)
    found = stale(repository, PATHS)
    assert list(found) == ["speed.json"]
    assert name in found["speed.json"]


def test_a_file_that_is_gone_makes_it_stale_and_one_that_came_back_does_not(repository: Path) -> None:
    (repository / "other.py").unlink()
    commit(repository)
    assert "other.py" in stale(repository, PATHS)["speed.json"]
    write(repository, "other.py", "first\n")
    commit(repository)
    assert stale(repository, PATHS) == {}


def test_to_measure_again_makes_it_new(repository: Path) -> None:
    write(repository, "lib/a.py", "second\n")
    measure(repository, commit(repository))
    assert stale(repository, PATHS) == {}


@pytest.mark.parametrize("at", ["none", "", "0123456"])
def test_a_result_of_an_unknown_commit_is_stale(repository: Path, at: str) -> None:
    measure(repository, at)
    assert "not in this repository" in stale(repository, PATHS)["speed.json"]


def test_a_plot_is_stale_when_its_result_is_newer_or_gone(repository: Path) -> None:
    write(repository, "bench/results/speed.json", json.dumps({"machine": {"commit": "HEAD"}, "again": True}))
    commit(repository)
    assert list(stale(repository, PATHS)) == ["speed.png"]
    (repository / "bench/results/speed.json").unlink()
    assert list(stale(repository, PATHS)) == ["speed.png"]


def test_a_result_without_declared_paths_is_stale(repository: Path) -> None:
    write(repository, "bench/results/unknown.json", json.dumps({"machine": {"commit": "HEAD"}}))
    assert "bench/stale.py" in stale(repository, PATHS)["unknown.json"]


def test_every_bench_declares_the_paths_that_it_measures_and_all_exist() -> None:
    results = {path.stem for path in (ROOT / "bench" / "results").glob("*.json")} - set(NO_FIGURES)
    assert results <= set(MEASURES)
    for name, paths in MEASURES.items():
        assert (ROOT / "bench" / name).is_dir() or (ROOT / "bench" / f"{name}.py").exists()
        assert [path for path in paths if not (ROOT / path).exists()] == []


ABBREVIATED = 7
"""Git abbreviates a commit to more digits in a clone with more objects; a row quotes at least these."""


def misquoted(text: str, results: Path) -> list[str]:
    """Return the benches whose row of figures does not name the commit of the bench's result."""
    found = []
    for line in text.splitlines():
        for name, commit in re.findall(r"^\|.*\| `python -m bench\.(\w+)`(?: at ([0-9a-f]+))? \|.*\|", line):
            result = results / f"{name}.json"
            if not result.exists() or len(commit) < ABBREVIATED or not commit_of(result).startswith(commit):
                found.append(f"{name}: {commit or 'no commit'}")
    return found


def test_each_quoted_figure_names_the_commit_that_it_was_measured_at() -> None:
    page = (ROOT / "docs" / "benchmarks.md").read_text()
    assert len(re.findall(r"^\|.*`python -m bench\.\w+` at [0-9a-f]+ \|", page, re.MULTILINE)) > 15
    assert misquoted(page, ROOT / "bench" / "results") == []


def test_a_figure_of_another_commit_or_of_none_is_found(tmp_path: Path) -> None:
    write(tmp_path, "speed.json", json.dumps({"machine": {"commit": "abc1234"}}))
    rows = "| how fast | `python -m bench.speed` at abc1234 | 5 |\n| how fast | `python -m bench.speed`{} | 5 |"
    assert misquoted(rows.format(" at abc1234"), tmp_path) == []
    assert misquoted(rows.format(" at abc123"), tmp_path) == ["speed: abc123"]
    assert misquoted(rows.format(" at def5678"), tmp_path) == ["speed: def5678"]
    write(tmp_path, "speed.json", json.dumps({"machine": {"commit": "abc12345"}}))
    assert misquoted(rows.format(" at abc1234"), tmp_path) == []
    assert misquoted(rows.format(""), tmp_path) == ["speed: no commit"]
    assert misquoted("| how fast | `python -m bench.unknown` at abc1234 | 5 |", tmp_path) == ["unknown: abc1234"]
