"""`lmerge info` and `--engine`: which engine runs here, and why."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lmerge import __version__
from lmerge.cli.info import gathered, native_line
from lmerge.core.engines import selection
from lmerge.native_build import NativeBuild, native_build, reason, why_not_native

SESSION = '{"op":"attach","input":"a"}\n{"op":"insert","input":"a","payload":"A","vs":6,"ve":7}\n'
NO_MODULE = "No module named 'lmerge._native'"


def lmerge(*arguments: str, text: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "lmerge", *arguments], input=text, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize(
    ("import_problem", "build", "why"),
    [
        (None, NativeBuild(), None),
        (NO_MODULE, NativeBuild("no cargo on the PATH"), "not built; no cargo on the PATH"),
        (NO_MODULE, None, "not built; lmerge was not installed, only its sources are here"),
        ("undefined symbol", NativeBuild(), "built, but it cannot be loaded; undefined symbol"),
    ],
)
def test_the_reason_is_that_of_the_installation(
    import_problem: str | None, build: NativeBuild | None, why: str | None
) -> None:
    assert why_not_native(import_problem, build) == why


def test_the_note_of_the_installation_is_read_back(tmp_path: Path) -> None:
    record = tmp_path / "record.json"
    assert native_build(record) is None
    record.write_text('{"problem": "no cargo on the PATH"}\n')
    assert native_build(record) == NativeBuild("no cargo on the PATH")
    record.write_text('{"rust": "1.95.0", "crates": {"pyo3": "0.27.2"}}\n')
    assert native_build(record) == NativeBuild(None, "1.95.0", {"pyo3": "0.27.2"})


@pytest.mark.parametrize(
    ("native", "text"),
    [
        ({"problem": "not built; no cargo", "rust": None, "crates": {}, "version": None}, "not built; no cargo"),
        (
            {"problem": None, "rust": "1.95.0", "crates": {"ahash": "0.8.12", "pyo3": "0.27.2"}, "version": "0.1.0"},
            "0.1.0, built with Rust 1.95.0, ahash 0.8.12, pyo3 0.27.2",
        ),
        ({"problem": None, "rust": None, "crates": {}, "version": "0.1.0"}, "0.1.0, built with unknown tools"),
    ],
)
def test_the_native_core_is_one_line(native: dict[str, Any], text: str) -> None:
    assert native_line(native) == text


def test_info_shows_the_engine_of_auto_and_the_state_of_the_native_core() -> None:
    facts = json.loads(lmerge("info", "--json").stdout)
    problem = selection.native_problem()
    assert facts["engine"] == ("python" if problem else "native")
    assert facts["native"]["version"] == (None if problem else __version__)
    lines = lmerge("info").stdout.splitlines()
    assert f"engine       auto means {facts['engine']}" in lines
    assert f"native core: {native_line(facts['native'])}" in lines


def test_a_missing_native_core_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selection, "native_problem", lambda: NO_MODULE)
    assert gathered()["engine"] == "python"
    assert gathered()["native"]["problem"] in reason("auto")
    assert reason("python") == "asked for"


@pytest.mark.parametrize("engine", ["python", "native"])
def test_replay_runs_on_the_chosen_engine_and_reports_it(engine: str, demand: Callable[[str], None]) -> None:
    demand(engine)
    result = lmerge("replay", "-", "--engine", engine, "--stats", text=SESSION)
    assert result.returncode == 0, result.stderr
    assert result.stdout == '{"op":"insert","payload":"A","vs":6,"ve":7}\n'
    assert json.loads(result.stderr)["engine"] == engine


@pytest.mark.parametrize("command", [("replay", "-"), ("serve", "--port", "0", "--http-port", "-1")])
def test_an_engine_that_does_not_exist_is_refused(command: tuple[str, ...]) -> None:
    result = lmerge(*command, "--engine", "fast")
    assert (result.returncode, result.stdout) == (2, "")
    assert "fast" in result.stderr
