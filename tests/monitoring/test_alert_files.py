"""The files of the alerts are as generated, promtool accepts and proves them, and each alert has its runbook."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from metric_names import exported_names, names_in

from monitoring.alerting.alert import Alert, Pace, duration
from monitoring.alerting.catalogue import ALERTS
from monitoring.alerting.promtool_file import promtool_file
from monitoring.alerting.rules_file import rules_file
from monitoring.alerting.runbooks import SECTIONS, runbook_path
from monitoring.artifacts import DASHBOARDS, ROOT, files

EVERY_ALERT = pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert.name)
RULES = "rules.yaml"


def proved(promtool: str, alerts: tuple[Alert, ...], folder: Path) -> subprocess.CompletedProcess[str]:
    """Run promtool on the rules of ``alerts`` and their proofs."""
    (folder / RULES).write_text(rules_file(alerts))
    (folder / "test.yaml").write_text(promtool_file(alerts, RULES))
    return subprocess.run(
        [promtool, "test", "rules", "test.yaml"], cwd=folder, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("name", sorted(files()))
def test_a_generated_file_is_as_it_would_be_written(name: str) -> None:
    assert (ROOT / name).read_text() == files()[name], "make monitoring writes it"


@pytest.mark.parametrize("folder", ["charts/lmerge/files/rules", "charts/lmerge/files/dashboards", DASHBOARDS])
def test_a_folder_has_all_that_is_generated_and_nothing_else(folder: str) -> None:
    kept = {str(path.relative_to(ROOT)) for path in (ROOT / folder).iterdir()}
    assert kept == {name for name in files() if name.startswith(f"{folder}/")}


def test_promtool_accepts_the_rules(program: Callable[[str], str]) -> None:
    path = ROOT / "monitoring/rules/lmerge.rules.yaml"
    done = subprocess.run([program("promtool"), "check", "rules", path], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert f"{len(ALERTS)} rules found" in done.stdout


@EVERY_ALERT
def test_it_fires_on_one_example_and_not_on_the_other(
    alert: Alert, program: Callable[[str], str], tmp_path: Path
) -> None:
    done = proved(program("promtool"), (alert,), tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


def test_promtool_finds_an_alert_whose_examples_are_exchanged(program: Callable[[str], str], tmp_path: Path) -> None:
    alert = ALERTS[0]
    wrong = alert._replace(fires=alert.stays_silent._replace(labels=alert.fires.labels))
    assert proved(program("promtool"), (wrong,), tmp_path).returncode == 1


@EVERY_ALERT
def test_its_runbook_answers_the_four_questions(alert: Alert) -> None:
    text = (ROOT / runbook_path(alert)).read_text()
    parts = re.split(r"^## (.+)$", text, flags=re.MULTILINE)
    assert tuple(parts[1::2]) == SECTIONS
    assert all(len(part.strip()) > 60 for part in parts[2::2])
    assert parts[0].startswith(f"# {alert.name}\n")


@EVERY_ALERT
def test_a_real_fault_provokes_it_and_its_runbook_names_that_test(alert: Alert) -> None:
    faults = re.split(r"^async def ", (ROOT / "tests/monitoring/test_faults.py").read_text(), flags=re.MULTILINE)
    provoking = [test.split("(")[0] for test in faults if f'fault(watched, "{alert.name}"' in test]
    assert provoking
    assert any(f"`{name}`" in (ROOT / runbook_path(alert)).read_text() for name in provoking)


def test_every_runbook_belongs_to_an_alert() -> None:
    kept = {str(path.relative_to(ROOT)) for path in (ROOT / "docs/runbooks").glob("*.md")}
    assert kept == {runbook_path(alert) for alert in ALERTS}


def test_names_are_unique_and_texts_are_sentences() -> None:
    assert len({alert.name for alert in ALERTS}) == len(ALERTS)
    assert [a.name for a in ALERTS if not (a.summary.endswith(".") and a.description.endswith("."))] == []
    assert [a.name for a in ALERTS if bool(re.search("{(?:window|seconds)}", a.condition)) != bool(a.window_s)] == []


def test_one_example_fires_and_the_other_does_not() -> None:
    assert [alert.name for alert in ALERTS if alert.fires.labels is None or alert.stays_silent.labels is not None] == []


def test_conditions_use_metrics_that_a_server_exports() -> None:
    exported = exported_names()
    used = {name: names_in(Pace().condition(alert)) for alert in ALERTS for name in [alert.name]}
    assert {name: needs - exported for name, needs in used.items() if needs - exported} == {}


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0s"), (0.25, "250ms"), (1.5, "1500ms"), (15, "15s"), (90, "90s"), (600, "10m"), (86_400, "1d")],
)
def test_a_duration_is_in_its_largest_exact_unit(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_a_fast_pace_shortens_windows_and_waits_and_changes_nothing_else() -> None:
    alert = next(a for a in ALERTS if a.name == "LmergeStreamStalled")
    fast = Pace(factor=1 / 60, evaluation_s=0.25, window_s_min=2.0)
    assert fast.held(alert) == "1s"
    assert fast.condition(alert) == Pace().condition(alert).replace("> 300", "> 5")
    gap = next(a for a in ALERTS if a.name == "LmergeGap")
    assert fast.condition(gap) == Pace().condition(gap).replace("[10m]", "[10s]")
    assert fast.window_s(alert._replace(window_s=30)) == 2.0
