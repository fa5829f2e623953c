"""``lmerge test``: exit codes, files, reports, and what is wrong."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from cli_world import run
from typer.testing import CliRunner

import lmerge.temporal as lt
from lmerge.cli.main import app
from lmerge.temporal.operators import lifetimes
from lmerge.testing.intents.fluent import scenario
from lmerge.testing.intents.json_format import scenario_to_json

RUN = CliRunner()


def extend_file(folder: Path) -> Path:
    s = scenario("extended")
    s.stream("left", {"k": "int"}).extend(2).tumbling(5).agg(n=lt.count())
    s.data(speculation=False, liveliness="tight", disorder="highly")
    path = folder / "extended.scenario.json"
    path.write_text(json.dumps(scenario_to_json(s)))
    return path


def test_a_scenario_without_a_difference_is_exit_code_0(tmp_path: Path) -> None:
    found = RUN.invoke(app, ["test", str(extend_file(tmp_path)), "--trees", "5"])
    assert found.exit_code == 0, found.output
    assert "extended: 5 trees in " in found.output
    assert "5 trees: 5 equal" in found.output


def test_all_is_open_without_a_file(tmp_path: Path) -> None:
    found = RUN.invoke(app, ["test", "--trees", "3", "--strength", "1", "--seed", "4", "--report", str(tmp_path / "r")])
    assert found.exit_code == 0, found.output
    assert {path.name for path in (tmp_path / "r").iterdir()} == {"junit.xml", "verdicts.json", "index.html"}
    assert json.loads((tmp_path / "r" / "verdicts.json").read_text())["seed"] == 4


def test_a_difference_is_exit_code_1_and_saved_as_a_case_that_repeats_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """U4 (8): the command reports, and saves."""
    monkeypatch.setattr(lifetimes.Extend, "altered", lambda self, vs, ve: (vs, lifetimes.plus(ve, self.d + 1)))
    report = tmp_path / "report"
    found = RUN.invoke(app, ["test", str(extend_file(tmp_path)), "--trees", "2", "--report", str(report)])
    assert found.exit_code == 1, found.output
    assert "Operator 'lifetime' is blamed" in found.output
    page = (report / "index.html").read_text()
    assert page.count("extend 2\n└─ input1") == 2, "the page has the smaller cases"
    native, python = sorted(report.glob("*.scenario.json"))
    again = RUN.invoke(app, ["test", str(python)])
    assert again.exit_code == 1
    assert f"{python}: different (it was: lifetime: " in again.output.replace("\n", "")
    # The native implementation is as it was: the relation finds that Python differs, and its case repeats that.
    again = RUN.invoke(app, ["test", str(native)])
    assert again.exit_code == 1
    assert f"{native}: different (it was: other-implementation: batch 1: " in again.output.replace("\n", "")
    assert "extend 2\n└─ input1" in again.output
    monkeypatch.undo()
    repaired = RUN.invoke(app, ["test", str(report)])
    assert repaired.exit_code == 0
    assert all(f"{one}: equal" in repaired.output.replace("\n", "") for one in (native, python))


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["none.scenario.json"], "cannot read the scenario 'none.scenario.json'"),
        (["--budget", "0s"], "in no time nothing is tested"),
        (["--budget", "soon"], "budget"),
        (["--trees", "0"], "at least one tree is tested"),
        (["--strength", "5"], "less than or equal to 3"),
        (["--system", "esper"], "there is no system 'esper'; there are engine"),
    ],
)
def test_options_that_cannot_be_are_exit_code_2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], problem: str
) -> None:
    monkeypatch.chdir(tmp_path)
    found = run("test", *arguments)
    assert found.returncode == 2, found.stdout
    assert problem in found.stderr


def test_a_folder_without_scenarios_is_exit_code_2(tmp_path: Path) -> None:
    found = run("test", str(tmp_path))
    assert found.returncode == 2
    assert "there is no file *.scenario.json in" in found.stderr


def test_a_missing_extra_is_named() -> None:
    code = "import sys; sys.modules['duckdb'] = None; from lmerge.cli.main import main; main()"
    found = subprocess.run([sys.executable, "-c", code, "test", "--trees", "1"], capture_output=True, text=True)
    assert found.returncode == 2
    assert found.stderr.startswith("lmerge: lmerge test needs the extra 'testing': pip install 'lmerge[testing]'")
