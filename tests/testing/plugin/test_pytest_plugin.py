"""The pytest plugin (TESTING 8, U5): files of scenarios and ``@scenarios`` are tests, also under xdist."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest
from judged_world import ENGINE, inputs_by_hand, payload, tree_of

import lmerge.temporal as lt
from lmerge.core.elements import INF, Insert, Stable
from lmerge.testing import scenario
from lmerge.testing.evidence.cases import SavedCase, save_case
from lmerge.testing.intents.json_format import scenario_to_json

TEST = """
    import lmerge.temporal as lt
    from lmerge.testing import scenario, scenarios
    from lmerge.testing.evidence.report import report

    def late():
        s = scenario("late")
        s.stream("flights", {"origin": "string", "delay": "int?"}).where().tumbling().agg(n=lt.count())
        return s

    @scenarios(late(), trees=4)
    def test_late(lmerge_verdict):
        assert not lmerge_verdict.is_bad, report(lmerge_verdict)

    @scenarios(late(), trees=2, seed=3)
    def test_tree(lmerge_tree):
        assert list(lmerge_tree.sources) == ["flights"]
"""


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run pytest in a folder, with the plugin as an installation has it."""
    is_installed = any(one.value == "lmerge.testing.pytest_plugin" for one in entry_points(group="pytest11"))
    plugin = () if is_installed else ("-p", "lmerge.testing.pytest_plugin")
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *plugin, *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=300)


@pytest.mark.parametrize("workers", [(), ("-n", "2")], ids=["alone", "xdist"])
def test_each_tree_of_a_scenario_is_a_test(tmp_path: Path, workers: tuple[str, ...]) -> None:
    """U5 (8): the infrastructure of tests is pytest."""
    (tmp_path / "test_late.py").write_text("\n".join(line[4:] for line in TEST.splitlines()))
    found = run(tmp_path, *workers)
    assert found.returncode == 0, found.stdout + found.stderr
    assert "6 passed" in found.stdout


def test_files_of_scenarios_and_cases_are_tests(tmp_path: Path) -> None:
    """U5 (8): files of scenarios are tests."""
    s = scenario("extended")
    s.stream("left", {"k": "int"}).extend(2)
    s.data(liveliness="tight", disorder="in-order", duration="short", overlap="low", contact="free", keys="few")
    (tmp_path / "extended.scenario.json").write_text(json.dumps(scenario_to_json(s)))
    left = lt.source("left", {"k": "int"})
    inputs = inputs_by_hand([("left", [Insert(payload(left, 1), 0, 3), Stable(INF)])])
    save_case(tmp_path, "case", SavedCase(tree_of(left.extend(1)), inputs, ENGINE.name))
    found = run(tmp_path, "-vv")
    assert found.returncode == 0, found.stdout + found.stderr
    assert "case.scenario.json::case PASSED" in found.stdout
    assert "extended.scenario.json::0 PASSED" in found.stdout


def test_a_difference_fails_with_the_report_and_a_bad_file_is_an_error(tmp_path: Path) -> None:
    left = lt.source("left", {"k": "int"})
    inputs = inputs_by_hand([("left", [Insert(payload(left, INF), 0, 3), Stable(INF)])])
    save_case(tmp_path, "case", SavedCase(tree_of(left.select(e=lt.col.k + 1)), inputs, ENGINE.name))
    found = run(tmp_path)
    assert found.returncode == 1
    assert "The system gave no result: the engine failed" in found.stdout
    (tmp_path / "bad.scenario.json").write_text("{")
    assert "it is no JSON" in run(tmp_path).stdout
