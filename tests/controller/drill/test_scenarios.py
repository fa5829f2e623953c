"""Scenarios are data: those that come with lmerge are whole, and a wrong file is refused by name and field."""

from __future__ import annotations

from pathlib import Path

import pytest

from lmerge.errors import UsageError
from lmerge_controller.drill.scenario import FaultKind, VictimKind
from lmerge_controller.drill.scenario_file import builtin_scenarios, read_scenarios, scenarios_of_file

GOOD = """
scenarios:
  - name: mine
    summary: One replica is killed.
    needs: {replicas: 2}
    steps:
      - {fault: kill, victim: {replica: winner}, after: 2, hold: 0.5, repeat: 3}
    limits: {pauseMs: 50}
"""


def test_the_built_in_scenarios_break_every_part() -> None:
    found = builtin_scenarios()
    assert {step.fault for scenario in found.values() for step in scenario.steps} == set(FaultKind)
    assert {step.victim.kind for scenario in found.values() for step in scenario.steps} == set(VictimKind)
    assert all(scenario.summary.endswith(".") and scenario.limits.recovery_s for scenario in found.values())


def test_a_file_of_ones_own_is_read() -> None:
    scenario = read_scenarios(GOOD, "mine.yaml")["mine"]
    (step,) = scenario.steps
    assert (step.after_s, step.hold_s, step.repeat) == (2.0, 0.5, 3)
    assert step.text == "kill replica winner for 0.5 s, 3 times"
    assert scenario.abilities == ("kill replica",)
    assert scenario.limits.pause_ms == 50.0
    assert scenario.planned_s() == 7.5
    assert scenario.limit_s() > 7.5 + 3 * 60.0


def test_a_fault_of_each_server_takes_as_long_as_there_are_servers() -> None:
    scenario = builtin_scenarios()["kill-server"]
    assert scenario.planned_s(3) == 3 * scenario.planned_s(1)


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("fault: kill", "fault: explode", "scenario mine, steps.1.fault: 'explode' is not one of"),
        ("replica: winner", "replica: 0", "scenario mine, steps.1"),
        ("replica: winner", "server: winner", "scenario mine, steps.1"),
        ("replica: winner", "api-server: 1", "scenario mine, steps.1"),
        ("hold: 0.5", "hold: -1", "steps.1.hold: -1 is less than the minimum"),
        ("hold: 0.5", "held: 1", "scenario mine, steps.1: Unevaluated properties"),
        ("limits: {pauseMs: 50}", "limits: {pause: 50}", "scenario mine, limits: Additional properties"),
        ("    summary: One replica is killed.\n", "", "scenario mine: 'summary' is a required property"),
        ("name: mine", "name: My drill", "scenario My drill, name"),
        ("replicas: 2", "replicas: 1", "nothing is left when one is broken"),
        ("replica: winner", "replica: 3", "there may be no replica 3"),
        ("fault: kill", "fault: lie", "needs.compared"),
        ("fault: kill", "fault: slow", "'delayMs' is a required property"),
        ("fault: kill", "fault: cut", "'direction' is a required property"),
        ("scenarios:", "scenario:", "mine.yaml, the file"),
        ("scenarios:", "scenarios: [", "mine.yaml is no YAML"),
    ],
)
def test_a_wrong_scenario_is_refused_with_its_place(old: str, new: str, problem: str) -> None:
    assert old in GOOD
    with pytest.raises(UsageError) as refused:
        read_scenarios(GOOD.replace(old, new), "mine.yaml")
    assert problem in str(refused.value)


def test_two_scenarios_of_one_name_are_refused() -> None:
    item = GOOD.partition("scenarios:\n")[2]
    with pytest.raises(UsageError, match="two scenarios are named 'mine'"):
        read_scenarios(GOOD + item, "mine.yaml")


def test_a_disk_is_filled_only_where_there_is_a_store() -> None:
    text = GOOD.replace("fault: kill", "fault: fill-disk").replace("replica: winner", "server: 1")
    with pytest.raises(UsageError, match="nothing is left"):
        read_scenarios(text, "mine.yaml")
    with pytest.raises(UsageError, match=r"needs\.durable"):
        read_scenarios(text.replace("replicas: 2", "servers: 2"), "mine.yaml")


def test_a_file_that_cannot_be_read_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot read the scenarios"):
        scenarios_of_file(tmp_path / "none.yaml")
    (tmp_path / "bytes.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UsageError, match="cannot read the scenarios"):
        scenarios_of_file(tmp_path / "bytes.yaml")
