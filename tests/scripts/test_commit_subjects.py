"""Commit subjects: which are right, what is reported of others, and where there is nothing to check."""

from __future__ import annotations

import subprocess
from pathlib import Path

import commit_subjects
import pytest
from commit_subjects import SUBJECT_MAX, main, problem, subjects


@pytest.mark.parametrize(
    "subject",
    [
        "core: keep right events",
        "core, wire: choose an engine's half in a module above both",
        "core/r3: keep right events",
        "tests: mirror the sub-packages of the library",
        "a: " + "b " * 34 + "c",
    ],
)
def test_a_right_subject_passes(subject: str) -> None:
    assert problem(subject) is None


@pytest.mark.parametrize(
    ("subject", "why"),
    [
        ("Keep right events", "no area"),
        ("Core: keep right events", "no area"),
        ("core:keep right events", "no area"),
        ("core and wire: keep right events", "no area"),
        ("core: Keep right events", "no verb"),
        ("core: fix", "no verb"),
        ("core: ", "no verb"),
        ("core: keep right events.", "a full stop"),
        ("core: keep " + "x" * SUBJECT_MAX, "characters, above the 72"),
    ],
)
def test_a_wrong_subject_is_found(subject: str, why: str) -> None:
    assert why in (problem(subject) or "")


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a repository with a right commit, a wrong one and a merge."""
    monkeypatch.setattr(commit_subjects, "ROOT", tmp_path)
    run = ["git", "-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "init.defaultBranch=main"]
    for arguments in (
        ["init", "-q"],
        ["commit", "-q", "--allow-empty", "-m", "core: begin here"],
        ["checkout", "-q", "-b", "side"],
        ["commit", "-q", "--allow-empty", "-m", "Say nothing of the area"],
        ["checkout", "-q", "main"],
        ["merge", "-q", "--no-ff", "-m", "Merge the side", "side"],
    ):
        subprocess.run([*run, *arguments], cwd=tmp_path, check=True, capture_output=True)
    return tmp_path


def test_commits_are_checked_and_merges_are_not(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert {subject for _, subject in subjects("HEAD", repository) or []} == {
        "Say nothing of the area",
        "core: begin here",
    }
    assert main(["HEAD"]) == 1
    printed = capsys.readouterr().out
    assert "'Say nothing of the area': no area" in printed
    assert printed.count("\n") == 1


def test_without_the_history_nothing_is_checked(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert subjects(f"{commit_subjects.BEGIN}..HEAD", repository) is None
    assert main([]) == 0
    assert "skipped" in capsys.readouterr().out


def test_the_subjects_of_this_repository_are_right() -> None:
    found = subjects(f"{commit_subjects.BEGIN}..HEAD", commit_subjects.ROOT) or []
    assert [subject for _, subject in found if problem(subject) is not None] == []
